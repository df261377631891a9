"""Graphs in other programs' files: GraphML, GML, DOT, node-link JSON and Standard Task Graphs."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pesto.core.errors import InputError, PestoError, UsageError
from pesto.core.files.disk import read_bytes
from pesto.core.files.graph_file import FORMAT
from pesto.core.files.json import decode_json, shown
from pesto.core.graph import Graph
from pesto.inputs.dot_graph import parse_dot
from pesto.inputs.from_networkx import Reading, from_networkx

MOST_BYTES = 256 << 20
"""Of such a file: its readers take many times as much memory."""


class _NodeLink(msgspec.Struct, kw_only=True):
    """What `networkx.node_link_data` writes; D3 and older versions call edges links, and leave out the rest."""

    nodes: list[dict[str, Any]] | None = None
    edges: list[dict[str, Any]] | None = None
    links: list[dict[str, Any]] | None = None
    directed: bool = True
    graph: dict[str, Any] = {}
    format: Any = None


def load_foreign(path: Path, reading: Reading) -> Graph:
    """The graph in a file whose name ends in one of FORMATS, also packed with gzip.

    UsageError for another ending, and for DOT without pydot; FileError for what cannot be read, InputError, with the
    file and the node or edge, for what is refused.
    """
    form = format_of(path)
    graph = _read(path, form)
    if not graph.is_directed():
        raise InputError.build(
            "the graph is undirected: nothing says which end comes first",
            where=shown(path),
            remedy=f"{_DIRECTED[form]}",
        )
    try:
        return from_networkx(graph, reading, shown(graph.graph.get("source") or path.name))
    except InputError as error:
        raise InputError(f"{shown(path)}: {error}") from error


def format_of(path: Path) -> str:
    """The ending of a file's name, without .gz, in lower case; UsageError unless it is one of FORMATS."""
    form = Path(path.name.removesuffix(".gz")).suffix.lower()
    refuse_onnx(path)
    if form not in FORMATS:
        raise UsageError.build(
            f"no format of graphs ends in {form!r}", where=shown(path), remedy=f"known: {', '.join(FORMATS)}"
        )
    return form


def refuse_onnx(path: Path) -> None:
    """UsageError for a model of ONNX, by its name."""
    if path.suffix.lower() == ".onnx":
        raise UsageError.build(
            "an ONNX model has no training step and no times",
            where=shown(path),
            remedy=(
                "name the function of TensorFlow that "
                "trains it, or write its ops, times and bytes as node-link JSON and pesto import that"
            ),
        )


def _read(path: Path, form: str) -> Any:
    data = read_bytes(path, MOST_BYTES)
    try:
        return FORMATS[form](data, shown(path))
    except (PestoError, MemoryError):
        raise
    except Exception as error:  # networkx lets through whatever its parsers meet
        said = shown(error, 200) or type(error).__name__
        raise InputError.build(
            f"no graph in the format {form}: {said}", where=shown(path), remedy="write the file again"
        ) from error


def _graphml(data: bytes, what: str) -> Any:
    import networkx as nx

    del what
    return nx.read_graphml(io.BytesIO(data))


def _gml(data: bytes, what: str) -> Any:
    """Nodes are called by their labels where each has its own, else by their ids."""
    import networkx as nx

    del what
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":  # some programs give GraphML this ending
        return _graphml(data, "")
    graph = nx.parse_gml(data.decode("utf-8").splitlines(), label=None)
    labels = {node: said["label"] for node, said in graph.nodes(data=True) if "label" in said}
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


def _node_link(data: bytes, what: str) -> Any:
    """Edges between the same nodes are kept apart, whatever the file says of several."""
    import networkx as nx

    found = decode_json(data, _NodeLink, what)
    if found.format == FORMAT:
        raise InputError.build("it is a graph file of the project's already", where=what, remedy="plan it as it is")
    edges = found.edges if found.edges is not None else found.links
    if found.nodes is None or edges is None:
        raise InputError.build(
            "no node-link graph, which has nodes and edges", where=what, remedy="write networkx.node_link_data"
        )
    graph = (nx.MultiDiGraph if found.directed else nx.MultiGraph)()
    graph.graph.update(found.graph)
    for k, said in enumerate(found.nodes):
        label = _label(said.pop("id", None), f"{what}: $.nodes[{k}].id")
        if label in graph:
            raise InputError.build(
                f"$.nodes[{k}].id: {shown(repr(label), 60)} is another node's, too", where=what, remedy="rename one"
            )
        graph.add_node(label, **said)
    for k, said in enumerate(edges):
        said.pop("key", None)
        ends = [_label(said.pop(end, None), f"{what}: $.edges[{k}].{end}") for end in ("source", "target")]
        if unknown := [end for end in ends if end not in graph]:
            raise InputError.build(
                f"$.edges[{k}]: no node has the id {shown(repr(unknown[0]), 60)}", where=what, remedy="add it to nodes"
            )
        graph.add_edge(*ends, **said)
    return graph


def _label(value: Any, where: str) -> Any:
    """What a node is known by."""
    if not isinstance(value, str | int | float | list) or isinstance(value, bool):
        raise InputError.build(f"{shown(repr(value), 60)} names no node", where=where, remedy="give a text or a number")
    return tuple(map(str, value)) if isinstance(value, list) else value


FORMATS: dict[str, Callable[[bytes, str], Any]] = {
    ".graphml": _graphml,
    ".gml": _gml,
    ".dot": parse_dot,
    ".gv": parse_dot,
    ".json": _node_link,
    ".stg": _task_graph,
}
"""The endings of files of other programs, and what reads each."""
_DIRECTED = {
    ".graphml": 'write edgedefault="directed"',
    ".gml": "write directed 1",
    ".dot": "write digraph, and -> for each edge",
    ".gv": "write digraph, and -> for each edge",
    ".json": 'write "directed": true',
    ".stg": "",
}
