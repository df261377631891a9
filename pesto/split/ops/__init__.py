"""Descriptions of op types: one row or one description for each type, by classes."""
