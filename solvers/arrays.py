"""Array types that the whole project passes around, read-only copies, inverse permutations and offsets."""

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def ints(values: npt.ArrayLike) -> Ints:
    """Return a read-only, contiguous int64 copy of `values`; raise ValueError when a value is not an integer."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iub":
        raise ValueError(f"integers expected, found {array.dtype}")
    return _frozen(np.array(array, dtype=np.int64, order="C"))


def floats(values: npt.ArrayLike) -> Floats:
    """Return a read-only, contiguous float64 copy of `values`."""
    return _frozen(np.array(values, dtype=np.float64, order="C"))


def bools(values: npt.ArrayLike) -> Bools:
    """Return a read-only, contiguous bool copy of `values`."""
    return _frozen(np.array(values, dtype=np.bool_, order="C"))


def rank_of(order: Ints) -> Ints:
    """Return [n] the place of each item in `order`, which holds 0 to n - 1 once each: the inverse permutation."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank


def offsets(lengths: Ints) -> Ints:
    """Return [n + 1] where each of n consecutive runs of these lengths begins, and where the last ends."""
    begins = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=begins[1:])
    return begins


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.setflags(write=False)
    return array
