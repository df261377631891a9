"""Pipelines: page, diagram and curve."""
