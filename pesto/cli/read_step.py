"""The step that a verb solves, read while what its solve needs is compiled."""

import sys

from pesto.cli.printed import aside
from pesto.core.graph import Graph
from pesto.core.source import Source
from pesto.inputs.load import load_both, load_graph
from pesto.planning.solving.ahead import beside
from pesto.split.typed_graph import TypedGraph


def read_step(source: Source, *, quiet: bool) -> Graph:
    """The graph of `source`; off a terminal a line on stderr says that it is being read."""
    _begin(quiet=quiet)
    return load_graph(source, quiet=quiet)


def read_shapes(source: Source, *, quiet: bool) -> tuple[Graph, TypedGraph | str]:
    """The graph, and what its ops are to one who cuts tensors, or why nothing says or none can be cut."""
    _begin(quiet=quiet)
    return load_both(source, quiet=quiet)


def _begin(*, quiet: bool) -> None:
    beside()
    if not quiet and not sys.stderr.isatty():  # a terminal has the live line
        aside("reading the graph ...")
