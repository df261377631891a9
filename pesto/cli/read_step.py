"""The step that a verb solves, read while what its solve needs is compiled."""

from pesto.cli.printed import aside
from pesto.graph import Graph
from pesto.inputs.load import load_graph
from pesto.solving.ahead import beside
from pesto.source import Source


def read_step(source: Source, *, quiet: bool) -> Graph:
    """The graph of `source`; a line on stderr says that it is being read."""
    beside()
    if not quiet:
        aside("reading the graph ...")
    return load_graph(source, quiet=quiet)
