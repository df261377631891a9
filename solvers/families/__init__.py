"""Families of chains to be pipelined: the paper's examples with their optima, random ones, and ones like networks."""
