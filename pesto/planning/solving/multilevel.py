"""Quick schedules of coarse graphs of many sizes: a candidate of their own, and the exact solver's coarse graph."""

from collections.abc import Iterator
from dataclasses import dataclass

from pesto.core.settings import Settings
from pesto.planning.coarsen import Caps, Coarsening, coarsen, contract
from pesto.planning.solving.background_compiler import shared_compiler
from pesto.planning.solving.candidates import CandidateEvaluator
from pesto.planning.solving.tracker import Stage
from solvers import MOST, Limit, Options, Problem, Result, Schedule, api
from solvers.deadlines import Late, never

SIZES = (3200, 1600, 800, 400)
"""Nodes of the coarse graphs that are tried beside the target."""
_QUICK = {"list": "list scheduling", "pardnn": "ParDNN"}
"""What schedules a coarse graph, and what a plan says of it."""
MOST_TASKS = 100_000
"""Beyond this, only the largest size and the target are tried, by steps: all others take seconds each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """One coarse graph with the better of a list schedule and ParDNN's (None when neither fits the memory)."""

    coarsening: Coarsening
    problem: Problem
    schedule: Schedule | None
    by: str
    """What made the schedule."""


def multilevel(
    bench: CandidateEvaluator, planning: Problem, settings: Settings, late: Late = never
) -> Stage[tuple[Level, list[Coarsening]]]:
    """`levels`: quick schedules of coarse graphs of any size down to the target of `settings`, expanded.

    Returns the best coarse graph of the target size, and the coarsenings that were reached by steps, fine to coarse.

    A list scheduler sees no further than its next choice, and a node is a longer look ahead, so neither the full
    graph nor the one that the exact solver gets is always its best. Each size is reached in two ways: from the full
    graph, and from the next larger size. Neither is always better: NASNet's graphs profit from small steps (at 200
    nodes by a quarter), recurrent networks from one large one.

    late: asked before each size; from then on only the target is made, in one step from the size before it.
    """
    shared_compiler().need("coarse")
    found: list[tuple[bool, int, Level]] = []
    steps: list[Coarsening] = []
    for stepwise, coarsening in _ladder(planning, settings, late):
        steps += [coarsening] if stepwise else []
        if late() and coarsening.target != settings.coarsen_to:
            continue
        level, fits, makespan = _level(planning, coarsening), False, MOST
        if level.schedule is not None:
            device, rank, rule = bench.expand(coarsening, level.schedule)
            rule = f"{level.by} of {coarsening.nodes} nodes, {rule}"
            candidate = bench.ordered("levels", rule, device, rank)
            fits, makespan = candidate.fits, candidate.makespan
            yield candidate
        if coarsening.target == settings.coarsen_to:
            found.append((not fits, makespan, level))
    return min(found, key=lambda each: each[:2])[2], steps


def run_heuristic(problem: Problem, name: str, *, seconds: float = Options().seconds) -> Result:
    """A heuristic's answer within `seconds`; KeyboardInterrupt when Ctrl-C ended it: nothing further is begun."""
    result = api.solve(problem, name, Options(seconds=seconds))
    if result.limit is Limit.INTERRUPT:
        raise KeyboardInterrupt
    return result


def _ladder(planning: Problem, settings: Settings, late: Late) -> Iterator[tuple[bool, Coarsening]]:
    """(whether by steps, coarsening): every size, from large to small, by steps and (the first apart) at once.

    Where nothing can be merged any more above a size, as where many ops are pinned, only the target is tried after it:
    all others would end at nearly the same nodes.
    """
    target, few = settings.coarsen_to, planning.tasks > MOST_TASKS
    caps = Caps(time=settings.merge_time, members=settings.merge_members)
    sizes = [size for size in (SIZES[:1] if few else SIZES) if target < size < planning.tasks] + [target]
    stepwise = coarsen(planning, sizes[0], caps=caps)
    yield True, stepwise
    for size in sizes[1:]:
        if size > target and (stepwise.nodes > stepwise.target or late()):
            continue
        stepwise = stepwise.then(coarsen(contract(planning, stepwise.node_of), size, caps=caps))
        yield True, stepwise
        if not few and not late():
            yield False, coarsen(planning, size, caps=caps)


def _level(planning: Problem, coarsening: Coarsening) -> Level:
    problem = contract(planning, coarsening.node_of)
    found = [(by, run_heuristic(problem, name).schedule) for name, by in _QUICK.items()]
    made = [(schedule.makespan, k) for k, (_, schedule) in enumerate(found) if schedule is not None]
    by, schedule = found[min(made)[1]] if made else ("", None)
    return Level(coarsening=coarsening, problem=problem, schedule=schedule, by=by)
