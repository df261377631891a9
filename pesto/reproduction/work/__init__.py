"""What cells of a reproduction compute: solves, methods, sweeps, ParDNN's steps, toys and profiles."""
