"""Everything that a solve compiles, in parts and in the order in which it needs them: numba keeps it on disk."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from pesto.core.graph import Graph
from pesto.core.memory import footprint, measure
from pesto.core.problem import build_problem
from pesto.core.settings import Settings
from pesto.core.simulator import simulate
from pesto.inputs.load import load_cluster, load_costs
from pesto.planning.solving.background_compiler import compile_in_process
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.flow import EarlierPlans, solve
from pesto.planning.solving.quick_candidates import RIVALS, multilevel, run_heuristic
from solvers import Problem
from solvers.arrays import Ints, rank_of
from solvers.bounds.full import full_bound
from solvers.heuristics.overflow.relief import relieve
from solvers.memory.usage import usage
from solvers.search.annealing import PointValue, Temperature, Walk
from solvers.search.workspace import Solution, Workspace
from solvers.timing.replay import replay

_CLUSTER = "v100x2-pcie"
_OPS = 60
_SETTINGS = Settings(solver="list", time_limit_s=0.1, workers=1)


class Part(NamedTuple):
    """One part."""

    run: Callable[["Tiny"], object]
    """Runs compiled functions on the tiny step with arrays of the types that every step has."""
    after: tuple[str, ...] = ()
    """Parts that it would otherwise compile as well."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tiny:
    """A training step of a few ops, made without compiled functions."""

    graph: Graph
    problem: Problem
    device: Ints
    """[n] one GPU for all."""
    rank: Ints
    """[n] a topological order."""

    @classmethod
    def make(cls) -> "Tiny":
        """Ops that each read two others, in layers of four."""
        op = np.arange(4, _OPS)
        src = np.concatenate([op - 4, 4 * (op // 4) - 1 - op % 3])
        dst = np.concatenate([op, op])
        none = np.zeros(0, dtype=np.int64)
        layers = Graph(
            names=tuple(f"op{k}" for k in range(_OPS)),
            types=("MatMul",),
            type_of=np.zeros(_OPS, dtype=np.int64),
            tensor_op=np.arange(_OPS),
            tensor_bytes=np.full(_OPS, 2**20),
            src=src,
            dst=dst,
            tensor=src,
            control_src=none,
            control_dst=none,
            group=np.full(_OPS, -1),
            kinds=("cpu", "gpu"),
            runs_on=np.ones((_OPS, 2), dtype=np.bool_),
            param_bytes=np.zeros(_OPS, dtype=np.int64),
            flops=np.linspace(1e9, 2e9, _OPS),
            moved_bytes=np.full(_OPS, 2**20),
            launches=np.ones(_OPS, dtype=np.bool_),
            given_s=np.zeros((_OPS, 0)),
            source="what is compiled ahead",
        )
        graph, cluster = layers, load_cluster(_CLUSTER)
        problem = build_problem(
            graph, load_costs(graph, cluster, None), cluster, memory=graph.param_bytes, per_edge=False
        )
        device = np.flatnonzero(problem.allowed.all(axis=0))[:1].repeat(problem.tasks)
        return cls(graph=graph, problem=problem, device=device, rank=np.arange(problem.tasks))

    @property
    def bench(self) -> CandidateEvaluator:
        """The step as candidates are run on it."""
        return CandidateEvaluator.of(self.graph, self.problem, per_edge=False)


def compile_all() -> None:
    """Run every compiled function that a solve by default runs, here and one after another."""
    tiny = Tiny.make()
    for name in PARTS:
        run(name, tiny)


def run(name: str, tiny: Tiny) -> None:
    """Compile one part here."""
    with compile_in_process():
        PARTS[name].run(tiny)


def _problem(tiny: Tiny) -> None:
    cluster = load_cluster(_CLUSTER)
    formulate(tiny.graph, load_costs(tiny.graph, cluster, None), cluster, _SETTINGS)


def _timing(tiny: Tiny) -> None:
    for strict in (True, False):
        replay(tiny.problem, tiny.device, tiny.rank, strict=strict)


def _peaks(tiny: Tiny) -> None:
    measure(tiny.graph, simulate(tiny.problem, tiny.device, tiny.rank))


def _plan(tiny: Tiny) -> None:
    """A whole solve with no time, of one candidate; and one whose transfers wait for each other, priced."""
    cluster = load_cluster(_CLUSTER)
    costs = load_costs(tiny.graph, cluster, None)
    solve(tiny.graph, cluster, costs, _SETTINGS, lambda _: None, EarlierPlans(spent_s=math.inf))
    gpus = np.flatnonzero(tiny.problem.allowed.all(axis=0))[:2]
    bench = tiny.bench
    bench.priced(bench.placed("on both", "", gpus[np.arange(tiny.problem.tasks) % 2]))


def _method(name: str, tiny: Tiny) -> None:
    run_heuristic(tiny.problem, name)


def _coarse(tiny: Tiny) -> None:
    for _ in multilevel(tiny.bench, tiny.problem, Settings(coarsen_to=_OPS // 4)):
        pass


def _search(tiny: Tiny) -> None:
    problem = tiny.problem
    arena = Workspace.of(problem, [np.arange(problem.tasks) // 2])

    def weigh(spot: Solution) -> PointValue:
        fits = np.zeros(problem.locations, dtype=np.int64)
        return PointValue(makespan=spot.makespan, device=arena.devices(spot.at), rank=rank_of(spot.order), over=fits)

    start = arena.solution(problem.location[tiny.device], np.argsort(arena.topological))
    Walk(arena, start, Temperature(1e-2, 1e-3), weigh, 0).stretch(0.0)


def _bound(tiny: Tiny) -> None:
    full_bound(tiny.problem)


def _repair(tiny: Tiny) -> None:
    """With less memory than the one GPU needs, and more than the two have together."""
    held = footprint(tiny.graph)
    peak = usage(tiny.problem, held, replay(tiny.problem, tiny.device, tiny.rank)).peak
    short = tiny.problem.holding(capacity=np.full_like(peak, int(peak.max()) * 6 // 10))
    relieve(short, held, tiny.device, order=tiny.rank)


def _rest(tiny: Tiny) -> None:
    cluster = load_cluster(_CLUSTER)
    solve(tiny.graph, cluster, load_costs(tiny.graph, cluster, None), _SETTINGS, lambda _: None)


PARTS: Mapping[str, Part] = {
    "problem": Part(_problem),
    "timing": Part(_timing),
    "peaks": Part(_peaks),
    "plan": Part(_plan, after=("problem", "timing", "peaks")),
    "list": Part(partial(_method, "list"), after=("problem", "timing")),
    **{name: Part(partial(_method, name), after=("list",)) for name in RIVALS},
    "coarse": Part(_coarse, after=("problem", "timing", "peaks", "list", "pardnn")),
    "search": Part(_search, after=("problem", "timing")),
    "bound": Part(_bound, after=("problem",)),
    "rest": Part(_rest, after=("coarse", "search", "bound")),
    "repair": Part(_repair, after=("rest",)),
}
"""In the order in which solves need them; "rest" is a whole solve, for what those before it leave out."""
