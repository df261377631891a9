"""The best plan so far as a file, while a job goes on: a worker that is killed leaves it."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from pesto.errors import PestoError
from pesto.files.disk import read_bytes, write_atomic
from pesto.files.json import encode_json
from pesto.plans.plan import Plan
from pesto.plans.plan_file import dumps

SUMMARY = ".incumbent.json"
"""A file that says how long the step of the plan beside it is."""
LEAST_S, SHARE = 1.0, 10.0
"""Seconds from the end of one writing to the next, and how many times the processor's seconds that it took."""
_LOG = logging.getLogger(__name__)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a job's result that is known of an incumbent."""

    makespan_s: float
    lower_bound_s: float


class IncumbentFile:
    """Writes the last plan that it was given, in a thread of its own, for at most a small share of the time."""

    def __init__(self, path: Path) -> None:
        """`path`: of the plan; its summary lies beside it."""
        self._path = path
        self._latest: Callable[[], Plan] | None = None
        self._changed, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="incumbents", daemon=True)

    def take(self, made: Callable[[], Plan]) -> None:
        """Have a plan written soon, unless another one comes before; `made` makes it, in the other thread."""
        self._latest = made
        self._changed.set()
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Write no more; what is being written is whole then."""
        self._closed.set()
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def forget(self) -> None:
        """Remove the summary: what lies there is not the job's incumbent any more."""
        self._path.with_name(SUMMARY).unlink(missing_ok=True)

    def _write_all(self) -> None:
        while True:
            self._changed.wait()
            if self._closed.is_set():
                return
            self._changed.clear()
            began_s = time.thread_time()  # a busy machine makes no plan rarer
            if self._latest is not None:
                self._write(self._latest)
            self._closed.wait(max(LEAST_S, SHARE * (time.thread_time() - began_s)))

    def _write(self, made: Callable[[], Plan]) -> None:
        try:
            plan = made()
            write_atomic(self._path, dumps(plan))
            bound_s = plan.provenance.lower_bound_ticks * plan.tick_s
            said = Summary(makespan_s=plan.makespan_s, lower_bound_s=bound_s)
            write_atomic(self._path.with_name(SUMMARY), encode_json(said))
        except PestoError as error:  # the solve goes on, and its end is written and told as ever
            _LOG.debug("the best plan so far is not written: %s", error)


def left_summary(folder: Path) -> Summary | None:
    """Return what an attempt's folder says of the plan that is left there; None where it says nothing."""
    try:
        return msgspec.json.decode(read_bytes(folder / SUMMARY, 1 << 12), type=Summary)
    except (PestoError, msgspec.DecodeError):
        return None
