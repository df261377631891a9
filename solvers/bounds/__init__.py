"""Lower bounds that need no solver: quick ones, strong ones with evidence, and the check of that evidence."""
