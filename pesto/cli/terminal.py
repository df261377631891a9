"""The terminal on whose stderr a verb shows progress, and the process whose start counts in its time limit."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pesto.cli.main import counted_s, startup_s
from pesto.cli.printed import aside
from pesto.core.errors import UsageError
from pesto.core.graph import Graph
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.load import load_both, load_graph
from pesto.planning.solving.tracker import Watch
from pesto.reporting.show.status_line import LiveLine
from pesto.split.typed_graph import TypedGraph
from pesto.verbs.requests import Context


class Terminal(Context):
    """Shows a live line while a search goes on."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet

    def begin_reading(self) -> None:
        """Say on stderr that the step is being read; on a terminal the live line says so."""
        super().begin_reading()
        if not self.quiet and not sys.stderr.isatty():
            aside("reading the graph ...")

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Show the best plan so far and the bound."""
        with LiveLine(quiet=self.quiet) as live:
            yield live

    def startup_s(self) -> float:
        """Return seconds since the command line was begun."""
        return startup_s()

    def counted_s(self, started_s: float, settings: Settings) -> float:
        """Return seconds of the time limit that starting has used and ending will."""
        return counted_s(started_s, settings.time_limit_s, deterministic=settings.deterministic)


def read_step(source: Source, *, quiet: bool) -> Graph:
    """Read the graph of `source`, and compile meanwhile what its solve needs."""
    Terminal(quiet=quiet).begin_reading()
    return load_graph(source, quiet=quiet)


def read_shapes(source: Source, *, quiet: bool) -> tuple[Graph, TypedGraph | str]:
    """Read the graph, and what its ops are to one who cuts tensors, or why nothing says or none can be cut."""
    Terminal(quiet=quiet).begin_reading()
    return load_both(source, quiet=quiet)


def checked_step(source: Source | Graph) -> Source:
    """Return the step that the options name; UsageError, with the options that would, where they name none or two."""
    if not isinstance(source, Source):
        raise TypeError("a verb's step is named by options")
    if source == Source():
        raise UsageError.build(
            "no step is named",
            remedy=("give --model NAME (pesto models), --graph FILE, --saved-model DIR or --function MODULE:CALLABLE"),
        )
    return source.checked()
