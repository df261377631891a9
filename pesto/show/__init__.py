"""Pages and pictures of solves, comparisons and sweeps, and what every verb's page is laid out with: lines, tables, the live line."""
