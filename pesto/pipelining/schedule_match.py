"""Check of a pattern against its name: most names of `schedules.NAMES` prescribe how batches follow each other."""

from collections.abc import Iterable

import numpy as np

from pesto.pipelining.schedules import EXACT, FREE, LONGEST_THINNING, NAMES, STAR, THINNED
from solvers.arrays import Ints
from solvers.pipelining.chain import Allocation, Chain, Pattern
from solvers.pipelining.flushed import gpipe, interleaved, one_f_one_b, zero_bubble
from solvers.pipelining.one_f_one_b_star import thinned

_ROUND, _V = "interleaved-2", "zero-bubble-v"
_STEPS = {"gpipe": gpipe, "1f1b": one_f_one_b, _ROUND: interleaved}


def matches_schedule(name: str, seen: Chain, allocation: Allocation, pattern: Pattern, in_flight: Ints) -> bool:
    """Return True if a valid pattern is the named schedule on these stages, or the name prescribes no order of batches.

    seen: the chain as the devices run it. in_flight: most batches of each layer. EXACT claims contiguous stages alone,
    as its search may end before the least; FREE and other programs' names claim nothing.
    """
    if name not in NAMES or name == FREE:
        return True
    if name == EXACT or not _shaped(name, allocation):
        return name == EXACT and allocation.contiguous
    try:
        return any(_equal(pattern, each) for each in _of_name(name, seen, allocation, pattern, in_flight))
    except ValueError:
        return False


def _shaped(name: str, allocation: Allocation) -> bool:
    """Return True if the stages go round, down and up, or are one a device."""
    stages, devices = allocation.stages[:, 2], allocation.devices
    if name == _ROUND:
        return devices == 1 or np.array_equal(stages, np.tile(np.arange(devices), 2))
    if name == _V:
        return len(stages) == 2 * devices - 1 and np.array_equal(stages, stages[::-1])
    return allocation.contiguous


def _of_name(name: str, seen: Chain, allocation: Allocation, pattern: Pattern, in_flight: Ints) -> Iterable[Pattern]:
    """The patterns of that name with as many batches a period; ValueError where these stages have none."""
    k, stages = pattern.k, len(allocation.stages)
    if name in (STAR, THINNED):
        of = [(1, 1)] if name == STAR else [(k, n) for n in range(k, LONGEST_THINNING + 1)]
        return (thinned(seen, allocation, pattern.T // n, (k, n)) for k, n in of if pattern.T % n == 0)
    if name in _STEPS:
        return [_STEPS[name](seen, allocation, k)]
    least = min(max(1, int(in_flight.max())), stages)
    return (zero_bubble(seen, allocation, k, [most] * stages) for most in range(least, stages + 1))


def _equal(one: Pattern, other: Pattern) -> bool:
    """Return True if the same batches do the same at the same ticks, in whatever order and copies."""
    return (one.k, one.T) == (other.k, other.T) and np.array_equal(_sorted(one), _sorted(other))


def _sorted(pattern: Pattern) -> Ints:
    columns = np.stack([pattern.kind, pattern.layer, pattern.shift, pattern.t])
    return columns[:, np.lexsort(columns)]
