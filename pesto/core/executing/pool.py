"""Work in processes on this machine, each on cores of its own."""

import logging
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import wait

from pesto.core.executing.executor import Backoff, WorkEvent, WorkFailure, WorkItem, WorkResult
from pesto.core.executing.worker_process import POLL_S, WakeupPipe, WorkerProcess, resident_bytes
from pesto.core.quantities import duration, size

_LOG = logging.getLogger(__name__)
_LOOK_S = 0.25
"""Seconds between two looks at the memory of what may not have all."""


def default_jobs() -> int:
    """Return one job for every two cores: solvers use several threads, and times are to be compared."""
    return max(1, len(_cores()) // 2)


class Pool:
    """Worker processes that do one work at a time and are replaced when they die."""

    def __init__(
        self, jobs: int, *, niceness: int = 0, keep_bytes: int | None = None, ready: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Start no process yet. Raise ValueError for no job.

        ready: `module:function` that a worker calls before its first work. With it as many workers as there are cores
        are started as soon as something is collected, and one that ends is replaced at once; after one that ended
        before it was ready, one at a time, with pauses by `clock` in between, and works are for those that are ready.

        The thread that begins works must last as long as they do: its workers end with it (PR_SET_PDEATHSIG).
        keep_bytes: a worker that holds more after its work is not used again; None keeps all.
        """
        if jobs < 1:
            raise ValueError(f"at least 1 job, not {jobs}")
        # Cores for each job: as many as go round, none (which is all) when there are more jobs than cores.
        cores, each = _cores(), len(_cores()) // jobs
        self._free = [tuple(cores[k * each : (k + 1) * each]) for k in range(jobs)]
        self._idle: list[WorkerProcess] = []
        self._busy: list[WorkerProcess] = []
        self._lost: list[WorkEvent] = []
        self._getting_ready: set[WorkerProcess] = set()
        self._slots, self._niceness, self._keep_bytes, self._ready = jobs, niceness, keep_bytes, ready
        self._looked, self._backoff = 0.0, Backoff(clock)
        self._bell = WakeupPipe()

    @property
    def slots(self) -> int:
        """Most works at a time; while workers end before they are ready, those that run and those that could."""
        if self._backoff.failing:
            return len(self._busy) + sum(worker.ready for worker in self._idle)
        return self._slots

    def begin(self, work: WorkItem) -> None:
        """Hand a work to an idle worker, or to a new one; to a new one, too, where it may not have all of its cores.

        Where workers are started beforehand, a work for which no process can be started is lost by `place`.
        """
        cores = work.limits.cores
        ready_first = sorted(self._idle, key=lambda worker: not worker.ready)
        worker = next((worker for worker in ready_first if worker.alive and worker.most == cores), None)
        try:
            if worker is not None:
                self._idle.remove(worker)
            else:
                if not self._free:
                    self._end(self._idle.pop())
                worker = self._start(cores)
        except OSError as error:
            if not self._ready:
                raise
            self._lost.append(WorkFailure(work=work, why="place", detail=self._note_failed_start(error), seconds=0.0))
            return
        self._busy.append(worker)
        worker.begin(work)

    def collect(self, seconds: float | None = None) -> list[WorkEvent]:
        """Wait for a message, an answer, a death, the end of somebody's patience, a poke, or so many seconds."""
        until = None if seconds is None else time.monotonic() + seconds
        events, self._lost = self._lost, []
        self._prepare()
        while not events and (self._busy or until is not None or not self.slots):
            left = POLL_S if until is None else min(POLL_S, max(0.0, until - time.monotonic()))
            # There may be something to do here before anything is heard: a look at memory, or another attempt.
            limited = {worker.pid: worker for worker in self._busy if worker.limits.rss_bytes is not None}
            left = min(left, _LOOK_S if limited else POLL_S, self._backoff.left_s or POLL_S)
            connections = [worker.connection for worker in (*self._busy, *self._idle)]
            ready = wait([*connections, self._bell.ear], left)
            # Kill workers that hold more memory than they may.
            if limited and time.monotonic() >= self._looked + _LOOK_S:
                self._looked = time.monotonic()
                for pid, held in resident_bytes(limited).items():
                    most = limited[pid].limits.rss_bytes
                    if most is not None and held > most:
                        limited[pid].give_up("memory", f"needed more than {size(most)}")
            for worker in list(self._busy):
                events += worker.outcomes()
                if worker.work is None:
                    self._busy.remove(worker)
                    self._note(worker)
                    if worker.alive and (
                        self._keep_bytes is None or resident_bytes([worker.pid])[worker.pid] <= self._keep_bytes
                    ):
                        self._idle.append(worker)
                    else:
                        self._end(worker)
            if any(isinstance(event, WorkResult) for event in events):
                self._backoff.worked()
            self._prepare()
            if self._bell.ear in ready:
                self._bell.hear()
            if self._bell.ear in ready or (until is not None and time.monotonic() >= until):
                break
        return events

    def cancel(self, key: str, signum: signal.Signals = signal.SIGINT) -> bool:
        """Send a signal to a live work, kill another. Return False when none of that key runs."""
        for worker in self._busy:
            if worker.work is not None and worker.work.key == key:
                worker.cancel(signum)
                return True
        return False

    def poke(self) -> None:
        """Have `collect` return; from any thread."""
        self._bell.ring()

    def close(self) -> None:
        """Kill every worker; what their solvers started ends with them."""
        for worker in [*self._busy, *self._idle]:
            worker.kill()
        self._busy.clear()
        self._idle.clear()
        self._bell.close()

    def _prepare(self) -> None:
        """Start workers before there is work for them, where there is something to be ready with."""
        for worker in list(self._idle):
            here = worker.idles()
            if not here:
                worker.epitaph()
            self._note(worker)
            if not here:
                self._idle.remove(worker)
                self._end(worker)
        while self._ready and self._free and len(self._busy) + len(self._idle) < len(_cores()):
            if self._backoff.left_s or (self._backoff.failing and not all(worker.ready for worker in self._idle)):
                return
            try:
                self._idle.append(self._start(None))
            except OSError as error:
                self._note_failed_start(error)
                return

    def _note(self, worker: WorkerProcess) -> None:
        """Note once whether workers get ready, as this one shows."""
        if worker not in self._getting_ready or not (worker.ready or worker.closed):
            return
        self._getting_ready.remove(worker)
        if worker.ready:
            self._backoff.worked()
        elif not worker.given_up:
            self._backoff.failed()
            pause = duration(self._backoff.left_s)
            _LOG.warning("%s before it was ready; the next one begins in %s", worker.epitaph(), pause)

    def _note_failed_start(self, error: OSError) -> str:
        """Pause after a process that could not be started; return why it could not."""
        why = f"no worker can be started: {error.strerror or type(error).__name__}"
        if not self._backoff.left_s:
            self._backoff.failed()
            _LOG.warning("%s; it is tried again in %s", why, duration(self._backoff.left_s))
        return why

    def _start(self, cores: int | None) -> WorkerProcess:
        worker = WorkerProcess(self._free[-1], cores, self._niceness, self._ready)
        self._free.pop()
        if self._ready:
            self._getting_ready.add(worker)
        return worker

    def _end(self, worker: WorkerProcess) -> None:
        worker.kill()
        self._getting_ready.discard(worker)
        self._free.append(worker.share)


def _cores() -> list[int]:
    """The cores that this process may use; made up where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
