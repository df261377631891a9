"""Plans of a step: coarsening, baselines, search and exact solvers."""
