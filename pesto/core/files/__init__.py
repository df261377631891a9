"""Bytes, JSON, TOML, graphs and problems to and from disk: bounded, typed, whole or not at all."""
