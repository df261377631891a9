"""Functions to emulate: ops and transfers that hold processors or links for their times, first come, first served."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from pesto.core.errors import VerificationError
from pesto.tf.emulate.emulate_options import PLANNED, REACHED


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
    """[n] which of those that end, or ask, at one instant is first; -1 for what no order speaks of, as transfers."""

    @property
    def functions(self) -> int:
        """Number of functions, n."""
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Reservations:
    """Tick at which each processor and link is free; a request holds all its resources from when the last is free."""

    free: dict[int, float] = field(default_factory=dict)
    """Processor or link -> when it is."""

    def take(self, holds: Sequence[int], now: float, time: float) -> tuple[float, float]:
        """(start, end) of what asks at `now`, which nothing that asks later can delay."""
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
        """Function k ends: those that can start now, and could not before, in the order of their numbers."""
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
        """The executor begins function k. VerificationError when something that it waits for has not ended."""
        if self._waiting.waits(k):
            raise VerificationError(f"TensorFlow's executor began {self.work.names[k]} before what it waits for")
        self.due -= 1
        self._asked.append(k)

    def next(self) -> list[int]:
        """Advance to the next end and return the functions that end: one, or with REACHED ties all of that instant."""
        # All requests of one instant are collected before the first is served; otherwise the result would depend on
        # which thread the operating system ran first.
        for k in sorted(self._asked, key=self._tie) if self.ties == PLANNED else self._asked:
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

    def _tie(self, k: int) -> tuple[tuple[int, int], int]:
        return self.work.sent[k], self.work.rank[k]
