"""A compiled binary min-heap of (key, item) pairs in two arrays that the caller allocates; ties by least item."""

import numba

from solvers.arrays import Ints


@numba.njit(cache=True, forceinline=True)
def push(key: Ints, item: Ints, size: int, entry: tuple[int, int]) -> int:
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


@numba.njit(cache=True, forceinline=True)
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
