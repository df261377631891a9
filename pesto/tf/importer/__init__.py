"""Converts a captured training step into the array `Graph`: kinds of devices, work and bytes of every op."""
