"""Typed graphs and splits of them on disk, and verification of a split from scratch."""
