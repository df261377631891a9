"""Seconds that a verb's process takes to start and to end, which count in its time limit on a busy machine."""

import time
from collections.abc import Callable
from typing import Any

import click

CLOCK: Callable[[], float] = time.perf_counter
"""Returns the seconds that starting is counted in."""
FREE_S = 1.0
"""Seconds of starting and ending that no time limit counts: on a machine with nothing else to do they take less."""
END = 0.5
"""Seconds of ending, printing included, as a share of those of starting."""
MOST = 0.5
"""Share of a time limit that starting and ending may use up."""
_STARTED = "started"
"""Key of the context's object: when the command line was begun, by CLOCK."""


def note_start(said: dict[str, Any]) -> None:
    """Write down in the object of a context that the command line begins now."""
    said[_STARTED] = CLOCK()


def startup_s() -> float:
    """Return seconds since the command line was begun; 0 for a verb that Python calls."""
    context = click.get_current_context(silent=True)
    said = None if context is None else context.find_root().obj
    return CLOCK() - said[_STARTED] if isinstance(said, dict) and _STARTED in said else 0.0


def counted_s(started_s: float, limit_s: float, *, deterministic: bool) -> float:
    """Return seconds of a time limit that starting has used and ending will; none where it is a measure of work."""
    return 0.0 if deterministic else min(max((1 + END) * started_s - FREE_S, 0.0), MOST * limit_s)
