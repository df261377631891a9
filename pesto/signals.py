"""How a run was interrupted: Ctrl-C and SIGTERM both end the search, and differ only in the exit code."""

import signal
from types import FrameType

from pesto.errors import Exit


class _Terminated:
    seen = False


def install() -> None:
    """Make SIGTERM raise KeyboardInterrupt, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _terminate)


def interrupted() -> Exit:
    """The exit code of an interrupted run: 143 after SIGTERM, 130 after Ctrl-C."""
    return Exit.TERMINATED if _Terminated.seen else Exit.INTERRUPTED


def _terminate(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _Terminated.seen = True
    raise KeyboardInterrupt
