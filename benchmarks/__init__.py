"""Speed: every case timed in turns with the others by one ruler, ratios as the result."""
