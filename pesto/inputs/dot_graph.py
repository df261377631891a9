"""Graphs in Graphviz' DOT, parsed by pydot: nodes, edges and defaults of the graph and of its subgraphs."""

import io
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from itertools import product
from typing import Any

from pesto.core.distribution import install_command
from pesto.core.errors import InputError, SolverError
from pesto.core.files.json import shown

_WORDS = ("node", "edge", "graph")
"""What stands for defaults in place of a node's name."""
_ID = re.compile(r'"(?:[^"\\]|\\.)*"|[^":]*', re.DOTALL)
"""A name; what follows it is a port."""
_ESCAPED = re.compile(r'\\(["\\])')
Said = dict[str, str]


def parse_dot(data: bytes, what: str) -> Any:
    """The one graph of a DOT text, for networkx; every value is a string, and ports are left out.

    SolverError where pydot is not installed, InputError, with `what`, for a text that is no single graph.
    """
    try:
        import pydot
    except ImportError as error:
        remedy = f"{install_command('dot')}, or give the graph as GraphML"
        raise SolverError.build("DOT is read by pydot, which is not installed", where=what, remedy=remedy) from error
    heard = io.StringIO()
    with redirect_stdout(heard):  # where it says what is wrong
        found = pydot.graph_from_dot_data(data.decode("utf-8"))
    if not found or len(found) != 1:
        said = heard.getvalue().strip().splitlines()
        why = shown(said[-1], 120) if said else f"{len(found or ())} graphs"
        raise InputError.build(f"no single graph in DOT: {why}", where=what, remedy="correct it there")
    top = found[0]
    import networkx as nx

    kinds = (nx.DiGraph, nx.Graph) if top.obj_dict.get("strict") else (nx.MultiDiGraph, nx.MultiGraph)
    graph = kinds[top.get_type() != "digraph"]()
    graph.graph.update(_plain_attributes(top.get_attributes()))
    _read(graph, top.obj_dict, {}, {})
    return graph


def _read(graph: Any, part: Mapping[str, Any], of_nodes: Said, of_edges: Said) -> list[str]:
    """Add a graph's or a subgraph's statements one after the other; the names of all nodes that it speaks of.

    Defaults hold for what is made after them, in their part and those within it; a node is made where it stands first.
    """
    named: list[str] = []
    between: Any = None
    for what, said in _statements(part):
        own = _plain_attributes(said["attributes"])
        if what == "node":
            of_nodes = {**of_nodes, **own}
        elif what == "edge":
            of_edges = {**of_edges, **own}
        elif what == "subgraph":
            named += _read(graph, said, of_nodes, of_edges)
        elif what == "one":
            named.append(_add_node(graph, said["name"], of_nodes, own))
        else:
            # In a -> {b c} -> d what is between is an end of two edges, and read once.
            into = [type(graph)() if end is between else graph for end in said["points"]]
            ends = [_end(each, end, of_nodes, of_edges) for each, end in zip(into, said["points"], strict=True)]
            graph.add_edges_from(product(*ends), **{**of_edges, **own})
            between, named = said["points"][1], [*named, *ends[0], *ends[1]]
    return named


def _statements(part: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """What a part says, in the order in which it stands: one node, two (an edge), a subgraph, or a default."""
    found = [(name if name in _WORDS else "one", said) for name, each in part["nodes"].items() for said in each]
    found += [("two", said) for each in part["edges"].values() for said in each]
    found += [("subgraph", said) for each in part["subgraphs"].values() for said in each]
    return sorted((one for one in found if one[0] != "graph"), key=lambda one: int(one[1]["sequence"]))


def _end(graph: Any, end: Any, of_nodes: Said, of_edges: Said) -> list[str]:
    """The nodes that an edge names at one end: one, or all of a subgraph."""
    if isinstance(end, str):
        return [_add_node(graph, end, of_nodes, {})]
    return list(dict.fromkeys(_read(graph, end, of_nodes, of_edges)))


def _add_node(graph: Any, name: str, defaults: Said, own: Said) -> str:
    """The name of a node, which has the defaults of where it was made."""
    plain = _plain(name)
    graph.add_node(plain, **(own if plain in graph else {**defaults, **own}))
    return plain


def _plain_attributes(attributes: Mapping[str, Any]) -> Said:
    return {_plain(str(key)): _plain(str(value)) for key, value in attributes.items()}


def _plain(text: str) -> str:
    """An identifier without its port and its quotes."""
    found = _ID.match(text)
    own = found.group() if found else text
    return _ESCAPED.sub(r"\1", own[1:-1]) if own.startswith('"') and len(own) > 1 else own
