"""Scheduling of tasks with payloads on devices joined by links: exact and quick solvers, bounds, and a checker."""
