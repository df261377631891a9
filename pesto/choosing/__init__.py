"""Choices between plans: comparisons of clusters and strategies, what-if sweeps."""
