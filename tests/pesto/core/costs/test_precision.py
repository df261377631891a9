"""What a result says of ops that compute in a data type which their device has no peak for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import pesto
from pesto.cli.main import pesto as command
from pesto.core.costs import MEASURED, Costs
from pesto.core.costs.analytical import model_costs, note_missing_peaks
from pesto.core.files import graph_file
from pesto.core.graph import Graph
from pesto.inputs.cluster_file import load_cluster

FLOPS = 10_990_000_000_000
"""Of one second on a V100, of which 70 % are reached; a launch of 5 us is nothing beside it."""


def step(*dtypes: str, **more: Any) -> Graph:
    """A chain of ops of a second each, one in every data type; `more` is said of each."""
    ops = [
        {"name": f"op{i}", "outputs": [4], "dtypes": [dtype], "flops": FLOPS, "runs_on": ["gpu"]}
        | ({"inputs": [f"op{i - 1}"]} if i else {})
        | more
        for i, dtype in enumerate(dtypes)
    ]
    return graph_file.loads(json.dumps({"format": "pesto-graph", "format_version": 1, "ops": ops}).encode(), "step")


def note(graph: Graph) -> str:
    cluster = load_cluster("v100x2-nvlink")
    return note_missing_peaks(graph, cluster, model_costs(graph, cluster)).note


def test_ops_are_counted_by_type_with_their_share_of_the_time() -> None:
    """Three of four seconds are in other types, the most frequent first; one that nobody knows is another, too."""
    found = note(step("fp6", "bfloat16", "float32", "bfloat16"))
    assert found == "2 ops in bfloat16, 1 op in fp6 (75.0% of the time) costed as float32"


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("int32", "uint8"), ("", ""), ("bool", "resource")])
def test_float32_integers_and_what_is_not_known_need_no_word(dtypes: tuple[str, ...]) -> None:
    """The model is right, or there is no precision."""
    assert note(step(*dtypes)) == ""


@pytest.mark.parametrize("said", [{"flops": 0, "moved_bytes": 10**9}, {"launches": False}, {"time_s": {"gpu": 1.0}}])
def test_what_moves_data_starts_nothing_or_has_its_time_given_needs_no_word(said: dict[str, Any]) -> None:
    """Half as many bytes take half the time; times that are given are those of the type."""
    assert note(step("bfloat16", "float32", **said)) == ""


def test_measured_times_need_no_word() -> None:
    """Of two ops in half precision one is measured: one is left."""
    graph = step("bfloat16", "bfloat16", "float32")
    some = model_costs(graph, load_cluster("v100x2-nvlink"))
    costs = Costs(compute_s=some.compute_s, origin=np.where([True, False, False], MEASURED, some.origin), source="x")
    assert (
        note_missing_peaks(graph, load_cluster("v100x2-nvlink"), costs).note
        == "1 op in bfloat16 (33.3% of the time) costed as float32"
    )


@pytest.fixture(params=["bfloat16", "float32"])
def shown(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[bool, Path]:
    """A step on disk, and whether there is something to say of it."""
    graph_file.save(step(request.param, "float32"), tmp_path / "step.json")
    return request.param == "bfloat16", tmp_path


def test_every_result_says_so(shown: tuple[bool, Path]) -> None:
    """The pages and the JSON of solve, compare, sweep and simulate; not a word where all is in float32."""
    there, folder = shown
    text, file = "1 op in bfloat16 (50.0% of the time) costed as float32", folder / "step.json"
    short = ("--time-limit", "0", "--solver", "list", "-o", folder / "plan.json")
    verbs = (
        ("solve", "--graph", file, *short, "-q"),
        ("compare", "--graph", file, "--methods", "single,list", "--time-limit", "0", "-q", "-o", folder / "plans"),
        ("sweep", "--graph", file, "--compute", "1,2", "--time-limit", "0", "-q"),
        ("simulate", folder / "plan.json", "--graph", file),
    )
    for verb in verbs:
        for how in ((), ("--json",)):
            done = CliRunner().invoke(command, [*map(str, verb), *how])
            assert done.exit_code == 0, done.output
            assert (text in " ".join(done.stdout.split())) is there, (verb, how)
            if how:
                assert json.loads(done.stdout).get("costs_note", "") == (text if there else "")


def test_python_is_told(shown: tuple[bool, Path], caplog: pytest.LogCaptureFixture) -> None:
    """A plan has no place for it, so it is logged; other results have it."""
    there, folder = shown
    graph = pesto.load_graph(folder / "step.json")
    plan = pesto.solve(graph, time_limit_s=0, solver="list")
    assert ("1 op in bfloat16" in caplog.text) is there
    assert bool(pesto.simulate(plan, graph).costs_note) is there


def test_plans_stay_valid_whatever_is_known_of_data_types(tmp_path: Path) -> None:
    """A plan of a graph with data types passes the check on the graph without, and the other way round."""
    there = step("bfloat16", "float32")
    without = replace(there, dtypes=(), dtype_of=np.full(2, -1), tensor_dtype=np.full(2, -1))
    assert (there.fingerprint(), there.listing()) == (without.fingerprint(), without.listing())
    for planned, other in ((there, without), (without, there)):
        pesto.check(pesto.solve(planned, time_limit_s=0, solver="list"), other)


def test_plans_that_rest_on_other_times_are_refused_and_carried_over() -> None:
    """A graph whose kernels are known has the fingerprint of one without, and other times."""
    plain = step("float32", "float32")
    rows = np.zeros((2, 12), dtype=int)
    rows[:, :5] = [1, 20_000, 20_000, 14_000, 1]
    known = replace(plain, kernels=rows)
    older = pesto.solve(plain, time_limit_s=0, solver="list")
    assert plain.fingerprint() == known.fingerprint()
    with pytest.raises(pesto.VerificationError):
        pesto.check(older, known)
    carried = pesto.solve(known, time_limit_s=0, solver="list", start=older)
    pesto.check(carried, known)
