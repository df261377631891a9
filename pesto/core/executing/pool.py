"""Work in processes on this machine, each on cores of its own: the pool, and each worker as the pool sees it."""

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait

import msgspec

from pesto.core.executing.child_process import WakeupPipe, last_line, resident_bytes, start_process
from pesto.core.executing.executor import (
    NO_LIMITS,
    Backoff,
    Deadline,
    FailureKind,
    ProgressMessage,
    WorkEvent,
    WorkFailure,
    WorkItem,
    WorkLimits,
    WorkResult,
)
from pesto.core.executing.worker import ANSWER, BEGAN, LAST_ANSWER, READY, WorkHeader
from pesto.core.quantities import duration, size

_LOG = logging.getLogger(__name__)
_LOOK_S = 0.25
"""Seconds between two measurements of the memory of workers with a limit."""
_POLL_S = 1.0
"""Seconds between two checks of time limits; also how long a process that has closed its connection may take to end."""
_AT_ONCE = 256
"""Messages of one worker that are taken before the next one's."""


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
        self._measured, self._backoff = 0.0, Backoff(clock)
        self._wakeup = WakeupPipe()

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
        worker = next((worker for worker in ready_first if worker.alive and worker.core_limit == cores), None)
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
            self._lost.append(
                WorkFailure(key=work.key, why="place", detail=self._note_failed_start(error), seconds=0.0)
            )
            return
        self._busy.append(worker)
        worker.begin(work)

    def _start(self, core_limit: int | None) -> "WorkerProcess":
        worker = WorkerProcess(self._free[-1], core_limit, self._niceness, self._ready)
        self._free.pop()
        if self._ready:
            self._getting_ready.add(worker)
        return worker

    def _end(self, worker: "WorkerProcess") -> None:
        worker.kill()
        self._getting_ready.discard(worker)
        self._free.append(worker.cores)

    def collect(self, seconds: float | None = None) -> list[WorkEvent]:
        """Wait for a message, an answer, a death, the end of a time limit, a poke, or so many seconds."""
        until = None if seconds is None else time.monotonic() + seconds
        events, self._lost = self._lost, []
        self._prepare()
        while not events and (self._busy or until is not None or not self.slots):
            left = _POLL_S if until is None else min(_POLL_S, max(0.0, until - time.monotonic()))
            # There may be something to do here before anything is heard: memory to measure, or another attempt.
            limited = {worker.pid: worker for worker in self._busy if worker.limits.rss_bytes is not None}
            left = min(left, _LOOK_S if limited else _POLL_S, self._backoff.left_s or _POLL_S)
            connections = [worker.connection for worker in (*self._busy, *self._idle)]
            ready = wait([*connections, self._wakeup.reader], left)
            if limited and time.monotonic() >= self._measured + _LOOK_S:
                self._measured = time.monotonic()
                for pid, held in resident_bytes(limited).items():
                    limit = limited[pid].limits.rss_bytes
                    if limit is not None and held > limit:
                        limited[pid].give_up("memory", f"needed more than {size(limit)}")
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
            if self._wakeup.reader in ready:
                self._wakeup.clear()
                break
            if until is not None and time.monotonic() >= until:
                break
        return events

    def _prepare(self) -> None:
        """Drop idle workers that have ended, and start workers beforehand where they have to get ready."""
        for worker in list(self._idle):
            here = worker.idles()
            if not here:
                worker.exit_summary()
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

    def _note(self, worker: "WorkerProcess") -> None:
        """Note once whether workers get ready, as this one shows."""
        if worker not in self._getting_ready or not (worker.ready or worker.closed):
            return
        self._getting_ready.remove(worker)
        if worker.ready:
            self._backoff.worked()
        elif not worker.given_up:
            self._backoff.failed()
            pause = duration(self._backoff.left_s)
            _LOG.warning("%s before it was ready; the next one begins in %s", worker.exit_summary(), pause)

    def _note_failed_start(self, error: OSError) -> str:
        """Pause after a process that could not be started; return why it could not."""
        why = f"no worker can be started: {error.strerror or type(error).__name__}"
        if not self._backoff.left_s:
            self._backoff.failed()
            _LOG.warning("%s; it is tried again in %s", why, duration(self._backoff.left_s))
        return why

    def cancel(self, key: str, signum: signal.Signals = signal.SIGINT) -> bool:
        """Send a signal to a live work, kill another. Return False when none of that key runs."""
        for worker in self._busy:
            if worker.work is not None and worker.work.key == key:
                worker.cancel(signum)
                return True
        return False

    def poke(self) -> None:
        """Have `collect` return; from any thread."""
        self._wakeup.wake()

    def close(self) -> None:
        """Kill every worker; what their solvers started ends with them."""
        for worker in [*self._busy, *self._idle]:
            worker.kill()
        self._busy.clear()
        self._idle.clear()
        self._wakeup.close()


def _cores() -> list[int]:
    """Return the cores that this process may use; made up where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class WorkerProcess:
    """One worker process, its connection and its current work."""

    def __init__(self, cores: tuple[int, ...], core_limit: int | None, niceness: int, ready: str = "") -> None:
        """Start it on the first `core_limit` of `cores`, no cores being all of them; `ready` as of `Pool`."""
        self.cores, self.core_limit = cores, core_limit
        self.work: WorkItem | None = None
        bound = cores if core_limit is None else tuple((cores or sorted(os.sched_getaffinity(0)))[:core_limit])
        self.connection, self._output, self._popen = start_process(
            "pesto.core.executing.worker", ",".join(map(str, bound)), niceness, *filter(None, [ready])
        )
        self.ready = False
        """True once it has done what comes before its first work."""
        self._began, self._deadline = 0.0, Deadline(NO_LIMITS)
        self._listens, self._pending = False, list[signal.Signals]()
        self._given_up: tuple[FailureKind, str] | None = None
        self.closed, self._summary = False, "the worker was ended"
        self._works, self._retired = 0, False

    @property
    def alive(self) -> bool:
        """True if it can be handed a work."""
        return not self.closed and not self._retired and self._popen.poll() is None

    @property
    def given_up(self) -> bool:
        """True if this side ended it before its work was done."""
        return self._given_up is not None

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._popen.pid

    @property
    def limits(self) -> WorkLimits:
        """Limits of its current work."""
        return NO_LIMITS if self.work is None else self.work.limits

    @property
    def _seconds(self) -> float:
        """Seconds since its work began."""
        return time.monotonic() - self._began

    def begin(self, work: WorkItem) -> None:
        """Hand it a work."""
        self._works += 1
        self.work, self._began, self._deadline = work, time.monotonic(), Deadline(work.limits)
        self._listens, self._pending, self._given_up = False, [], None
        self._output.truncate(0)  # an exit summary is of this work
        head = WorkHeader(entry=work.entry, live=work.live)
        with suppress(OSError):  # it is dead: `outcomes` will see
            self.connection.send_bytes(msgspec.json.encode(head))
            self.connection.send_bytes(work.data)

    def cancel(self, signum: signal.Signals) -> None:
        """Send it a signal once its work listens to signals; kill it by SIGKILL, or where its work never listens."""
        if self.work is None:
            return
        if not self.work.live or signum == signal.SIGKILL:
            self.give_up("death", "cancelled")
            return
        self._deadline.interrupted(self._seconds)
        if self._listens:
            self._popen.send_signal(signum)
        else:
            self._pending.append(signum)

    def give_up(self, why: FailureKind, detail: str) -> None:
        """End it; its work is lost for that reason."""
        self._given_up = why, detail
        self._kill_group()

    def outcomes(self) -> list[WorkEvent]:
        """Return its messages, and its answer or how it ended without one; enforce its time limits."""
        events: list[WorkEvent] = []
        while (work := self.work) is not None and len(events) < _AT_ONCE:
            try:
                if not self.connection.poll():
                    break
                message = self.connection.recv_bytes()
            except (EOFError, OSError):
                (why, detail), summary = self._given_up or ("death", ""), self.exit_summary()
                self.work = None
                events.append(WorkFailure(key=work.key, why=why, detail=detail or summary, seconds=self._seconds))
                continue
            kind, data = message[:1], message[1:]
            if kind == READY:
                self.ready = True
            elif kind == BEGAN:
                self._listens = True
                for signum in self._pending:
                    self._popen.send_signal(signum)
            elif kind in (ANSWER, LAST_ANSWER):
                self.work, self._retired = None, kind == LAST_ANSWER
                events.append(WorkResult(key=work.key, data=data, seconds=self._seconds, reused=self._works > 1))
            else:
                events.append(ProgressMessage(key=work.key, data=data))
        if self.work is not None and self._given_up is None:
            if (late := self._deadline.late(self._seconds)) is not None:
                self.give_up("time", late)
            elif self._deadline.interrupts(self._seconds):
                self.cancel(signal.SIGINT)
        return events

    def idles(self) -> bool:
        """Return True if it has no work and is alive, ready or getting so."""
        try:
            while self.connection.poll():
                self.ready |= self.connection.recv_bytes() == READY
        except (EOFError, OSError):
            return False
        return self.alive

    def kill(self) -> None:
        """End it now."""
        if not self.closed:
            self.closed = True
            self._kill_group()
            self._popen.wait()
            self.connection.close()
            self._output.close()

    def _kill_group(self) -> None:
        """Kill the process, which leads its own group, and the whole group; nothing once it has ended."""
        if self._popen.poll() is None:  # its id is its own until it is waited for
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    def exit_summary(self) -> str:
        """Return how the process ended, and the last line that it wrote; it is gone then."""
        if not self.closed:
            try:
                code = self._popen.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                code = 0
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            last = last_line(self._output)
            self.kill()
            self._summary = f"the worker ended: {how}" + (f": {last}" if last else "")
        return self._summary
