"""Bytes over time at each location: adding to an interval and its maximum, in O(log) (segment trees)."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.kernels import kernel, subkernel


class ByteTrees(NamedTuple):
    """One tree a location over the positions 0 .. width - 1; width is a power of two. Nothing is pushed down."""

    top: Ints
    """[l, 2 width] maximum below each node, what was added to the node itself included, to its ancestors not."""
    added: Ints
    """[l, width] what was added to all that is below each inner node."""


def levels_of(values: Ints) -> ByteTrees:
    """The trees of `values`, [l, k], padded with what no maximum can be: -1. O(l k)."""
    locations, positions = values.shape
    width = 1 << max(positions - 1, 0).bit_length()
    top = np.full((locations, 2 * width), -1, dtype=np.int64)
    top[:, width : width + positions] = values
    below = width
    while below > 1:
        half = below >> 1
        top[:, half:below] = np.maximum(top[:, below : 2 * below : 2], top[:, below + 1 : 2 * below : 2])
        below = half
    return ByteTrees(top, np.zeros((locations, width), dtype=np.int64))


@kernel
def add(t: ByteTrees, location: int, interval: tuple[int, int], change: int) -> None:
    """Add to the positions low <= k < high of `interval`."""
    low, high = interval
    if low >= high or change == 0:
        return
    top, added, width = t.top[location], t.added[location], t.added.shape[1]
    a, b = low + width, high + width
    while a < b:
        if a & 1:
            top[a] += change
            if a < width:
                added[a] += change
            a += 1
        if b & 1:
            b -= 1
            top[b] += change
            if b < width:
                added[b] += change
        a >>= 1
        b >>= 1
    _rebuild(top, added, (low + width) >> 1)
    _rebuild(top, added, (high - 1 + width) >> 1)


@subkernel
def _rebuild(top: Ints, added: Ints, node: int) -> None:
    while node >= 1:
        top[node] = max(top[2 * node], top[2 * node + 1]) + added[node]
        node >>= 1


@kernel
def highest(t: ByteTrees, location: int, interval: tuple[int, int]) -> int:
    """The maximum over low <= k < high of `interval`; -1 when that is empty."""
    low, high = interval
    if low >= high:
        return -1
    top, added, width = t.top[location], t.added[location], t.added.shape[1]
    a, b = low + width, high - 1 + width
    left, right = top[a], top[b]
    while (a >> 1) != (b >> 1) and a != b:
        if not a & 1:
            left = max(left, top[a ^ 1])
        if b & 1:
            right = max(right, top[b ^ 1])
        a >>= 1
        b >>= 1
        left += added[a]
        right += added[b]
    found = max(left, right)
    a >>= 1
    while a >= 1:
        found += added[a]
        a >>= 1
    return found


@kernel
def peak_at(t: ByteTrees, location: int) -> int:
    """The first position of the maximum over all positions."""
    top, width = t.top[location], t.added.shape[1]
    node = 1
    while node < width:
        node = 2 * node if top[2 * node] >= top[2 * node + 1] else 2 * node + 1
    return node - width
