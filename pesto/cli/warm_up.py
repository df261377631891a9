"""Compiles everything that a solve needs, on a tiny graph: numba keeps it on disk, beside the source."""

import numpy as np

from pesto.graph import Graph
from pesto.inputs.load import load_cluster, load_costs
from pesto.settings import Settings
from pesto.solving.flow import formulate, solve
from solvers import Problem
from solvers.arrays import Ints, rank_of
from solvers.bounds.full import full_bound
from solvers.search.annealing import Heat, Walk, Weighed
from solvers.search.shared import Arena, Spot

_CLUSTER = "v100x2-pcie"
_OPS = 60


def compile_all() -> None:
    """Run every compiled function that a solve of a graph by default runs, with arrays of the same types.

    What a solve leaves out that is done early, search and the bound of the full graph, runs on its own.
    """
    graph, cluster, settings = _tiny(), load_cluster(_CLUSTER), Settings(solver="list", time_limit_s=0.1, workers=1)
    costs = load_costs(graph, cluster, None)
    problem = formulate(graph, costs, cluster, settings)
    device = np.flatnonzero(problem.allowed.all(axis=0))[:1].repeat(problem.tasks)
    _search(problem, device)
    full_bound(problem, seconds=0)
    solve(graph, cluster, costs, settings, lambda _: None)


def _search(problem: Problem, device: Ints) -> None:
    arena = Arena.of(problem, [np.arange(problem.tasks) // 2])

    def weigh(spot: Spot) -> Weighed:
        fits = np.zeros(problem.locations, dtype=np.int64)
        return Weighed(makespan=spot.makespan, device=arena.devices(spot.at), rank=rank_of(spot.order), over=fits)

    start = arena.spot(problem.location[device], np.argsort(arena.topological))
    Walk(arena, start, Heat(1e-2, 1e-3), weigh, 0).stretch(0.0)


def _tiny() -> Graph:
    """Ops that each read two others, in layers of four."""
    op = np.arange(4, _OPS)
    src = np.concatenate([op - 4, 4 * (op // 4) - 1 - op % 3])
    dst = np.concatenate([op, op])
    none = np.zeros(0, dtype=np.int64)
    return Graph(
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
