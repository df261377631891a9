"""No plan promises what it has only when links serve devices that ask at once in its favour."""

from dataclasses import replace

import numpy as np
import pytest

from pesto.core.plans.plan import verify
from pesto.core.plans.statements import unconfirmed_statements
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.planning.solving import candidates
from pesto.planning.solving.candidates import CandidateEvaluator, LinkTieRuns, formulate
from pesto.planning.solving.flow import solve
from pesto.reporting.show.solve_report import InputNames, solve_object, solve_page
from solvers.timing.replay import fifo
from solvers.timing.turns import draw_merges

MS = 10**6
"""Ticks of a millisecond."""
QUICK = Settings(time_limit_s=1, coarsen_to=20, solver="list", deterministic=True)
INPUTS = InputNames(source=Source(model="nmt"), cluster="v100x2-nvlink")


@pytest.fixture
def case(make_graph, make_cluster, make_costs):
    """Variables that keep a, b and (c, d) apart; a and b end at 1 ms and share a link, over which each takes 10 ms.

    c takes 20 ms after a, d 1 ms after b. The plan that counts on a being first ends with c and d at 11 + 20 + 1 ms.
    """
    made = {"s": 1e-3, "kinds": ("gpu",), "param": 6 * 10**8, "bytes": 10**7}
    last = {"kinds": ("gpu",), "param": 3 * 10**8, "group": "last"}
    graph = make_graph(
        [
            {"name": "a", **made},
            {"name": "b", **made},
            {"name": "c", "s": 20e-3, "inputs": ["a"], **last},
            {"name": "d", "s": 1e-3, "inputs": ["b"], **last},
        ]
    )
    cluster = make_cluster(gpus=3)
    paths = tuple(
        tuple(path and replace(path, links=(0,), latency_s=0.0) for path in row) for row in cluster.paths
    )  # fmt: skip
    cluster = replace(cluster, links=("bus",), paths=paths)
    return graph, cluster, make_costs(graph, cluster)


def nobody(incumbent):
    """Watch when nobody does."""


@pytest.fixture
def bench(case):
    """What candidates of the case are measured with."""
    graph, cluster, costs = case
    return CandidateEvaluator.of(graph, formulate(graph, costs, cluster, QUICK))


def leaning(bench, name="list"):
    """The plan that counts on a being first."""
    return bench.ordered(name, "", np.array([1, 2, 3, 3]), np.arange(4))


def test_a_solve_promises_the_worse_time(case):
    """Whoever is first, c then d or d then c may take 42 ms: unpriced it says 32. The plan passes every check."""
    graph, cluster, costs = case
    found = solve(graph, cluster, costs, QUICK, nobody)
    plan, problem = found.plan, found.problem
    assert plan.schedule.makespan == 42 * MS and found.turns.least in (32 * MS, 41 * MS) and found.turns.tried > 30
    verify(plan, graph, problem, cluster)
    unconfirmed_statements(plan, graph, cluster, costs)
    ticks = [
        t
        for t, _ in draw_merges(
            CandidateEvaluator.of(graph, problem).prepared, plan.schedule.device, plan.rank, count=50, seed=9
        )
    ]
    assert max(ticks) == 42 * MS and min(ticks) == found.turns.least
    said = solve_page(found, {}, "plan.json", INPUTS)
    assert "turns         no order says whom a link serves first" in said
    assert solve_object(found, {}, "plan.json")["turns"] == {
        "tried": found.turns.tried, "least_s": found.turns.least / MS / 1000
    }  # fmt: skip


def test_without_a_tie_nothing_is_tried_or_said(case):
    """b takes a tick more: then a is first for sure, and 32 ms hold."""
    graph, cluster, _ = case
    costs = case[2]
    later = replace(costs, compute_s=costs.compute_s + np.array([[0], [1e-9], [0], [0]]))
    found = solve(graph, cluster, later, QUICK, nobody)
    assert found.plan.schedule.makespan == 32 * MS
    assert found.turns == LinkTieRuns(tried=0, least=32 * MS)
    assert "turns" not in solve_page(found, {}, "plan.json", INPUTS)


def test_pricing_keeps_what_is_enforced(bench):
    """Placement and sequences stay, only the times are the worse; pricing again changes nothing."""
    candidate = leaning(bench)
    priced = bench.priced(candidate)
    assert (candidate.makespan, priced.makespan) == (32 * MS, 42 * MS)
    assert (candidate.unsteady, priced.unsteady) == (32 * MS, 52 * MS)  # what an order may be below it counts as above
    assert np.array_equal(priced.timeline.schedule.device, candidate.timeline.schedule.device)
    assert priced.rank[2] < priced.rank[3] and priced.rank[1] < priced.rank[0]
    again = bench.priced_well(priced)
    assert np.array_equal(again.rank, priced.rank) and again.turns.least == priced.turns.least == 32 * MS


def test_what_cannot_win_is_hardly_tried(bench):
    """Of no interest below 40 ms: it ends with the first order that is longer."""
    few, all_ = bench.priced(leaning(bench), 40 * MS).turns.tried, bench.priced(leaning(bench)).turns.tried
    assert few < 20 < all_


def test_a_worse_order_that_does_not_fit_the_memory_is_no_plan(bench):
    """Nothing but the given order fits: it stays, as what fits is what can run."""
    candidate = leaning(bench)
    tight = replace(bench, problem=replace(bench.problem, capacity=candidate.peak))
    worse = bench.priced(candidate)
    assert tight.priced(candidate).fits
    assert tight.priced(candidate).makespan == (42 * MS if (worse.peak <= candidate.peak).all() else 32 * MS)


@pytest.fixture
def roomy(bench):
    """The case with memory for a and b on one GPU, where a is first in its chain: 32 ms, whatever links do."""
    return replace(bench, problem=replace(bench.problem, capacity=10 * bench.problem.capacity))


def safe(roomy, name="search"):
    """The plan that counts on nothing."""
    return roomy.ordered(name, "", np.array([1, 1, 3, 3]), np.arange(4))


def test_every_order_that_is_tried_is_counted(bench, monkeypatch):
    """The plan says how many orders between devices it was the longest of: one for each run, and no other is run."""
    runs = []

    def counted(*given, **more):
        for each in draw_merges(*given, **more):
            runs.append(each)
            yield each

    monkeypatch.setattr(candidates, "draw_merges", counted)
    priced = bench.priced(leaning(bench))
    assert priced.turns.tried == len(runs) > 30
    # Of orders that are as long, the given one stays.
    assert bench.priced(priced).timeline is priced.timeline


def test_an_order_that_promises_what_it_has_is_not_replaced(roomy, monkeypatch):
    """No other order is sought for a plan that is as long whatever links do."""
    monkeypatch.setattr(candidates, "steady_order", lambda *_: pytest.fail("sought"))
    plan = safe(roomy)
    assert roomy.priced_well(plan).timeline is plan.timeline


@pytest.mark.parametrize("fits", [True, False])
def test_a_steadier_order_is_taken_only_where_it_fits(bench, monkeypatch, fits):
    """It is the shorter of the two; without memory for it, the longer one stays."""
    longer = bench.priced(leaning(bench))
    shorter = replace(leaning(bench), fits=fits)
    priced = iter([longer, shorter])
    monkeypatch.setattr(CandidateEvaluator, "priced", lambda *_, **__: next(priced))
    monkeypatch.setattr(candidates, "steady_order", lambda *_: shorter.rank)
    assert bench.priced_well(leaning(bench)) is (shorter if fits else longer)


def test_an_order_left_open_is_first_in_first_out(bench):
    """The same placement, in the order of what is ready first, said in the rule."""
    plan = leaning(bench)
    found = bench.unordered(plan)
    device = plan.timeline.schedule.device
    assert found.makespan == fifo(bench.problem, device).makespan
    assert found.timeline.schedule.device.tolist() == device.tolist()
    assert (found.name, found.rule) == (plan.name, "; its order left to the framework")


@pytest.mark.parametrize("first", [0, 1])
def test_the_choice_is_by_what_is_promised(roomy, first, make_tracker):
    """Both say 32 ms, and what promises 42 loses whoever is offered first."""
    tracker, both = make_tracker(roomy), [leaning(roomy), safe(roomy)]
    assert [c.makespan for c in both] == [32 * MS, 32 * MS] and all(c.fits for c in both)
    for candidate in (both[first], both[1 - first]):
        tracker.offer(candidate)
    assert tracker.best.name == "search" and tracker.best.makespan == 32 * MS
    # What comes second to the safe one cannot win, and is not priced.
    assert tracker.candidates["list"].makespan == (32 if first else 42) * MS


def test_the_best_is_priced_well_at_the_end_until_that_is_done(roomy, make_tracker, monkeypatch):
    """The first of the two is found to be longer than the other, which is priced in turn and stays; no third time."""
    tracker, priced, price = make_tracker(roomy), [], CandidateEvaluator.priced_well

    def counted(evaluator, candidate):
        priced.append(candidate.name)
        return price(evaluator, candidate)

    monkeypatch.setattr(CandidateEvaluator, "priced_well", counted)
    tracker.candidates |= {candidate.name: candidate for candidate in (leaning(roomy), safe(roomy))}
    assert tracker.settle().name == "search" and priced == ["list", "search"]
    tracker.candidates.pop("search")
    assert tracker.settle().makespan == 42 * MS and priced == ["list", "search", "list"]


def test_a_solve_prices_at_the_end(case, monkeypatch):
    """What was tried for the plan is what `priced_well` tries, more than for a candidate."""
    graph, cluster, costs = case
    found = solve(graph, cluster, costs, QUICK, nobody)
    assert found.turns.tried > found.turns.tried // 8 >= candidates._LEAST
    monkeypatch.setattr(CandidateEvaluator, "priced_well", lambda _, candidate: candidate)
    assert solve(graph, cluster, costs, QUICK, nobody).turns.tried < found.turns.tried
