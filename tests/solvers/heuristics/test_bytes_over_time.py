"""Bytes over time as trees hold the same as arrays do."""

import numpy as np

from solvers.heuristics.overflow.move_out import add, highest, levels_of, peak_at


def test_trees_equal_arrays() -> None:
    """Random additions to intervals of two arrays of every length: the same maxima, everywhere, and the same place."""
    rng = np.random.default_rng(2)
    for length in (1, 2, 3, 5, 8, 13):
        plain = rng.integers(0, 50, (2, length))
        trees = levels_of(plain)
        for _ in range(60):
            row, low = int(rng.integers(2)), int(rng.integers(length))
            high, change = int(rng.integers(low, length + 1)), int(rng.integers(0, 9))
            add(trees, row, (low, high), change)
            plain[row, low:high] += change
            low, high = sorted(rng.integers(0, length + 1, 2).tolist())
            assert highest(trees, row, (low, high)) == plain[row, low:high].max(initial=-1)
            assert peak_at(trees, row) == plain[row].argmax()
