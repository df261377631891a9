"""Variables beside their readers: a task without inputs is placed as if it were its first reader.

Earliest finish time alone puts such a task wherever a device is idle, and the reader then pays for the transfer or
follows; in a training step this scatters the weights. A list scheduler cannot look back, so the task is moved to just
before its reader in the order, and offered to the devices with the reader's other inputs in mind.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, rank_of
from solvers.compiled.kernels import routine
from solvers.timing.loop import Prepared

_MOST_INPUTS = 64
"""Inputs of a guide at most, as each of its sources looks at all of them."""


class GuidedOrder(NamedTuple):
    """An order for a pass of `place`."""

    order: Ints
    """[n] tasks, a topological order."""
    guide: Ints
    """[n] the task in whose place each is offered to the devices: itself for most."""


def unguided(order: Ints) -> GuidedOrder:
    """`order` as it is."""
    return GuidedOrder(order, np.arange(len(order)))


def guided(g: Prepared, unit: Ints, order: Ints) -> GuidedOrder:
    """`order` with each source just before its guide: the first of its readers, by `order`, or of its readers' guides.

    A source has no predecessors, or only sources of its own unit (a variable, and the op that reads it out). Readers
    of many inputs guide nobody. O(e + n log n).
    """
    place = rank_of(order)
    guide = np.arange(len(order))
    _guide(g, unit, order, place, guide)
    return GuidedOrder(np.lexsort((place, place[guide])), guide)


@routine
def _guide(g: Prepared, unit: Ints, order: Ints, place: Ints, guide: Ints) -> None:
    """Replace each source in `guide`, which holds every task itself."""
    source = np.ones(len(order), dtype=np.bool_)
    for task in order:
        for k in range(g.offset[task], g.offset[task + 1]):
            if not source[task] or unit[g.head[k]] != unit[task]:
                source[g.head[k]] = False
    for at in range(len(order) - 1, -1, -1):
        task = order[at]
        if not source[task]:
            continue
        first = -1
        for k in range(g.offset[task], g.offset[task + 1]):
            reader = guide[g.head[k]]
            if first < 0 or place[reader] < place[first]:
                first = reader
        if first >= 0 and g.indegree[first] <= _MOST_INPUTS:
            guide[task] = first
