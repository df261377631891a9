"""The tight integer program: few disjunctions, each with a small M."""
