"""The array types that the whole project passes around, the one way to freeze them, and what all need of them."""

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def ints(values: npt.ArrayLike) -> Ints:
    """A read-only, contiguous int64 copy of `values`; ValueError when a value is not an integer."""
    found = np.asarray(values)
    if found.size and found.dtype.kind not in "iub":
        raise ValueError(f"integers expected, found {found.dtype}")
    return _frozen(np.array(found, dtype=np.int64, order="C"))


def floats(values: npt.ArrayLike) -> Floats:
    """A read-only, contiguous float64 copy of `values`."""
    return _frozen(np.array(values, dtype=np.float64, order="C"))


def bools(values: npt.ArrayLike) -> Bools:
    """A read-only, contiguous bool copy of `values`."""
    return _frozen(np.array(values, dtype=np.bool_, order="C"))


def rank_of(order: Ints) -> Ints:
    """[n] the place of each item in `order`, which holds 0 to n - 1 once each: the inverse permutation."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank


def offsets(lengths: Ints) -> Ints:
    """[n + 1] where each of n runs of these lengths begins when they follow each other, and where the last ends."""
    found = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=found[1:])
    return found


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.setflags(write=False)
    return array
