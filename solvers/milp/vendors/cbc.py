"""CBC: the program that PuLP brings, driven by its command line, its files and its log.

It tells the objective of what it finds while it runs, but the point itself only at its end. Its word is not enough: a
limit that strikes while it preprocesses makes it say "infeasible", one that strikes before its root node makes it
crash, and large models overrun the limit.
"""

import contextlib
import importlib.util
import math
import os
import platform
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from solvers.arrays import Floats
from solvers.base import UnavailableError
from solvers.milp.formulations import TOLERANCE
from solvers.milp.linear import Linear
from solvers.milp.solver import Milp
from solvers.milp.vendor import Ask, Hear, Outcome, ended, iterations, left_behind, no_optimum
from solvers.milp.vendors.mps import mps_file
from solvers.milp.vendors.relay import Relay
from solvers.result import Limit, Status

_NUMBER = r"(-?\d\S*?)"
_BOUNDS = (
    (re.compile(rf"{_NUMBER} best solution, best possible {_NUMBER} "), 1e-7, 0.0),
    (re.compile(rf"best objective {_NUMBER} \(best possible {_NUMBER}\)"), 1e-7, 0.0),
    (re.compile(rf"^Continuous objective value is {_NUMBER} - "), 1e-5, 0.0),
    (re.compile(rf"^Lower bound: +{_NUMBER}$"), 0.0, 1e-3),
)
"""Where a bound is written, and what rounding may have added to it there: relatively, and in itself. A bound that uses
the best objective, written beside it, holds only up to that. (For that reason "Cbc0013I At root node" is no use.)"""
_STARTED = re.compile(rf"MIPStart provided solution with cost {_NUMBER}$")
_NO_BOUND = 1e49


class Log:
    """The state of a run of CBC, as far as its log tells."""

    def __init__(self) -> None:
        self.bound = -math.inf
        """The best lower bound written so far, without what rounding may have added."""
        self.started: float | None = None
        """Objective of the start that was accepted."""
        self.proven = False
        """Whether the search is said to have been completed."""
        self.stopped = False
        """Whether a limit or a signal is said to have ended the search."""
        self.last = ""
        """The last line that is not empty."""

    def read(self, line: str) -> None:
        """Take in a line."""
        for pattern, relative, absolute in _BOUNDS:
            found = pattern.search(line)
            if found:
                written = min(map(float, found.groups()))
                if abs(written) < _NO_BOUND:
                    self.bound = max(self.bound, written - relative * abs(written) - absolute)
        started = _STARTED.search(line)
        if started:
            self.started = float(started[1])
        self.proven |= line.startswith("Result - Optimal solution found")
        self.stopped |= line.startswith(("Cbc0020I", "Cbc0027I", "Result - Stopped", "Result - User"))
        self.last = line.strip() or self.last


_SYSTEMS = {"linux": "linux", "darwin": "osx", "win32": "win"}
_MACHINES = {"x86_64": "i64", "amd64": "i64", "aarch64": "arm64", "arm64": "arm64", "i386": "i32", "i686": "i32"}


def cbc_binary() -> Path:
    """PuLP's CBC for this machine, or else one on the PATH; UnavailableError where there is neither."""
    found = _bundled() or shutil.which("cbc")
    if found is None:
        raise UnavailableError(
            "no CBC for this machine - pip install 'pulp>=2.9,<4', or put a program called cbc on the PATH"
        )
    return Path(found)


def _bundled() -> Path | None:
    package = importlib.util.find_spec("pulp")
    if package is None or package.origin is None:
        return None
    # PuLP brings one program for all of a Mac's processors.
    machine = "i64" if sys.platform == "darwin" else _MACHINES.get(platform.machine().lower(), "")
    file = Path(package.origin).parent / "solverdir" / "cbc" / _SYSTEMS.get(sys.platform, "") / machine / "cbc"
    return file if os.access(file, os.X_OK) else None


_PER_NODE = 100.0
"""Simplex iterations that a node stands for, of the work that CBC may do: it counts no other."""
_INTERRUPT_S = 1.0
"""Seconds past its limit after which CBC is asked to end and to write what it has."""
_KILL_S = 3.0
"""Seconds past its limit after which it is ended."""
_HASTE, _HASTE_S = 0.2, 0.05
"""Share of the limit, and seconds, at its end in which "infeasible" may only mean that the time is up."""


def solver() -> Milp:
    """CBC as a `Solver`."""
    return Milp(name="cbc", package="pulp", run=run)


def run(linear: Linear, ask: Ask, hear: Hear) -> Outcome:
    """Run CBC in a temporary folder; UnavailableError where there is none, RuntimeError when it fails."""
    relay = Relay(ask, hear)
    with mps_file(linear) as file:
        if ask.start is not None:
            _write_start(linear, ask.start, file.with_name("start.txt"))
        command = _command(ask, relay, file.name, iterations(linear, ask.effort))
        done = _follow(command, file.parent, relay)
        relay.check()
        return _outcome(linear, ask, file.parent, done)


def _command(ask: Ask, relay: Relay, file: str, work: float) -> list[str]:
    settings = {
        "timeMode": "elapsed",
        "sec": f"{relay.remaining:.3f}",
        "ratio": ask.gap,
        "integerT": TOLERANCE,
        "randomSeed": ask.seed % 2**30 + 1,
        "randomCbcSeed": ask.seed % 2**30 + 1,  # 0 would be the time of day
    }
    if math.isfinite(work):
        settings["maxNodes"] = max(1, round(work / _PER_NODE))
    start = [] if ask.start is None else ["-mips", "start.txt"]
    given = [word for key, value in settings.items() for word in (f"-{key}", str(value))]
    results = ["-solution", "solution.txt", "-saveSolution", "solution.bin"]
    return [str(cbc_binary()), file, *given, *start, "-branch", *results]


def _write_start(linear: Linear, start: Floats, file: Path) -> None:
    """The whole columns of a start; CBC finds the others by an LP."""
    whole = np.flatnonzero(linear.integer)
    values = np.rint(start[whole]).astype(np.int64)
    lines = (f"{c} c{c} {value}" for c, value in zip(whole.tolist(), values.tolist(), strict=True))
    file.write_text("\n".join(["start", *lines, ""]), encoding="ascii")


class _Run(NamedTuple):
    """A run of CBC that has ended."""

    relay: Relay
    log: Log
    code: int
    """Its exit code, negative for a signal."""


def _follow(command: list[str], folder: Path, relay: Relay) -> _Run:
    """Run the command to its end, or to a little after the limit."""
    log = Log()
    # A terminal, since CBC holds back what it writes to a pipe until it ends.
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as terminal:
        try:
            child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
        finally:
            os.close(slave)
        try:
            for text in _written(terminal, relay, child):
                for line in relay.write(text):
                    log.read(line)
                relay.bound(log.bound)
        finally:
            child.kill()
            code = child.wait()
    return _Run(relay, log, code)


def _written(terminal: IO[bytes], relay: Relay, child: "subprocess.Popen[bytes]") -> Iterator[str]:
    """What the child writes, until it ends, or is to be ended; past the limit it is first asked to end."""
    asked = False
    while relay.overdue < _KILL_S and not relay.done:
        if relay.overdue > _INTERRUPT_S and not asked:
            child.send_signal(signal.SIGINT)
            asked = True
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            data = terminal.read(1 << 16)
        except OSError:  # how Linux says that the other side is closed
            data = b""
        if not data:
            # One that closes its output and stays is ended by the caller.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_KILL_S)
            return
        yield data.decode("ascii", "replace").replace("\r", "")


def _outcome(linear: Linear, ask: Ask, folder: Path, run: _Run) -> Outcome:
    """What CBC's files and log say together."""
    relay, log = run.relay, run.log
    file = folder / "solution.txt"
    if run.code or not file.exists():
        if not (relay.stop or log.stopped):
            raise RuntimeError(f"CBC ends with code {run.code} and no answer: {log.last}")
        # Killed at the end of our patience, or crashed at its limit.
        return left_behind(log.bound)
    with file.open(encoding="ascii") as lines:
        said = lines.readline()
    if "nfeasible" in said or said.startswith("Unbounded"):
        if ask.start is not None or relay.overdue > -max(_HASTE_S, _HASTE * ask.seconds):
            return ended(Status.UNKNOWN, Limit.TIME, None, log.bound)
        # "Integer infeasible" is said of what its preprocessing finds infeasible or unbounded, too.
        relaxed = said.startswith("Infeasible")
        return ended(Status.INFEASIBLE, Limit.NONE, None, math.inf) if relaxed else no_optimum(linear)
    values = None if "no integer solution" in said else _values(linear, folder / "solution.bin")
    if said.startswith("Optimal") and values is not None and (log.proven or not linear.integer.any()):
        objective = float(linear.cost @ values)
        return ended(Status.OPTIMAL, Limit.NONE, values, max(log.bound, objective - ask.gap * abs(objective)))
    return ended(Status.FEASIBLE, Limit.TIME if log.stopped else Limit.OTHER, values, log.bound)


def _values(linear: Linear, file: Path) -> Floats:
    """The columns of a solution in CBC's binary form: rows, columns, objective; two numbers a row, two a column."""
    with file.open("rb") as stream:
        rows, columns = np.fromfile(stream, dtype=np.int32, count=2).tolist()
        numbers = np.fromfile(stream, dtype=np.float64)
    if columns != linear.columns or len(numbers) != 1 + 2 * rows + 2 * columns:
        raise RuntimeError(f"CBC's solution has {columns} columns, the program {linear.columns}")
    return numbers[1 + 2 * rows :][:columns]
