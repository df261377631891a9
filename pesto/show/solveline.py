"""The live line of a solve in ticks: best, bound and gap of a problem that need not be a training step."""

import time

from pesto.show.live_line import LiveLine
from solvers.base import Progress
from solvers.schedule import Schedule


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
