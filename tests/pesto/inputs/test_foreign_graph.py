"""Graphs in GraphML, GML, DOT and node-link JSON: all read alike, and refused with the file and a remedy."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from click.testing import CliRunner, Result

import pesto
from pesto.cli.main import pesto as command
from pesto.core.errors import InputError
from pesto.core.files import graph_file
from pesto.inputs.foreign_graph import FORMATS, load_foreign
from pesto.inputs.from_networkx import Reading

READING = Reading(durations="w", sizes="n", memory="mem", groups="set", unit_s=1e-3)
FEW = Reading(durations="w", sizes="n")
DOT = """digraph "two" {
  node [w=1]; edge [n=5];  // defaults
  a [set=one, w="2"]; "b c" [mem=7, set=one];
  subgraph cluster0 { node [w_gpu=0.25]; d; }
  a -> "b c" -> d:port:n [n=3]; a -> {d e};
}"""


def the_graph() -> nx.DiGraph:
    """What DOT says, in times of milliseconds."""
    graph = nx.DiGraph()
    graph.add_node("a", w=2, set="one")
    graph.add_node("b c", w=1, mem=7, set="one")
    graph.add_node("d", w=1, w_gpu=0.25)
    graph.add_node("e", w=1)
    graph.add_edge("a", "b c", n=3)
    graph.add_edge("b c", "d", n=3)
    graph.add_edge("a", "d", n=5)
    graph.add_edge("a", "e", n=5)
    return graph


def written(form: str, folder: Path) -> Path:
    path = folder / f"dag{form}"
    if form == ".graphml":
        nx.write_graphml(the_graph(), path)
    elif form == ".gml":
        nx.write_gml(the_graph(), path)
    elif form == ".json":
        path.write_text(json.dumps(nx.node_link_data(the_graph())))
    else:
        path.write_text(DOT)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, ["import", *map(str, arguments)])


@pytest.mark.parametrize("form", [form for form in FORMATS if form != ".stg"])
def test_every_format_gives_one_graph(form: str, tmp_path: Path) -> None:
    """Also packed with gzip: times, bytes, memory, groups."""
    if form in (".dot", ".gv"):
        pytest.importorskip("pydot")
    expected = pesto.graph_from_networkx(
        the_graph(), durations=lambda _, said: {"cpu": said["w"] * 1e-3, "gpu": said.get("w_gpu", said["w"]) * 1e-3},
        bytes="n", memory="mem", groups="set",
    )  # fmt: skip
    path = written(form, tmp_path)
    graph = load_foreign(path, READING)
    assert graph.fingerprint() == expected.fingerprint() and sorted(graph.names) == sorted(expected.names)
    order = [graph.names.index(name) for name in expected.names]
    assert graph.given_s[order].tolist() == expected.given_s.tolist()
    packed = tmp_path / f"packed{form}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert load_foreign(packed, READING).listing() == graph.listing()


def test_the_verb_writes_what_solve_reads(tmp_path: Path) -> None:
    """Attributes and unit by options; the line says what was read; networkx' own graph needs none."""
    path, out = written(".graphml", tmp_path), tmp_path / "dag.json"
    options = ("--durations", "w", "--bytes", "n", "--memory", "mem", "--groups", "set", "--unit", "ms")
    done = run(path, *options, "-o", out)
    assert done.exit_code == 0 and "dag.graphml: 4 ops, 4 data edges, 0 control edges" in " ".join(done.output.split())
    graph = graph_file.load(out)
    assert graph.listing() == load_foreign(path, READING).listing()
    plan = pesto.solve(graph, cluster="v100x2-nvlink", solver="list", search=False, time_limit_s=0)
    assert plan.makespan_s >= 3.25e-3
    again = tmp_path / "again.graphml"
    nx.write_graphml(graph.to_networkx(), again)
    assert run(again, "-o", tmp_path / "again.json").exit_code == 0
    assert graph_file.load(tmp_path / "again.json").fingerprint() == graph.fingerprint()


UNDIRECTED = {
    ".graphml": '<graphml><graph edgedefault="undirected"><node id="a"/></graph></graphml>',
    ".gml": "graph [ node [ id 0 ] ]",
    ".json": '{"directed": false, "nodes": [{"id": 1}], "edges": []}',
    ".dot": "graph { a -- b }",
}


@pytest.mark.parametrize("form", UNDIRECTED)
def test_an_undirected_file_is_refused(form: str, tmp_path: Path) -> None:
    """With what to write in this format."""
    if form == ".dot":
        pytest.importorskip("pydot")
    path = tmp_path / f"u{form}"
    path.write_text(UNDIRECTED[form])
    with pytest.raises(pesto.InputError, match=r"u\.\w+: the graph is undirected: .* - write .*di"):
        load_foreign(path, READING)


BROKEN: dict[str, Any] = {
    "cut.graphml": ("<graphml><graph", "no graph in the format .graphml"),
    "empty.graphml": ("", "no graph in the format .graphml"),
    "cut.gml": ("graph [ node [", "no graph in the format .gml"),
    "latin.gml": (b"graph [ \xe9 ]", "no graph in the format .gml"),
    "twice.gml": (
        "graph [ directed 1 node [ id 0 ] node [ id 1 ] " + "edge [ source 0 target 1 ] " * 2 + "]", "duplicated",
    ),
    "not.json": ("{", "JSON"),
    "other.json": ('{"a": 1}', "no node-link graph"),
    "own.json": ('{"format": "pesto-graph", "nodes": [], "edges": []}', "graph file of the project's already"),
    "ends.json": (
        '{"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}', r"\$.edges\[0\]: no node has the id 2",
    ),
    "id.json": ('{"nodes": [{"name": 1}], "links": []}', r"\$.nodes\[0\].id: None names no node"),
    "twice.json": ('{"nodes": [{"id": 1, "w": 1}, {"id": 1, "w": 2}], "edges": []}', r"\$.nodes\[1\].id: 1 is another"),
    "null.json": ('{"nodes": [{"id": 1, "w": null}], "edges": []}', "no value of the attribute 'w', and no other"),
    "cycle.json": (
        '{"nodes": [{"id": 1, "w": 1}, {"id": 2, "w": 1}], "edges": [{"source": 1, "target": 2, "n": 1}, '
        '{"source": 2, "target": 1, "n": 1}]}', "cycle.json: graph: a cycle of 2 ops: 1 -> 2 -> 1|2 -> 1 -> 2",
    ),
    "negative.json": ('{"nodes": [{"id": 1, "w": -1}], "edges": []}', "negative.json: node '1': its time is -1"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_line(name: str, tmp_path: Path) -> None:
    """The file, what is wrong, and a remedy; nothing is written."""
    text, why = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = run(path, "--durations", "w", "--bytes", "n", "-o", tmp_path / "out.json")
    assert isinstance(done.exception, pesto.InputError) and name in str(done.exception)
    assert " - " in str(done.exception) and "\n" not in str(done.exception)
    with pytest.raises(pesto.InputError, match=why):
        load_foreign(path, FEW)
    assert not (tmp_path / "out.json").exists()


def test_parallel_edges_of_a_file_are_added(tmp_path: Path) -> None:
    """Also where a node-link file says that it has none: nothing is lost."""
    path = tmp_path / "twice.json"
    edge = {"source": "a", "target": "b", "n": 4, "key": 0}
    path.write_text(
        json.dumps({"multigraph": False, "nodes": [{"id": "a", "w": 1}, {"id": "b", "w": 1}], "links": [edge] * 2})
    )
    assert load_foreign(path, FEW).tensor_bytes.tolist() == [8]


@pytest.mark.parametrize(("word", "size"), [("", 12), ("strict ", 7)])
def test_a_strict_graph_in_dot_has_one_edge_between_two_nodes(word: str, size: int, tmp_path: Path) -> None:
    """What says it again sets its attributes, as Graphviz has it; elsewhere there are two edges."""
    pytest.importorskip("pydot")
    path = tmp_path / "twice.dot"
    path.write_text(word + "digraph { node [w=1]; a -> b [n=5]; a -> b [n=7]; }")
    assert load_foreign(path, FEW).tensor_bytes.tolist() == [size]


def test_defaults_in_dot_hold_for_what_is_made_after_them(tmp_path: Path) -> None:
    """A node is made where it stands first: no default behind it reaches it, whether of a subgraph or of the graph."""
    pytest.importorskip("pydot")
    path = tmp_path / "defaults.dot"
    path.write_text("""digraph {
      node [w=1]; a; x -> y [n=1]; edge [n=3];
      subgraph s { node [w=2]; edge [n=5]; a; b; y -> b; { node [w=3]; c } }
      node [w=4]; b; c; d; c -> d;
      a -> { node [w=5]; e f -> g } -> h;
    }""")
    graph = load_foreign(path, Reading(durations="w", sizes="n"))
    took = dict(zip(graph.names, graph.given_s[:, 0].tolist(), strict=True))
    assert took == {"a": 1, "x": 1, "y": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 5, "g": 5, "h": 4}
    names = np.array(graph.names)
    edges = [(names[s], names[t], int(graph.tensor_bytes[k]))
             for s, t, k in zip(graph.src, graph.dst, graph.tensor, strict=True)]  # fmt: skip
    inner = [("a", end, 3) for end in "efg"] + [(end, "h", 3) for end in "efg"] + [("f", "g", 3)]
    assert sorted(edges) == sorted([("x", "y", 1), ("y", "b", 5), ("c", "d", 3), *inner])


def test_dot_needs_pydot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its absence is said with how to install it."""
    monkeypatch.setitem(sys.modules, "pydot", None)
    with pytest.raises(pesto.SolverError, match=r"pydot, which is not installed - pip install -e '\.\[dot\]'"):
        load_foreign(written(".dot", tmp_path), READING)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("x.graphml", "--model", "nmt"), "two graphs - give one"),
        (("x.txt",), "no format of graphs ends in '.txt' - known: .graphml"),
        (("x.pb",), "give --graph"),
        (("--model", "nmt", "--durations", "w"), "--durations goes with the FILE"),
        (("--model", "nmt", "--unit", "ms"), "--unit goes with the FILE"),
        (("graph.json", "-o", "graph.json"), "named twice"),
        ((), "no graph - give one"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a usage error with its remedy."""
    monkeypatch.chdir(tmp_path)
    for name in ("x.graphml", "x.txt", "x.pb", "graph.json"):
        (tmp_path / name).write_text("{}")
    done = run(*arguments)
    assert isinstance(done.exception, pesto.UsageError) and why in str(done.exception)


def test_another_programs_file_is_no_graph_file(tmp_path: Path) -> None:
    """`--graph` names the verb that reads it."""
    with pytest.raises(pesto.UsageError, match=r"another program - first run pesto import .*dag.graphml"):
        pesto.load_graph(written(".graphml", tmp_path))


STG = b"""  3
0 0 0
1 5 1 0
2 3 1 0
3 4 2 1 2
4 0 1 3
# comment
"""


def imported(folder: Path, name: str, content: bytes, *options: str) -> Result:
    (folder / name).write_bytes(content)
    return CliRunner().invoke(command, ["import", str(folder / name), *options, "-o", str(folder / "out.json")])


def test_task_graph_has_times_and_an_order(tmp_path: Path) -> None:
    """With and without the entry and the exit, which are not counted in the first line."""
    for content, ops in ((STG, 5), (b"2\n0 5 0\n1 3 1 0\n", 2)):
        assert imported(tmp_path, "a.stg", content, "--unit", "ms", "-q").output == ""
        graph = graph_file.load(tmp_path / "out.json")
        assert graph.ops == ops and len(graph.src) == 0
    assert graph.given_s[:, 0].tolist() == [0.005, 0.003]
    assert graph.control_src.tolist() == [0] and graph.control_dst.tolist() == [1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"9\n0 5 0\n", "it says 9 tasks and has 1 lines"),
        (b"2\n0 5 0\n1 3 1 0 7\n", "task 1: not an id, a time"),  # a time of communication
        (b"2\n0 5 0\n1 3 1 6\n", "task 1: not an id, a time"),
        (b"x\n", "no graph in the format .stg"),
        (b"", "no graph in the format .stg"),
        (b"1\n0\n", "task 0: not an id, a time"),
    ],
)
def test_what_is_no_task_graph_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    done = imported(tmp_path, "a.stg", content)
    assert isinstance(done.exception, InputError) and words in str(done.exception)


ORDER = b'{"nodes":[{"id":0,"w":5},{"id":1}],"edges":[{"source":1,"target":0}]}'


def test_edges_and_nodes_that_say_nothing(tmp_path: Path) -> None:
    """Each message names the option, and the option does."""
    done = imported(tmp_path, "o.json", ORDER, "--durations", "w")
    assert "--order-only" in str(done.exception) and "--bytes 0" in str(done.exception)
    done = imported(tmp_path, "o.json", ORDER, "--durations", "w", "--bytes", "0")
    assert "--duration 0" in str(done.exception)
    common = ("--durations", "w", "--unit", "ms", "--duration", "2")
    assert imported(tmp_path, "o.json", ORDER, *common, "--bytes", "7").exit_code == 0
    graph = graph_file.load(tmp_path / "out.json")
    assert graph.tensor_bytes.tolist() == [7] and sorted(graph.given_s[:, 0].tolist()) == [0.002, 0.005]
    assert imported(tmp_path, "o.json", ORDER, *common, "--order-only").exit_code == 0
    graph = graph_file.load(tmp_path / "out.json")
    assert len(graph.src) == 0 and len(graph.control_src) == 1
    done = imported(tmp_path, "o.json", ORDER, *common, "--order-only", "--bytes", "7")
    assert "leave out one" in str(done.exception)


def test_graphml_that_is_called_gml(tmp_path: Path) -> None:
    file = tmp_path / "g.graphml"
    nx.write_graphml(the_graph(), file)
    graph = load_foreign(file, FEW)
    file.rename(tmp_path / "g.gml")
    assert load_foreign(tmp_path / "g.gml", FEW).fingerprint() == graph.fingerprint()
