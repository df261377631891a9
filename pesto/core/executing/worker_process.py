"""One worker as its pool sees it: the process, its connection, its work, its memory, and its end."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO

import msgspec

from pesto.core.executing.executor import (
    NO_LIMITS,
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
from pesto.core.files.json import shown

POLL_S = 1.0
"""Seconds between two looks at who has no patience left; and for a process that has closed its end to be over."""
_TAIL = 4096
_AT_ONCE = 256
"""Messages of one worker that are taken before the next one's."""


class WorkerProcess:
    """One process, its connection and the work that it is at."""

    def __init__(self, share: tuple[int, ...], most: int | None, niceness: int, ready: str = "") -> None:
        """Start it on at most `most` of the cores `share`, none of which is all; `ready` as of `Pool`."""
        self.share, self.most = share, most
        self.work: WorkItem | None = None
        # The cores that it is bound to: of its own, or else of all, the first so many; none is all.
        bound = share if most is None else tuple((share or sorted(os.sched_getaffinity(0)))[:most])
        cores = ",".join(map(str, bound))
        self.connection, self._said, self._popen = start_process(
            "pesto.core.executing.worker", cores, niceness, *filter(None, [ready])
        )
        self.ready = False
        """True if it has done what comes before its first work."""
        self._began, self._deadline = 0.0, Deadline(NO_LIMITS)
        self._listens, self._wanted = False, list[signal.Signals]()
        self._given_up: tuple[FailureKind, str] | None = None
        self._closed, self._ended = False, "the worker was ended"
        self._works, self._retired = 0, False

    @property
    def alive(self) -> bool:
        """True if it can be handed a work."""
        return not self._closed and not self._retired and self._popen.poll() is None

    @property
    def closed(self) -> bool:
        """True if it was ended, or its end was seen."""
        return self._closed

    @property
    def given_up(self) -> bool:
        """True if it is this side that ended it before its work was done."""
        return self._given_up is not None

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._popen.pid

    @property
    def limits(self) -> WorkLimits:
        """Limits of the work that it is at."""
        return NO_LIMITS if self.work is None else self.work.limits

    def begin(self, work: WorkItem) -> None:
        """Hand it a work."""
        self._works += 1
        self.work, self._began, self._deadline = work, time.monotonic(), Deadline(work.limits)
        self._listens, self._wanted, self._given_up = False, [], None
        self._said.truncate(0)  # an epitaph is of this work
        head = WorkHeader(entry=work.entry, live=work.live)
        try:
            self.connection.send_bytes(msgspec.json.encode(head))
            self.connection.send_bytes(work.data)
        except OSError:  # it is dead: `outcomes` will see
            return

    def cancel(self, signum: signal.Signals) -> None:
        """Send it a signal, as soon as that is for the work at hand; kill it by SIGKILL, or where it minds none."""
        if self.work is None:
            return
        if not self.work.live or signum == signal.SIGKILL:
            self.give_up("death", "cancelled")
            return
        self._deadline.interrupted(self._passed)
        if self._listens:
            self._popen.send_signal(signum)
        else:
            self._wanted.append(signum)

    def give_up(self, why: FailureKind, detail: str) -> None:
        """End it; its work is lost for that reason."""
        self._given_up = why, detail
        self._kill_group()

    def outcomes(self) -> list[WorkEvent]:
        """Return its messages, and its answer or how it ended without one; interrupt or end what takes too long."""
        events: list[WorkEvent] = []
        while (work := self.work) is not None and len(events) < _AT_ONCE:
            try:
                if not self.connection.poll():
                    break
                message = self.connection.recv_bytes()
            except (EOFError, OSError):
                (why, detail), epitaph = self._given_up or ("death", ""), self.epitaph()
                detail, self.work = detail or epitaph, None
                events.append(WorkFailure(work=work, why=why, detail=detail, seconds=self._passed))
                continue
            kind, data = message[:1], message[1:]
            if kind == READY:
                self.ready = True
            elif kind == BEGAN:
                self._listens = True
                for signum in self._wanted:
                    self._popen.send_signal(signum)
            elif kind in (ANSWER, LAST_ANSWER):
                self.work, self._retired = None, kind == LAST_ANSWER
                events.append(WorkResult(work=work, data=data, seconds=self._passed, reused=self._works > 1))
            else:
                events.append(ProgressMessage(work=work, data=data))
        if self.work is not None and self._given_up is None:
            if (late := self._deadline.late(self._passed)) is not None:
                self.give_up("time", late)
            elif self._deadline.interrupts(self._passed):
                self.cancel(signal.SIGINT)
        return events

    def idles(self) -> bool:
        """Return True if one without a work is alive, ready or getting so."""
        try:
            while self.connection.poll():
                self.ready |= self.connection.recv_bytes() == READY
        except (EOFError, OSError):
            return False
        return self.alive

    def kill(self) -> None:
        """End it now."""
        if not self._closed:
            self._closed = True
            self._kill_group()
            self._popen.wait()
            self.connection.close()
            self._said.close()

    def _kill_group(self) -> None:
        """Kill the process, which leads its own group, and the whole group; nothing once it has ended."""
        if self._popen.poll() is None:  # its id is its own until it is waited for
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    @property
    def _passed(self) -> float:
        return time.monotonic() - self._began

    def epitaph(self) -> str:
        """Return how the process ended, and the last line that it wrote; it is gone then."""
        if not self._closed:
            try:
                code = self._popen.wait(POLL_S)
            except subprocess.TimeoutExpired:
                code = 0
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            last = last_line(self._said)
            self.kill()
            self._ended = f"the worker ended: {how}" + (f": {last}" if last else "")
        return self._ended


def start_process(module: str, *words: object) -> tuple[Connection, IO[bytes], "subprocess.Popen[bytes]"]:
    """Run a module as a process, with this one's id and its end of a connection before the words.

    Return this one's end, the file of all that it writes, and the process.
    """
    ours, theirs = Pipe()
    said: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed by whoever ends the process
    with theirs:
        # -P: a file in the working directory must not shadow a module. A session of its own: Ctrl-C is not for it.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *map(str, (os.getpid(), theirs.fileno(), *words))],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=import_environment(),
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return ours, said, process


def last_line(said: IO[bytes]) -> str:
    """Return the last line that a process wrote and that is not empty, fit to be shown; empty for none."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - _TAIL))
    lines = [line for line in said.read().decode("utf-8", "replace").split("\n") if line.strip()]
    return shown(lines[-1].strip()) if lines else ""


def import_environment() -> dict[str, str]:
    """Return this process's environment, with the project importable from where it is."""
    home = str(Path(__file__).resolve().parents[3])
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))}


class WakeupPipe:
    """Wakes a thread that waits for connections; rung by any thread, it is ready until it is heard."""

    def __init__(self) -> None:
        self.ear, self._rung = socket.socketpair()  # the first is waited for
        for end in (self.ear, self._rung):
            end.setblocking(False)

    def ring(self) -> None:
        """Wake the thread that waits; from any thread."""
        with suppress(OSError):  # it is rung already, or closed
            self._rung.send(b"!")

    def hear(self) -> None:
        """Take all rings."""
        with suppress(OSError):
            while self.ear.recv(4096):
                pass

    def close(self) -> None:
        """Close both ends: nobody waits any more."""
        self._rung.close()
        self.ear.close()


_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(roots: Iterable[int]) -> dict[int, int]:
    """Return the resident bytes of each process and of all below it, added up: shared pages are counted repeatedly.

    0 where the system does not tell.
    """
    below, held = defaultdict[int, list[int]](list), dict[int, int]()
    for entry in os.listdir(_PROC) if _PROC.is_dir() else ():  # noqa: PTH208  # names alone
        if entry.isdigit():
            with suppress(OSError):  # it has ended
                row = (_PROC / entry / "stat").read_text().rpartition(")")[2].split()
                below[int(row[1])].append(int(entry))
                held[int(entry)] = int(row[21]) * _PAGE
    total: dict[int, int] = {}
    for root in roots:
        total[root], left = 0, [root]
        while left:
            pid = left.pop()
            total[root] += held.get(pid, 0)
            left += below.get(pid, [])
    return total


def usable_memory_bytes() -> int:
    """Return the memory of this machine, or less where control groups (containers, systemd) limit this process."""
    limits = [os.sysconf("SC_PHYS_PAGES") * _PAGE]
    try:
        rows = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:  # not Linux
        rows = []
    # The limits of this process's control group and of all above it, in versions 1 and 2 of cgroups.
    for row in rows:
        controllers, _, path = row.partition(":")[2].partition(":")
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        root, name = (_CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (_CGROUPS, "memory.max")
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):  # in a container the path may be of the host: its root is there
            with suppress(OSError, ValueError):  # no such group, or "max"
                limits.append(int((folder / name).read_text()))
            if folder == root:
                break
    return min(limits)
