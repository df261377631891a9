"""Plans as boxes, pictures and graphs: what a box holds, where it stands, and what other programs get."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from click.testing import CliRunner, Result

import pesto
from pesto.cli.main import pesto as command
from pesto.core.files import graph_file
from pesto.inputs.foreign_graph import load_foreign
from pesto.inputs.from_networkx import Reading
from pesto.reporting.explaining.name_scopes import MOST_SCOPES
from pesto.reporting.show.plan_graph import BY, LEAST, MOST, NODE, OP, SCOPE, WIDTH, Boxes, lay_out, plan_boxes

QUICK = {"cluster": "v100x2-nvlink", "solver": "list", "search": False, "time_limit_s": 0}
NAME = '" \\"é\\'
"""Hard to quote."""


def towers(layers: int) -> nx.DiGraph:
    """Two towers of scopes with kernels of several lengths, a reader on the CPU, waits, and ops that take no time."""
    rng = np.random.default_rng(5)
    graph = nx.DiGraph()
    graph.add_node("read", seconds=1e-4, runs_on="cpu")
    for side in "ab":
        before = "read"
        for k in range(layers):
            for part in ("mul", "add"):
                name = f"{side}/layer_{k}/{part}"
                graph.add_node(name, seconds=float(rng.integers(1, 50)) * 1e-5, runs_on="gpu")
                graph.add_edge(before, name, bytes=int(rng.integers(1, 1 << 20)))
                before = name
            graph.add_node(f"{side}/layer_{k}/{NAME}", seconds=0.0, runs_on="gpu")
            graph.add_edge(f"{side}/layer_{k}/{NAME}", before, control=True)
        graph.add_edge(before, "end", bytes=10)
    graph.add_node("end", seconds=1e-4, runs_on="gpu")
    graph.add_edge("a/layer_0/add", "b/layer_0/add", bytes=1 << 22)
    return graph


@pytest.fixture(scope="module")
def step() -> tuple[pesto.Graph, pesto.Plan]:
    graph = pesto.graph_from_networkx(towers(30), source="towers")
    return graph, pesto.solve(graph, **QUICK)


@pytest.fixture(scope="module")
def small() -> tuple[pesto.Graph, pesto.Plan]:
    graph = pesto.graph_from_networkx(towers(2), source="small")
    return graph, pesto.solve(graph, **QUICK)


@pytest.mark.parametrize("by", BY)
def test_every_op_is_in_one_box_of_its_device(step: Any, by: str) -> None:
    """Ops, seconds and bytes of the boxes are those of the plan."""
    graph, plan = step
    found = plan_boxes(plan, graph, by, 20)
    where = plan.device_names()
    assert [found.devices[found.device[b]] for b in found.box_of] == where
    assert found.ops.sum() == graph.ops and len(found.labels) == int(found.box_of.max()) + 1
    took = (plan.schedule.finish - plan.schedule.start) * plan.tick_s
    assert found.busy_s.sum() == pytest.approx(took.sum())
    assert found.finish_s.max() == pytest.approx(plan.makespan_s)
    for b in np.flatnonzero(found.busy_s > 0).tolist():
        begin = plan.schedule.start[(found.box_of == b) & (took > 0)].min()
        assert found.start_s[b] == pytest.approx(begin * plan.tick_s)
    pairs = {(a, b) for a, b in zip(found.box_of[graph.edge_src], found.box_of[graph.edge_dst], strict=True) if a != b}
    assert set(zip(found.src.tolist(), found.dst.tolist(), strict=True)) == pairs
    sent = {(t, where[b]): graph.tensor_bytes[t] for t, a, b in zip(graph.tensor, graph.src, graph.dst, strict=True)
            if where[a] != where[b]}  # fmt: skip
    assert found.bytes[found.crosses].sum() == sum(sent.values())  # every tensor here has one reader


def test_an_arrow_leads_to_the_first_reader_on_each_device() -> None:
    """Of one tensor that many read, whoever reads it first on a device; waits by op."""
    network = nx.DiGraph()
    for name in ["made", *(f"read{k}" for k in range(8))]:
        network.add_node(name, seconds=1e-3, runs_on="gpu")
    network.add_edges_from(("made", f"read{k}", {"output": 0, "bytes": 8}) for k in range(6))
    network.add_edges_from(("made", f"read{k}", {"control": True}) for k in (6, 7))
    graph = pesto.graph_from_networkx(network)
    plan = pesto.solve(graph, **QUICK)
    found = plan_boxes(plan, graph, OP)
    where, start = plan.device_names(), plan.schedule.start.tolist()
    earliest = {d: min(start[k] for k in range(1, 7) if where[k] == d) for d in set(where[1:7])}
    assert len(earliest) == 2
    led = {int(b) for b, first in zip(found.dst, found.first, strict=True) if first}
    assert led == {7, 8} | {k for k in range(1, 7) if start[k] == earliest[where[k]]}


def test_runs_follow_each_other_on_their_device(step: Any) -> None:
    """No two runs of a processor overlap, and together with the order they form no cycle; at most as many as asked."""
    graph, plan = step
    found = plan_boxes(plan, graph, NODE, 20)
    timed = found.busy_s > 0
    assert 4 <= timed.sum() <= 20
    for d in (k for k, name in enumerate(found.devices) if name.startswith("gpu")):
        own = np.flatnonzero(timed & (found.device == d))
        own = own[np.argsort(found.start_s[own])]
        assert (found.finish_s[own[:-1]] <= found.start_s[own[1:]] + 1e-12).all()
    assert nx.is_directed_acyclic_graph(nx.DiGraph(zip(found.src.tolist(), found.dst.tolist(), strict=True)))


def test_scopes_are_few_and_the_longest_are_taken_apart(step: Any) -> None:
    """A scope a device; what takes little stays with what is around it."""
    graph, plan = step
    found = plan_boxes(plan, graph, SCOPE)
    assert len(found.labels) <= MOST_SCOPES
    assert len(set(zip(found.labels, found.device.tolist(), strict=True))) == len(found.labels)
    for name, b in zip(graph.names, found.box_of.tolist(), strict=True):
        assert found.labels[b] == "(no scope)" or name.startswith(found.labels[b] + "/")
    assert any("layer" in label for label in found.labels)


def test_few_ops_are_boxes_of_their_own(step: Any, small: Any) -> None:
    """Else scopes, and runs where names have none."""
    assert plan_boxes(small[1], small[0]).by == OP
    assert plan_boxes(step[1], step[0]).by == SCOPE
    plain = pesto.graph_from_networkx(nx.relabel_nodes(towers(30), lambda name: name.replace("/", "_")))
    assert plan_boxes(pesto.solve(plain, **QUICK), plain).by == NODE


@pytest.mark.parametrize("by", BY)
def test_boxes_do_not_overlap_on_the_page(step: Any, by: str) -> None:
    """Each in the band of its device; heights are times, and within a column later boxes are lower."""
    found = plan_boxes(step[1], step[0], by, 20)
    page = lay_out(found)
    spots = list(zip(page.left, page.top, page.height, strict=True))
    for k, (left, top, high) in enumerate(spots):
        for other_left, other_top, other_high in spots[:k]:
            assert abs(left - other_left) >= WIDTH or top >= other_top + other_high or other_top >= top + high
        band = next(band for band in page.bands if band[0] == found.device[page.shown[k]])
        assert band[1] - 1e-9 <= top and top + high <= band[2] + 1e-9
        assert high == pytest.approx(max(LEAST, MOST * found.busy_s[page.shown[k]] / found.busy_s.max()))
    assert (found.busy_s[np.setdiff1d(np.arange(len(found.labels)), page.shown)] == 0).all()
    for a in range(len(spots)):
        for b in range(len(spots)):
            same = page.left[a] == page.left[b] and found.device[page.shown[a]] == found.device[page.shown[b]]
            if same and page.top[a] < page.top[b]:
                assert found.centre_s[page.shown[a]] <= found.centre_s[page.shown[b]]


def test_levels_of_a_small_graph_are_its_columns(small: Any) -> None:
    """Where the longest path is short, every edge leads to the right."""
    found = plan_boxes(small[1], small[0], OP)
    page = lay_out(found)
    left = dict(zip(page.shown.tolist(), page.left.tolist(), strict=True))
    ends = [(left[a], left[b]) for a, b in zip(found.src.tolist(), found.dst.tolist(), strict=True) if a in left]
    assert ends and all(a < b for a, b in ends)


@pytest.fixture
def files(small: Any, tmp_path: Path) -> tuple[Path, Path]:
    graph_file.save(small[0], tmp_path / "small.json")
    pesto.save_plan(small[1], tmp_path / "plan.json")
    return tmp_path / "plan.json", tmp_path / "small.json"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, ["draw", *map(str, arguments)])


@pytest.mark.parametrize("form", ["graphml", "dot"])
def test_other_programs_get_placement_and_times(small: Any, files: Any, tmp_path: Path, form: str) -> None:
    """By op the graph comes back with its fingerprint, and every op has its device, times and place in the order."""
    if form == "dot":
        pytest.importorskip("pydot")
    (graph, plan), out = small, tmp_path / f"plan.{form}"
    done = run(files[0], "--graph", files[1], "--by", OP, "-o", out)
    assert done.exit_code == 0 and f"{graph.ops} boxes by op" in " ".join(done.output.split())
    again = load_foreign(out, Reading())
    assert again.fingerprint() == graph.fingerprint() and sorted(again.names) == sorted(graph.names)
    if form == "graphml":
        nodes = nx.read_graphml(out).nodes
        for i, name in enumerate(plan.names):
            assert nodes[name]["device"] == plan.device_names()[i]
            assert nodes[name]["start_s"] == pytest.approx(plan.schedule.start[i] * plan.tick_s)
            assert nodes[name]["finish_s"] == pytest.approx(plan.schedule.finish[i] * plan.tick_s)
        gpu = [name for name in plan.names if nodes[name]["processor"] == "gpu:0"]
        assert sorted(nodes[name]["place"] for name in gpu) == list(range(len(gpu)))


def test_scopes_are_written_with_their_edges(step: Any, tmp_path: Path) -> None:
    """Boxes by number with labels; edges with bytes, and whether they cross."""
    graph_file.save(step[0], tmp_path / "step.json")
    pesto.save_plan(step[1], tmp_path / "plan.json")
    out = tmp_path / "scopes.graphml"
    assert run(tmp_path / "plan.json", "--graph", tmp_path / "step.json", "-o", out).exit_code == 0
    found, expected = nx.read_graphml(out), plan_boxes(step[1], step[0], SCOPE)
    assert [said["label"] for _, said in found.nodes(data=True)] == list(expected.labels)
    assert found.number_of_edges() == len(expected.src)
    crossing = [said["bytes"] for _, _, said in found.edges(data=True) if said["crosses"]]
    assert sum(crossing) == expected.bytes[expected.crosses].sum()
    colours = {said["device"]: said["color"] for _, said in found.nodes(data=True)}
    assert len(set(colours.values())) == len(colours) == 3


@pytest.mark.parametrize("form", ["svg", "png"])
def test_a_picture_is_made_and_made_alike(files: Any, tmp_path: Path, form: str) -> None:
    """Twice the same bytes; as SVG a document with a path for each box."""
    pytest.importorskip("matplotlib")
    first, then = tmp_path / f"1.{form}", tmp_path / f"2.{form}"
    for out in (first, then):
        assert run(files[0], "--graph", files[1], "-o", out).exit_code == 0
    assert first.read_bytes() == then.read_bytes()
    if form == "png":
        assert first.read_bytes()[:4] == b"\x89PNG"
    else:
        root = ET.fromstring(first.read_text())  # noqa: S314
        assert len(root.findall(".//{http://www.w3.org/2000/svg}path")) > 30


def test_what_cannot_be_drawn(files: Any, step: Any, tmp_path: Path) -> None:
    """A usage error with a remedy that works, and nothing written."""
    plan, graph = files
    for arguments, why in (
        (("-o", tmp_path / "x.pdf"), "no format to draw in - end the name in .svg"),
        (("--nodes", 3, "-o", tmp_path / "x.svg"), "goes with --by node"),
        (("-o", plan.with_suffix(".svg"), "--graph", tmp_path / "plan.svg"), "no such file"),
    ):
        done = run(plan, "--graph", graph, *arguments)
        assert isinstance(done.exception, pesto.PestoError) and why in str(done.exception)
    graph_file.save(step[0], tmp_path / "other.json")
    done = run(plan, "--graph", tmp_path / "other.json", "-o", tmp_path / "x.svg")
    assert isinstance(done.exception, pesto.MismatchError)
    assert not (tmp_path / "x.svg").exists()


def test_thousands_of_ops_are_no_picture(tmp_path: Path) -> None:
    """By op refused with what to ask for instead, which then works."""
    graph = pesto.graph_from_networkx(towers(260), source="large")
    graph_file.save(graph, tmp_path / "large.json")
    pesto.save_plan(pesto.solve(graph, **QUICK), tmp_path / "plan.json")
    words = (tmp_path / "plan.json", "--graph", tmp_path / "large.json", "-o", tmp_path / "x.svg")
    done = run(*words, "--by", "op")
    assert isinstance(done.exception, pesto.UsageError)
    assert re.search(r"1562 boxes, a picture has 1500 at most - draw it --by scope", str(done.exception))
    assert run(*words, "--by", "scope").exit_code == 0


def test_without_time_or_edges(tmp_path: Path) -> None:
    """A plan of one op that takes no time is a picture, too."""
    graph = pesto.graph_from_networkx(one())
    plan = pesto.solve(graph, **QUICK)
    for by in BY:
        found: Boxes = plan_boxes(plan, graph, by)
        assert len(lay_out(found).shown) == 1 and not len(found.src)


def one() -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_node("only", seconds=0.0)
    return graph
