"""A trace has every op and transfer once, no two slices of a track overlap, and its counters are the bytes alive."""

import gzip
import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from click.testing import CliRunner

import pesto
from pesto.cli.main import pesto as command
from pesto.core.errors import MismatchError
from pesto.reporting.show.trace import DEVICES, LINKS, first_readers, gzip_bytes, trace

HOSTILE = ("<script>alert(1)</script>", "a\u202egpj.exe", "nul\0nul", "two\nlines", "x" * 4097)
CLUSTERS = ("v100x2-nvlink", "v100x2-pcie", "v100x4x2-25gbe", "cpux2")


def a_step(seed: int, ops: int = 30) -> pesto.Graph:
    """A random graph whose ops and tensors may take no time."""
    rng = np.random.default_rng(seed)
    dag = nx.DiGraph()
    for i in range(ops):
        dag.add_node(f"op{i}", seconds=float(rng.integers(0, 3)) * 1e-3, type=f"T{i % 3}")
    names = list(dag)
    for i in range(1, ops):
        for j in rng.choice(i, size=min(i, 2), replace=False):
            dag.add_edge(names[j], names[i], bytes=int(rng.integers(0, 2)) * 40_000_000)
    return pesto.graph_from_networkx(dag)


def traced(graph: pesto.Graph, cluster: str) -> tuple[pesto.Plan, pesto.Simulation, list[dict]]:
    """A plan, its step, and the events of its trace."""
    plan = pesto.solve(graph, cluster=cluster, time_limit_s=0)
    run = pesto.simulate(plan, graph, cluster=cluster)
    return plan, run, json.loads(trace(plan, run))["traceEvents"]


@pytest.mark.parametrize(("seed", "cluster"), list(enumerate(CLUSTERS)))
def test_a_trace_is_the_step(seed: int, cluster: str) -> None:
    """Slices, counters and arrows, read back, are the simulated step."""
    plan, run, events = traced(a_step(seed, ops=80), cluster)
    s, slices = run.run.timeline.schedule, [e for e in events if e["ph"] == "X"]
    ops = [e for e in slices if e["pid"] == DEVICES]
    assert sorted(e["args"]["op"] for e in ops) == list(range(len(plan.names)))
    for e in ops:
        i = e["args"]["op"]
        assert (e["name"], e["tid"] - 1) == (plan.names[i], s.device[i])
        assert (round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)) == (s.start[i], s.finish[i])
    sent = [e for e in slices if e["pid"] == LINKS]
    links = [
        max(1, len(run.cluster.paths[a][b].links))
        for a, b in zip(
            run.bench.problem.location[s.device[run.bench.problem.producer[s.sent_payload]]], s.sent_to, strict=True
        )
    ]
    assert Counter(e["args"]["transfer"] for e in sent) == Counter(dict(enumerate(links)))
    no_overlap(slices)
    counted(run, events)
    arrows(run, events)


def no_overlap(slices: list[dict]) -> None:
    """In the order of the file, each slice of a track begins where those before it have ended."""
    end: dict[tuple[int, int], int] = defaultdict(int)
    for e in slices:
        begin = round(e["ts"] * 1000)
        assert begin >= end[e["pid"], e["tid"]]
        end[e["pid"], e["tid"]] = begin + round(e["dur"] * 1000)


def counted(run: pesto.Simulation, events: list[dict]) -> None:
    """The counter of each device is its bytes over time."""
    for device, (seconds, level) in run.bytes_alive().items():
        found = [e for e in events if e["ph"] == "C" and e["name"].endswith(f" {device}")]
        assert [e["args"]["bytes"] for e in found] == level.tolist()
        assert [round(e["ts"] * 1000) for e in found] == np.rint(seconds * 1e9).tolist()


def arrows(run: pesto.Simulation, events: list[dict]) -> None:
    """Each stop of an arrow lies in a slice that takes time, of the sender, the transfer or its first reader."""
    s, reader = run.run.timeline.schedule, first_readers(run)
    slices = defaultdict(list)
    for e in events:
        if e["ph"] == "X" and e["dur"] > 0:
            slices[e["pid"], e["tid"], e["ts"]].append(e["args"])
    for e in (e for e in events if e["ph"] in "stf"):
        (at,) = slices[e["pid"], e["tid"], e["ts"]]
        t = e["id"]
        sender = run.bench.problem.producer[s.sent_payload[t]]
        assert at.get("transfer", t) == t
        assert at.get("op", sender) in (sender, reader[t])
    p = run.bench.problem
    for t, first in enumerate(reader.tolist()):
        there = [
            k for k in np.flatnonzero(p.payload == s.sent_payload[t]) if p.location[s.device[p.dst[k]]] == s.sent_to[t]
        ]
        assert s.start[first] == min(s.start[p.dst[k]] for k in there)


def test_transfers_that_hold_no_link_get_tracks_of_their_own() -> None:
    """On logical CPUs nothing is shared, so transfers cross at once, and still no track has two at a time."""
    _, run, events = traced(a_step(3, ops=60), "cpux2")
    assert len(run.run.timeline.schedule.sent_payload) > 0
    no_overlap([e for e in events if e["ph"] == "X"])


def test_names_are_data_and_the_same_step_gives_the_same_bytes() -> None:
    """What names hold is escaped as JSON has it, and nothing of the clock is in the file."""
    plan, run, _ = traced(a_step(0), CLUSTERS[0])
    plan = replace(plan, names=(*HOSTILE, *plan.names[len(HOSTILE) :]))
    text = trace(plan, run)
    assert set(HOSTILE) <= {e["name"] for e in json.loads(text)["traceEvents"] if e["ph"] == "X"}
    assert text.isascii()
    assert b"\\u202e" in text
    assert gzip_bytes(text) == gzip_bytes(trace(plan, run))
    assert gzip.decompress(gzip_bytes(text)) == text


def test_the_verb_writes_a_trace_and_refuses_other_plans(tmp_path: Path) -> None:
    """Gzipped by its name; a plan of another graph or half a plan is one line, and nothing is written."""
    graph, other = tmp_path / "graph.json", tmp_path / "other.json"
    run = CliRunner().invoke
    for file, seed in ((graph, 0), (other, 1)):
        dag = nx.gn_graph(12, seed=seed).reverse()
        nx.set_node_attributes(dag, 1e-3, "seconds")
        nx.set_edge_attributes(dag, 1000, "bytes")
        nx.write_graphml(dag, tmp_path / "dag.graphml")
        assert run(command, ["import", str(tmp_path / "dag.graphml"), "-o", str(file)]).exit_code == 0
    plan, out = tmp_path / "plan.json", tmp_path / "t.json.gz"
    solved = run(command, ["solve", "--graph", str(graph), "--time-limit", "0", "-o", str(plan)])
    assert solved.exit_code == 0, solved.output
    refused = run(command, ["trace", str(plan), "--graph", str(other), "-o", str(out)])
    assert isinstance(refused.exception, MismatchError)
    assert not out.exists()
    half = tmp_path / "half.json"
    half.write_bytes(plan.read_bytes()[:200])
    assert run(command, ["trace", str(half), "--graph", str(graph), "-o", str(out)]).exit_code != 0
    assert not out.exists()
    assert run(command, ["trace", str(plan), "--graph", str(graph), "-o", str(out)]).exit_code == 0
    assert len(json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]) > 12
