"""Tight memory where the exact solver has every op: it is given the graph with its tensors' lives."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pesto.core.errors import InfeasibleError
from pesto.core.problem import build_problem
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import CandidateEvaluator
from pesto.planning.solving.exact import build_exact_input, exact_with_memory, full_graph_level
from pesto.planning.solving.flow import solve
from solvers import Footprint, Options, Schedule, Status, api, check
from solvers.instances.plain import on_equal_gpus

OPS = [
    {"name": f"{half}{k}", "inputs": [f"{half}{k - 1}"] if k else [], "bytes": 1000, "kinds": ["gpu"], "s": 2e-6}
    for half in "ab"
    for k in range(3)
] + [{"name": "end", "inputs": ["a0", "a2", "b0", "b2"], "kinds": ["gpu"]}]


@pytest.fixture
def bench(make_graph, make_cluster, make_costs) -> CandidateEvaluator:
    """Two chains that an op joins, on two GPUs that hold four tensors each: one alone needs five."""
    graph, cluster = make_graph(OPS), make_cluster(memory=4000)
    return CandidateEvaluator.of(
        graph, build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
    )


def test_the_graph_has_lives_where_a_shorter_candidate_does_not_fit_and_nowhere_else(bench: CandidateEvaluator) -> None:
    """Lives are asked for by a candidate that is too large, and of graphs alone, not of coarse ones."""
    alone = bench.placed("single", "", np.full(bench.problem.tasks, 1))
    assert not alone.fits
    fits = SimpleNamespace(candidates={"single": replace(alone, fits=True)}, best=replace(alone, fits=True))
    level = full_graph_level(bench, None)
    assert exact_with_memory(bench, level, fits) is level
    over = SimpleNamespace(candidates={"single": alone}, best=None)
    found = exact_with_memory(bench, level, over)
    assert found.problem.lives is not None
    assert found.schedule is None
    coarse = replace(
        level, coarsening=replace(level.coarsening, node_of=np.zeros(7, dtype=np.int64), nodes=1, rank=np.arange(7))
    )
    assert exact_with_memory(bench, coarse, over) is coarse


def test_what_cpsat_finds_with_lives_fits(bench: CandidateEvaluator) -> None:
    """The optimum with lives is longer than without, passes the checker, and runs as a plan that fits."""
    alone = bench.placed("single", "", np.full(bench.problem.tasks, 1))
    found = exact_with_memory(
        bench, full_graph_level(bench, None), SimpleNamespace(candidates={"single": alone}, best=None)
    )
    ask = Options(seconds=20, workers=2)
    free, tight = api.solve(bench.problem, "cpsat", ask), api.solve(found.problem, "cpsat", ask)
    assert (free.status, tight.status) == (Status.OPTIMAL, Status.OPTIMAL)
    assert tight.lower_bound >= free.lower_bound
    assert check(found.problem, tight.schedule) == ()
    device, rank, _ = bench.expand(found.coarsening, tight.schedule)
    assert bench.ordered("coarse", "", device, rank).fits


def test_what_can_fit_nowhere_is_proven(make_graph, make_cluster, make_costs) -> None:
    """The last op reads four tensors of 1000 bytes: no order fits 3999, though no byte of it is static."""
    graph, cluster = make_graph(OPS), make_cluster(memory=3999)
    settings = Settings(time_limit_s=600, workers=2, search=False)
    with pytest.raises(InfeasibleError, match="no plan fits the memory: what is alive fits in no order"):
        solve(graph, cluster, make_costs(graph, cluster), settings, lambda _: None)


def test_without_congestion_the_start_still_fits(bench: CandidateEvaluator) -> None:
    """A task that waits for memory is not moved to before it fits: 3 bytes until a transfer ends, then 3 others."""
    p = on_equal_gpus([2, 9, 2], [0], [1], gpus=2, transfer=np.array([4, 1, 1]))
    p = replace(p, duration=[[2, -1], [-1, 9], [2, -1]], capacity=[5, 5])
    p = p.living(Footprint(
        static=[0, 0, 0], size=[3], maker=[0], passes=[-1], read_buffer=[0], read_by=[1], read_payload=[0],
        scratch=[0, 0, 3],
    ))  # fmt: skip
    waits = Schedule(
        device=[0, 1, 0], start=[0, 6, 6], finish=[2, 15, 8], sent_payload=[0], sent_to=[1], sent_start=[2],
        sent_finish=[6],
    )  # fmt: skip
    assert check(p, waits) == ()
    free, start = build_exact_input(
        replace(full_graph_level(bench, None), problem=p, schedule=waits), Settings(congestion=False)
    )
    assert free.links == 0
    assert check(free, start) == ()
