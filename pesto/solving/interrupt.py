"""Ctrl-C, SIGTERM and SIGHUP: all end the search and differ in the exit code. None may lose a plan that is found."""

import signal
import sys
import threading
from types import FrameType

from pesto.errors import Exit

AGAIN_S = 0.01
"""Seconds until an interruption that was ignored comes again: by then what ignored it has most often ended."""


class _State:
    """One a process, as signals are."""

    received: Exit | None = None
    number: int = signal.SIGINT
    """Of the last signal that came."""
    held = False
    noted = False
    """Whether one came while held, and nothing was interrupted for it yet."""


def install() -> None:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt as Ctrl-C does, and remember which of them came.

    Python ignores what is raised in a finaliser and in the callback of a weak reference or of a C library. What a
    signal raised there is raised again a little later, until it is taken.
    """
    _State.received, _State.held, _State.noted = None, False, False
    sys.unraisablehook = _ignored
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
    _State.received, _State.number = (Exit.INTERRUPTED if signum == signal.SIGINT else Exit.TERMINATED), signum
    _State.noted = _State.held
    if not _State.held:
        raise KeyboardInterrupt


def _ignored(ignored: "sys.UnraisableHookArgs") -> None:
    main = threading.main_thread().ident
    if main is not None and received() is not None and issubclass(ignored.exc_type, KeyboardInterrupt):
        threading.Timer(AGAIN_S, signal.pthread_kill, (main, _State.number)).start()
    else:
        sys.__unraisablehook__(ignored)
