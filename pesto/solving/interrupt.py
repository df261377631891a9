"""Ctrl-C, SIGTERM and SIGHUP: all end the search and differ in the exit code. None may lose a plan that is found."""

import signal
from types import FrameType

from pesto.errors import Exit


class _State:
    """One a process, as signals are."""

    received: Exit | None = None
    held = False
    noted = False
    """Whether one came while held, and nothing was interrupted for it yet."""


def install() -> None:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt as Ctrl-C does, and remember which of them came."""
    _State.received, _State.held, _State.noted = None, False, False
    signal.signal(signal.SIGINT, _handle)
    signal.signal(signal.SIGTERM, _handle)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup has it: the closed terminal is to change nothing
        signal.signal(signal.SIGHUP, _handle)


def hold() -> None:
    """From now on only remember a signal: what is left is quick and must not be cut off. Needs `install`."""
    _State.held = True


def release() -> None:
    """From now on a signal interrupts again; KeyboardInterrupt when one was only remembered."""
    noted, _State.held, _State.noted = _State.noted, False, False
    if noted:
        raise KeyboardInterrupt


def received() -> Exit | None:
    """130 after Ctrl-C, 143 after SIGTERM or SIGHUP, None when none came."""
    return _State.received


def _handle(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _State.received = Exit.INTERRUPTED if signum == signal.SIGINT else Exit.TERMINATED
    _State.noted = _State.held
    if not _State.held:
        raise KeyboardInterrupt
