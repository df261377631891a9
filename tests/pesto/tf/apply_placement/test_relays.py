"""What ops outside of the chains send has a place in the chain: an Identity, which remote readers read in its stead."""

import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import UsageError
from pesto.core.graph import Graph
from pesto.core.plans.execution_modes import EXECUTION_MODES
from pesto.core.plans.plan import Plan
from pesto.core.problem import build_problem, payloads
from pesto.core.simulator import simulate
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs, load_graph
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api
from solvers import Problem

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf import models  # noqa: E402
from pesto.tf.apply_placement.placement import number_send_turns  # noqa: E402
from pesto.tf.apply_placement.targets import ApplyOptions  # noqa: E402
from pesto.tf.enforce.partitions import ExpectedPlacement, Findings, examine  # noqa: E402
from pesto.tf.enforce.rewrite import (  # noqa: E402
    RewrittenGraph,
    rename_nodes,
    rewrite_with_report,
)
from pesto.tf.nodes.needed_nodes import RELAY, producer, sinks  # noqa: E402
from pesto.tf.nodes.shape_inference import copy_graph_def  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

DEVICES = 3


@functools.cache
def program() -> tuple[Any, Plan]:
    """rnnlm as a GraphDef with its initialiser, and a plan that has every group somewhere at random."""
    step = models.build("rnnlm", "tiny", None)
    with step.graph.as_default():
        v1.global_variables_initializer()
    graph = sources.from_v1(step.graph, step.fetches)
    plan = api.solve(graph, cluster="cpux3", time_limit_s=0, solver="list")
    rng = np.random.default_rng(4)
    device = rng.integers(0, DEVICES, graph.ops)
    grouped = graph.group >= 0
    device[grouped] = rng.integers(0, DEVICES, graph.ops)[graph.group[grouped]]
    schedule = simulate(problem(graph), device, plan.rank).schedule
    return step.graph.as_graph_def(add_shapes=True), replace(plan, schedule=schedule)


def problem(graph: Graph) -> Problem:
    """The step on the CPUs of the plan, each with one link for all that it sends."""
    cluster = load_cluster("cpux3")
    paths = [
        tuple(path and replace(path, links=(here,)) for path in row) for here, row in enumerate(cluster.paths)
    ]  # fmt: skip
    cluster = replace(cluster, links=("up0", "up1", "up2"), paths=tuple(paths))
    return build_problem(graph, load_costs(graph, cluster, None), cluster, memory=graph.param_bytes)


@functools.cache
def applied() -> RewrittenGraph:
    return planned_names(rewrite_with_report(*program(), ApplyOptions()))


def planned_names(done: RewrittenGraph) -> RewrittenGraph:
    """The same with the plan's names in its graph, also of constants with copies."""
    graph_def = copy_graph_def(done.graph_def)
    rename_nodes(graph_def.node, {written: name for name, written in done.renamed.items()})
    return replace(done, graph_def=graph_def)


def parts(graph_def: Any) -> list[Any]:
    """The nodes by device, as partitions have them."""
    found: dict[str, Any] = {}
    for node in graph_def.node:
        found.setdefault(node.device, v1.GraphDef()).node.append(node)
    return list(found.values())


def crossing(done: RewrittenGraph) -> Iterator[tuple[str, str]]:
    """(source, reader) of data edges between devices within the chains' reach."""
    place, nodes = done.placement, {node.name: node for node in done.graph_def.node}
    chained = {name for name, is_in in zip(place.graph.names, place.chained, strict=True) if is_in}
    for name in chained:
        for text in nodes[name].input:
            if text[0] != "^" and done.edits.device.get(producer(text)) not in (None, nodes[name].device):
                yield producer(text), name


def test_what_is_sent_to_a_chained_op_is_chained() -> None:
    """Or it is a relay, an Identity on the device of what it passes on. Without an order there are none."""
    done = applied()
    place, nodes = done.placement, {node.name: node for node in done.graph_def.node}
    chained = {name for name, is_in in zip(place.graph.names, place.chained, strict=True) if is_in}
    relays = {relay.name for relay in place.relays}
    assert {source for source, _ in crossing(done)} <= chained | relays
    assert any(place.chained[relay.op] for relay in place.relays)
    assert not all(place.chained[relay.op] for relay in place.relays)
    for relay in place.relays:
        node, source = nodes[relay.name], nodes[producer(relay.tensor)]
        assert node.op == "Identity" and node.device == place.device_of(relay.op) and RELAY in node.name
        assert source.op in ("Placeholder", "PlaceholderV2") or source.device == node.device
        assert place.ordered[relay.op]
        assert all(relay.name in nodes[reader].input for reader in relay.readers)
    bare = rewrite_with_report(*program(), ApplyOptions(order=False))
    assert not bare.placement.relays and not any(RELAY in node.name for node in bare.graph_def.node)
    assert bare.placement.copies == place.copies


def test_small_constants_are_copied_to_their_readers() -> None:
    """Nothing reads one on another device; a copy has the value and waits for nothing."""
    done = applied()
    nodes = {node.name: node for node in done.graph_def.node}
    copies = {copy.name: copy for copy in done.placement.copies}
    assert len(copies) > 20
    for copy in copies.values():
        node, constant = nodes[copy.name], nodes[copy.constant]
        assert (node.op, constant.op, list(node.input)) == ("Const", "Const", [])
        assert node.attr["value"] == constant.attr["value"] and node.attr["dtype"] == constant.attr["dtype"]
        assert node.device == done.placement.devices[copy.device] != constant.device
        assert {nodes[reader].device for reader in copy.readers} == {node.device}
        assert all(copy.name in nodes[reader].input for reader in copy.readers)
    for source, reader in crossing(done):
        bytes_ = nodes[source].attr["value"].tensor.ByteSize()
        assert nodes[source].op != "Const" or bytes_ > 128, reader


def test_what_shares_a_link_has_its_turn() -> None:
    """Of what one op sends over one link each goes in a later turn than the one before."""
    _, plan = program()
    place, p = applied().placement, problem(applied().placement.graph)
    _, tensor = payloads(place.graph, per_edge=False)
    found = number_send_turns(replace(plan, names=place.graph.names), place)
    where = [place.devices.index(f"/device:CPU:{k}") for k in range(DEVICES)]
    sent = plan.schedule
    rows: dict[int, list[tuple[int, int, frozenset[int]]]] = {}
    for k in np.lexsort((sent.sent_to, sent.sent_payload)).tolist():
        payload, to = int(sent.sent_payload[k]), int(sent.sent_to[k])
        op = int(place.graph.tensor_op[tensor[payload]])
        links = frozenset(p.holds[p.location[sent.device[op]], to].tolist()) - {-1}
        rows.setdefault(op, []).append((int(tensor[payload]), where[to], links))
    tied = 0
    for several in rows.values():
        for (a, at, mine), (b, to, others) in itertools.combinations(several, 2):
            tied += bool(mine & others)
            assert found[a, at] < found[b, to] or not mine & others
    assert tied > 10 and min(found.values()) == 0


def test_each_relay_waits_for_its_place() -> None:
    """Where one does not, the check of partition graphs says so."""
    done = applied()
    whole = parts(done.graph_def)
    assert not found(done, whole).inversions
    nodes = {node.name: node for part in whole for node in part.node}
    waits = {name: earlier for name, earlier in done.edits.waits.items() if RELAY in name}
    # What waits for nothing but the op whose tensor it passes keeps its place by that.
    waiting = [name for name, earlier in waits.items() if {producer(nodes[name].input[0])} != {*earlier}]
    assert len(waiting) > 10
    for name in waiting[:20]:
        kept = list(nodes[name].input)
        nodes[name].input[:] = kept[:1]
        assert found(done, whole).inversions, name
        nodes[name].input[:] = kept


def found(done: RewrittenGraph, partitions: list[Any]) -> Findings:
    return examine(partitions, ExpectedPlacement(placement=done.placement, loops={}))


def dropped(tries: int) -> int:
    """How many of `tries` the check of partition graphs finds in which 3 % of the chains' edges are not there."""
    done, rng = applied(), np.random.default_rng(6)
    whole = parts(done.graph_def)
    nodes = {node.name: node for part in whole for node in part.node}
    edges = [(name, f"^{earlier}") for name, waits in done.edits.waits.items() for earlier in waits]
    seen = 0
    for _ in range(tries):
        gone = [edges[k] for k in rng.choice(len(edges), max(1, round(0.03 * len(edges))), replace=False)]
        before = {name: list(nodes[name].input) for name, _ in gone}
        for name, edge in gone:
            nodes[name].input.remove(edge)
        seen += bool(found(done, whole).inversions)
        for name, inputs in before.items():
            nodes[name].input[:] = inputs
    return seen


def test_edges_that_are_dropped_are_found() -> None:
    assert dropped(40) == 40


@pytest.mark.slow
def test_a_thousand_times() -> None:
    assert dropped(1000) == 1000


def test_a_graph_that_had_a_plan_asks_for_no_relay() -> None:
    """Nodes that an earlier plan added and nothing reads are no ends of a program."""
    graph_def = v1.GraphDef()
    graph_def.CopyFrom(program()[0])
    wanted = sinks(graph_def)
    node = graph_def.node.add(name=f"data{RELAY}12345678", op="Identity", input=[graph_def.node[0].name])
    assert node.name not in sinks(graph_def) and sinks(graph_def) == wanted


@pytest.mark.slow
def test_the_step_that_runs_takes_what_was_predicted(tmp_path: Path) -> None:
    """In a session most ops that no chain holds send nothing; without their relays the links fill ahead of the plan."""
    graph = load_graph(Source(model="rnnlm", variant="tiny"))
    plan = api.solve(graph, cluster="v100x8", time_limit_s=0, solver="list")
    api.save_plan(plan, tmp_path / "plan.json")
    found = {
        way: CliRunner().invoke(pesto, ["simulate", str(tmp_path / "plan.json"), "--as", way, "--json"])
        for way in EXECUTION_MODES
    }
    said = {way: json.loads(result.stdout) for way, result in found.items()}
    for way in ("session", "graphdef", "function"):
        assert said[way]["as"] == way and 0 < said[way]["outside_the_order"] < graph.ops / 3
        assert said[way]["enforced_s"] == pytest.approx(plan.makespan_s, rel=0.01)
    assert said["session"] == {**said["graphdef"], "as": "session"}
    assert said["function"]["outside_the_order"] < said["session"]["outside_the_order"]
    assert said["placement"]["outside_the_order"] == graph.ops
    assert said["placement"]["enforced_s"] > plan.makespan_s
    page = CliRunner().invoke(pesto, ["simulate", str(tmp_path / "plan.json"), "--as", "session"]).stdout
    assert "as session" in page and "have no place in the order" in page
    refused = CliRunner().invoke(pesto, ["simulate", "--part", str(tmp_path / "plan.json"), "--as", "session"])
    assert isinstance(refused.exception, UsageError)
