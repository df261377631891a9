"""Two clocks by which functions in TensorFlow's threads take their predicted times."""

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from pesto.core.errors import VerificationError
from pesto.tf.emulate.emulate_options import PLANNED
from pesto.tf.emulate.reservations import EmulatedWork, EventClock, PendingInputs, Reservations

# Measured time that an emulated step by the wall clock loses between functions.


def handover_ticks(work: EmulatedWork, times: Sequence[tuple[float, float]], reached: Sequence[float]) -> float:
    """Ticks between functions on the path that the step's end waited for.

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


STALLED_S = 600.0
"""Seconds after which an executor that reaches nothing more has lost a function: no machine is that busy."""


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
        """Wait for function k; VerificationError when the executor breaks an edge of the graph, or stalls."""
        gate = threading.Event()
        with self._lock:
            self._gates[k] = gate
            if self._failed:
                raise self._failed
            try:
                self._ledger.reach(k)
                self._go_on()
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

    def _go_on(self) -> None:
        # Time may advance only when no further function can start now. If all threads are blocked in functions, no
        # other can be reached, and waiting would deadlock.
        while self._gates and (not self._ledger.due or len(self._gates) >= self._threads):
            self.starved += self._ledger.due > 0
            for ended in self._ledger.next():
                self._gates.pop(ended).set()

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
        """`tick_s`: seconds to sleep for a tick."""
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
        """Functions ask now for what they hold, one after another."""
        now = (time.monotonic() - began) / self.tick_s
        for k in several:
            self._reached[k] = now
            self._times[k] = self._reservations.take(self._work.holds[k], now, self._work.ticks[k])

    def handed_over(self) -> float:
        """Ticks that the step lost from function to function (`pesto.tf.emulate.handover_time`)."""
        return handover_ticks(self._work, self._times, self._reached)

    def times(self) -> list[tuple[float, float]]:
        """Return (start, end) of each function in ticks; (-1, -1) for one that was not reached."""
        return list(self._times)

    def stop(self) -> None:
        """End all sleeping functions."""
        if self._going.locked():
            self._going.release()
