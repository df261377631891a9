"""The one live line of a running solve: of a training step in seconds, or of a problem in ticks."""

import sys
import threading
import time
from types import TracebackType
from typing import Self, TextIO

from pesto.solving.tracker import Incumbent
from solvers.base import Progress
from solvers.schedule import Schedule


class LiveLine:
    """Shows best, bound and gap: every second on a terminal.

    Elsewhere as plain lines: each better plan as it comes (one a second at most), and every ten seconds.

    A context manager; call it with each incumbent. `quiet` shows nothing.
    """

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._quiet = quiet
        self._known: Incumbent | None = None
        self._told = 0.0
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

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
                self._stream.write("\r\x1b[K")
                self._stream.flush()

    def __call__(self, incumbent: Incumbent) -> None:
        """Remember a better plan; the first is shown at once, in full."""
        first, same = self._known is None, self._known is not None and self._known.makespan_s == incumbent.makespan_s
        self._known = incumbent
        if self._quiet:
            return
        if first:
            self._write(f"first valid plan after {incumbent.seconds:.1f} s: {incumbent.name}, {_text(incumbent)}", "\n")
        elif not self._live and not same and incumbent.seconds >= self._told + 1.0:
            self._told = incumbent.seconds
            self._write(f"better plan after {incumbent.seconds:.1f} s: {incumbent.name}, {_text(incumbent)}", "\n")

    def _tick(self) -> None:
        while not self._stop.wait(1.0 if self._live else 10.0):
            if self._known is not None:
                passed = time.monotonic() - self._began
                hint = "  (Ctrl-C keeps the best)" if self._live else ""
                self._write(f"best {_text(self._known)}  {passed:.0f} s{hint}", "" if self._live else "\n")

    def _write(self, text: str, end: str) -> None:
        self._stream.write(("\r\x1b[K" if self._live else "") + text + end)
        self._stream.flush()


def _text(known: Incumbent) -> str:
    gap = (known.makespan_s - known.lower_bound_s) / known.makespan_s if known.makespan_s else 0.0
    return f"{known.makespan_s * 1e3:.1f} ms  bound {known.lower_bound_s * 1e3:.1f}  gap {gap:.1%}"


class SolveLine(LiveLine):
    """The live line of one solve of a problem in ticks; `hear` takes what the solver reports."""

    def __init__(
        self, ticks_per_second: int | None, start: Schedule | None = None, *, quiet: bool = False, verbose: bool = False
    ) -> None:
        super().__init__(quiet=quiet)
        self._ticks_per_second, self._verbose = ticks_per_second, verbose
        self._schedule, self._news = start, Progress(schedule=start, lower_bound=0, seconds=0.0)
        if start is not None and not quiet:
            self._write(f"starting from {amount(start.makespan, ticks_per_second)}", "\n")

    def hear(self, progress: Progress) -> None:
        """Remember a better schedule or bound, show the first schedule at once, and log lines where asked to."""
        first = self._schedule is None and progress.schedule is not None
        self._schedule, self._news = progress.schedule or self._schedule, progress
        for line in progress.log if self._verbose else ():
            self._write("".join(c if c.isprintable() else " " for c in line), "\n")
        if first and not self._quiet:
            self._write(f"first schedule after {progress.seconds:.1f} s: {self._text(progress)}", "\n")

    def _tick(self) -> None:
        while not self._stop.wait(1.0 if self._live else 10.0):
            hint = "  (Ctrl-C keeps the best)" if self._live else ""
            text = f"{self._text(self._news)}  {time.monotonic() - self._began:.0f} s{hint}"
            self._write(text, "" if self._live else "\n")

    def _text(self, news: Progress) -> str:
        bound = f"bound {amount(news.lower_bound, self._ticks_per_second)}"
        bound += f" ({news.bound_by})" if news.bound_by else ""
        if self._schedule is None:
            return f"best none  {bound}"
        best = self._schedule.makespan
        gap = (best - news.lower_bound) / best if best else 0.0
        return f"best {amount(best, self._ticks_per_second)}  {bound}  gap {gap:.1%}"


def amount(ticks: int, ticks_per_second: int | None) -> str:
    """Ticks for people: as milliseconds where a tick is a time."""
    return f"{ticks} ticks" if ticks_per_second is None else f"{ticks / ticks_per_second * 1e3:.3f} ms"
