"""Ctrl-C, SIGTERM and SIGHUP: all end the search and differ in the exit code. None may lose a plan that is found."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from pesto.core.errors import Exit

AGAIN_S = 0.01
"""Seconds until an interruption comes again that was ignored, or came too early: most often that is over by then."""
TAKEN = 255
"""A byte that no signal has: the main thread has taken one."""
_COMPILERS = ("numba.", "llvmlite.")
"""Packages that an interruption leaves broken, registries half read and code half loaded, if the process survives."""
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
"""Source file of the frames of Python's import system."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Names of folders for installed packages."""
DELAY_S = 60.0
"""Seconds after which an import or a compilation that does not end is interrupted nevertheless."""


class _SignalState:
    """One a process, as signals are."""

    received: Exit | None = None
    number: int = signal.SIGINT
    """Of the last signal that came."""
    held = False
    noted = False
    """Whether one came while held, and nothing was interrupted for it yet."""
    keeps = False
    """True if the verb has a result that it would write."""
    delayed_since: float | None = None
    """`time.monotonic()` of the first signal that waits for an import or a compilation to end; None for none."""
    watchdog: int | None = None
    """File descriptor to which each signal that the main thread takes is reported."""


def install() -> None:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt as Ctrl-C does, and remember which of them came.

    Python ignores what is raised in a finaliser and in the callback of a weak reference or of a C library. What a
    signal raised there is raised again a little later, until it is taken. One that comes while numba compiles or loads
    a function, or while an installed package is imported, is raised after that: TensorFlow, for one, registers names
    as it loads and cannot be imported again after half of it. Modules of the user's own can be interrupted.
    """
    _SignalState.received, _SignalState.held, _SignalState.noted, _SignalState.keeps = None, False, False, False
    _SignalState.delayed_since = None
    sys.unraisablehook = _reinterrupt_if_ignored
    signal.signal(signal.SIGINT, _handle)
    signal.signal(signal.SIGTERM, _handle)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup has it: the closed terminal is to change nothing
        signal.signal(signal.SIGHUP, _handle)


def hold() -> None:
    """From now on only remember a signal: what is left is quick and must not be cut off. Needs `install`."""
    _SignalState.held = _SignalState.keeps = True


def keep() -> None:
    """Say that something was found which is to be written: a signal that is taken late must not lose it."""
    _SignalState.keeps = True


def keeps() -> bool:
    """Return whether the verb has a result that it would write."""
    return _SignalState.keeps


def holds() -> bool:
    """Whether signals are only remembered, as while a plan is written."""
    return _SignalState.held


def handles(signum: int) -> bool:
    """Whether a signal is handled here, and not by whom a verb has called."""
    return signal.getsignal(signum) is _handle


def report_to(descriptor: int | None) -> None:
    """Write TAKEN there for every signal that the main thread takes; None for nobody.

    Not for one that waits for an import or a compilation to end, unless there is a result to write.
    """
    _SignalState.watchdog = descriptor


def release() -> None:
    """From now on a signal interrupts again; KeyboardInterrupt when one was only remembered."""
    noted, _SignalState.held, _SignalState.noted = _SignalState.noted, False, False
    if noted:
        raise KeyboardInterrupt


def received() -> Exit | None:
    """130 after Ctrl-C, 143 after SIGTERM or SIGHUP, None when none came."""
    return _SignalState.received


def _handle(signum: int, frame: FrameType | None) -> None:
    _SignalState.received, _SignalState.number = (
        (Exit.INTERRUPTED if signum == signal.SIGINT else Exit.TERMINATED),
        signum,
    )
    _SignalState.noted = _SignalState.held
    delayed = not _SignalState.held and _must_delay(frame)
    if not delayed or _SignalState.keeps:  # one that waits while nothing would be lost is the watchdog's to end
        _report()
    if _SignalState.held:
        return
    if delayed:
        _signal_again()
    else:
        _SignalState.delayed_since = None
        raise KeyboardInterrupt


def _report() -> None:
    """Tell the watchdog, where there is one, that the main thread has taken a signal."""
    if _SignalState.watchdog is not None:
        with suppress(OSError):  # it is told of so many that one more says nothing
            os.write(_SignalState.watchdog, bytes([TAKEN]))


def _must_delay(frame: FrameType | None) -> bool:
    """Return whether an import or a compilation is in progress that would stay broken, for DELAY_S at most."""
    if not ((frame is not None and frame.f_code.co_filename == _IMPORT_SYSTEM) or _is_unsafe(frame)):
        return False
    if _SignalState.delayed_since is None:
        _SignalState.delayed_since = time.monotonic()
    return time.monotonic() < _SignalState.delayed_since + DELAY_S


def _is_unsafe(frame: FrameType | None) -> bool:
    """Return whether a compiler runs (it has no frame while a compiled function does), or a package is imported."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_COMPILERS) or _imports_package(frame):
            return True
        frame = frame.f_back
    return False


def _imports_package(frame: FrameType) -> bool:
    """Return whether the frame executes a module of an installed package for the first time."""
    if frame.f_code.co_filename != _IMPORT_SYSTEM or frame.f_code.co_name != "_load_unlocked":
        return False
    origin = getattr(frame.f_locals.get("spec"), "origin", None)
    return isinstance(origin, str) and not _INSTALLED.isdisjoint(Path(origin).parts)


def _reinterrupt_if_ignored(ignored: "sys.UnraisableHookArgs") -> None:
    if received() is not None and issubclass(ignored.exc_type, KeyboardInterrupt):
        _signal_again()
    else:
        sys.__unraisablehook__(ignored)


def _signal_again() -> None:
    """Send this process's main thread the last signal a little later."""
    main = threading.main_thread().ident
    if main is not None:
        threading.Timer(AGAIN_S, signal.pthread_kill, (main, _SignalState.number)).start()
