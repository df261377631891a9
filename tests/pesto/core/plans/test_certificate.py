"""A plan whose lower bound needs evidence: written, loaded, checked, and refused when anything of it is changed."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import Exit, InputError, VerificationError
from pesto.core.files.graph_file import save
from pesto.core.plans import plan_file
from pesto.core.plans.plan import verify
from pesto.core.settings import Settings
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.candidates import formulate
from pesto.planning.solving.flow import solve
from pesto.planning.solving.tracker import SolveRecord, make_plan
from solvers.bounds import quick_bounds
from solvers.bounds.evidence import ANCHORED
from solvers.bounds.full import full_bound

QUICK = Settings(time_limit_s=600, coarsen_to=8)
CLUSTER = "v100x2-nvlink"


def diamond(make_graph):
    """1 ms, two ops of 3 ms, 1 ms, on GPUs; each tensor crosses in 2 ms (40.771 us + 2.07573e-5 us a byte)."""
    on = {"kinds": ("gpu",), "bytes": 94_386_000}
    rows = [("a", (), 1e-3), ("b", ("a",), 3e-3), ("c", ("a",), 3e-3), ("d", ("b", "c"), 1e-3)]
    return make_graph([{"name": name, "inputs": inputs, "s": s, **on} for name, inputs, s in rows])


@pytest.fixture(scope="module")
def solved():
    """Filled once: (plan, graph, problem, cluster)."""
    return []


@pytest.fixture
def case(make_graph, solved):
    """A plan of the diamond with the full graph's bound, its graph, problem and cluster."""
    if not solved:
        graph, cluster = diamond(make_graph), load_cluster(CLUSTER)
        costs = load_costs(graph, cluster, None)
        problem = formulate(graph, costs, cluster, QUICK)
        found = solve(graph, cluster, costs, QUICK, lambda _: None)
        candidates = {name: c for name, c in found.candidates.items() if c is not None}
        chosen = candidates[found.plan.provenance.chosen]
        bound = full_bound(problem, seconds=600)
        record = SolveRecord(graph=graph, cluster=cluster, costs=costs, settings=QUICK, bound=bound)
        solved.append((make_plan(record, chosen, candidates), graph, problem, cluster))
    return solved[0]


@pytest.fixture
def files(case, tmp_path):
    """The plan and the graph on disk."""
    plan, graph, *_ = case
    plan_file.save(plan, tmp_path / "plan.json")
    save(graph, tmp_path / "graph.json")
    return tmp_path


def check(folder, *more):
    words = ["check", folder / "plan.json", "--graph", folder / "graph.json", "--cluster", CLUSTER, *more]
    return CliRunner().invoke(pesto, [str(word) for word in words])


def test_the_bound_of_the_full_graph_is_the_optimum_of_the_diamond(case) -> None:
    """One op beside each end: 1 + 3 + 2 + 1 = 7 ms, and all on one GPU 8; longest paths and loads say 5."""
    plan, _, problem, _ = case
    assert plan.provenance.lower_bound_name == ANCHORED
    assert plan.makespan_s == pytest.approx(7e-3, rel=1e-5)
    assert plan.status == "optimal"
    assert quick_bounds.best(problem)[0] == 5_000_000


def test_a_plan_with_evidence_is_saved_loaded_and_verified(case, files) -> None:
    """Byte for byte the same again, evidence included."""
    plan, graph, problem, cluster = case
    again = plan_file.load(files / "plan.json")
    assert again.provenance.lower_bound_evidence == plan.provenance.lower_bound_evidence
    assert plan_file.dumps(again) == plan_file.dumps(plan)
    verify(again, graph, problem, cluster)


def unbroken(text: str) -> list[str]:
    """Lines as they were before they were broken to fit a terminal."""
    return text.replace("\n  ", " ").splitlines()


def test_the_certificate_is_said_in_three_lines_and_in_json(files) -> None:
    """Valid, with the step; the bound of the full graph, by whom, and the gap; what is the file's word alone."""
    said = unbroken(check(files, "--certificate").output)
    assert len(said) == 3
    assert ": stated by the file, not checked: candidates_ticks, candidates_fit, " in said[2]
    assert said[2].endswith(", rule, settings, pesto_version")
    assert "valid; 4 ops, 7.00 ms predicted" in said[0]
    assert f"lower bound 7.00 ms on the full graph by {ANCHORED}" in said[1]
    assert said[1].endswith("gap 0%")
    assert len(unbroken(check(files).output)) == 1
    found = json.loads(check(files, "--certificate", "--json").output)
    assert found["valid"] and found["gap"] == 0.0 and found["lower_bound"] == ANCHORED and found["claims"] > 0
    assert found["lower_bound_s"] == found["makespan_s"] == pytest.approx(7e-3, rel=1e-5)
    assert "claims" not in json.loads(check(files, "--json").output)


def test_a_fast_bound_needs_no_evidence(case, files) -> None:
    """The same plan with the best fast bound: 5 of 7 ms, a gap of 28.6 %."""
    plan, graph, problem, cluster = case
    ticks, name = quick_bounds.best(problem)
    changes = {"lower_bound_ticks": ticks, "lower_bound_name": name, "lower_bound_evidence": None}
    fast = replace(plan, provenance=replace(plan.provenance, **changes))
    verify(fast, graph, problem, cluster)
    plan_file.save(fast, files / "plan.json")
    assert unbroken(check(files, "--certificate").output)[1].endswith(f"{name}; gap 28.6%")


def test_a_file_without_the_key_is_read(case) -> None:
    """Plans were written before bounds had evidence."""
    plan, graph, problem, cluster = case
    document = json.loads(plan_file.dumps(plan))
    ticks, name = quick_bounds.best(problem)
    document["provenance"] |= {"lower_bound_ticks": ticks, "lower_bound_name": name}
    del document["provenance"]["lower_bound_evidence"]
    older = plan_file.loads(json.dumps(document).encode(), "plan")
    assert older.provenance.lower_bound_evidence is None
    verify(older, graph, problem, cluster)


def claims(made, rows):
    made["lower_bound_evidence"]["claims"] = rows


def raised(made):
    first, *rest = made["lower_bound_evidence"]["claims"]
    claims(made, [[*first[:3], first[3] + 9**9, *first[4:]], *rest])


TAMPERED = {
    "a larger bound": lambda made: made.update(lower_bound_ticks=made["lower_bound_ticks"] + 1),
    "a smaller bound": lambda made: made.update(lower_bound_ticks=made["lower_bound_ticks"] - 1),
    "another name": lambda made: made.update(lower_bound_name="critical_path"),
    "no evidence": lambda made: made.update(lower_bound_evidence=None),
    "no claims": lambda made: claims(made, []),
    "a larger claim": raised,
    "a claim of two numbers": lambda made: claims(made, [[0, 1]]),
    "no anchors": lambda made: made["lower_bound_evidence"].update(anchors=[]),
    "an anchor beyond the graph": lambda made: made["lower_bound_evidence"].update(anchors=[10**18]),
    "another weight": lambda made: made["lower_bound_evidence"].update(weights=[[1]]),
    "the bound of another graph": lambda made: made["lower_bound_evidence"].update(anchors=[0, 1]),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_is_tampered_with_is_refused(what, files) -> None:
    """As any invalid plan: exit code 6, and one line that says what of the bound is wrong."""
    document = json.loads((files / "plan.json").read_bytes())
    TAMPERED[what](document["provenance"])
    (files / "plan.json").write_text(json.dumps(document))
    for flags in ((), ("--certificate",)):
        refused = check(files, *flags).exception
        assert isinstance(refused, VerificationError) and refused.exit_code == Exit.VERIFICATION, what
        assert "lower bound" in str(refused) and "\n" not in str(refused)


def test_evidence_that_is_no_list_of_numbers_is_refused_on_reading(files) -> None:
    """By the file's own rules, with the place."""
    document = json.loads((files / "plan.json").read_bytes())
    document["provenance"]["lower_bound_evidence"]["anchors"] = ["a"]
    with pytest.raises(InputError, match="anchors"):
        plan_file.loads(json.dumps(document).encode(), "plan")
