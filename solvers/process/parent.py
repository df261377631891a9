"""Runs a solver in a process of its own, and makes whatever becomes of it a result. Never loads the solver here.

Isolation is not for comfort: TensorFlow and CP-SAT, or two vendors, in one process crash. See `solvers.process.worker`
for how no process is ever left behind and `solvers.process.judge` for what is believed.
"""

import contextlib
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from solvers.base import SolverEntry
from solvers.files.npz import unpack_schedule
from solvers.problem import Problem
from solvers.process import wire
from solvers.process.judge import Judge
from solvers.process.one_shot import RUN, folders, keep_niceness
from solvers.result import NOT_BEGUN, Limit, Options, Result, Status, wall_limit_s
from solvers.schedule import Schedule

COMPILING_S = 120.0
"""Time that a loaded solver has to compile what it runs, where this machine has not done so before. It is no part of
the limit, while the time to load the solver is."""
UNHURRIED_S = 120.0
"""Time that a process has to load its solver where the limit is a measure of work: in deterministic runs."""
GRACE_S = 5.0
"""Least time past its limit before a solver is hung."""
CLOCK: Callable[[], float] = time.monotonic
"""Tells the seconds that patience is counted in."""
TERM_GRACE_S = 1.0
"""Seconds that what a solver started has between SIGTERM and SIGKILL."""
_GUARD_S = 10.0
"""Seconds after those in which the worker has killed what is left, be the machine ever so busy."""
_POLL_S = 0.2
_TAIL = 4096
_SINGLE_THREADED = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def patience(seconds: float) -> float:
    """Return the wall-clock seconds after which a solver with this limit is hung: 10 %, and at least GRACE_S, more."""
    return seconds + max(GRACE_S, 0.1 * seconds)


def run(
    problem: Problem,
    entry: SolverEntry,
    options: Options,
    judge: Judge,
    memory_bytes: int | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Run the solver of `entry` to its end, limit or failure, or to Ctrl-C, and return the judge's result.

    `memory_bytes` limits the address space of the process. `stop`, once set by another thread, ends it as Ctrl-C
    does. Nothing that was started is left at the end. What only improves on a start is not started without time.
    """
    if entry.polishes and options.seconds == 0:
        return judge.ended(Status.UNKNOWN, Limit.TIME, None, 0, "")
    conversation = _Conversation(options, judge, stop or threading.Event())
    try:
        with _WorkerProcess(memory_bytes) as process:
            process.tell(wire.encode_request(problem, entry, options))
            result = conversation.listen(process)
            return result or judge.failed(Status.CRASHED, process.exit_summary())
    except KeyboardInterrupt:
        return judge.interrupted()


class _Conversation:
    """The frames of one process, as they come in, and the time that is left for them."""

    def __init__(self, options: Options, judge: Judge, stop: threading.Event) -> None:
        self._judge, self._options, self._frames, self._stop = judge, options, wire.Frames(), stop
        self._began, self._begun = CLOCK(), False
        self._loaded_s: float | None = None
        """Seconds of the limit that loading took; None before that has ended, and where the limit is one of work."""
        if options.deterministic:
            self._patience = UNHURRIED_S + patience(options.seconds)
        else:
            self._patience = max(options.seconds, GRACE_S)
        self._deadline = self._began + self._patience

    def listen(self, process: "_WorkerProcess") -> Result | None:
        """Return the result, or None when the process ends without one."""
        try:
            while True:
                left = max(0.0, self._deadline - CLOCK())
                # Asked before the pipe is read, so that nothing written before the end is missed.
                ended = process.ended()
                result = self._hear(process.receive(0.0 if ended else min(left, _POLL_S)))
                if result is not None or ended:
                    return result
                if self._stop.is_set():
                    return self._judge.interrupted("" if self._begun else NOT_BEGUN)
                # Only after that read: an answer that already lies in the pipe came in time.
                if not left:
                    why = "no answer" if self._begun else NOT_BEGUN
                    return self._judge.failed(Status.HUNG, f"{why} within {self._patience:g} s")
        except KeyboardInterrupt:
            self._hear(process.receive(0.0))
            raise

    def _hear(self, data: bytes) -> Result | None:
        """Return the result, if it is in `data`; else tell the caller of the best that is, in time of its own."""
        began = CLOCK()
        try:
            for message, body in self._frames.feed(data):
                result = self._take(message, unpack_schedule(body) if body else None)
                if result is not None:
                    return result
        except ValueError as error:
            return self._judge.failed(Status.INVALID, f"malformed output: {error}")
        if self._judge.tell():
            # Meanwhile the solver may wait for room in the pipe. Only news buy it time, so that a flood of anything
            # else cannot put off the deadline for ever.
            self._deadline += CLOCK() - began
        return None

    def _take(self, message: wire.Message, schedule: Schedule | None) -> Result | None:
        judge = self._judge
        if isinstance(message, wire.LoadedFrame):
            if self._options.deterministic or self._loaded_s is not None:
                return None
            self._loaded_s = CLOCK() - self._began
            self._patience += COMPILING_S
            self._deadline += COMPILING_S
        elif isinstance(message, wire.ReadyFrame):
            judge.begin()
            self._begun = True
            self._patience = patience(wall_limit_s(self._options.seconds, deterministic=self._options.deterministic))
            self._deadline = CLOCK() + self._patience - (self._loaded_s or 0.0)
        elif isinstance(message, wire.ImprovedFrame):
            judge.take_in(schedule, message.lower_bound, message.bound_by, message.log)
        elif isinstance(message, wire.EndedFrame):
            judge.take_in(schedule, message.lower_bound, message.bound_by)
            return judge.ended(message.status, message.limit, schedule, message.lower_bound, message.detail)
        return judge.failed(Status.INVALID, judge.lie) if judge.lie else None


class _WorkerProcess:
    """The worker's process group, its pipes, and its certain end."""

    def __init__(self, memory_bytes: int | None) -> None:
        given = [os.getpid(), TERM_GRACE_S, *([] if memory_bytes is None else [memory_bytes])]
        self._run = secrets.token_hex(8)
        self._popen = subprocess.Popen(
            # -P: a file in the working directory must not shadow a module.
            [sys.executable, "-P", "-m", "solvers.process.worker", *map(str, given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=worker_environment() | {RUN: self._run},
        )
        keep_niceness(self._popen.pid)
        self._stderr = bytearray()
        self._selector = selectors.DefaultSelector()
        for stream in (self._popen.stdout, self._popen.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, selectors.EVENT_READ)

    def __enter__(self) -> "_WorkerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stop()
        finally:
            # Nobody may be left in the group; on some systems a zombie may not be signalled.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
            # What is killed cannot remove its files. `tempfile` may have looked at the environment long ago.
            for folder in Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).glob(f"{folders(self._run)}*"):
                shutil.rmtree(folder, ignore_errors=True)
            self._selector.close()
            for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
                if stream is not None:
                    _close(stream)

    def tell(self, data: bytes) -> None:
        """Write to the process without waiting for it to read."""

        def write() -> None:
            stdin = self._popen.stdin
            if stdin is not None:
                try:
                    stdin.write(data)
                except (OSError, ValueError):  # it ended, or was stopped, before it had read everything
                    return
                _close(stdin)

        threading.Thread(target=write, daemon=True).start()

    def receive(self, seconds: float) -> bytes:
        """Return the bytes on stdout after waiting up to `seconds` for any; stderr is collected."""
        received = b""
        for key, _ in self._selector.select(seconds):
            data = _read_all(key.fd)
            if data is None:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._popen.stdout:
                received += data
            else:
                self._stderr = (self._stderr + data)[-_TAIL:]
        if not self._selector.get_map():
            time.sleep(min(seconds, 0.01))
        return received

    def ended(self) -> bool:
        """Return True if the process has ended; it stays a zombie, so that its group's number stays its own."""
        return os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def exit_summary(self) -> str:
        """Return how the process ended, and the last line it wrote to stderr."""
        info = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        code = info.si_status if info else 0
        how = f"exit code {code}"
        if info and info.si_code != os.CLD_EXITED:
            how = f"killed by {signal.Signals(code).name}"
        self.receive(0.0)
        lines = self._stderr.decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        last = "".join(c if c.isprintable() else " " for c in last).strip()[:200]
        return f"{how}: {last}" if last else f"{how}, without an answer"

    def _stop(self) -> None:
        """Send SIGTERM to the worker, which passes it on and kills what ignores it."""
        # Popen's own would reap the process, and free its group's number, where it has ended.
        for each in (signal.SIGTERM, signal.SIGCONT):  # one that is stopped takes the first when it gets the second
            os.kill(self._popen.pid, each)
        deadline = time.monotonic() + TERM_GRACE_S + _GUARD_S
        while not self.ended() and time.monotonic() < deadline:
            time.sleep(0.005)


def _close(stream: IO[bytes]) -> None:
    # What was not flushed has no reader left.
    with contextlib.suppress(OSError):
        stream.close()


def _read_all(fd: int) -> bytes | None:
    """Read everything from a non-blocking pipe; None at its end."""
    data = b""
    while True:
        try:
            piece = os.read(fd, 1 << 20)
        except BlockingIOError:
            return data
        if not piece:
            return data or None
        data += piece


def worker_environment() -> dict[str, str]:
    """Return this process's environment, with the project importable, and one thread where libraries take all cores."""
    environment = dict(os.environ) | dict.fromkeys(_SINGLE_THREADED, "1")
    home = str(Path(__file__).parents[2])
    if home != sysconfig.get_path("purelib"):
        paths = [home, *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment
