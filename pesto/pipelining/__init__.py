"""Training steps and chains in stages: folded, cut for the memory, the named schedules laid out, and what is proven."""
