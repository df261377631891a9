"""Deadlines: predicates that long loops poll, so that they end in time with their best result."""

import time
from collections.abc import Callable

Late = Callable[[], bool]
"""Returns True from some moment on."""


def never() -> bool:
    """Return False: there is all the time that it takes."""
    return False


def after(seconds: float, clock: Callable[[], float] = time.perf_counter) -> Late:
    """Return what is late after so many seconds of a clock, of wall-clock time by default."""
    ends = clock() + seconds
    return lambda: clock() >= ends
