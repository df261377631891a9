"""Training steps of several micro-batches: what is done for each and what once, and the graph of them all."""
