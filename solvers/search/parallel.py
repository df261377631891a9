"""Several walks at once, one a core."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from solvers.search.annealing import PointValue, Walk

_LOOK_S = 0.1
"""How often the caller's thread looks for news, and for Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkBudget:
    """How long each walk goes on."""

    seconds: float
    stretches: int | None = None
    """Stretches in place of seconds, for the same result on every machine; then nothing is heard before the end."""
    rarer: int = 1
    """How many times as many stretches as otherwise go by from one pause to the next."""


def walk_all(
    walks: Sequence[Walk], budget: WalkBudget, over: Callable[[], bool]
) -> Generator[PointValue, None, list[PointValue]]:
    """Run all walks and yield improvements as they are found; return each walk's best, best first.

    All end when `over()`, which the caller's thread is asked between looks, or when the caller asks no more. What one
    raises ends the others, and is raised. Of equals the first walk's comes first. KeyboardInterrupt once all have ended
    and everything was told.
    """
    stop, news = threading.Event(), SimpleQueue[PointValue]()
    with ThreadPoolExecutor(len(walks)) as pool:
        running: list[Future[None]] = []
        try:
            running += [pool.submit(_go, walk, budget, stop, news) for walk in walks]
            while wait(running, timeout=_LOOK_S).not_done:
                if budget.stretches is None:
                    yield from _best(news)
                if over() or any(each.done() and each.exception() is not None for each in running):
                    stop.set()
        except KeyboardInterrupt:
            stop.set()
            wait(running)
            yield from _best(news)
            raise
        finally:
            stop.set()
    kept = _kept(walks, running)
    yield from kept[:1]
    return kept


def _kept(walks: Sequence[Walk], ended: Sequence[Future[None]]) -> list[PointValue]:
    for future in ended:
        future.result()
    return sorted((walk.kept for walk in walks if walk.kept is not None), key=lambda kept: kept.makespan)


def _go(walk: Walk, budget: WalkBudget, stop: threading.Event, news: "SimpleQueue[PointValue]") -> None:
    began, done, progress = time.perf_counter(), 0, 0.0
    while progress < 1.0 and not stop.is_set():
        if walk.stretch(progress, budget.rarer) and walk.kept is not None:
            news.put(walk.kept)
        done += 1
        if budget.stretches is not None:
            progress = done / max(budget.stretches, 1)
        else:
            progress = (time.perf_counter() - began) / budget.seconds if budget.seconds > 0 else 1.0
    if walk.pause() and walk.kept is not None:
        news.put(walk.kept)


def _best(news: "SimpleQueue[PointValue]") -> list[PointValue]:
    """The best of what has come in, if anything has."""
    found: list[PointValue] = []
    try:
        while True:
            found.append(news.get_nowait())
    except Empty:
        pass
    return sorted(found, key=lambda each: each.makespan)[:1]
