"""A Ray cluster as an executor that outlives it: reached by a process of its own, and again when it was lost."""

import logging
import signal
import subprocess
import time
from multiprocessing.connection import wait

import msgspec

from pesto.core.errors import Exit, FileError, SolverError, UsageError
from pesto.core.executing.child_process import WakeupPipe, last_line, start_process
from pesto.core.executing.executor import ProgressMessage, WorkEvent, WorkFailure, WorkItem, WorkResult
from pesto.core.executing.ray_process import (
    BeginCommand,
    CancelCommand,
    ClusterEvent,
    ClusterReady,
    ClusterRefused,
    Command,
    LeaveCommand,
    encode_message,
)

_LOG = logging.getLogger(__name__)
RECONNECT_S = 2.0
"""Seconds between two tries to reach the cluster."""
LEAVE_S = 2.0
"""Seconds for leaving the cluster."""
_REFUSALS = {Exit.SOLVER: SolverError, Exit.USAGE: UsageError}
_HEARD: msgspec.msgpack.Decoder[ClusterEvent] = msgspec.msgpack.Decoder(ClusterEvent)
LOST = "the Ray cluster was lost"


class _ClusterProcess:
    """The process that reaches the cluster."""

    def __init__(self, jobs: int | None, *, room: bool) -> None:
        self.connection, self._output, self._popen = start_process(
            "pesto.core.executing.ray_process", jobs or 0, "room" if room else "any"
        )

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._popen.pid

    def ask(self, command: Command) -> None:
        """Send a command; nothing to a process that has ended, as its end is noticed."""
        try:
            self.connection.send_bytes(encode_message(command))
        except OSError:
            return

    def heard(self) -> ClusterEvent | None:
        """Return the next message; None where it has ended."""
        try:
            return _HEARD.decode(self.connection.recv_bytes())
        except (EOFError, OSError):
            return None

    def end(self, seconds: float = 0.0) -> str:
        """Wait so long for its end, then kill it. Return the last line that it wrote."""
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self.connection.close()
        with self._output:
            return last_line(self._output)


class ReconnectingRayCluster:
    """The cluster that RAY_ADDRESS names, or else this machine; while it is away nothing is begun.

    The thread that begins works must last as long as they do, as with `Pool`.
    """

    def __init__(self, jobs: int | None) -> None:
        """Reach the cluster; errors as of `RayCluster`."""
        self._jobs, self._wakeup = jobs, WakeupPipe()
        self._running: dict[str, float] = {}
        self._slots, self._lost_at, self._warned = 0, 0.0, False
        self._process: _ClusterProcess | None = _ClusterProcess(jobs, room=True)
        first = self._process.heard()
        if isinstance(first, ClusterReady):
            self._slots = first.slots
            return
        said = self._process.end(LEAVE_S)
        self._wakeup.close()
        if isinstance(first, ClusterRefused):
            raise _REFUSALS.get(Exit(first.exit_code), FileError)(first.error)
        raise FileError.build(f"no Ray cluster: {said}", remedy="check RAY_ADDRESS")

    @property
    def slots(self) -> int:
        """Most works at a time; 0 while the cluster is away."""
        return self._slots

    def begin(self, work: WorkItem) -> None:
        """Submit a work."""
        self._running[work.key] = time.monotonic()
        if self._process is not None:
            self._process.ask(BeginCommand(work))

    def collect(self, seconds: float | None = None) -> list[WorkEvent]:
        """Wait for a message, an answer, a loss, the cluster's return, a poke, or so many seconds."""
        until = None if seconds is None else time.monotonic() + seconds
        events: list[WorkEvent] = []
        while not events and (self._running or not self._slots or until is not None):
            left = RECONNECT_S if until is None else min(RECONNECT_S, max(0.0, until - time.monotonic()))
            reached = self._slots
            if self._process is None and time.monotonic() >= self._lost_at + RECONNECT_S:
                self._process = _ClusterProcess(self._jobs, room=False)
            connections = [] if self._process is None else [self._process.connection]
            ready = wait([*connections, self._wakeup.reader], left)
            poked = self._wakeup.reader in ready
            if poked:
                self._wakeup.clear()
            while self._process is not None and self._process.connection.poll() and len(events) < 256:
                events += self._take_event(self._process)
            if poked or self._slots != reached or (until is not None and time.monotonic() >= until):
                break
        return events

    def cancel(self, key: str, signum: signal.Signals = signal.SIGINT) -> bool:
        """Send a signal to a live work, kill another. Return False when none of that key runs."""
        if key not in self._running or self._process is None:
            return False
        self._process.ask(CancelCommand(key, signum))
        return True

    def poke(self) -> None:
        """Have `collect` return; from any thread."""
        self._wakeup.wake()

    def close(self) -> None:
        """Leave the cluster, which ends all works."""
        self._running.clear()
        if self._process is not None:
            self._process.ask(LeaveCommand())
            self._process.end(LEAVE_S if self._slots else 0.0)
            self._process, self._slots = None, 0
        self._wakeup.close()

    def _take_event(self, process: _ClusterProcess) -> list[WorkEvent]:
        match process.heard():
            case ProgressMessage() as event:
                return [event]
            case (WorkResult() | WorkFailure()) as event:
                del self._running[event.key]
                return [event]
            case ClusterReady(slots):
                self._slots, self._warned = slots, False
                _LOG.warning("the Ray cluster is there again")
                return []
            case ClusterRefused(error):
                return self._away(process, error)
        return self._away(process, "")

    def _away(self, process: _ClusterProcess, why: str) -> list[WorkEvent]:
        """Return the loss of all that ran on the cluster, whose process has ended or is about to."""
        process.end(LEAVE_S)  # what Ray wrote is a trace of its own
        if not self._warned:
            _LOG.warning("%s%s; nothing is begun until it can be reached", LOST, f": {why}" if why else "")
        self._process, self._slots, self._lost_at, self._warned = None, 0, time.monotonic(), True
        lost, self._running = self._running, {}
        return [
            WorkFailure(key=key, why="place", detail=LOST, seconds=time.monotonic() - began)
            for key, began in lost.items()
        ]
