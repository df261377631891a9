"""How long a verb's process took to start; on a busy machine that is counted in the verb's time limit."""

import time
from collections.abc import Callable
from typing import Any

import click

CLOCK: Callable[[], float] = time.perf_counter
"""Returns the seconds that starting is counted in."""
FREE_S = 1.0
"""Seconds of starting that no time limit counts: where the machine has nothing else to do, it takes less."""
MOST = 0.5
"""Share of a time limit that starting may use up."""
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
    """Return how many seconds of a time limit starting has used; none where the limit is a measure of work."""
    return 0.0 if deterministic else min(max(started_s - FREE_S, 0.0), MOST * limit_s)
