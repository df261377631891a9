"""Quick schedulers and the placement methods of the literature, in one table."""
