"""Functions to emulate, and the clocks by which they take their predicted times in TensorFlow's threads.

Functions are ops and transfers that hold processors or links for their times, first come, first served.
"""

import heapq
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pesto.core.errors import VerificationError
from pesto.tf.emulate.emulate_options import PLANNED, REACHED

STALLED_S = 600.0
"""Seconds after which an executor that reaches nothing more has lost a function: no machine is that busy."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmulatedWork:
    """n functions, each an op or a transfer, in a topological order of what they wait for."""

    names: tuple[str, ...]
    """[n] the op, or the op whose tensor is sent."""
    cpu: tuple[int, ...]
    """[n] number of the logical CPU that runs the function; a transfer's is its source's."""
    holds: tuple[tuple[int, ...], ...]
    """[n] what it reserves: processors from 0, links behind them; none for messages and for ops beside them."""
    ticks: tuple[int, ...]
    """[n] predicted ticks."""
    data: tuple[tuple[int, ...], ...]
    """[n] functions whose output it reads."""
    controls: tuple[tuple[int, ...], ...]
    """[n] functions that it waits for besides."""
    op: tuple[int, ...]
    """[n] index of the op in the planned graph, -1 for a transfer."""
    sent: tuple[tuple[int, int], ...]
    """[n] (payload, location) of a transfer of the problem, (-1, -1) for all else."""
    rank: tuple[int, ...]
    """[n] rank among those that end, or ask, at one instant; -1 for what no order speaks of, as transfers."""

    @property
    def functions(self) -> int:
        """Number of functions, n."""
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Reservations:
    """Tick at which each processor and link is free; a request holds all its resources from when the last is free."""

    free: dict[int, float] = field(default_factory=dict)
    """Processor or link -> the tick at which it is free."""

    def take(self, holds: Sequence[int], now: float, time: float) -> tuple[float, float]:
        """Return (start, end) of what asks at `now`, which nothing that asks later can delay."""
        # A transfer over several links holds all of them for its whole time, as in the simulator: there is no store and
        # forward.
        start = max([now, *(self.free.get(h, 0) for h in holds)])
        for h in holds:
            self.free[h] = start + time
        return start, start + time


class PendingInputs:
    """Number of inputs that each function still waits for."""

    def __init__(self, work: EmulatedWork) -> None:
        before = [{*data, *controls} for data, controls in zip(work.data, work.controls, strict=True)]
        self._missing = [len(earlier) for earlier in before]
        self._after: list[list[int]] = [[] for _ in before]
        for k, earlier in enumerate(before):
            for p in earlier:
                self._after[p].append(k)

    def waits(self, k: int) -> bool:
        """Return True if an input of function k has not ended."""
        return self._missing[k] > 0

    def end(self, k: int) -> list[int]:
        """End function k; return those that can start now, and could not before, in the order of their numbers."""
        for after in self._after[k]:
            self._missing[after] -= 1
        return [after for after in self._after[k] if not self._missing[after]]


class EventClock:
    """A clock in ticks that stands still while the executor has functions to reach, so handing over costs no time.

    It knows which functions can start (the executor must reach them), and goes on to the next end when all of these
    have been reached and asked for what they hold.
    """

    def __init__(self, work: EmulatedWork, ties: str = PLANNED) -> None:
        self.work, self.ties = work, ties
        self.now = 0
        self.start, self.end = [-1] * work.functions, [-1] * work.functions
        self._reservations = Reservations()
        self._waiting = PendingInputs(work)
        self._asked: list[int] = []
        self._ends: list[tuple[int, int, int]] = []
        self.due = sum(not self._waiting.waits(k) for k in range(work.functions))
        """Functions that can start and have not been reached."""

    def reach(self, k: int) -> None:
        """Begin function k. Raise VerificationError when something that it waits for has not ended."""
        if self._waiting.waits(k):
            raise VerificationError(f"TensorFlow's executor began {self.work.names[k]} before what it waits for")
        self.due -= 1
        self._asked.append(k)

    def next(self) -> list[int]:
        """Advance to the next end and return the functions that end: one, or with REACHED ties all of that instant."""
        # All requests of one instant are collected before the first is served; otherwise the result would depend on
        # which thread the operating system ran first.
        if self.ties == PLANNED:
            self._asked.sort(key=lambda k: (self.work.sent[k], self.work.rank[k]))
        for k in self._asked:
            start, end = self._reservations.take(self.work.holds[k], self.now, self.work.ticks[k])
            self.start[k], self.end[k] = int(start), int(end)
            heapq.heappush(self._ends, (self.end[k], self.work.rank[k], k))
        self._asked.clear()
        ended: list[int] = []
        while self._ends and (not ended or (self.ties == REACHED and self._ends[0][0] == self.now)):
            self.now, _, k = heapq.heappop(self._ends)
            ended.append(k)
            self.due += len(self._waiting.end(k))
        return ended


class FunctionClock(Protocol):
    """Clock that each emulated function calls when the executor reaches it; the call returns when its time is over."""

    def pass_by(self, k: int) -> float:
        """Wait in the calling thread until function k ends; return the tick of its end."""

    def times(self) -> list[tuple[float, float]]:
        """Return (start, end) of each function in ticks; (-1, -1) for one that was not reached."""

    def stop(self) -> None:
        """End all waiting functions at once, after an interrupt."""


class NominalClock:
    """Discrete-event clock without sleep: time advances when all ready functions have started or no thread is left."""

    def __init__(self, work: EmulatedWork, threads: int, ties: str = PLANNED) -> None:
        self.starved = 0
        """Ends at which functions could have started and no thread was left."""
        self._ledger, self._threads = EventClock(work, ties), threads
        self._lock = threading.Lock()
        self._gates: dict[int, threading.Event] = {}
        self._failed: Exception | None = None

    def pass_by(self, k: int) -> float:
        """Wait for function k. Raise VerificationError when the executor breaks an edge of the graph, or stalls."""
        gate = threading.Event()
        with self._lock:
            self._gates[k] = gate
            if self._failed:
                raise self._failed
            try:
                self._ledger.reach(k)
                # Time may advance only when no further function can start now. If all threads are blocked in functions,
                # no other can be reached, and waiting would deadlock.
                while self._gates and (not self._ledger.due or len(self._gates) >= self._threads):
                    self.starved += self._ledger.due > 0
                    for ended in self._ledger.next():
                        self._gates.pop(ended).set()
            except VerificationError as error:
                self._fail(error)
        if not gate.wait(STALLED_S):
            self._fail(
                VerificationError.build("TensorFlow's executor stopped reaching functions", remedy="run pesto doctor")
            )
        if self._failed:
            raise self._failed
        return self._ledger.end[k]

    def times(self) -> list[tuple[float, float]]:
        """Return (start, end) of each function in ticks; (-1, -1) for one that was not reached."""
        return list(zip(self._ledger.start, self._ledger.end, strict=True))

    def stop(self) -> None:
        """End all waiting functions with an error."""
        with self._lock:
            self._fail(VerificationError("the emulation was stopped"))

    def _fail(self, error: Exception) -> None:
        self._failed = self._failed or error
        for gate in list(self._gates.values()):
            gate.set()


class WallClock:
    """Wall clock: functions sleep `scale` seconds for each predicted second, with the interpreter lock released.

    What becomes ready to be sent as a function ends asks for its links then, before anything behind that function
    begins. So it is on GPUs: their kernels, sends among them, count as inexpensive (`OpKernel::IsExpensive`), and the
    executor runs what such a kernel makes ready in the same thread, first in, first out. Here each is a function that
    the executor takes for expensive and gives a thread of its own, and threads race.
    """

    def __init__(self, work: EmulatedWork, tick_s: float) -> None:
        """Begin with the first function; `tick_s`: seconds to sleep for a tick."""
        self._work, self.tick_s = work, tick_s
        self._lock = threading.Lock()
        self._reservations, self._waiting = Reservations(), PendingInputs(work)
        self._began: float | None = None
        self._going = threading.Lock()  # held while it goes on: cheaper to wait for than an Event
        self._going.acquire()
        self._times = [(-1.0, -1.0)] * work.functions
        self._reached = [-1.0] * work.functions

    def pass_by(self, k: int) -> float:
        """Sleep until function k ends; return the tick of its end."""
        with self._lock:
            if self._began is None:
                self._began = time.monotonic()
            began = self._began
            if self._reached[k] < 0:
                self._ask([k], began)
            end = self._times[k][1]
        # Absolute times: a late wake-up shortens the following sleep instead of adding up over the step.
        left = began + end * self.tick_s - time.monotonic()
        if left > 0 and self._going.acquire(timeout=left):
            self._going.release()
        with self._lock:
            sends = [after for after in self._waiting.end(k) if self._work.sent[after][0] >= 0]
            self._ask(sorted(sends, key=lambda send: self._work.sent[send]), began)
        return end

    def _ask(self, several: Sequence[int], began: float) -> None:
        """Ask now for what several functions hold, one after another."""
        now = (time.monotonic() - began) / self.tick_s
        for k in several:
            self._reached[k] = now
            self._times[k] = self._reservations.take(self._work.holds[k], now, self._work.ticks[k])

    def handed_over(self) -> float:
        """Return the ticks that the step lost from function to function."""
        return count_handover_ticks(self._work, self._times, self._reached)

    def times(self) -> list[tuple[float, float]]:
        """Return (start, end) of each function in ticks; (-1, -1) for one that was not reached."""
        return list(self._times)

    def stop(self) -> None:
        """End all sleeping functions."""
        if self._going.locked():
            self._going.release()


def count_handover_ticks(work: EmulatedWork, times: Sequence[tuple[float, float]], reached: Sequence[float]) -> float:
    """Return the ticks between functions on the path that the step's end waited for.

    times: [n] (start, end), as of a clock; reached: [n] when the executor began each function. One that was reached
    when all that it holds was free has lost the ticks since the last end that it waited for: until the thread woke, the
    executor had reached it and the interpreter was free. Else it lost what the holder before it had.
    """
    lost, last = [0.0] * work.functions, dict[int, int]()
    for k in sorted(range(work.functions), key=lambda k: (times[k], k)):
        start = times[k][0]
        if start < 0:
            continue
        before = (*work.data[k], *work.controls[k])
        holders = [last[h] for h in work.holds[k] if h in last] if start > reached[k] else []
        first = max(holders or before, key=lambda j: times[j][1], default=None)
        if holders and first is not None:
            lost[k] = lost[first]
        elif first is not None:
            lost[k] = lost[first] + max(0.0, reached[k] - times[first][1])
        else:
            lost[k] = reached[k]
        last.update((h, k) for h in work.holds[k])
    return lost[max(range(work.functions), key=lambda k: times[k][1])] if work.functions else 0.0
