"""Studies: many runs by one design, planned, run, interrupted and gone on with."""
