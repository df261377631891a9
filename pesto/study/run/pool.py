"""Cells in processes on this machine, each on cores of its own."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from typing import IO

import msgspec

import pesto
from pesto.files.json import shown
from pesto.study.answers import Answer
from pesto.study.cells import Cell
from pesto.study.run.executor import Lost, hung, patience_s

_POLL_S = 1.0
_TAIL = 4096


def default_jobs() -> int:
    """One cell at a time for every two cores: solvers use several threads, and times are to be compared."""
    return max(1, len(_cores()) // 2)


class Pool:
    """Worker processes that run one cell at a time and are replaced when they die."""

    def __init__(self, jobs: int) -> None:
        """Start no process yet. ValueError for no job."""
        if jobs < 1:
            raise ValueError(f"at least 1 job, not {jobs}")
        self._free = _shares(_cores(), jobs)
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._slots = jobs

    @property
    def slots(self) -> int:
        """Most cells at a time."""
        return self._slots

    def begin(self, cell: Cell) -> None:
        """Hand a cell to an idle worker, or to a new one."""
        worker = self._idle.pop() if self._idle else _Worker(self._free.pop())
        self._busy.append(worker)
        worker.begin(cell)

    def collect(self) -> list[Answer | Lost]:
        """Wait for an answer, a death, or the end of somebody's patience."""
        found: list[Answer | Lost] = []
        while self._busy and not found:
            wait([worker.connection for worker in self._busy], _POLL_S)
            for worker in list(self._busy):
                outcome = worker.outcome()
                if outcome is not None:
                    found.append(outcome)
                    self._retire(worker)
        return found

    def close(self) -> None:
        """Kill every worker; what their solvers started ends with them."""
        for worker in [*self._busy, *self._idle]:
            worker.kill()
        self._busy.clear()
        self._idle.clear()

    def _retire(self, worker: "_Worker") -> None:
        self._busy.remove(worker)
        if worker.alive:
            self._idle.append(worker)
        else:
            self._free.append(worker.cores)


class _Worker:
    """One process, its connection and the cell that it is at."""

    def __init__(self, cores: tuple[int, ...]) -> None:
        self.cores, self.alive = cores, True
        self.connection, theirs = Pipe()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in kill()
        with theirs:
            # -P: a file in the working directory must not shadow a module. A session of its own: Ctrl-C is not for it.
            self._popen = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "pesto.study.run.worker",
                    str(os.getpid()),
                    str(theirs.fileno()),
                    _list(cores),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                env=_environment(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._cell: Cell | None = None
        self._began = 0.0

    def begin(self, cell: Cell) -> None:
        self._cell = cell
        self._began = time.monotonic()
        try:
            self.connection.send_bytes(msgspec.json.encode(cell))
        except OSError:  # it is dead: `outcome` will see
            return

    def outcome(self) -> Answer | Lost | None:
        """The answer to its cell, or how it ended without one; None while neither has come."""
        cell = self._cell
        if cell is None:
            return None
        try:
            if self.connection.poll():
                answer = msgspec.json.decode(self.connection.recv_bytes(), type=Answer)
                self._cell = None
                return answer
        except (EOFError, OSError):
            return Lost(cell=cell, seconds=time.monotonic() - self._began, detail=self._epitaph())
        passed = time.monotonic() - self._began
        if passed < patience_s(cell):
            return None
        self.kill()
        return hung(cell, passed)

    def kill(self) -> None:
        """End it now."""
        self._popen.kill()
        self._popen.wait()
        self.connection.close()
        self._said.close()
        self.alive = False

    def _epitaph(self) -> str:
        """How the process ended, and the last line that it wrote; it is gone then."""
        try:
            code = self._popen.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _TAIL))
        lines = [line for line in self._said.read().decode("utf-8", "replace").split("\n") if line.strip()]
        self.kill()
        return f"the worker ended: {how}" + (f": {shown(lines[-1].strip())}" if lines else "")


def _environment() -> dict[str, str]:
    """This process's environment, with the project importable from where it is."""
    home = str(Path(pesto.__file__).parent.parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))}


def _list(cores: tuple[int, ...]) -> str:
    return ",".join(map(str, cores))


def _cores() -> list[int]:
    """The cores that this process may use; made up where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _shares(cores: list[int], jobs: int) -> list[tuple[int, ...]]:
    """Cores for each job: as many as go round, none (which is all) when there are more jobs than cores."""
    each = len(cores) // jobs
    return [tuple(cores[k * each : (k + 1) * each]) for k in range(jobs)]
