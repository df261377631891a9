"""Jobs: what is asked of the placement service, how it is done in a process of its own, and what is told meanwhile."""
