"""Markov chain Monte Carlo over placements, in FlexFlow's manner (Jia, Zaharia & Aiken 2019, section 6).

From each of several initial placements, one operation chosen at random gets a random new configuration, here a unit
another location; the proposal is accepted with probability min(1, exp(beta (cost - new cost))) (Metropolis), where a
cost is a simulated step time. A chain ends when its share of the budget is spent, or when half of it has brought
nothing better than the best found (6.2). Initial placements are, as there, what an expert would do, here contiguous
layers of equal work, one location for all, and a random one.

Deviations: operations are not split, so a configuration is a location alone; each proposal is simulated anew and not
as a difference (5.3), by list scheduling: an idle device starts, of its tasks that are ready, the one of greatest
bottom level, where the source's starts the one that was ready first. Memory is not looked at, as in the source. Every
placement that is tried respects kinds and units. The budget is `options.seconds`, at most `MOST_SECONDS`, or, when
deterministic, a number of simulations that depends on the size alone.
"""

import math
import time
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints, offsets, rank_of
from solvers.compiled.dag import topological_order
from solvers.heuristics.clusters.pipedream import order_of_layers
from solvers.heuristics.devices_of_location import devices_at, elements
from solvers.heuristics.methods import Placement
from solvers.problem import Problem, mean_ticks
from solvers.result import Options
from solvers.structure.units import Units, placeable_units
from solvers.timing.loop import LinkState, Prepared, run_tasks
from solvers.timing.replay import bottom_levels, prepare

MOST_SECONDS = 10.0
MOST_TASKS = 20_000_000
"""Tasks that are simulated in all when deterministic: the budget is this over the number of tasks, in bounds."""
_FEWEST, _MOST = 30, 3000
_WORSE = 1e-4
"""beta is 1 / (this times the initial cost): what is worse by that share is accepted with probability 1/e."""


class MarkovTables(NamedTuple):
    """Tables that a Markov chain reads."""

    prepared: Prepared
    order: Ints
    """[n] the tasks by falling bottom level, a topological order."""
    device: Ints
    """[k, n] device of each task at each element, where it can be there."""
    choices: Bools
    """[u, k] whether a unit can be at each element."""
    offset: Ints
    """[u + 1] where the tasks of each unit start in `member`."""
    member: Ints


class MarkovBudget:
    """How much longer a chain may go on: by the clock, or by a number of simulations."""

    def __init__(self, seconds: float, steps: int | None) -> None:
        """Seconds, or as many `steps` where these are given."""
        self._began, self._seconds, self._steps, self.taken = time.perf_counter(), seconds, steps, 0

    def spent(self) -> float:
        """Return the share of the budget that is used up."""
        if self._steps is not None:
            return self.taken / max(self._steps, 1)
        return (time.perf_counter() - self._began) / self._seconds if self._seconds > 0 else 1.0


def place(problem: Problem, options: Options) -> Placement:
    """Return the best placement of all chains, in the order in which its simulation starts the tasks."""
    units = placeable_units(problem)
    if not problem.tasks:
        return Placement(device=np.zeros(0, dtype=np.int64))
    moves, starts = _moves(problem, units), _starts(problem, units, options.seed)
    rng = np.random.default_rng(options.seed)
    fixed = min(max(MOST_TASKS // max(problem.tasks, 1), _FEWEST), _MOST) // len(starts)
    steps = fixed if options.deterministic else None
    ends = []
    for at in starts:
        budget = MarkovBudget(min(options.seconds, MOST_SECONDS) / len(starts), steps)
        ends.append(chain(moves, devices_at(problem, at[units.unit]), rng, budget))
    device = min(ends, key=lambda end: end[1])[0]
    state = simulated(moves, device)
    return Placement(device=device, rank=rank_of(np.lexsort((rank_of(moves.order), state.finish, state.start))))


def _moves(problem: Problem, units: Units) -> MarkovTables:
    pes, place_of = elements(units), rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    return MarkovTables(
        prepared=prepare(problem),
        order=ints(np.lexsort((place_of, -bottom_levels(problem)))),
        device=np.stack([devices_at(problem, np.full(problem.tasks, there)) for there in pes]),
        choices=units.allowed[:, pes],
        offset=offsets(np.bincount(units.unit, minlength=len(units.memory))),
        member=np.argsort(units.unit, kind="stable"),
    )


def _starts(problem: Problem, units: Units, seed: int) -> list[Ints]:
    """Return initial placements, [u] locations each: contiguous layers of equal work, one location, random."""
    pes, order = elements(units), order_of_layers(problem, units)
    ticks = np.bincount(units.unit, weights=mean_ticks(problem), minlength=len(units.memory))[order]
    share = np.empty(len(order), dtype=np.int64)
    share[order] = ((np.cumsum(ticks) - ticks / 2) * len(pes) / max(ticks.sum(), 1)).astype(np.int64)
    drawn = np.random.default_rng(seed).integers(0, len(pes), len(order))
    wished = [pes[np.minimum(share, len(pes) - 1)], np.full(len(order), pes[0]), pes[drawn]]
    unit, first = np.arange(len(order)), units.allowed.argmax(axis=1)
    return [np.where(units.allowed[unit, at], at, first) for at in wished]


def simulated(moves: MarkovTables, device: Ints) -> LinkState:
    """Return the starts and finishes of a placement, [n], which is not validated."""
    return run_tasks(moves.prepared, device, moves.order, rule="listed")[0]


def chain(moves: MarkovTables, device: Ints, rng: np.random.Generator, budget: MarkovBudget) -> tuple[Ints, int]:
    """Return the best placement of a chain that starts at `device`, [n], and its makespan."""
    device = np.array(device)
    cost = int(simulated(moves, device).finish.max(initial=0))
    best, least, when, beta = device.copy(), cost, 0.0, 1.0 / max(_WORSE * cost, 1e-9)
    movable = np.flatnonzero(np.count_nonzero(moves.choices, axis=1) > 1)
    budget.taken += 1
    while len(movable) and budget.spent() < 1.0 and budget.spent() - when <= 0.5:
        unit = movable[rng.integers(len(movable))]
        tasks = moves.member[moves.offset[unit] : moves.offset[unit + 1]]
        options = np.flatnonzero(moves.choices[unit])
        before, after = device[tasks], moves.device[options[rng.integers(len(options))], tasks]
        if (before == after).all():
            continue
        device[tasks] = after
        new = int(simulated(moves, device).finish.max(initial=0))
        budget.taken += 1
        if new > cost and rng.random() >= math.exp(beta * (cost - new)):
            device[tasks] = before
            continue
        cost = new
        if cost < least:
            best, least, when = device.copy(), cost, budget.spent()
    return ints(best), least
