"""Speed, as ratios of cases that were measured interleaved in one process."""
