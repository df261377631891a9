"""Tensors cut instead of ops placed: how each op can be divided among workers, and which cuts send least (Tofu)."""
