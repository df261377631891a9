"""Pesto's own integer program once more, in PuLP, as the paper prints it: a function a numbered constraint."""
