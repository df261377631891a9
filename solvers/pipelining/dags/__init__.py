"""Layers of a directed acyclic graph spread over devices, so that the busiest device has least to do."""
