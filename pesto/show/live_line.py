"""The one live line of a running solve: of a training step in seconds, or of a problem in ticks."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TextIO

from pesto.quantities import duration, percent
from pesto.show.lines import COLUMNS, paragraph
from pesto.show.screen import Screen
from pesto.solving.ahead import beside
from pesto.solving.tracker import Incumbent
from solvers import Progress


def amount(ticks: float, ticks_per_second: int | None) -> str:
    """Ticks for people: in seconds where a tick is a time."""
    return f"{ticks} ticks" if ticks_per_second is None else duration(ticks / ticks_per_second)


class LiveLine:
    """Shows best, bound and gap: every second on a terminal, elsewhere every ten seconds as a plain line.

    A context manager; call it with each incumbent of a training step, or let `hear` take what a solver reports. `told`
    writes a makespan or a bound, `start` is the makespan that the solve begins with. `quiet` shows nothing but, where
    `verbose` asks for them, the lines of the solver's own log.
    """

    HINT = "Ctrl-C keeps the best"

    def __init__(
        self,
        told: Callable[[float], str] = duration,
        start: float | None = None,
        *,
        quiet: bool = False,
        verbose: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        self._told, self._quiet, self._verbose = told, quiet, verbose
        stream = stream or sys.stderr
        self._stream = stream if isinstance(stream, Screen) else Screen(stream, expendable=True)
        self._live = self._stream.isatty()
        self._best, self._said_at = start, 0.0
        self._text = self._standing(0)
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        if start is not None and not quiet:
            self._say(f"starting from {told(start)}")

    def __enter__(self) -> Self:
        """Begin."""
        if not self._quiet:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and leave the terminal on a fresh line."""
        self._stop.set()
        if not self._quiet:
            self._ticker.join()
            if self._live:
                self._stream.restart_line()
                self._stream.flush()

    def __call__(self, incumbent: Incumbent) -> None:
        """Remember a better plan; off a terminal say so, once a second at most. The first is always said."""
        before, self._best = self._best, incumbent.makespan_s
        self._text = self._standing(incumbent.lower_bound_s)
        better = not self._live and before != self._best and incumbent.seconds >= self._said_at + 1.0
        if self._quiet or not (before is None or better):
            return
        self._said_at = self._said_at if before is None else incumbent.seconds
        what = "first valid" if before is None else "better"
        self._say(f"{what} plan after {incumbent.seconds:.1f} s: {incumbent.name}, {self._text}")

    def hear(self, progress: Progress) -> None:
        """Remember a better schedule or bound, say the first schedule, and the log's lines where asked to."""
        first = self._best is None and progress.schedule is not None
        self._best = self._best if progress.schedule is None else progress.schedule.makespan
        self._text = self._standing(progress.lower_bound, progress.bound_by)
        for line in progress.log if self._verbose else ():
            self._write("".join(c if c.isprintable() else " " for c in line), "\n")
        if first and not self._quiet:
            self._say(f"first schedule after {progress.seconds:.1f} s: best {self._text}")

    def _waits_for(self) -> str:
        """What is told in place of the best; "" for nothing."""
        return beside().standing

    def _standing(self, bound: float, bound_by: str = "") -> str:
        """Best, bound and gap."""
        proven = f"bound {self._told(bound)}" + (f" ({bound_by})" if bound_by else "")
        if self._best is None:
            return f"none  {proven}"
        gap = (self._best - bound) / self._best if self._best else 0.0
        return f"{self._told(self._best)}  {proven}  gap {percent(gap)}"

    def _tick(self) -> None:
        while not self._stop.wait(1.0 if self._live else 10.0):
            text = f"{self._waits_for() or f'best {self._text}'}  {time.monotonic() - self._began:.0f} s"
            hint = f"  ({self.HINT})" if self._live and len(text) < COLUMNS - 26 else ""
            if self._live:
                self._write(text + hint, "")
            else:
                self._say(text)

    def _say(self, text: str) -> None:
        self._write(paragraph(text, 2), "\n")

    def _write(self, text: str, end: str) -> None:
        with suppress(BrokenPipeError):  # whoever does not read progress loses no plan
            if self._live:
                self._stream.restart_line()
            self._stream.write(text + end)
            self._stream.flush()
