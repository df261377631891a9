"""Pairs that stand the other way round in two orders of the same things."""

import numpy as np

from solvers.arrays import Ints

_FEW = 64


def inversions(order: Ints) -> int:
    """Pairs k < j with order[k] > order[j]. O(n log² n)."""
    if len(order) <= _FEW:
        return int(np.triu(order[:, None] > order[None, :]).sum())
    half = len(order) // 2
    first, second = order[:half], order[half:]
    across = half - np.searchsorted(np.sort(first), second, side="right")
    return inversions(first) + inversions(second) + int(across.sum())
