"""One thin adapter a MILP vendor."""
