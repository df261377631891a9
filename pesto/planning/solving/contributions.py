"""What each engine of a solve contributed: how much shorter the plan became, how much higher the bound, CPU seconds."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

ENGINES = ("start", "baselines", "list", "repair", "exact", "annealing", "windows", "bounds", "choice")
"""Who contributes: the older plan that a solve began from; baselines and methods of the literature; list schedules of
the graph and of coarser ones; what was moved until it fits; the exact solver on the coarse graph; annealing; exact
windows of the plan; what looks for a better bound beside both; and what became of the best when it was chosen: priced
well, left without an order, or passed over for one of less p90."""
_OF = {
    "start": "start", "list": "list", "levels": "list", "repaired": "repair", "coarse": "exact", "search": "annealing",
    "windows": "windows",
}  # fmt: skip
"""By the name of a candidate; all others are baselines."""
_AT = {
    "start": "start", "baselines": "baselines", "coarsen": "list", "repair": "repair", "solve": "exact",
    "search": "annealing", "verify": "choice",
}  # fmt: skip
"""By the name of a stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What one engine did in a solve."""

    engine: str
    """A name of `pesto.planning.solving.contributions.ENGINES`."""
    solver: str
    """The solver that it asked, a name of `pesto solvers`; "" where it is one of its own."""
    gained: int
    """Ticks that its candidates, each as it came, took off the best plan before. The first plan that fits gains
    nothing: all gains together are what the plan is shorter than that."""
    raised: int
    """Ticks by which it raised the lower bound of the full graph."""
    cpu_s: float
    """CPU seconds, in this process and in those that it started."""


class ContributionLedger:
    """Counts what engines contribute while a solve goes on."""

    def __init__(self) -> None:
        self.first: int | None = None
        """Ticks of the first plan that fits."""
        self._gained, self._cpu_s, self._raised = dict[str, int](), dict[str, float](), dict[str, int]()
        self._bounds_s = 0.0
        self._bounds_clock: tuple[int, float] | None = None
        self._engine, self._since, self._found = "", self._now(), 0

    def found(self, candidate: str, ticks: int) -> None:
        """Note a best plan of so many ticks, which fits; the first is where gains are counted from."""
        if self.first is None:
            self.first = self._found = ticks
        engine = _OF.get(candidate, "baselines")
        self._gained[engine] = self._gained.get(engine, 0) + self._found - ticks
        self._found = ticks

    def raised(self, engine: str, ticks: int) -> None:
        """Note that an engine has made the bound higher by so many ticks."""
        self._raised[engine] = self._raised.get(engine, 0) + ticks

    @contextmanager
    def at(self, engine: str) -> Iterator[None]:
        """CPU seconds inside are an engine's, or those of the one of a stage of that name, and nobody else's."""
        before = self._turn(_AT.get(engine, engine))
        try:
            yield
        finally:
            self._turn(before)

    @contextmanager
    def bounding(self) -> Iterator[None]:
        """CPU seconds of this thread inside are of `bounds`, whoever's turn it is meanwhile."""
        began = time.thread_time()
        self._bounds_clock = time.pthread_getcpuclockid(threading.get_ident()), began
        try:
            yield
        finally:
            self._bounds_clock, self._bounds_s = None, time.thread_time() - began

    def of(self, plan: int, solvers: Mapping[str, str]) -> tuple[Contribution, ...]:
        """What each did for a plan of so many ticks, as far as it had a turn; solvers: those that engines asked."""
        self._turn(self._engine)
        gained = self._gained | {"choice": self._found - plan}
        cpu_s = self._cpu_s | {"bounds": self._bounds()}
        return tuple(
            Contribution(
                engine=e,
                solver=solvers.get(e, ""),
                gained=gained.get(e, 0),
                raised=self._raised.get(e, 0),
                cpu_s=cpu_s.get(e, 0.0),
            )
            for e in ENGINES
            if e in gained or e in cpu_s
        )

    def _turn(self, engine: str) -> str:
        """From now on it is another engine's turn; whose it was."""
        now, before = self._now(), self._engine
        self._cpu_s[before] = self._cpu_s.get(before, 0.0) + max(now - self._since, 0.0)
        self._engine, self._since = engine, now
        return before

    def _bounds(self) -> float:
        clock = self._bounds_clock
        if clock is None:
            return self._bounds_s
        try:
            return time.clock_gettime(clock[0]) - clock[1]
        except OSError:  # the thread has just ended
            return self._bounds_s

    def _now(self) -> float:
        """CPU seconds of this process and of those that it started and that have ended, but for bounds."""
        t = os.times()
        return t.user + t.system + t.children_user + t.children_system - self._bounds()
