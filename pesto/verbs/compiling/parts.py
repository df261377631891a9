"""Everything that a solve compiles, in parts and in the order in which it needs them: numba keeps it on disk."""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from pesto.core.graph import Graph
from pesto.core.memory import footprint, measure
from pesto.core.problem import build_problem
from pesto.core.settings import Settings
from pesto.core.simulator import simulate
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
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


PARTS: dict[str, tuple[str, ...]] = {
    "problem": (),
    "timing": (),
    "peaks": (),
    "plan": ("problem", "timing", "peaks"),
    "list": ("problem", "timing"),
    **dict.fromkeys(RIVALS, ("list",)),
    "coarse": ("problem", "timing", "peaks", "list", "pardnn"),
    "search": ("problem", "timing"),
    "bound": ("problem",),
    "rest": ("coarse", "search", "bound"),
    "repair": ("rest",),
}
"""Parts in the order in which solves need them -> parts that each would otherwise compile as well.

"rest" is a whole solve, for the functions that those before it leave out."""


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


def compile_all() -> None:
    """Run every compiled function that a solve by default runs, here and one after another."""
    tiny = Tiny.make()
    for name in PARTS:
        run(name, tiny)


def run(name: str, tiny: Tiny) -> None:
    """Compile one part here: run its functions on the tiny step, with arrays of the types that every step has."""
    graph, problem, cluster = tiny.graph, tiny.problem, load_cluster(_CLUSTER)
    with compile_in_process():
        match name:
            case "problem":
                formulate(graph, load_costs(graph, cluster, None), cluster, _SETTINGS)
            case "timing":
                for strict in (True, False):
                    replay(problem, tiny.device, tiny.rank, strict=strict)
            case "peaks":
                measure(graph, simulate(problem, tiny.device, tiny.rank))
            case "plan":
                # A whole solve with no time, of one candidate; and one whose transfers wait for each other, priced.
                costs = load_costs(graph, cluster, None)
                solve(graph, cluster, costs, _SETTINGS, lambda _: None, EarlierPlans(spent_s=math.inf))
                gpus = np.flatnonzero(problem.allowed.all(axis=0))[:2]
                bench = CandidateEvaluator.of(graph, problem, per_edge=False)
                bench.priced(bench.placed("on both", "", gpus[np.arange(problem.tasks) % 2]))
            case "coarse":
                bench = CandidateEvaluator.of(graph, problem, per_edge=False)
                deque(multilevel(bench, problem, Settings(coarsen_to=_OPS // 4)), maxlen=0)
            case "search":
                # Anneal for no time, op pair by op pair.
                problem = tiny.problem
                workspace = Workspace.of(problem, [np.arange(problem.tasks) // 2])

                def weigh(spot: Solution) -> PointValue:
                    fits = np.zeros(problem.locations, dtype=np.int64)
                    return PointValue(
                        makespan=spot.makespan, device=workspace.devices(spot.at), rank=rank_of(spot.order), over=fits
                    )  # fmt: skip

                start = workspace.solution(problem.location[tiny.device], np.argsort(workspace.topological))
                Walk(workspace, start, Temperature(1e-2, 1e-3), weigh, 0).stretch(0.0)
            case "bound":
                full_bound(problem)
            case "rest":
                solve(graph, cluster, load_costs(graph, cluster, None), _SETTINGS, lambda _: None)
            case "repair":
                # With less memory than the one GPU needs, and more than the two have together.
                held = footprint(graph)
                peak = usage(problem, held, replay(problem, tiny.device, tiny.rank)).peak
                short = problem.holding(capacity=np.full_like(peak, int(peak.max()) * 6 // 10))
                relieve(short, held, tiny.device, order=tiny.rank)
            case _:
                run_heuristic(problem, name)
