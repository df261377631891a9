"""The one live line of a running solve."""

import sys
import threading
import time
from types import TracebackType
from typing import Self, TextIO

from pesto.solve.tracker import Incumbent


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
