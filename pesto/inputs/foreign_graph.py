"""Graphs in other programs' files: GraphML, GML, DOT, node-link JSON and Standard Task Graphs."""

import io
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from pesto.core.distribution import install_command
from pesto.core.errors import InputError, PestoError, SolverError, UsageError
from pesto.core.files.disk import read_bytes
from pesto.core.files.graph_file import FORMAT
from pesto.core.files.json import decode_json, shown
from pesto.core.graph import Graph
from pesto.inputs.from_networkx import Reading, from_networkx

MOST_BYTES = 256 << 20
"""Most bytes of such a file: its readers take many times as much memory."""


def load_foreign(path: Path, reading: Reading) -> Graph:
    """Read the graph in a file whose name ends in one of FORMATS, also packed with gzip.

    Raise UsageError for another ending, and for DOT without pydot; FileError for what cannot be read; InputError, with
    the file and the node or edge, for what is refused.
    """
    form = format_of(path)
    data = read_bytes(path, MOST_BYTES)
    try:
        graph = FORMATS[form](data, shown(path))
    except (PestoError, MemoryError):
        raise
    except Exception as error:  # networkx lets through whatever its parsers meet
        text = shown(error, 200) or type(error).__name__
        raise InputError.build(
            f"no graph in the format {form}: {text}", where=shown(path), remedy="write the file again"
        ) from error
    if not graph.is_directed():
        raise InputError.build(
            "the graph is undirected: nothing says which end comes first", where=shown(path), remedy=_DIRECTED[form]
        )
    try:
        return from_networkx(graph, reading, shown(graph.graph.get("source") or path.name))
    except InputError as error:
        raise InputError.of(error, where=shown(path)) from error


def format_of(path: Path) -> str:
    """Return the ending of a file's name, without .gz, in lower case. Raise UsageError unless it is one of FORMATS."""
    form = Path(path.name.removesuffix(".gz")).suffix.lower()
    refuse_onnx(path)
    if form not in FORMATS:
        raise UsageError.build(
            f"no format of graphs ends in {form!r}", where=shown(path), remedy=f"known: {', '.join(FORMATS)}"
        )
    return form


def refuse_onnx(path: Path) -> None:
    """Raise UsageError for a model of ONNX, by its name."""
    if path.suffix.lower() == ".onnx":
        raise UsageError.build(
            "an ONNX model has no training step and no times",
            where=shown(path),
            remedy="name the function of TensorFlow that trains it, or write its ops, times and bytes as node-link "
            "JSON and pesto import that",
        )


def _graphml(data: bytes, _: str) -> Any:
    import networkx as nx

    return nx.read_graphml(io.BytesIO(data))


def _gml(data: bytes, _: str) -> Any:
    """Nodes are called by their labels where each has its own, else by their ids."""
    import networkx as nx

    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":  # some programs give GraphML this ending
        return _graphml(data, "")
    graph = nx.parse_gml(data.decode("utf-8").splitlines(), label=None)
    labels = {node: attributes["label"] for node, attributes in graph.nodes(data=True) if "label" in attributes}
    own = len(set(map(str, labels.values()))) == len(graph)
    return nx.relabel_nodes(graph, labels) if own else graph


def _task_graph(data: bytes, what: str) -> Any:
    """Read a Standard Task Graph: the number of tasks, then one line a task of its id, time and predecessors.

    The ids run from 0, two tasks without time (the entry and the exit) beyond that number among them. A file with a
    communication time behind each predecessor is not told from one without, and refused where its lines do not fit.
    """
    import networkx as nx

    lines = [line.split("#")[0].split() for line in data.decode("ascii").splitlines()]
    count, *rows = [[int(word) for word in line] for line in lines if line]
    if len(count) != 1 or len(rows) not in (count[0], count[0] + 2):
        raise InputError.build(
            f"it says {' '.join(map(str, count))} tasks and has {len(rows)} lines of tasks",
            where=what,
            remedy="a Standard Task Graph has one line a task, with or without an entry and an exit",
        )
    graph = nx.DiGraph()
    graph.add_nodes_from((row[0], {"seconds": row[1]}) for row in rows if len(row) > 2)
    for row in rows:
        if row[0] not in graph or row[2] != len(row) - 3 or not graph.nodes.keys() >= set(row[3:]):
            raise InputError.build(
                f"task {row[0]}: not an id, a time, a number of predecessors and so many ids of other tasks",
                where=what,
                remedy="write each task in this form, without times of communication",
            )
        graph.add_edges_from((before, row[0], {"control": True}) for before in row[3:])
    return graph


class _NodeLink(msgspec.Struct, kw_only=True):
    """Output of `networkx.node_link_data`; D3 and older versions call edges links, and leave out the rest."""

    nodes: list[dict[str, Any]] | None = None
    edges: list[dict[str, Any]] | None = None
    links: list[dict[str, Any]] | None = None
    directed: bool = True
    graph: dict[str, Any] = {}
    format: Any = None


def _node_link(data: bytes, what: str) -> Any:
    """Edges between the same nodes are kept apart, whatever the file says of several."""
    import networkx as nx

    def label_of(value: Any, where: str) -> Any:
        if not isinstance(value, str | int | float | list) or isinstance(value, bool):
            raise InputError.build(
                f"{shown(repr(value), 60)} names no node", where=where, remedy="give a text or a number"
            )
        return tuple(map(str, value)) if isinstance(value, list) else value

    file = decode_json(data, _NodeLink, what)
    if file.format == FORMAT:
        raise InputError.build("it is a graph file of the project's already", where=what, remedy="plan it as it is")
    edges = file.edges if file.edges is not None else file.links
    if file.nodes is None or edges is None:
        raise InputError.build(
            "no node-link graph, which has nodes and edges", where=what, remedy="write networkx.node_link_data"
        )
    graph = (nx.MultiDiGraph if file.directed else nx.MultiGraph)()
    graph.graph.update(file.graph)
    for k, attributes in enumerate(file.nodes):
        label = label_of(attributes.pop("id", None), f"{what}: $.nodes[{k}].id")
        if label in graph:
            raise InputError.build(
                f"$.nodes[{k}].id: {shown(repr(label), 60)} is another node's, too", where=what, remedy="rename one"
            )
        graph.add_node(label, **attributes)
    for k, attributes in enumerate(edges):
        attributes.pop("key", None)
        ends = [label_of(attributes.pop(end, None), f"{what}: $.edges[{k}].{end}") for end in ("source", "target")]
        if unknown := [end for end in ends if end not in graph]:
            raise InputError.build(
                f"$.edges[{k}]: no node has the id {shown(repr(unknown[0]), 60)}", where=what, remedy="add it to nodes"
            )
        graph.add_edge(*ends, **attributes)
    return graph


# Graphviz' DOT, parsed by pydot: nodes, edges and defaults of the graph and of its subgraphs

_WORDS = ("node", "edge", "graph")
"""Words for defaults in place of a node's name."""
_ID = re.compile(r'"(?:[^"\\]|\\.)*"|[^":]*', re.DOTALL)
"""A name; what follows it is a port."""
_ESCAPED = re.compile(r'\\(["\\])')
Attributes = dict[str, str]


def parse_dot(data: bytes, what: str) -> Any:
    """Read the one graph of a DOT text, for networkx; every value is a string, and ports are left out.

    Raise SolverError where pydot is not installed, InputError, with `what`, for a text that is no single graph.
    """
    import networkx as nx

    try:
        import pydot
    except ImportError as error:
        remedy = f"{install_command('dot')}, or give the graph as GraphML"
        raise SolverError.build("DOT is read by pydot, which is not installed", where=what, remedy=remedy) from error
    printed = io.StringIO()
    with redirect_stdout(printed):  # where it says what is wrong
        graphs = pydot.graph_from_dot_data(data.decode("utf-8"))
    if not graphs or len(graphs) != 1:
        lines = printed.getvalue().strip().splitlines()
        why = shown(lines[-1], 120) if lines else f"{len(graphs or ())} graphs"
        raise InputError.build(f"no single graph in DOT: {why}", where=what, remedy="correct it there")
    top = graphs[0]
    kinds = (nx.DiGraph, nx.Graph) if top.obj_dict.get("strict") else (nx.MultiDiGraph, nx.MultiGraph)
    graph = kinds[top.get_type() != "digraph"]()
    graph.graph.update(_plain_attributes(top.get_attributes()))
    _add_statements(graph, top.obj_dict, {}, {})
    return graph


def _add_statements(graph: Any, part: Mapping[str, Any], of_nodes: Attributes, of_edges: Attributes) -> list[str]:
    """Add a graph's or a subgraph's statements one after the other; return the names of all nodes in them.

    Defaults hold for what is made after them, in their part and those within it; a node is made where it stands first.
    """
    rows = [(name if name in _WORDS else "one", row) for name, each in part["nodes"].items() for row in each]
    rows += [("two", row) for each in part["edges"].values() for row in each]
    rows += [("subgraph", row) for each in part["subgraphs"].values() for row in each]
    named: list[str] = []
    between: Any = None
    for kind, row in sorted((row for row in rows if row[0] != "graph"), key=lambda row: int(row[1]["sequence"])):
        own = _plain_attributes(row["attributes"])
        if kind == "node":
            of_nodes = {**of_nodes, **own}
        elif kind == "edge":
            of_edges = {**of_edges, **own}
        elif kind == "subgraph":
            named += _add_statements(graph, row, of_nodes, of_edges)
        elif kind == "one":
            named.append(_add_node(graph, row["name"], of_nodes, own))
        else:
            ends = []
            for end in row["points"]:
                # In a -> {b c} -> d what is between is an end of two edges, and read once.
                into = type(graph)() if end is between else graph
                if isinstance(end, str):
                    ends.append([_add_node(into, end, of_nodes, {})])
                else:
                    ends.append(list(dict.fromkeys(_add_statements(into, end, of_nodes, of_edges))))
            graph.add_edges_from(product(*ends), **{**of_edges, **own})
            between, named = row["points"][1], [*named, *ends[0], *ends[1]]
    return named


def _add_node(graph: Any, name: str, defaults: Attributes, own: Attributes) -> str:
    """Return the name of a node, which has the defaults of where it was made."""
    plain = _plain(name)
    graph.add_node(plain, **(own if plain in graph else {**defaults, **own}))
    return plain


def _plain_attributes(attributes: Mapping[str, Any]) -> Attributes:
    return {_plain(str(key)): _plain(str(value)) for key, value in attributes.items()}


def _plain(text: str) -> str:
    """An identifier without its port and its quotes."""
    match = _ID.match(text)
    own = match.group() if match else text
    return _ESCAPED.sub(r"\1", own[1:-1]) if own.startswith('"') and len(own) > 1 else own


FORMATS: dict[str, Callable[[bytes, str], Any]] = {
    ".graphml": _graphml, ".gml": _gml, ".dot": parse_dot, ".gv": parse_dot, ".json": _node_link, ".stg": _task_graph,
}  # fmt: skip
"""Readers of other programs' files, by the ending of the file's name."""
_DOT = "write digraph, and -> for each edge"
_DIRECTED = {
    ".graphml": 'write edgedefault="directed"', ".gml": "write directed 1", ".dot": _DOT, ".gv": _DOT,
    ".json": 'write "directed": true', ".stg": "",
}  # fmt: skip
