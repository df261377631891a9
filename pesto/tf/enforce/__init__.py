"""Enforcement of a plan on stock TensorFlow, checked against the graphs that it executes."""
