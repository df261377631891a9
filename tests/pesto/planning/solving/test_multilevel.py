"""Quick schedules of coarse graphs of many sizes: which sizes, how each is reached, and which graph is handed on."""

from itertools import pairwise

import numpy as np
import pytest

from pesto.core.settings import Settings
from pesto.planning.solving import quick_candidates as module
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.quick_candidates import multilevel
from solvers.checker import check


@pytest.fixture
def measured(make_graph, make_cluster, make_costs):
    """What candidates of ops on two GPUs are measured with."""

    def of(ops):
        graph, cluster = make_graph([{"kinds": ("gpu",), **op} for op in ops]), make_cluster()
        return CandidateEvaluator.of(graph, formulate(graph, make_costs(graph, cluster), cluster, Settings()))

    return of


@pytest.fixture
def bench(measured):
    """Four chains of fifteen ops."""
    return measured(
        [
            {"name": f"{k}", "s": (1 + k % 7) * 1e-3, "bytes": 1000 * k, "inputs": [f"{k - 4}"] if k > 3 else []}
            for k in range(60)
        ]
    )


def taken(bench, settings):
    """(candidates, what the stage returns)."""
    stage, found = multilevel(bench, bench.problem, settings), []
    while True:
        try:
            found.append(next(stage))
        except StopIteration as ended:
            return found, ended.value


@pytest.mark.parametrize(("few", "ways"), [(False, 2), (True, 1)])
def test_sizes_are_reached_by_steps_and_at_once(bench, monkeypatch, few, ways):
    """Sizes between the graph's and the target, the largest in one way; a large graph has two sizes, by steps alone."""
    monkeypatch.setattr(module, "SIZES", (60, 40, 20, 10, 5))
    if few:
        monkeypatch.setattr(module, "SIZES", (40, 20, 10, 5))
        monkeypatch.setattr(module, "MANY_TASKS", 59)
    found, (_, steps) = taken(bench, Settings(coarsen_to=10))
    sizes = [40, 10] if few else [40, 20, 10]
    assert [step.target for step in steps] == sizes
    assert len(found) == 1 + ways * (len(sizes) - 1)
    assert all(candidate.fits and not check(bench.problem, candidate.timeline.schedule) for candidate in found)
    for fine, coarse in pairwise(steps):
        # By steps, ops of one node stay in one node.
        pairs = np.unique(np.stack([fine.node_of, coarse.node_of]), axis=1)
        assert pairs.shape[1] == fine.nodes > coarse.nodes


def test_the_level_with_the_better_plan_is_handed_on(measured, monkeypatch):
    """Of the target's two, by steps and then at once, on random graphs on which now one is better and now the other."""
    monkeypatch.setattr(module, "SIZES", (20,))
    better = set()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        ops = [
            {"name": f"{k}", "s": rng.integers(1, 9) * 1e-3, "bytes": 10**6,
             "inputs": [f"{j}" for j in sorted({*rng.integers(max(0, k - 9), k, 2).tolist()})] if k else []}
            for k in range(50)
        ]  # fmt: skip
        bench = measured(ops)
        found, (level, _) = taken(bench, Settings(coarsen_to=8))
        device, rank, _ = bench.expand(level.coarsening, level.schedule)
        steps, at_once = (candidate.makespan for candidate in found[1:])
        assert bench.ordered("levels", "", device, rank).makespan == min(steps, at_once)
        better |= {steps < at_once, steps > at_once}
    assert better == {True, False}


def test_the_quicker_of_two_schedules_is_a_levels(bench, monkeypatch):
    """Of the list schedule and ParDNN's, whichever is first: the shorter, and the first of equals."""
    _, (level, _) = taken(bench, Settings(coarsen_to=10))
    both = {name: module.run_heuristic(level.problem, name).schedule.makespan for name in ("list", "pardnn")}
    assert level.schedule.makespan == min(both.values())
    monkeypatch.setattr(module, "_QUICK", {"list": "A", "list-again": "B"})
    answers = {}
    monkeypatch.setattr(module, "run_heuristic", lambda _, name: answers[name])
    real = module.api.solve(level.problem, "list", module.Options())
    slow = module.api.solve(level.problem, "single", module.Options())
    assert real.schedule.makespan < slow.schedule.makespan
    for first, second, by in ((real, slow, "A"), (slow, real, "B"), (real, real, "A")):
        answers |= {"list": first, "list-again": second}
        _, (chosen, _) = taken(bench, Settings(coarsen_to=10))
        assert chosen.by == by


def test_of_equal_levels_the_one_by_steps_is_handed_on(measured, monkeypatch):
    """40 ops of 1 ms without edges make 20 ms on two GPUs, whichever way ten nodes are reached."""
    monkeypatch.setattr(module, "SIZES", (20,))
    found, (level, steps) = taken(measured([{"name": f"{k}", "s": 1e-3} for k in range(40)]), Settings(coarsen_to=10))
    assert [candidate.makespan for candidate in found] == [20 * 10**6] * 3
    assert level.coarsening is steps[-1]
