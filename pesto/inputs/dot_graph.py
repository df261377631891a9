"""Graphs in Graphviz' DOT, parsed by pydot: nodes, edges and defaults of the graph and of its subgraphs."""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from itertools import product
from typing import Any

from pesto.errors import InputError, UsageError
from pesto.files.json import shown

_WORDS = ("node", "edge", "graph")
"""What stands for defaults in place of a node's name."""
_ID = re.compile(r'"(?:[^"\\]|\\.)*"|[^":]*', re.DOTALL)
"""A name; what follows it is a port."""
_ESCAPED = re.compile(r'\\(["\\])')
Said = dict[str, str]


def parse_dot(data: bytes, what: str) -> Any:
    """The one graph of a DOT text, for networkx; every value is a string, and ports are left out.

    UsageError where pydot is not installed, InputError, with `what`, for a text that is no single graph.
    """
    try:
        import pydot
    except ImportError as error:
        remedy = "pip install 'pesto[dot]', or give the graph as GraphML"
        raise UsageError(f"{what}: DOT is read by pydot, which is not installed - {remedy}") from error
    heard = io.StringIO()
    with redirect_stdout(heard):  # where it says what is wrong
        found = pydot.graph_from_dot_data(data.decode("utf-8"))
    if not found or len(found) != 1:
        said = heard.getvalue().strip().splitlines()
        why = shown(said[-1], 120) if said else f"{len(found or ())} graphs"
        raise InputError(f"{what}: no single graph in DOT: {why} - correct it there")
    return _graph(found[0])


def _graph(top: Any) -> Any:
    import networkx as nx

    kinds = (nx.DiGraph, nx.Graph) if top.obj_dict.get("strict") else (nx.MultiDiGraph, nx.MultiGraph)
    graph = kinds[top.get_type() != "digraph"]()
    graph.graph.update(_said(top.get_attributes()))
    for part, of_nodes, of_edges in _parts(top, {}, {}):
        for node in part.get_node_list():
            if node.get_name() not in _WORDS:
                name = _plain(node.get_name())
                own = _said(node.get_attributes())
                graph.add_node(name, **({**own} if name in graph else {**of_nodes, **own}))
        for edge in part.get_edge_list():
            ends = list(map(_ends, (edge.get_source(), edge.get_destination())))
            graph.add_nodes_from((name for end in ends for name in end if name not in graph), **of_nodes)
            graph.add_edges_from(product(*ends), **{**of_edges, **_said(edge.get_attributes())})
    return graph


def _parts(part: Any, of_nodes: Said, of_edges: Said) -> Iterator[tuple[Any, Said, Said]]:
    """The subgraphs, inner ones first, then the graph itself, each with the defaults that hold for all in it."""
    for node in part.get_node_list():
        if node.get_name() == "node":
            of_nodes = {**of_nodes, **_said(node.get_attributes())}
        elif node.get_name() == "edge":
            of_edges = {**of_edges, **_said(node.get_attributes())}
    for inner in part.get_subgraph_list():
        yield from _parts(inner, of_nodes, of_edges)
    yield part, of_nodes, of_edges


def _ends(end: Any) -> list[str]:
    """The nodes that an edge names at one end: one, or all of a subgraph."""
    if isinstance(end, str):
        return [_plain(end)]
    inner = [name for part in end["subgraphs"].values() for each in part for name in _ends(each)]
    return [*map(_plain, end["nodes"]), *inner]


def _said(attributes: Mapping[str, Any]) -> Said:
    return {_plain(str(key)): _plain(str(value)) for key, value in attributes.items()}


def _plain(text: str) -> str:
    """An identifier without its port and its quotes."""
    found = _ID.match(text)
    own = found.group() if found else text
    return _ESCAPED.sub(r"\1", own[1:-1]) if own.startswith('"') and len(own) > 1 else own
