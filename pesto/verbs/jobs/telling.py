"""How the events of a job come about: from plans and stages of a solve, and from the project's own log."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pesto.core.plans.plan import Plan
from pesto.planning.solving import tracker
from pesto.reporting.show.screen import one_line
from pesto.verbs.jobs.incumbent_file import IncumbentFile
from pesto.verbs.jobs.job_events import Bound, Event, Incumbent, Log, Stage

Tell = Callable[[Event], None]


class Telling:
    """A watch of solves (`StageWatch`): tells of what is better than before, and of stages."""

    def __init__(self, tell: Tell, named: Callable[[str], str]) -> None:
        """`named` makes of a text one that names files as their sender does."""
        self._tell, self._named, self._best_s, self._stage = tell, named, float("inf"), ""
        self._one = threading.Lock()
        self.incumbents: IncumbentFile | None = None
        """Takes better plans and splits (`pesto.planning.solving.tracker.PlanWatch`); None where nobody does."""

    def __call__(self, incumbent: tracker.Incumbent) -> None:
        """A better plan, or a better bound beside the plan that there is."""
        best_s, bound_s = incumbent.makespan_s, incumbent.lower_bound_s
        gap = (best_s - bound_s) / best_s if best_s else 0.0
        with self._one:
            better, self._best_s = best_s != self._best_s, best_s
        if better:
            self._tell(Incumbent(best_s=best_s, bound_s=bound_s, gap=gap, by=incumbent.name, seconds=incumbent.seconds))
        else:
            self._tell(Bound(bound_s=bound_s, gap=gap, seconds=incumbent.seconds))

    def take_plan(self, made: Callable[[], Plan]) -> None:
        """Pass on a better plan."""
        if self.incumbents is not None:
            self.incumbents.take(made)

    def take_split(self, makespan_s: float, encoded: Callable[[], bytes]) -> None:
        """Pass on a better split."""
        if self.incumbents is not None:
            self.incumbents.take_split(makespan_s, encoded)

    def begins(self, stage: str) -> None:
        """A part of the work begins."""
        if stage != self._stage:
            self._stage = stage
            self._tell(Stage(name=stage))

    def log(self, text: str, level: str = "info") -> None:
        """A line for people."""
        self._tell(Log(level=level, text=one_line(self._named(text))))


@contextmanager
def logged(telling: Telling) -> Iterator[None]:
    """What the project logs meanwhile is told as well."""
    handler, log = _Handler(telling), logging.getLogger("pesto")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Handler(logging.Handler):
    def __init__(self, telling: Telling) -> None:
        super().__init__()
        self._telling = telling

    def emit(self, record: logging.LogRecord) -> None:
        """Tell a record as a line."""
        self._telling.log(self.format(record), record.levelname.lower())
