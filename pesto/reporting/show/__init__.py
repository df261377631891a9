"""Pages and pictures of solves, comparisons and sweeps, and what every page is laid out with: lines, tables."""
