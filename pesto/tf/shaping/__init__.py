"""Converts a captured training step into typed ops for tensor cuts: shapes, attributes and small constants."""
