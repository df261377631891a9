"""List scheduling of the whole problem: the project's `list` candidate, and the start of the exact solvers."""

import time
from collections.abc import Iterator
from itertools import islice

from solvers.arrays import Ints
from solvers.base import Report
from solvers.bounds.quick_bounds import memory_proof
from solvers.heuristics.eft_pass import PassClusters, clusters_of
from solvers.heuristics.incumbent import HeuristicRun, infeasible
from solvers.heuristics.lists.guides import GuidedOrder, guided, unguided
from solvers.heuristics.packing import packings
from solvers.heuristics.single import least_loaded
from solvers.problem import Problem
from solvers.result import Limit, Options, Result
from solvers.structure.units import Units, units_of

_NAME = "list"
_BIASES = (0.5, 1.0, 0.25, 2.0, 0.0, 4.0)
"""Weights of a tick of transfers against a tick of finish: 0 is HEFT, more keeps tasks where their inputs are."""
_COMMUNICATION = (1.0, 0.0)
"""Weights of a tick of transfers in the bottom levels that order the tasks."""
_ROUNDS = 3
"""Sweeps in the order of the best schedule's starts, at most."""
_WORK, _OVERHEAD, _LEAST = 160_000_000, 60, 4
"""Offers that all passes together look at (some seconds), offers that equal a task's other work, passes at least."""


class ListScheduler:
    """HEFT with link contention, payloads, units and memory, for several weights of communication; the best is kept.

    Every placement is replayed in several orders (`HeuristicRun.complete`), and never loses to one location for all.
    """

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """A schedule unless memory defeats every pass; then unknown, with the bytes that found no room.

        Infeasible only with the proof of `bounds.memory_proof`. At least one pass runs whatever the limit.
        """
        began, proof = time.perf_counter(), memory_proof(problem)
        if proof is not None:
            return infeasible(_NAME, began, proof)
        incumbent, units = HeuristicRun(problem, options, report), units_of(problem)
        limit, short = Limit.NONE, 0
        for clusters, guide, bias in islice(_passes(incumbent, units), _most_passes(problem)):
            incumbent.attempt(clusters, guide, bias)
            limit = incumbent.limit
            if limit is not Limit.NONE:
                break
        if incumbent.schedule is None:
            limit, short = _memory_first(incumbent, units)
        incumbent.settle()
        incumbent.bound()
        detail = "" if incumbent.schedule else f"memory: {short} bytes found no room in the best packing"
        return incumbent.result(_NAME, limit, detail)


def _most_passes(p: Problem) -> int:
    """Passes that a problem of this size is given."""
    return max(_LEAST, _WORK // (p.edges * p.locations + p.tasks * (p.devices + _OVERHEAD) + 1))


def _passes(incumbent: HeuristicRun, units: Units) -> Iterator[tuple[PassClusters, GuidedOrder, float]]:
    """Clusters, order and bias of each pass; the later ones depend on what the earlier found."""
    free, order = clusters_of(units), incumbent.by_level(1.0)
    at = least_loaded(incumbent.problem, units)
    if at is not None:
        yield clusters_of(units, at), unguided(order), 0.0
    for communication in _COMMUNICATION:
        yield from _sweep(incumbent, units, free, incumbent.by_level(communication))
    for _ in range(_ROUNDS):
        best = incumbent.schedule
        if best is None:
            return
        yield from _sweep(incumbent, units, free, incumbent.by_start(best))
        if incumbent.schedule is best:
            return


def _sweep(
    incumbent: HeuristicRun, units: Units, free: PassClusters, order: Ints
) -> Iterator[tuple[PassClusters, GuidedOrder, float]]:
    guides = (unguided(order), guided(incumbent.prepared, units.unit, order))
    for bias in _BIASES:
        for guide in guides:
            yield free, guide, bias


def _memory_first(incumbent: HeuristicRun, units: Units) -> tuple[Limit, int]:
    """Pass over the packings that hold every unit; return what stopped it and the bytes that the best one lacks."""
    least, order = -1, unguided(incumbent.by_level(1.0))
    for at, short in packings(incumbent.problem, units):
        least = short if least < 0 else min(least, short)
        if short == 0:
            incumbent.attempt(clusters_of(units, at), order)
        if incumbent.limit is not Limit.NONE:
            return incumbent.limit, least
    return Limit.NONE, least
