"""CBC: a program (PuLP brings one), driven by its command line, its files, its log and SIGINT.

It tells the objective of what it finds while it runs, but the point itself only at its end. So it is made to end while
it still can (`_StopPolicy`): before its limit where it has found something, and earlier where its root node takes
long; then it is run again from what it found. Its word is not enough: a limit that strikes while it preprocesses makes
it say "infeasible", one that strikes before its root node makes it crash, and large models overrun the limit.
"""

import contextlib
import functools
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
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from solvers.arrays import Floats
from solvers.base import UnavailableError
from solvers.milp.formulations import TOLERANCE
from solvers.milp.linear import Linear
from solvers.milp.program_text import mps_file
from solvers.milp.solver import Milp
from solvers.milp.vendor import (
    LOST,
    CallbackRelay,
    RunRequest,
    VendorListener,
    VendorOutcome,
    ended,
    iterations,
    no_optimum,
)
from solvers.result import Limit, Status

_SYSTEMS = {"linux": "linux", "darwin": "osx", "win32": "win"}
_MACHINES = {"x86_64": "i64", "amd64": "i64", "aarch64": "arm64", "arm64": "arm64", "i386": "i32", "i686": "i32"}
_BANNER = re.compile(r"^(?:Version:|CBC) +(\S+)", re.MULTILINE)
_ANSWER_S = 5.0
"""Seconds in which the program must have said its version; it takes milliseconds."""
UNKNOWN = "unknown"
"""The version of a program that does not say it."""


def cbc_binary() -> Path:
    """PuLP's CBC for this machine, or else one on the PATH; UnavailableError where there is neither."""
    program = _bundled() or shutil.which("cbc")
    if program is None:
        raise UnavailableError(
            "no CBC for this machine - pip install 'pulp>=2.9,<4', or put a program called cbc on the PATH"
        )
    return Path(program)


def _bundled() -> Path | None:
    package = importlib.util.find_spec("pulp")
    if package is None or package.origin is None:
        return None
    # PuLP brings one program for all of a Mac's processors.
    machine = "i64" if sys.platform == "darwin" else _MACHINES.get(platform.machine().lower(), "")
    file = Path(package.origin).parent / "solverdir" / "cbc" / _SYSTEMS.get(sys.platform, "") / machine / "cbc"
    return file if os.access(file, os.X_OK) else None


def version() -> str | None:
    """Return the version in CBC's banner, such as "2.10.3", or UNKNOWN; None if there is no CBC."""
    try:
        file = cbc_binary()
    except UnavailableError:
        return None
    return _banner(str(file), file.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _banner(file: str, changed: int) -> str:  # noqa: ARG001 - a program that was replaced is asked again
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [file, "-quit"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_ANSWER_S, check=False,
        )  # fmt: skip
        said = _BANNER.search(done.stdout)
        if said:
            return said[1]
    return UNKNOWN


# Parser of CBC's log: bounds, objectives of incumbents, and progress of the run.

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
_FOUND = re.compile(rf"Integer solution of {_NUMBER} found| {_NUMBER} best solution, ")
_SAME = 1e-5
"""Relative difference of two objectives below which one may be the other, written with fewer digits."""
_NO_BOUND = 1e49


class CbcLog:
    """The state of a run of CBC, as far as its log tells."""

    def __init__(self, start: float = math.inf) -> None:
        """`start` is the objective of the point that it starts from, inf without one."""
        self.bound = -math.inf
        """The best lower bound written so far, without what rounding may have added."""
        self.start = start
        """The objective of the point that it starts from, or what it makes of that."""
        self.found = math.inf
        """The objective of the best point that it has."""
        self.relaxed = False
        """True if the first linear program is solved."""
        self.searching = False
        """True if it is beyond its root node, where it looks for signals all the time."""
        self.proven = False
        """True if the search is said to have been completed."""
        self.stopped = False
        """True if a limit or a signal is said to have ended the search."""
        self.last = ""
        """The last line that is not empty."""

    @property
    def untold(self) -> bool:
        """True if it has found a point that is better than its start."""
        return self.found < self.start - _SAME * abs(self.found)

    def read(self, line: str) -> None:
        """Take in a line."""
        for pattern, relative, absolute in _BOUNDS:
            found = pattern.search(line)
            if found:
                written = min(map(float, found.groups()))
                if abs(written) < _NO_BOUND:
                    self.bound = max(self.bound, written - relative * abs(written) - absolute)
        started, improved = _STARTED.search(line), _FOUND.search(line)
        if started:
            # Real columns are optimised beside the whole ones of the start.
            self.start = min(self.start, float(started[1]))
        if improved:
            objective = float(improved[1] or improved[2])
            if objective < _NO_BOUND:
                self.found = min(self.found, objective)
        self.relaxed |= line.startswith("Continuous objective value")
        self.searching |= line.startswith("Cbc0010I")
        self.proven |= line.startswith("Result - Optimal solution found")
        self.stopped |= line.startswith(("Cbc0020I", "Cbc0027I", "Result - Stopped", "Result - User"))
        self.last = line.strip() or self.last


_PER_NODE = 100.0
"""Simplex iterations that a node stands for, of the work that CBC may do: it counts no other."""
_LARGE = 50_000
"""Entries of a program beyond which CBC neither preprocesses nor cuts: both take longer than most limits and look at
neither clock nor signal, and gain nothing on `tight` (docs/internals/solvers.md)."""
_INTERRUPT_S = 0.25
"""Seconds past its limit after which CBC is asked to end and to write what it has."""
_AGAIN_S = 2.0
"""Seconds after which it is asked again, since some of its stages forget a signal."""
_KILL_S, _KEEP_S = 1.5, 4.5
"""Seconds past its limit after which it is ended: where it has nothing to tell, and where it has."""
_CLOSING, _CLOSING_MOST = 3.0, 0.25
"""Factor by which the work after a signal takes longer than the work up to the end of its first linear program
(measured: up to 2.9 times); greatest share of the limit that is reserved for it."""
_SLICE, _WORTH = 0.1, 2.0
"""Part of the limit after which a run that has found something and is still at its root node ends and is run again, if
so many times as much time is left as it took."""
_HASTE, _HASTE_S = 0.2, 0.05
"""Share of the limit, and seconds, at its end in which "infeasible" may only mean that the time is up."""


def solver() -> Milp:
    """CBC as a `Solver`; UnavailableError where there is none."""
    cbc_binary()
    return Milp(name="cbc", package="pulp", version=version() or "", run=run)


def run(linear: Linear, ask: RunRequest, hear: VendorListener) -> VendorOutcome:
    """Run CBC in a temporary folder; UnavailableError where there is none, RuntimeError when it fails."""
    relay = CallbackRelay(ask, hear)
    best: Floats | None = None
    with mps_file(linear) as file:
        while True:
            # One run of the program, from the start of `ask`.
            if ask.start is not None:
                # The whole columns of the start; CBC finds the others by an LP.
                whole = np.flatnonzero(linear.integer)
                values = np.rint(ask.start[whole]).astype(np.int64)
                lines = (f"{c} c{c} {value}" for c, value in zip(whole.tolist(), values.tolist(), strict=True))
                file.with_name("start.txt").write_text("\n".join(["start", *lines, ""]), encoding="ascii")
            for result in ("solution.txt", "solution.bin"):
                file.with_name(result).unlink(missing_ok=True)
            log = CbcLog(_cost(linear, ask.start))
            policy = _StopPolicy(relay, log, by_clock=math.isinf(ask.effort))
            done = _follow(_command(linear, ask, relay, file.name), file.parent, policy)
            relay.check()
            outcome = _outcome(linear, ask, file.parent, done)
            # The point of an outcome to go on from; None where it is optimal, or no better than the start.
            worth = outcome.status is Status.FEASIBLE and _cost(linear, outcome.values) < _cost(linear, ask.start)
            better = outcome.values if worth else None
            if relay.stop or not done.early or better is None:
                if best is not None and _cost(linear, outcome.values) > _cost(linear, best):
                    # An earlier run's point is better.
                    kept = ended(Status.FEASIBLE, outcome.limit, best, outcome.bound)
                    outcome = replace(kept, detail=outcome.detail)
                return replace(outcome, bound=max(outcome.bound, relay.best_bound))
            relay.incumbent(better)
            best, ask = better, replace(ask, start=better)


def _cost(linear: Linear, values: Floats | None) -> float:
    return math.inf if values is None else float(linear.cost @ values)


def _command(linear: Linear, ask: RunRequest, relay: CallbackRelay, file: str) -> list[str]:
    settings = {
        "timeMode": "elapsed",
        "sec": f"{relay.remaining:.3f}",
        "ratio": ask.gap,
        "integerT": TOLERANCE,
        "randomSeed": ask.seed % 2**30 + 1,
        "randomCbcSeed": ask.seed % 2**30 + 1,  # 0 would be the time of day
    }
    work = iterations(linear, ask.effort)
    if math.isfinite(work):
        settings["maxNodes"] = max(1, round(work / _PER_NODE))
    if len(linear.column) > _LARGE:
        settings |= {"preprocess": "off", "cuts": "off"}
    start = [] if ask.start is None else ["-mips", "start.txt"]
    given = [word for key, value in settings.items() for word in (f"-{key}", str(value))]
    results = ["-solution", "solution.txt", "-saveSolution", "solution.bin"]
    return [str(cbc_binary()), file, *given, *start, "-branch", *results]


class _StopPolicy:
    """When a run of CBC is asked to end, and when it is ended."""

    def __init__(self, relay: CallbackRelay, log: CbcLog, *, by_clock: bool) -> None:
        """Without `by_clock` nothing but the end of the limit ends the run."""
        self.relay, self.log = relay, log
        self.early = False
        """True if it was asked to end so that it can be run again."""
        self.asked = False
        """True if it was asked to end."""
        self._by_clock = by_clock
        self._began, self._seconds = time.monotonic(), relay.remaining
        self._relaxed, self._next = 0.0, -math.inf

    @property
    def over(self) -> bool:
        """True if it is ended, come what may."""
        return self.relay.done or self.relay.overdue > (_KEEP_S if self.log.untold else _KILL_S)

    def read(self, line: str) -> None:
        """Take in a line of the log."""
        before = self.log.relaxed
        self.log.read(line)
        if self.log.relaxed and not before:
            self._relaxed = time.monotonic() - self._began

    def asks(self) -> bool:
        """Return True if it is to be asked to end now."""
        if self.log.stopped or time.monotonic() < self._next:
            return False
        due = self.asked or self.relay.overdue > _INTERRUPT_S
        if not due and self._by_clock and self.log.untold:
            due = self.relay.remaining < min(_CLOSING * self._relaxed, _CLOSING_MOST * self._seconds)
            if not due:
                age = time.monotonic() - self._began
                self.early = not self.log.searching and _SLICE * self._seconds < age < self.relay.remaining / _WORTH
                due = self.early
        if due:
            self._next, self.asked = time.monotonic() + _AGAIN_S, True
        return due


class _CbcRun(NamedTuple):
    """A run of CBC that has ended."""

    relay: CallbackRelay
    log: CbcLog
    code: int
    """Its exit code, negative for a signal."""
    asked: bool = False
    """True if it was asked to end."""
    early: bool = False
    """True if that was so that it can be run again."""


def _follow(command: list[str], folder: Path, patience: _StopPolicy) -> _CbcRun:
    relay, log = patience.relay, patience.log
    # A terminal, since CBC holds back what it writes to a pipe until it ends.
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as terminal:
        try:
            child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
        finally:
            os.close(slave)
        try:
            for text in _written(terminal, patience, child):
                for line in relay.write(text):
                    patience.read(line)
                relay.bound(log.bound)
        finally:
            child.kill()
            code = child.wait()
    return _CbcRun(relay, log, code, patience.asked, patience.early)


def _written(terminal: IO[bytes], patience: _StopPolicy, child: "subprocess.Popen[bytes]") -> Iterator[str]:
    """Yield the child's output until it ends or has to be killed; it is asked to end first."""
    while not patience.over:
        if patience.asks():
            child.send_signal(signal.SIGINT)
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


def _outcome(linear: Linear, ask: RunRequest, folder: Path, run: _CbcRun) -> VendorOutcome:
    relay, log = run.relay, run.log
    file = folder / "solution.txt"
    if run.code or not file.exists():
        if not (relay.stop or log.stopped or run.asked):
            raise RuntimeError(f"CBC ends with code {run.code} and no answer: {log.last}")
        # Killed at the end of our patience, or crashed at its limit.
        found = ended(Status.UNKNOWN, Limit.TIME, None, log.bound)
        return replace(found, detail=LOST) if log.untold else found
    with file.open(encoding="ascii") as lines:
        said = lines.readline()
    if "nfeasible" in said or said.startswith("Unbounded"):
        if ask.start is not None or run.asked or relay.overdue > -max(_HASTE_S, _HASTE * ask.seconds):
            return ended(Status.UNKNOWN, Limit.TIME, None, log.bound)
        # "Integer infeasible" is said of what its preprocessing finds infeasible or unbounded, too.
        relaxed = said.startswith("Infeasible")
        return ended(Status.INFEASIBLE, Limit.NONE, None, math.inf) if relaxed else no_optimum(linear)
    values: Floats | None = None
    if "no integer solution" not in said:
        # CBC's binary form: rows, columns, objective; two numbers a row, two a column.
        with (folder / "solution.bin").open("rb") as stream:
            rows, columns = np.fromfile(stream, dtype=np.int32, count=2).tolist()
            numbers = np.fromfile(stream, dtype=np.float64)
        if columns != linear.columns or len(numbers) != 1 + 2 * rows + 2 * columns:
            raise RuntimeError(f"CBC's solution has {columns} columns, the program {linear.columns}")
        values = numbers[1 + 2 * rows :][:columns]
    if said.startswith("Optimal") and values is not None and (log.proven or not linear.integer.any()):
        objective = float(linear.cost @ values)
        return ended(Status.OPTIMAL, Limit.NONE, values, max(log.bound, objective - ask.gap * abs(objective)))
    return ended(Status.FEASIBLE, Limit.TIME if log.stopped else Limit.OTHER, values, log.bound)
