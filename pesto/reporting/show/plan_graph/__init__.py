"""A plan as a graph of boxes (ops, scopes, runs of ops on one device): laid out, drawn, written for other programs."""
