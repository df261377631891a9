"""Solver comparison studies and reproductions of the papers' tables."""
