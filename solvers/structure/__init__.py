"""Structure of a problem that needs no solver: units, symmetry, heads and tails, and a horizon."""
