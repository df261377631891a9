"""Studies: a grid of instances, solvers and settings, run cell by cell into one file and reported from it."""
