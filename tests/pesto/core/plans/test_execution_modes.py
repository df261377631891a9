"""What of an order a way of running enforces, and what is said where that loses: by hand, from files, by the verbs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import InputError, UsageError
from pesto.core.graph import BOUND, BRANCHED, FREE, FUNCTION, NOT_SAID, SESSION, SHARED, Graph
from pesto.core.plans.execution_modes import EXECUTION_MODES, GRAPHDEF, PLACEMENT, relayed_edges, unordered_ops
from pesto.core.problem import build_problem
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.verbs import api

HALF = 12 * 10**9
"""Bytes of variables of which a V100 holds no two."""


def crossed(loose: int = SHARED, way: str = SESSION, late: int = 10**8) -> dict[str, Any]:
    """What `late` bytes, which the plan sends over the one link behind the tensor that `b` waits for, send at once.

    b takes 10 ms from 1 ms on; 100 MB take 2 ms of the link from the start on, where `s` has no place in the order. It
    starts no kernel.
    """
    ops = [
        {"name": "wa", "group": "A", "param_bytes": HALF, "time_s": {"gpu": 0}},
        {"name": "wb", "group": "B", "param_bytes": HALF, "time_s": {"gpu": 0}},
        {"name": "a", "group": "A", "outputs": [4096], "time_s": {"gpu": 1e-3}},
        {"name": "s", "group": "A", "outputs": [late], "loose": loose, "launches": False},
        {"name": "b", "group": "B", "inputs": ["a"], "outputs": [8], "time_s": {"gpu": 1e-2}},
        {"name": "t", "group": "B", "inputs": ["s"], "outputs": [8], "loose": loose, "launches": False},
        {"name": "end", "group": "B", "inputs": ["b", "t"], "time_s": {"gpu": 1e-6}},
    ]
    return {"format": "pesto-graph", "format_version": 1, "way": way, "ops": [{"runs_on": ["gpu"], **op} for op in ops]}


def ran(folder: Path, document: dict[str, Any], *words: str) -> Any:
    (folder / "graph.json").write_text(json.dumps(document))
    return CliRunner().invoke(pesto, [*words, "--graph", str(folder / "graph.json")])


def solved(folder: Path, document: dict[str, Any], *more: str) -> Any:
    done = ran(folder, document, "solve", "-o", str(folder / "plan.json"), "--time-limit", "0", *more)
    assert done.exit_code == 0, done.output
    return done


def test_a_session_that_loses_is_told_with_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On the page, in the JSON and from Python; the remedy has the whole order, and its loss is said."""
    page = " ".join(solved(tmp_path, crossed()).stdout.split())
    assert "as session" in page and ": 2 of 7 ops have no place in the order - plan and run it as a tf.func" in page
    said = json.loads(solved(tmp_path, crossed(), "--json").stdout)
    # The transfer that b waits for begins when the other ends, near 2 ms, and not at 1 ms.
    assert (said["as"], said["outside_the_order"]) == (SESSION, 2)
    assert said["enforced_s"] / said["makespan_s"] == pytest.approx(1.10, abs=0.01)
    assert "tf.function, where all but handles and feeds has a place (+0.00%)" in said["remedy"]
    api.solve(api.load_graph(tmp_path / "graph.json"), time_limit_s=0)
    (told,) = [record.getMessage() for record in caplog.records if "no place in the order" in record.getMessage()]
    assert told.startswith("as session: 12.") and said["remedy"] in told


@pytest.mark.slow
def test_where_nothing_is_lost_nothing_is_said(tmp_path: Path) -> None:
    """As a tf.function; with little to send; and of a graph whose source does not say how it is run."""
    for document in (crossed(way=FUNCTION), crossed(late=1000), crossed(way=NOT_SAID)):
        assert "no place in the order" not in solved(tmp_path, document).stdout
        said = json.loads(solved(tmp_path, document, "--json").stdout)
        assert said["remedy"] is None
        assert ("enforced_s" in said) == bool(document["way"])
        if document["way"]:
            assert said["enforced_s"] == pytest.approx(said["makespan_s"], rel=0.01)


def test_what_no_way_orders_has_another_remedy(tmp_path: Path) -> None:
    """A tf.function loses as much."""
    for way in (SESSION, FUNCTION):
        said = json.loads(solved(tmp_path, crossed(BRANCHED, way), "--json").stdout)
        assert said["enforced_s"] > 1.05 * said["makespan_s"] and "seed" in said["remedy"]


def test_check_and_simulate_replay_what_is_enforced(tmp_path: Path) -> None:
    """From a graph file, without TensorFlow; in the way that is meant, or the one that is asked for."""
    solved(tmp_path, crossed())
    plan = str(tmp_path / "plan.json")
    checked = json.loads(ran(tmp_path, crossed(), "check", plan, "--json").stdout)
    assert (checked["as"], checked["outside_the_order"]) == (SESSION, 2)
    assert checked["enforced_s"] > 1.05 * checked["makespan_s"]
    lines = ran(tmp_path, crossed(), "check", plan).stdout.splitlines()
    assert lines[-1].startswith("as session    12.") and lines[-1].endswith("2 of 7 ops have no place in the order")
    found = {
        way: json.loads(ran(tmp_path, crossed(), "simulate", plan, "--as", way, "--json").stdout)
        for way in EXECUTION_MODES
    }
    assert found[SESSION]["enforced_s"] == found[GRAPHDEF]["enforced_s"] == checked["enforced_s"]
    assert found[FUNCTION]["enforced_s"] == checked["makespan_s"] and not found[FUNCTION]["outside_the_order"]
    assert found[PLACEMENT]["outside_the_order"] == 7
    assert "as session" in ran(tmp_path, crossed(), "simulate", plan, "--as", SESSION).stdout


def test_a_graph_that_says_nothing_is_checked_as_before(tmp_path: Path) -> None:
    """An older graph file: check is silent, and to ask for a way of running is refused with what to do."""
    older = crossed()
    del older["way"]
    for op in older["ops"]:
        op.pop("loose", None)
    solved(tmp_path, older)
    plan = str(tmp_path / "plan.json")
    checked = ran(tmp_path, older, "check", plan, "--json")
    assert {"as", "enforced_s", "outside_the_order"}.isdisjoint(json.loads(checked.stdout))
    refused = ran(tmp_path, older, "simulate", plan, "--as", SESSION)
    assert isinstance(refused.exception, UsageError) and "write its file again" in str(refused.exception)
    assert json.loads(ran(tmp_path, older, "simulate", plan, "--as", PLACEMENT, "--json").stdout)["as"] == PLACEMENT
    step = api.simulate(api.load_plan(plan), api.load_graph(tmp_path / "graph.json"))
    assert step.as_meant() is None
    with pytest.raises(UsageError, match="no way of running is called 'tf'"):
        step.enforced("tf")


def test_who_is_outside_and_for_whom_an_identity_stands(make_graph) -> None:
    """Those that a chained op is sent from elsewhere; not what others outside read, nor what nothing can stand for."""
    names = {"near": SHARED, "far": SHARED, "feed": FREE, "branch": BRANCHED, "idle": SHARED}
    ops: list[dict[str, Any]] = [{"name": name, "bytes": 8} for name in names]
    ops += [{"name": f"reads_{name}", "inputs": [name]} for name in names]
    graph = make_graph(ops)
    loose = [*names.values(), BOUND, BOUND, BOUND, BOUND, SHARED]
    graph = replace(graph, loose=np.array(loose), way=SESSION)
    place = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    cluster = load_cluster("cpux2")
    problem = build_problem(graph, load_costs(graph, cluster, None), cluster, memory=graph.param_bytes)

    def left(way: str) -> set[str]:
        return {graph.names[i] for i in np.flatnonzero(unordered_ops(graph, way))}

    def stood_for(given: Graph, way: str) -> set[str]:
        return {graph.names[i] for i in problem.src[relayed_edges(given, problem, place, way)]}

    assert left(SESSION) == left(GRAPHDEF) == {*names, "reads_idle"}
    assert left(FUNCTION) == {"feed", "branch"}
    assert left(PLACEMENT) == set(graph.names)
    assert stood_for(graph, SESSION) == stood_for(graph, GRAPHDEF) == {"far", "feed"}
    assert stood_for(graph, FUNCTION) == {"feed"}
    # A small constant is copied, so nothing is sent.
    types = replace(graph, types=("Op", "Const"), type_of=np.array([0, 1] + [0] * 8))
    assert stood_for(types, SESSION) == {"feed"}


def test_what_an_identity_sends_leaves_in_turn_while_its_op_runs_beside(tmp_path: Path) -> None:
    """s starts a kernel of 4 ms and reads nothing: it gets the GPU as the step begins, and a, planned first, waits."""
    document = crossed(late=10**6)
    ops = {op["name"]: op for op in document["ops"]}
    ops["s"].update(launches=True, time_s={"gpu": 4e-3})
    ops["t"].update(loose=BOUND)
    solved(tmp_path, document)
    graph = api.load_graph(tmp_path / "graph.json")
    plan = api.load_plan(tmp_path / "plan.json")
    rank = dict(zip(plan.names, plan.rank.tolist(), strict=True))
    assert rank["a"] < rank["s"]
    step = api.simulate(plan, graph)
    problem, device = step.bench.problem, plan.schedule.device
    sent = relayed_edges(graph, problem, device, SESSION)
    assert [graph.names[i] for i in problem.src[sent]] == ["s"]
    found = step.enforced(SESSION)
    assert found.outside == 1
    assert found.makespan_s == pytest.approx(step.run.timeline.makespan_s + 4e-3, rel=0.05)


def test_a_graph_refuses_what_it_cannot_mean(make_graph) -> None:
    plain: Graph = make_graph([{"name": "a"}])
    with pytest.raises(InputError, match="way is 'eager'"):
        replace(plain, way="eager")
    with pytest.raises(InputError, match=r"loose\[0\] = 4 points at nothing"):
        replace(plain, loose=np.array([4]))
    with pytest.raises(InputError, match="loose has shape"):
        replace(plain, loose=np.array([0, 1]))
