"""The lower bound of the full graph, made stronger while plans are searched for."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pesto.settings import Settings
from pesto.tracker import Tracker
from solvers.bounding.full import full_bound
from solvers.problem import Problem

_SHARE, _MOST_S = 0.2, 20.0
"""Of the time limit, and in all: seconds after which no distance is raised any more."""


@contextmanager
def strengthened(problem: Problem, tracker: Tracker, settings: Settings) -> Iterator[None]:
    """While the context is open, another thread looks for a better bound and tells the tracker; leaving waits for it.

    When deterministic it is not cut by the clock.
    """
    seconds = float("inf") if settings.deterministic else min(_SHARE * settings.time_limit_s, _MOST_S)
    best = tracker.best

    def look() -> None:
        found = full_bound(problem, upper=best.makespan if best is not None else None, seconds=seconds)
        if found.ticks > tracker.bound.ticks:
            tracker.bound = found

    thread = threading.Thread(target=look, daemon=True)
    if settings.time_limit_s > 0:
        thread.start()
    try:
        yield
    finally:
        if thread.ident is not None:
            thread.join()
