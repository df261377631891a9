"""The verbs for problems, solvers, and studies of both."""
