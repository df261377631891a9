"""Compiled queues in arrays that the caller allocates: a min-heap of (key, item) pairs, and sets of small integers."""

from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from solvers.arrays import Ints
from solvers.compiled.kernels import inlined, spliced

MOST = 2**24
"""Exclusive upper limit of the integers."""


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
    """Return empty sets of integers below n; raise ValueError where n is beyond MOST."""
    if n > MOST:
        raise ValueError(f"at most {MOST} members, not {n}")
    words = [-(-max(n, 1) // 64**level) for level in (1, 2, 3)]
    low, mid, high = (np.zeros((sets, size), dtype=np.int64) for size in words)
    return Bitsets(low, mid, high, np.zeros(sets, dtype=np.int64))


@inlined
def insert(b: Bitsets, k: int, item: int) -> None:
    """Put an integer into set k."""
    b.low[k, item >> 6] |= 1 << (item & 63)
    b.mid[k, item >> 12] |= 1 << ((item >> 6) & 63)
    b.high[k, item >> 18] |= 1 << ((item >> 12) & 63)
    b.top[k] |= 1 << (item >> 18)


@spliced
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
    """Return the number of low zero bits of a 64-bit word that is not 0."""

    def lowered(context: Any, builder: Any, _: Any, args: Any) -> Any:
        return builder.cttz(args[0], context.get_constant(types.boolean, 1))

    return types.int64(word), lowered


@inlined
def push(key: Ints, item: Ints, size: int, entry: tuple[int | np.int64, int]) -> int:
    """Add `entry` = (key, item) to the heap in the first `size` places; return the new size. O(log size)."""
    k, i = entry
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if key[up] < k or (key[up] == k and item[up] <= i):
            break
        key[at] = key[up]
        item[at] = item[up]
        at = up
    key[at] = k
    item[at] = i
    return size + 1


@inlined
def drop(key: Ints, item: Ints, size: int) -> int:
    """Remove the least entry, which is at place 0, from a heap that is not empty; return the new size. O(log size)."""
    size -= 1
    k, i = key[size], item[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (key[right] < key[child] or (key[right] == key[child] and item[right] < item[child])):
            child = right
        if k < key[child] or (k == key[child] and i <= item[child]):
            break
        key[at] = key[child]
        item[at] = item[child]
        at = child
    key[at] = k
    item[at] = i
    return size
