"""Mutants that no test could tell from the original, marked by hand, and why."""

EQUIVALENT: dict[str, str] = {}
"""Reason by `Mutant.key`."""
