"""The lower bound of the full graph, made stronger while plans are searched for."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TypeVar

from pesto.core.settings import Settings
from pesto.planning.solving.tracker import Tracker
from solvers import Problem
from solvers.bounds.full import full_bound

T = TypeVar("T")
_LOG = logging.getLogger("pesto")
_SHARE, _MOST_S = 0.2, 20.0
"""Of the time limit, and in all: seconds after which no distance is raised any more."""
_LOOK_S = 0.1


@contextmanager
def strengthen_bound(problem: Problem, tracker: Tracker, settings: Settings) -> Iterator[None]:
    """While the context is open, another thread looks for a better bound and tells the tracker; leaving waits for it.

    Nobody waits past the time limit, after an exception (Ctrl-C say), or for what the gap does not need; a bound that
    comes then is not taken. When deterministic it is not cut by the clock, and ends before anything else begins. What
    goes wrong in the thread is a warning: a weaker bound still holds.
    """
    seconds = float("inf") if settings.deterministic else min(_SHARE * settings.time_limit_s, _MOST_S)
    best, late, taking = tracker.best, threading.Event(), threading.Lock()

    def look() -> None:
        try:
            with tracker.ledger.bounding():
                found = full_bound(problem, upper=best.makespan if best is not None else None, seconds=seconds)
            with taking:
                if not late.is_set():
                    tracker.strengthen(found)
        except Exception as error:
            _LOG.warning("the stronger lower bound failed: %r", error)

    if settings.time_limit_s == 0 or tracker.gap <= settings.gap:
        yield
        return
    running = run_in_thread(look, "bounds")
    if settings.deterministic:
        wait([running])
    try:
        yield
        while not running.done() and tracker.left_s > 0 and tracker.gap > settings.gap:
            wait([running], timeout=min(tracker.left_s, _LOOK_S))
    finally:
        with taking:
            late.set()


def run_in_thread(work: Callable[[], T], name: str | None = None) -> Future[T]:
    """A future of work in a daemon thread, which does not keep the process alive; `name` is the thread's."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
