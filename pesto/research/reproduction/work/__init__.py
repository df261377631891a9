"""What cells of a reproduction compute: solves, methods, sweeps, ParDNN's and Tofu's steps, toys and profiles."""
