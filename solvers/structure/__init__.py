"""What a problem's shape says before any solver runs: units, symmetry, heads and tails, a horizon."""
