"""The terminal on whose stderr a verb shows progress, and the process whose start counts in its time limit."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from pesto.cli import main
from pesto.cli.printed import aside
from pesto.core.errors import UsageError
from pesto.core.graph import Graph
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.planning.solving.tracker import Watch
from pesto.reporting.show.status_line import LiveLine
from pesto.verbs.requests import Context

FREE_S = 1.0
"""Seconds of starting and ending that no time limit counts: on a machine with nothing else to do they take less."""
END = 0.5
"""Seconds of ending, printing included, as a share of those of starting."""
MOST = 0.5
"""Share of a time limit that starting and ending may use up."""


class Terminal(Context):
    """Shows a live line while a search goes on."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet

    def begin_reading(self) -> None:
        """Say on stderr that the step is being read; on a terminal the live line says so."""
        if not self.quiet and not sys.stderr.isatty():
            aside("reading the graph ...")

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Show the best plan so far and the bound."""
        with LiveLine(quiet=self.quiet) as live:
            yield live

    def startup_s(self) -> float:
        """Return seconds since the command line was begun; 0 for a verb that Python calls."""
        context = click.get_current_context(silent=True)
        started = None if context is None else (context.find_root().obj or {}).get(main.STARTED)
        return 0.0 if started is None else main.CLOCK() - started

    def counted_s(self, started_s: float, settings: Settings) -> float:
        """Return seconds of the time limit that starting has used and ending will; 0 where it is a measure of work."""
        if settings.deterministic:
            return 0.0
        return min(max((1 + END) * started_s - FREE_S, 0.0), MOST * settings.time_limit_s)


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
