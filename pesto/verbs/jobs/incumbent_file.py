"""The best plan or split so far of a job that runs, as a file with a summary beside it."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from pesto.core.errors import PestoError
from pesto.core.files.disk import read_bytes, write_atomic
from pesto.core.files.json import encode_json
from pesto.core.plans.plan import Plan
from pesto.core.plans.plan_file import dumps
from pesto.verbs.jobs.request import PLAN, SPLIT

SUMMARY = ".incumbent.json"
"""A file that says how long the step of the plan or split beside it is."""
INCUMBENTS = (PLAN, SPLIT, SUMMARY)
LEAST_S, SHARE = 1.0, 10.0
"""Seconds from the end of one writing to the next, and how many times the processor's seconds that it took."""
_LOG = logging.getLogger(__name__)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a job's result that is known of an incumbent."""

    makespan_s: float
    lower_bound_s: float | None = None
    """None for a split."""


class _Result(NamedTuple):
    """The file of an incumbent."""

    name: str
    data: bytes
    summary: Summary


class IncumbentFile:
    """Writes the shortest plan or split so far, in a thread of its own, for at most a small share of the time."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of the job's results, where the summary lies, too."""
        self._folder, self._best_s = folder, math.inf
        self._latest: dict[str, Callable[[], _Result]] = {}
        self._changed, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="incumbents", daemon=True)

    def take(self, made: Callable[[], Plan]) -> None:
        """Have a plan written soon, unless another one comes before; `made` makes it, in the other thread."""

        def file() -> _Result:
            plan = made()
            bound_s = plan.provenance.lower_bound_ticks * plan.tick_s
            return _Result(PLAN, dumps(plan), Summary(makespan_s=plan.makespan_s, lower_bound_s=bound_s))

        self._keep(PLAN, file)

    def take_split(self, makespan_s: float, encoded: Callable[[], bytes]) -> None:
        """Have a split written soon; `encoded` makes the bytes of its file, in the other thread."""
        self._keep(SPLIT, lambda: _Result(SPLIT, encoded(), Summary(makespan_s=makespan_s)))

    def close(self) -> None:
        """Write no more; what is being written is whole then."""
        self._closed.set()
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def forget(self, kept: Iterable[str]) -> None:
        """Remove the summary and the incumbents, but for files of these names, which the job has written since."""
        for name in set(INCUMBENTS).difference(kept):
            (self._folder / name).unlink(missing_ok=True)

    def _keep(self, name: str, made: Callable[[], _Result]) -> None:
        self._latest[name] = made
        self._changed.set()
        if self._thread.ident is None:
            self._thread.start()

    def _write_all(self) -> None:
        while True:
            self._changed.wait()
            if self._closed.is_set():
                return
            self._changed.clear()
            began_s = time.thread_time()  # a busy machine makes no plan rarer
            for name in (SPLIT, PLAN):
                if (made := self._latest.pop(name, None)) is not None:
                    self._write(made)
            self._closed.wait(max(LEAST_S, SHARE * (time.thread_time() - began_s)))

    def _write(self, made: Callable[[], _Result]) -> None:
        try:
            new = made()
            if new.summary.makespan_s >= self._best_s:
                return
            write_atomic(self._folder / new.name, new.data)
            write_atomic(self._folder / SUMMARY, encode_json(new.summary))
            self._best_s = new.summary.makespan_s
            (self._folder / (SPLIT if new.name == PLAN else PLAN)).unlink(missing_ok=True)
        except PestoError as error:  # the solve goes on, and its end is written and told as ever
            _LOG.debug("the best plan so far is not written: %s", error)


def left_summary(folder: Path) -> Summary | None:
    """Return what an attempt's folder says of the plan that is left there; None where it says nothing."""
    try:
        return msgspec.json.decode(read_bytes(folder / SUMMARY, 1 << 12), type=Summary)
    except (PestoError, msgspec.DecodeError):
        return None
