"""The race of the portfolio's engines: who runs next, for how long, and what is shared between legs."""

import threading
import time
from dataclasses import dataclass, replace

from solvers import api
from solvers.base import Progress
from solvers.result import FAILED, Limit, Options, Result
from solvers.watch import Watch

_LEAST_S = 3.0
"""Seconds of a leg at least: a process starts and builds its model anew in each."""
_FIRST = 1 / 8
"""Share of the limit that an engine's first leg takes; each later one is twice as long."""

_STOPPED = frozenset({Limit.TIME, Limit.GAP, Limit.INTERRUPT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One finished run of one engine."""

    engine: str
    seconds: float
    gain: float
    """Relative fall of the makespan plus relative rise of the bound, by anyone, meanwhile."""


class Race:
    """Lanes that share a `Watch`. Every lane is one thread with one engine's process at a time."""

    def __init__(self, watch: Watch, engines: tuple[str, ...], lanes: int) -> None:
        self.stop = threading.Event()
        self._watch, self._lanes = watch, lanes
        self._idle = list(engines)
        self._legs: list[Leg] = []
        self._failed: dict[str, str] = {}
        self._denied: list[str] = []
        self._lock = threading.Lock()

    def lane(self) -> None:
        """Run engines one after the other until the race is over."""
        while not self._over():
            engine = self._take()
            if engine is None:
                return
            self._leg(engine)

    def result(self) -> Result:
        """The best of all; infeasible where two engines found no schedule possible and none found one."""
        if self._watch.best is None and len(set(self._denied)) > 1:
            return self._watch.infeasible(f"{' and '.join(sorted(set(self._denied)))} agree that no schedule exists")
        limit = Limit.GAP if self._watch.within_gap else Limit.TIME
        if not self._idle and self._watch.remaining > 0:
            limit = Limit.OTHER
        return self._watch.result(limit, "; ".join(f"{name} {why}" for name, why in self._failed.items()))

    def _over(self) -> bool:
        return self.stop.is_set() or self._watch.within_gap or self._watch.remaining <= 0

    def _take(self) -> str | None:
        """The engine that runs next, which is then no longer idle."""
        with self._lock:
            if not self._idle:
                return None
            best = max(self._idle, key=self._promise)
            self._idle.remove(best)
            return best

    def _promise(self, engine: str) -> tuple[bool, float, int]:
        """Never run comes first, then the gain in a second of the last leg, then the fewest legs."""
        legs = [leg for leg in self._legs if leg.engine == engine]
        if not legs:
            return True, 0.0, 0
        # The clock must not decide where the answer is to be the same again.
        pace = 0.0 if self._watch.options.deterministic else legs[-1].gain / max(legs[-1].seconds, 0.1)
        return False, pace, -len(legs)

    def _leg(self, engine: str) -> None:
        watch, began = self._watch, time.monotonic()
        makespan, bound = watch.best.makespan if watch.best else 0, watch.lower_bound
        result = api.solve(watch.problem, engine, self._options(engine), self._heard, self.stop)
        watch.better_bound(result.lower_bound, result.bound_by)
        if result.schedule is not None:
            watch.better_schedule(result.schedule)
        seconds = time.monotonic() - began
        after = watch.best.makespan if watch.best else 0
        gain = (makespan - after) / makespan if makespan else float(after > 0)
        gain += (watch.lower_bound - bound) / max(watch.lower_bound, 1)
        with self._lock:
            self._legs.append(Leg(engine=engine, seconds=seconds, gain=gain))
            self._settle(engine, result)
        if watch.within_gap:
            self.stop.set()

    def _settle(self, engine: str, result: Result) -> None:
        """Whether the engine may run again."""
        if result.status in FAILED:
            self._failed[engine] = f"{result.status}: {result.detail}"
        elif result.limit is Limit.UNCONFIRMED:
            self._denied.append(engine)
            if len(set(self._denied)) > 1:
                self.stop.set()
        elif result.limit in _STOPPED:
            # One that ended by itself has nothing more to give.
            self._idle.append(engine)

    def _heard(self, progress: Progress) -> None:
        watch = self._watch
        watch.better_bound(progress.lower_bound, progress.bound_by)
        if progress.schedule is not None:
            watch.better_schedule(progress.schedule)
        if progress.log:
            watch.log(*progress.log)
        if watch.within_gap:
            self.stop.set()

    def _options(self, engine: str) -> Options:
        """The best so far, and the seconds of this leg; what would be too short for another leg is added."""
        watch = self._watch
        with self._lock:
            before = sum(leg.engine == engine for leg in self._legs)
        seconds = max(_LEAST_S, _FIRST * watch.options.seconds * 2**before)
        if watch.remaining - seconds < max(_LEAST_S, seconds / 2):
            seconds = watch.remaining
        # A new seed in each leg, so that none repeats the last.
        seed = watch.options.seed + before
        start, bound = watch.known
        return replace(watch.options, seconds=max(0.0, seconds), seed=seed, start=start, lower_bound=bound)
