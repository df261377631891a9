"""Live lines: that of a running solve, of a training step in seconds or of a problem in ticks, and of a reading."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TextIO

from pesto.core.quantities import duration, percent
from pesto.planning.solving.background_compiler import shared_compiler
from pesto.planning.solving.tracker import Incumbent
from pesto.reporting.show.lines import COLUMNS, columns, paragraph
from pesto.reporting.show.screen import Screen
from solvers import Progress

_SECONDS = 12
"""Columns that the seconds behind a phase have at most."""


def amount(ticks: float, ticks_per_second: int | None) -> str:
    """Ticks for people: in seconds where a tick is a time."""
    return f"{ticks} ticks" if ticks_per_second is None else duration(ticks / ticks_per_second)


class StatusLine:
    """Shows a text and the seconds since it began, rewritten every second on a terminal; a context manager."""

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._quiet = quiet
        stream = stream or sys.stderr
        self._stream = stream if isinstance(stream, Screen) else Screen(stream, expendable=True)
        self._terminal = self._stream.isatty()
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
            if self._terminal:
                self._write_live("")

    def _tick(self) -> None:
        while not self._stop.wait(1.0 if self._terminal else 10.0):
            self._show()

    def _show(self) -> None:
        """Write the line as it is now."""
        raise NotImplementedError

    def _timed(self, text: str) -> str:
        return f"{text}  {time.monotonic() - self._began:.0f} s"

    def _write_live(self, text: str) -> None:
        with suppress(BrokenPipeError):  # whoever does not read progress loses no plan
            self._stream.write_live(text)

    def _write_line(self, text: str) -> None:
        with suppress(BrokenPipeError):
            self._stream.write(f"{text}\n")
            self._stream.flush()


class ReadingLine(StatusLine):
    """Shows the phase of a reading (`pesto.core.files.reading`), on a terminal alone."""

    def __init__(self, *, stream: TextIO | None = None) -> None:
        super().__init__(stream=stream)
        self._phase = ""

    def __call__(self, phase: str) -> None:
        """Show a phase that begins."""
        self._phase = phase
        self._show()

    def _show(self) -> None:
        if self._terminal and self._phase:
            self._write_live(self._timed(self._phase[: columns() - _SECONDS]))


class LiveLine(StatusLine):
    """Shows best, bound and gap: every second on a terminal, elsewhere every ten seconds as a plain line.

    A context manager; call it with each incumbent of a training step, or let `hear` take what a solver reports. `told`
    writes a makespan or a bound, `start` is the makespan that the solve begins with. `quiet` shows nothing but, where
    `verbose` asks for them, the lines of the solver's own log.
    """

    HINT = "Ctrl-C keeps the best"

    def __init__(
        self,
        format_value: Callable[[float], str] = duration,
        start: float | None = None,
        *,
        quiet: bool = False,
        verbose: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        super().__init__(quiet=quiet, stream=stream)
        self._told, self._verbose = format_value, verbose
        self._best, self._said_at = start, 0.0
        self._text = self._standing(0)
        if start is not None and not quiet:
            self._say(f"starting from {format_value(start)}")

    def __call__(self, incumbent: Incumbent) -> None:
        """Remember a better plan; off a terminal say so, once a second at most. The first is always said."""
        before, self._best = self._best, incumbent.makespan_s
        self._text = self._standing(incumbent.lower_bound_s)
        better = not self._terminal and before != self._best and incumbent.seconds >= self._said_at + 1.0
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
            self._write_line("".join(c if c.isprintable() else " " for c in line))
        if first and not self._quiet:
            self._say(f"first schedule after {progress.seconds:.1f} s: best {self._text}")

    def _standing(self, bound: float, bound_by: str = "") -> str:
        proven = f"bound {self._told(bound)}" + (f" ({bound_by})" if bound_by else "")
        if self._best is None:
            return f"none  {proven}"
        gap = (self._best - bound) / self._best if self._best else 0.0
        return f"{self._told(self._best)}  {proven}  gap {percent(gap)}"

    def _show(self) -> None:
        text = self._timed(shared_compiler().standing or f"best {self._text}")
        if not self._terminal:
            self._say(text)
            return
        hint = f"  ({self.HINT})" if len(text) < COLUMNS - 26 else ""
        self._write_live(text + hint)

    def _say(self, text: str) -> None:
        self._write_line(paragraph(text, 2))
