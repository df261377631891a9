"""Simulated annealing over placements and priorities, compiled (Kirkpatrick, Gelatt & Vecchi 1983)."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Floats, Ints
from solvers.compiled.kernels import inlined, kernel, spliced
from solvers.search.changes import undo
from solvers.search.moves import propose
from solvers.search.network import MoveClusters, SearchNetwork
from solvers.search.simulation import NEVER, STOPPED, simulate
from solvers.search.state import RunBounds
from solvers.search.walk_state import (
    BEST,
    COST,
    OVER,
    STATES,
    TAKEN,
    TRIED,
    Lane,
    accept,
    overload,
    trace_critical,
    uniform,
)

_FRESH = 64
"""Accepted changes after which the critical chain is traced again."""


class Cooling(NamedTuple):
    """One stretch of an annealing."""

    steps: int
    hot: float
    """Ticks by which what is worse is accepted with probability 1/e as the stretch begins."""
    cold: float
    """Ticks by which what is worse is accepted with probability 1/e as the stretch ends."""
    kinds: Floats
    """[KINDS] cumulated shares of the kinds of moves."""
    levels: Floats
    """[k] cumulated shares of the partitions."""


@kernel
def anneal(net: SearchNetwork, sets: MoveClusters, lane: Lane, cooling: Cooling) -> None:
    """Try so many changes. One that takes bytes off where there are too many is accepted whatever it costs."""
    stale, heat = 0, cooling.hot
    factor = (cooling.cold / cooling.hot) ** (1.0 / max(cooling.steps, 1))
    for _ in range(cooling.steps):
        heat *= factor
        lane.tally[TRIED] += 1
        kind = _share(cooling.kinds, uniform(lane))
        level = _share(cooling.levels, uniform(lane))
        changed = propose(net, sets, lane, kind, level)
        # The Metropolis test, turned around: the random number is drawn first and gives a limit on the makespan, so
        # that the simulation can stop as soon as the change is sure to be rejected.
        limit = lane.tally[COST] + np.int64(-np.log(1.0 - uniform(lane)) * heat)
        over = overload(lane)
        if over < lane.tally[OVER]:
            limit = NEVER
        # The greatest load of a device is a lower bound on the makespan: above the limit, no simulation is needed.
        if not changed or over > lane.tally[OVER] or _most(lane.choice.load) > limit:
            undo(net, lane)
            continue
        run = RunBounds(limit, lane.departs[0], max(lane.tally[COST] // (STATES + 1), 1))
        cost = simulate(net, lane.choice, lane.trial, lane.work, lane.saved, run)
        if cost == STOPPED or cost > limit:
            undo(net, lane)
            continue
        lane.tally[TAKEN] += 1
        better = cost < lane.tally[BEST]
        accept(lane, cost)
        stale += 1
        # Tracing the critical chain walks the whole chain; a chain that is some changes old still points at good moves.
        if better or stale >= _FRESH:
            trace_critical(net, lane)
            stale = 0


@inlined
def _share(cumulated: Floats, at: float) -> int:
    """Whose share a number in [0, 1) is in."""
    k = 0
    while k < len(cumulated) - 1 and cumulated[k] <= at:
        k += 1
    return k


@spliced
def _most(load: Ints) -> int:
    most = load[0]
    for d in range(1, len(load)):
        most = max(most, load[d])
    return int(most)
