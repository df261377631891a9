"""Whole ops placed, tensors cut, or both: a step's plans of every kind on one cluster, timed alike."""
