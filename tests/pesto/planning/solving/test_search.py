"""Search in a solve: it improves, ends when it should, repeats when asked, and what goes wrong in it loses no plan."""

import logging
import time
from dataclasses import replace

import numpy as np
import pytest

from pesto.core.plans import plan_file
from pesto.core.settings import Settings
from pesto.planning.coarsen import coarsen
from pesto.planning.solving import exact, flow, quick_candidates, search
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.flow import solve
from pesto.planning.solving.search import SearchGraphs, coarsen_along, search_graph_of
from solvers.bounds import quick_bounds
from solvers.problem import FORBIDDEN
from solvers.search.annealing import WalkBudget, walk_all

QUICK = Settings(time_limit_s=1, coarsen_to=20, solver="list")
OPS, WIDTH = 90, 3


@pytest.fixture
def case(make_graph, make_cluster, make_costs):
    """Layers of three ops of 0.1 to 1 ms, each reads one to three of the layer before in 0.1 to 0.9 ms; two GPUs."""
    rng = np.random.default_rng(3)
    rows = []
    for k in range(OPS):
        before = range(max(0, (k // WIDTH - 1) * WIDTH), k // WIDTH * WIDTH)
        inputs = tuple(f"op{b}" for b in rng.permutation(list(before))[: rng.integers(1, 4)])
        seconds, size = float(rng.integers(1, 11)) * 1e-4, int(rng.integers(100, 900)) * 1000
        rows.append({"name": f"op{k}", "inputs": inputs, "s": seconds, "bytes": size, "kinds": ("gpu",)})
    graph, cluster = make_graph(rows), make_cluster(memory=10**8)
    return graph, cluster, make_costs(graph, cluster)


def nobody(incumbent):
    """Watch when nobody does."""


def test_search_is_a_candidate_that_is_no_worse_than_what_it_began_with(case):
    """Its plan is valid (solve verifies it) and at least as good as every other; without search there is none."""
    found = solve(*case, QUICK, nobody)
    others = [c.makespan for name, c in found.candidates.items() if c and c.fits and name != "search"]
    assert found.candidates["search"] is not None
    assert found.plan.schedule.makespan <= min(others)
    assert found.plan.provenance.lower_bound_ticks <= found.plan.schedule.makespan
    assert found.order.enforced == found.plan.schedule.makespan
    assert solve(*case, replace(QUICK, search=False), nobody).candidates["search"] is None


def test_the_same_search_gives_the_same_bytes(case):
    """Counted stretches and not seconds, whatever the threads do."""
    counted = replace(QUICK, deterministic=True)
    one, two = (plan_file.dumps(solve(*case, counted, nobody).plan) for _ in range(2))
    assert one == two


def test_a_gap_that_is_reached_ends_everything(case):
    """At a gap of 99 % of the full graph the first plan is good enough: no search."""
    assert solve(*case, replace(QUICK, gap=0.99), nobody).candidates["search"] is None


@pytest.mark.parametrize("where", ["SearchGraphs", "walk_all"])
def test_a_search_that_fails_loses_no_plan(case, monkeypatch, caplog, where):
    """The plan of the other candidates is verified and returned, with a warning."""

    def broken(*_):
        raise MemoryError("too much")

    monkeypatch.setattr(search, where, broken)
    with caplog.at_level(logging.WARNING, logger="pesto"):
        found = solve(*case, QUICK, nobody)
    assert found.candidates["search"] is None and found.plan.provenance.chosen != "search"
    assert "search failed: MemoryError" in caplog.text


def test_a_bound_that_fails_leaves_the_fast_one(case, monkeypatch, caplog):
    """The stronger bound is found beside the search; without it the fast bound holds."""

    def broken(*_, **__):
        raise MemoryError("too much")

    monkeypatch.setattr(exact, "full_bound", broken)
    with caplog.at_level(logging.WARNING, logger="pesto"):
        found = solve(*case, QUICK, nobody)
    assert "bound failed" in caplog.text
    assert found.plan.provenance.lower_bound_ticks == quick_bounds.best(found.problem)[0]


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "in compiled code"])
def test_an_interruption_keeps_the_best(case, compiled, monkeypatch):
    """Ctrl-C while walks are on their way, also where numba raises an error of its own for it: that is no failure."""

    def interrupted(*_):
        if compiled:
            raise SystemError("returned a result with an exception set") from KeyboardInterrupt()
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "walk_all", interrupted)
    found = solve(*case, QUICK, nobody)
    assert found.interrupted and found.plan.schedule.makespan > 0


def test_an_interruption_of_a_repair_ends_the_solve(case, make_cluster, monkeypatch):
    """What has been found is kept, and the search behind it is not begun."""
    graph, _, costs = case

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(quick_candidates, "repair_candidate", interrupted)
    found = solve(graph, make_cluster(memory=4_000_000), costs, QUICK, nobody)
    assert found.interrupted and found.candidates["search"] is None and found.plan.schedule.makespan > 0


def test_search_respects_memory(case):
    """Three quarters of what one GPU would need: a plan fits, and the peaks are the real ones."""
    graph, cluster, costs = case
    single = solve(graph, cluster, costs, replace(QUICK, time_limit_s=0), nobody).candidates["single"]
    most = int(single.peak.max() * 3 / 4)
    devices = [replace(d, memory_bytes=most) if d.kind == "gpu" else d for d in cluster.devices]
    found = solve(graph, replace(cluster, devices=tuple(devices)), costs, QUICK, nobody)
    assert not found.candidates["single"].fits
    assert max(found.plan.peak_bytes.values()) <= most


def test_projection_and_back(case):
    """A point of the full graph is the plan it came from; one of a coarse graph is worth what it expands to."""
    graph, cluster, costs = case
    problem = formulate(graph, costs, cluster, QUICK)
    bench = CandidateEvaluator.of(graph, problem)
    placed = bench.placed("any", "", problem.location[:1].repeat(OPS) * 0 + np.arange(OPS) % 2 + 1)
    for sets in ([], [coarsen(problem, 40)]):
        there = search_graph_of(bench, problem, sets, 40 if sets else None)
        weighed = there.weigh(there.project(placed.timeline.schedule))
        candidate = bench.ordered("x", weighed.rule, weighed.device, weighed.rank)
        assert candidate.makespan == weighed.makespan
        assert np.array_equal(np.maximum(candidate.peak - problem.capacity, 0), weighed.over)
        if not sets:
            assert weighed.makespan == placed.makespan


def test_a_graph_along_a_plan_holds_its_placement(case):
    """Nothing of two devices is merged, so that the projected point has every op where the plan had it."""
    graph, cluster, costs = case
    problem = formulate(graph, costs, cluster, QUICK)
    bench = CandidateEvaluator.of(graph, problem)
    plan = bench.placed("any", "", np.random.default_rng(1).integers(1, 3, OPS)).timeline.schedule
    sets = coarsen_along(problem, plan, 60)
    assert sets[0].nodes <= 60 and len(sets) > 1
    for level in sets:
        there = search_graph_of(bench, problem, [level], 60)
        assert there.weigh(there.project(plan)).device.tolist() == plan.device.tolist()


def test_a_coarse_graph_that_spoils_a_plan_is_made_along_it(case):
    """Free at first; where what it makes of the start is longer by more than a twentieth, along the start.

    The full graph is taken where it has hardly more nodes.
    """
    graph, cluster, costs = case
    problem = formulate(graph, costs, cluster, QUICK)
    bench = CandidateEvaluator.of(graph, problem)
    plan = solve(*case, replace(QUICK, deterministic=True), nobody).plan.schedule
    seen = set()
    assert SearchGraphs(bench, problem, [coarsen(problem, 80)], plan).at(80, plan).coarsening is None
    for nodes in (70, 50):
        free = coarsen(problem, nodes)
        there = search_graph_of(bench, problem, [free], nodes)
        longer = there.weigh(there.project(plan)).makespan > 1.05 * plan.makespan
        taken = SearchGraphs(bench, problem, [free], plan).at(nodes, plan)
        assert np.array_equal(taken.coarsening.node_of, free.node_of) != longer
        seen.add(longer)
    assert seen == {False, True}


def test_large_graphs_are_walked_on_along_the_best_plan(case, monkeypatch):
    """Beyond the most nodes: no exact solver, no full graph, and still a better plan."""
    monkeypatch.setattr(search, "MOST_WALKED", 60)
    monkeypatch.setattr(flow, "MOST_WALKED", 60)
    found = solve(*case, QUICK, nobody)
    assert found.candidates["coarse"] is None and "solve" not in found.stages_s
    assert "nodes" in found.candidates["search"].rule
    others = [c.makespan for name, c in found.candidates.items() if c and c.fits and name != "search"]
    assert found.plan.schedule.makespan <= min(others)


def test_quick_methods_also_try_half_of_many_accelerators(case, monkeypatch):
    """One of two here; an op that only the other can run stays there."""
    graph, cluster, costs = case
    problem = formulate(graph, costs, cluster, QUICK)
    duration = problem.duration.copy()
    duration[0, :2] = FORBIDDEN
    bench = CandidateEvaluator.of(graph, problem)
    posed = replace(problem, duration=duration)
    assert not list(quick_candidates._on_half(bench, cluster, posed))
    monkeypatch.setattr(quick_candidates, "_MANY", 1)
    found = {c.name: c for c in quick_candidates._on_half(bench, cluster, posed)}
    assert {name: c.rule for name, c in found.items()} == {
        name: f"{name} on the full graph, 1 of 2 accelerators" for name in ("list", "pardnn")
    }
    for candidate in found.values():
        assert candidate.timeline.schedule.device.tolist() == [2] + [1] * (OPS - 1)


class Endless:
    """A walk that never finds anything."""

    kept = None

    def __init__(self):
        self.stretches = 0

    def stretch(self, *_):
        self.stretches += 1
        time.sleep(0.01)
        return False

    def pause(self):
        return False


class Broken(Endless):
    """One that fails at once."""

    def stretch(self, *_):
        raise RuntimeError("broken")


def test_a_walk_that_fails_ends_the_others():
    """Long before the budget of ten minutes is spent, counted in what the other does."""
    other, most = Endless(), 60_000
    with pytest.raises(RuntimeError, match="broken"):
        list(walk_all([other, Broken()], WalkBudget(seconds=600, stretches=most), lambda: False))
    assert other.stretches < most


def test_a_repair_takes_no_clock_where_the_same_is_to_come_again(case, make_cluster, monkeypatch):
    """A deterministic solve repairs to the end whatever the time; one with a clock stops at once here, unmended."""
    graph, _, costs = case
    tight = replace(QUICK, search=False, time_limit_s=0)
    cluster = make_cluster(memory=4_000_000)

    def mended(settings):
        found = solve(graph, cluster, costs, settings, nobody).candidates["repaired"]
        return found.rule, found.peak.tolist()

    monkeypatch.setattr(quick_candidates, "SECONDS", 0.0)
    at_once, counted = mended(tight), mended(replace(tight, deterministic=True))
    monkeypatch.setattr(quick_candidates, "SECONDS", 600.0)
    assert counted == mended(tight) != at_once
