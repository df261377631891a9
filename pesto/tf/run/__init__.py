"""Planned steps run on stock TensorFlow, profiled, and held against the same step without a plan."""
