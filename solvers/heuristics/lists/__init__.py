"""List schedulers of the literature, and what they share."""
