"""A small graph is the exact solver's problem itself: what it proves is the graph's bound, and said to be its word."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import VerificationError
from pesto.core.files.graph_file import save
from pesto.core.plans import plan_file
from pesto.core.plans.plan import best_bound, claimant, verify
from pesto.core.settings import Settings
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.candidates import formulate
from pesto.planning.solving.exact import full_graph_run, is_small
from pesto.planning.solving.flow import solve
from solvers.bounds.evidence import Evidence, FullBound
from solvers.bounds.full import full_bound
from tests.oracles.exhaustive import exhaustive

SETTINGS = Settings(time_limit_s=20, deterministic=True, search=False)
CLUSTER = "v100x2-nvlink"


def tiny(make_graph, seed):
    """Six ops of some 100 us on GPUs, each of which reads one or two earlier ones; tensors cross in 60 to 100 us."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(6):
        inputs = [f"op{at}" for at in np.unique(rng.integers(0, k, 2))] if k > 1 else []
        rows.append({"name": f"op{k}", "inputs": inputs, "s": float(rng.integers(100_000, 300_000)) * 1e-9,
                     "kinds": ("gpu",), "bytes": int(rng.integers(10**6, 3 * 10**6))})  # fmt: skip
    return make_graph(rows)


def solved(graph, settings=SETTINGS):
    cluster = load_cluster(CLUSTER)
    costs = load_costs(graph, cluster, None)
    return solve(graph, cluster, costs, settings, lambda _: None)


@pytest.fixture(scope="module")
def kept():
    """Filled once: (outcome, graph, problem, cluster)."""
    return []


@pytest.fixture
def case(make_graph, kept):
    """A graph of which arithmetic alone does not prove the optimum."""
    if not kept:
        graph, cluster = tiny(make_graph, 33), load_cluster(CLUSTER)
        problem = formulate(graph, load_costs(graph, cluster, None), cluster, SETTINGS)
        kept.append((solved(graph), graph, problem, cluster))
    return kept[0]


@pytest.mark.parametrize("seed", [10, 21, 52])
def test_plans_of_tiny_graphs_are_proven_optimal(make_graph, seed) -> None:
    """The plan and its bound are the enumerated optimum, which the bounds without a solver do not reach."""
    graph = tiny(make_graph, seed)
    found = solved(graph)
    best = exhaustive(found.problem).makespan
    assert full_bound(found.problem).ticks < best == found.plan.schedule.makespan
    assert found.plan.status == "optimal" and found.plan.gap == 0
    assert claimant(found.plan.provenance.lower_bound_name) == "cpsat"


@pytest.mark.parametrize("change", [{"congestion": False}, {"time_limit_s": 0}, {"solver": "list"}])
def test_no_bound_is_above_the_optimum(make_graph, change) -> None:
    """Without links the solver's bound holds as well, and what proves nothing claims nothing."""
    for seed in (30, 33):
        found = solved(tiny(make_graph, seed), replace(SETTINGS, **change))
        assert found.plan.provenance.lower_bound_ticks <= exhaustive(found.problem).makespan
        if found.exact is not None:
            assert found.exact.coarsening.nodes == 6 and found.exact.coarsening.reason == "the graph itself"


def test_a_bound_of_the_links_is_not_told_to_a_solver_without_them(case) -> None:
    """It may be above what that solver rightly finds."""
    _, _, problem, _ = case
    assert full_graph_run(problem, SETTINGS, 7).lower_bound == 7
    assert full_graph_run(problem, replace(SETTINGS, congestion=False), 7).lower_bound == 0


def test_it_obeys_the_threshold(case) -> None:
    """Below twice the nodes that a graph is coarsened to; a larger graph has the bounds that it always had."""
    _, graph, problem, _ = case
    assert is_small(problem, replace(SETTINGS, coarsen_to=4)) and not is_small(problem, replace(SETTINGS, coarsen_to=3))
    coarse = solved(graph, replace(SETTINGS, coarsen_to=2))
    assert coarse.exact is not None and coarse.exact.coarsening.nodes == 2
    assert not claimant(coarse.plan.provenance.lower_bound_name)


def test_a_claim_is_kept_in_the_file_and_told_as_one(case, tmp_path) -> None:
    """`check --certificate` says whose word the bound is, and what follows by arithmetic."""
    outcome, graph, problem, cluster = case
    plan_file.save(outcome.plan, tmp_path / "plan.json")
    save(graph, tmp_path / "graph.json")
    again = plan_file.load(tmp_path / "plan.json")
    assert plan_file.dumps(again) == plan_file.dumps(outcome.plan)
    verify(again, graph, problem, cluster)
    words = ["check", tmp_path / "plan.json", "--graph", tmp_path / "graph.json", "--cluster", CLUSTER, "--certificate"]
    told = CliRunner().invoke(pesto, list(map(str, words))).output.replace("\n  ", " ")
    assert "by cpsat's search of the graph itself, which is the word of cpsat: it has no certificate" in told
    assert "recomputed: 633.84 µs by device_load, gap 5.4%" in told
    said = json.loads(CliRunner().invoke(pesto, [*map(str, words), "--json"]).output)
    assert said["not_checked"]["lower_bound_ticks"] == outcome.plan.schedule.makespan
    assert said["claimed_by"] == "cpsat" and said["gap"] == 0
    assert said["recomputed_bound_s"] == pytest.approx(633_839e-9) and said["recomputed_bound"] == "device_load"


@pytest.mark.parametrize(
    "change",
    [
        {"lower_bound_ticks": 633_840},
        {"lower_bound_ticks": 10**9},
        {"lower_bound_name": "highs's search of the graph itself"},
        {"lower_bound_name": "magic's search of the graph itself"},
        {"coarse": None},
        {"lower_bound_evidence": Evidence(anchors=(), weights=(), claims=())},
    ],
)
def test_a_claim_that_the_record_of_the_solver_does_not_bear_out_is_refused(case, change) -> None:
    """Another number, another solver, or none."""
    outcome, graph, problem, cluster = case
    other = replace(outcome.plan, provenance=replace(outcome.plan.provenance, **change))
    with pytest.raises(VerificationError, match="lower bound"):
        verify(other, graph, problem, cluster)


@pytest.mark.parametrize("ticks", [633_839, 10**9])
def test_a_claim_must_say_more_than_arithmetic_and_be_no_longer_than_the_plan(case, ticks) -> None:
    """Even where the solver's record says the same."""
    outcome, graph, problem, cluster = case
    made = outcome.plan.provenance
    coarse = replace(made.coarse, lower_bound_ticks=ticks)
    other = replace(outcome.plan, provenance=replace(made, lower_bound_ticks=ticks, coarse=coarse))
    with pytest.raises(VerificationError, match="not between"):
        verify(other, graph, problem, cluster)


def test_a_weaker_claim_changes_nothing() -> None:
    """What is known by arithmetic stands unless the solver proved more."""
    known = FullBound(7, "device_load")
    assert best_bound(7, "cpsat", known) is known
    assert best_bound(8, "cpsat", known) == FullBound(8, "cpsat's search of the graph itself")
