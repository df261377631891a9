"""Work of reproduction cells: solves, methods, sweeps, ParDNN's and Tofu's steps, toys and profiles."""
