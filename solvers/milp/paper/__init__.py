"""Pesto's own integer program (Middleware '21, section 3.2.2)."""
