"""Placements repaired until they fit the memory: ParDNN's second step (Qararyah et al. 2020)."""
