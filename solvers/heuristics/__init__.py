"""Quick schedulers and the placement methods of the literature, one file a method, in one table."""
