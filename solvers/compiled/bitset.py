"""Compiled sets of small integers, many at once, whose least member is found in a few steps that no branch depends on.

A set is a tree of 64-bit words: a bit of the lowest level for each integer, a bit of the next for each word of the one
below that is not 0, up to a single word. A heap of hundreds of entries costs ten branches that no processor predicts;
this costs four reads. The levels are written out, not looped over: numba then counts no references in between.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from solvers.arrays import Ints

MOST = 2**24
"""Integers are below this."""


class Bitsets(NamedTuple):
    """Some sets of integers."""

    low: Ints
    """[sets, words] a bit an integer."""
    mid: Ints
    """[sets, words / 64] a bit a word of `low`."""
    high: Ints
    """[sets, words / 4096] a bit a word of `mid`."""
    top: Ints
    """[sets] a bit a word of `high`; 0: the set is empty."""


def bitsets(sets: int, n: int) -> Bitsets:
    """Empty sets of integers below n. ValueError where n is beyond MOST."""
    if n > MOST:
        raise ValueError(f"at most {MOST} members, not {n}")
    words = [-(-max(n, 1) // 64**level) for level in (1, 2, 3)]
    low, mid, high = (np.zeros((sets, size), dtype=np.int64) for size in words)
    return Bitsets(low, mid, high, np.zeros(sets, dtype=np.int64))


@numba.njit(cache=True, nogil=True, forceinline=True)
def insert(b: Bitsets, k: int, item: int) -> None:
    """Put an integer into set k."""
    b.low[k, item >> 6] |= 1 << (item & 63)
    b.mid[k, item >> 12] |= 1 << ((item >> 6) & 63)
    b.high[k, item >> 18] |= 1 << ((item >> 12) & 63)
    b.top[k] |= 1 << (item >> 18)


@numba.njit(cache=True, nogil=True, forceinline=True)
def remove_least(b: Bitsets, k: int) -> int:
    """Take the least integer out of set k, which is not empty."""
    high = trailing_zeros(b.top[k])
    mid = (high << 6) + trailing_zeros(b.high[k, high])
    low = (mid << 6) + trailing_zeros(b.mid[k, mid])
    item = (low << 6) + trailing_zeros(b.low[k, low])
    # The lowest bit of a word goes where the word below became 0.
    b.low[k, low] &= b.low[k, low] - 1
    b.mid[k, mid] &= b.mid[k, mid] - (b.low[k, low] == 0)
    b.high[k, high] &= b.high[k, high] - (b.mid[k, mid] == 0)
    b.top[k] &= b.top[k] - (b.high[k, high] == 0)
    return item


@intrinsic
def trailing_zeros(_: Any, word: Any) -> Any:
    """How many low bits of a 64-bit word, which is not 0, are 0."""

    def lowered(context: Any, builder: Any, _: Any, args: Any) -> Any:
        return builder.cttz(args[0], context.get_constant(types.boolean, 1))

    return types.int64(word), lowered
