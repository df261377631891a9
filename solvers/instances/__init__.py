"""Seeded problems: random ones with every feature, and families with structure or a known optimum."""
