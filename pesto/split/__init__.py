"""Tensors cut instead of ops placed: how each op of a step can be divided among workers, and which cuts move least (Tofu)."""
