"""Sizes and batches of the small models of other packages."""

from typing import Any

import numpy as np

BATCH, LENGTH, WORDS = 8, 16, 200
rng = np.random.default_rng(0)
tokens = rng.integers(1, WORDS, (BATCH, LENGTH)).astype("int32")


def classes(count: int, *shape: int) -> Any:
    """A whole number below `count` for each example, or an array of that shape."""
    return rng.integers(0, count, (BATCH, *shape)).astype("int32")


def reals(*shape: int) -> Any:
    """An array of numbers from 0 to 1 for each example."""
    return rng.random((BATCH, *shape), dtype="float32")
