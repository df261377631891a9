"""Every statement of a plan's file is verified, contradicted by what is at hand, or named as the file's own word.

A plan of a diamond with a coarse solve, by the roofline and the graph's own times, on a preset. Each key of its
provenance is changed in turn, in ways that do not concern the schedule.
"""

import json
from dataclasses import asdict, fields

import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import InputError, MismatchError, PestoError, UsageError, VerificationError
from pesto.core.files.graph_file import save
from pesto.core.plans import plan_file
from pesto.core.plans.plan import CoarseSolve, Provenance
from pesto.core.plans.statements import NOT_CHECKED
from pesto.core.settings import Settings
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.flow import solve

CLUSTER = "v100x2-nvlink"


@pytest.fixture(scope="module")
def solved():
    """Filled once: (plan, graph)."""
    return []


@pytest.fixture
def files(make_graph, solved, tmp_path):
    """The plan and its graph on disk."""
    if not solved:
        on = {"kinds": ("gpu",), "bytes": 94_386_000}
        rows = [("a", (), 1e-3), ("b", ("a",), 3e-3), ("c", ("a",), 3e-3), ("d", ("b", "c"), 1e-3)]
        ops = [{"name": name, "inputs": inputs, "s": s, **on} for name, inputs, s in rows]
        graph = make_graph([op | ({"group": "x"} if op["name"] in "ad" else {}) for op in ops])
        cluster = load_cluster(CLUSTER)
        settings = Settings(time_limit_s=2, coarsen_to=1)
        solved[:] = solve(graph, cluster, load_costs(graph, cluster, None), settings, lambda _: None).plan, graph
    plan_file.save(solved[0], tmp_path / "plan.json")
    save(solved[1], tmp_path / "graph.json")
    return tmp_path


def run(verb, folder, *more):
    return CliRunner().invoke(pesto, [verb, str(folder / "plan.json"), "--graph", str(folder / "graph.json"), *more])


def edited(folder, change):
    """The plan's file with its document changed in place."""
    document = json.loads((folder / "plan.json").read_bytes())
    change(document)
    (folder / "plan.json").write_text(json.dumps(document))


COARSE = {"nodes": 4, "reason": "reached 4", "solver": "gurobi", "version": "99", "status": "optimal", "limit": "",
          "makespan_ticks": 9, "lower_bound_ticks": 7, "detail": "", "bound_by": "x"}  # fmt: skip
REFUSED = {
    "graph_fingerprint": ("0" * 64, MismatchError),
    "graph_layout": ("0" * 64, MismatchError),
    "graph_listing": ("0" * 64, MismatchError),
    "cluster": ("v100x2-pcie", VerificationError),
    "cluster_source": ("preset dgx", VerificationError),
    "cluster_origin": ({"kind": "preset", "name": "dgx"}, VerificationError),
    "costs_files": ([{"kind": "times", "name": "x.csv"}], UsageError),
    "costs": ("roofline of H100", VerificationError),
    "costs_basis": ("modelled", VerificationError),
    "chosen": ("magic", VerificationError),
    "lower_bound_ticks": (1, VerificationError),
    "lower_bound_name": ("magic", VerificationError),
    "links": ("magic", VerificationError),
    "transfers": ("magic", VerificationError),
}
"""By key: another value, and what refuses it."""
INVALID = VerificationError
MORE = {
    "a basis that asks for a profile": (lambda made: made.update(costs_files=[{"kind": "profile"}]), UsageError),
    "a candidate without a word of its memory": (lambda made: made["candidates_ticks"].update(x=9**9), INVALID),
    "a shorter candidate that fits": (
        lambda made: (made["candidates_ticks"].update(x=1), made["candidates_fit"].update(x=True)), INVALID,
    ),
    "settings of the other kind of transfers": (lambda made: made["settings"].update(per_edge=True), INVALID),
    "a coarse graph of more nodes than ops": (lambda made: made.update(coarse={**COARSE, "nodes": 5}), INVALID),
    "a coarse bound above its schedule": (
        lambda made: made.update(coarse={**COARSE, "lower_bound_ticks": 10}), INVALID,
    ),
    "evidence for no bound": (
        lambda made: made.update(lower_bound_evidence={"anchors": [], "weights": [], "claims": []}),
        (INVALID, InputError),
    ),
}  # fmt: skip
"""By what is said: how, and what refuses it."""
STATED = {
    "graph_source": "model nmt",
    "graph_origin": {
        "kind": "model",
        "name": "nmt",
        "variant": "small",
        "batch": 64,
        "micro_batches": None,
        "late": None,
        "every": 1,
    },
    "graph_batch": 64,
    "candidates_ticks": {"x": 9**12},
    "candidates_fit": {"x": False},
    "rule": "optimal, by magic",
    "coarse": COARSE,
    "settings": {"time_limit_s": 1e9},
    "pesto_version": "99",
}
"""By key: what may be said, as nothing at hand knows better."""


def test_each_key_of_the_provenance_is_accounted_for() -> None:
    """A new key has to be verified, or to be named as the file's word."""
    assert {f.name for f in fields(Provenance)} == {*REFUSED, *STATED, "lower_bound_evidence"}
    assert set(COARSE) == {f.name for f in fields(CoarseSolve)}


@pytest.mark.parametrize("key", REFUSED)
def test_what_can_be_recomputed_is_refused_where_it_is_false(key, files) -> None:
    """By check, and by simulate, on the plan's own cluster and on another one."""
    value, error = REFUSED[key]
    edited(files, lambda document: document["provenance"].update({key: value}))
    named = ("--cluster", CLUSTER)
    for verb, more in (("check", ("--certificate", *named)), ("simulate", ()), ("simulate", ("--cluster", "v100x4"))):
        refused = run(verb, files, *more).exception
        # A plan is simulated on the preset that it names, which is another cluster then.
        assert isinstance(refused, error), (verb, refused)


@pytest.mark.parametrize("what", MORE)
def test_what_contradicts_itself_or_what_is_at_hand_is_refused(what, files) -> None:
    change, error = MORE[what]
    edited(files, lambda document: change(document["provenance"]))
    for verb, more in (("check", ()), ("simulate", ()), ("simulate", ("--cluster", "v100x4"))):
        refused = run(verb, files, *more).exception
        assert isinstance(refused, error) and "\n" not in str(refused), (verb, refused)


@pytest.mark.parametrize("key", STATED)
def test_the_rest_is_named_as_the_files_own_word(key, files) -> None:
    """In the line of the certificate and, with its value, in the object; valid all the same."""

    def change(document):
        made = document["provenance"]
        made[key] = made[key] | STATED[key] if key.startswith("candidates") else STATED[key]
        if key.startswith("candidates"):
            made["candidates_ticks"].setdefault("x", 9**12)
            made["candidates_fit"].setdefault("x", False)

    edited(files, change)
    said = run("check", files, "--certificate").output.replace("\n  ", " ").splitlines()[-1]
    assert NOT_CHECKED in said and key in said.partition(NOT_CHECKED)[2].replace(":", ",").replace(" ", "").split(",")
    stated = json.loads(run("check", files, "--certificate", "--json").output)["not_checked"][key]
    assert stated == STATED[key] or (key.startswith("candidates") and stated["x"] == STATED[key]["x"])


def test_what_is_at_hand_is_not_called_unchecked(files, solved) -> None:
    """A fresh plan: its graph's source and batch, its cluster and its costs are those at hand."""
    left = json.loads(run("check", files, "--certificate", "--json").output)["not_checked"]
    assert set(left) == {"candidates_ticks", "candidates_fit", "coarse", "rule", "settings", "pesto_version"}
    assert left["coarse"] == asdict(solved[0].provenance.coarse)
    assert "not_checked" not in json.loads(run("check", files, "--json").output)


def test_a_plan_of_another_cluster_is_simulated_as_far_as_it_is_sound(files) -> None:
    """Of a cluster that only a file described nothing but the placement and the order can be checked, and is."""

    def away(document):
        document["provenance"].update(
            cluster="mine", cluster_source="mine.toml", cluster_origin={"kind": "file", "name": "mine.toml"}
        )

    edited(files, away)
    lanes = len(json.loads((files / "plan.json").read_bytes())["lanes"])
    assert run("simulate", files, "--cluster", CLUSTER).exit_code == 0
    assert run("simulate", files, "--cluster", "v100x4").exit_code == 0
    for name, change in {
        "ranks that go back": lambda ops: ops.update(rank=ops["rank"][::-1]),
        "ranks that repeat": lambda ops: ops.update(rank=[0] * 4),
        "a host that has no kernel": lambda ops: ops.update(device=[0] * 4),
        "a group in two places": lambda ops: ops.update(device=[*ops["device"][:3], 2 * lanes - 3 - ops["device"][0]]),
    }.items():
        before = (files / "plan.json").read_bytes()
        edited(files, lambda document, change=change: change(document["ops"]))
        refused = run("simulate", files, "--cluster", "v100x4").exception
        assert isinstance(refused, PestoError) and "the plan is invalid" in str(refused), (name, refused)
        (files / "plan.json").write_bytes(before)
