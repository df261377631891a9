"""Ctrl-C, SIGTERM and SIGHUP: all end the search and differ in the exit code. None may lose a plan that is found.

A watchdog thread ends a process which a signal cannot interrupt, since its main thread is stuck in native code. A
signal wakes the thread at once, by the file descriptor that Python's own handler in C writes to. What `_handle` does
for the signal runs in the main thread, between two of its instructions, and writes to the same descriptor: where that
does not come in time, no instruction of the main thread has ended. A main thread that has taken the signal is left
alone, however long it saves what it has found. While a package is imported, or a function compiled, a signal waits
until that has ended: where nothing is found yet, the process is ended in place of it.

The thread needs the interpreter's lock. Native calls that may last release it: sessions of TensorFlow, compiled
functions, exact solvers.
"""

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
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
    """State of signal handling, one a process, as signals are."""

    received: Exit | None = None
    number: int = signal.SIGINT
    """Number of the last signal that came."""
    held = False
    noted = False
    """True if one came while held, and nothing was interrupted for it yet."""
    keeps = False
    """True if the verb has a result that it would write."""
    delayed_since: float | None = None
    """`time.monotonic()` of the first signal that waits for an import or a compilation to end; None for none."""
    watchdog: int | None = None
    """File descriptor to which TAKEN is written for each signal that the main thread takes; None for nobody.

    Not for one that waits for an import or a compilation to end, unless there is a result to write."""


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


def handles(signum: int) -> bool:
    """Return True if a signal is handled here, and not by code that a verb has called."""
    return signal.getsignal(signum) is _handle


def release() -> None:
    """Let signals interrupt again; raise KeyboardInterrupt if one was only remembered."""
    noted, _SignalState.held, _SignalState.noted = _SignalState.noted, False, False
    if noted:
        raise KeyboardInterrupt


def received() -> Exit | None:
    """Return 130 after Ctrl-C, 143 after SIGTERM or SIGHUP, None if none came."""
    return _SignalState.received


def _handle(signum: int, frame: FrameType | None) -> None:
    _SignalState.received, _SignalState.number = (
        (Exit.INTERRUPTED if signum == signal.SIGINT else Exit.TERMINATED),
        signum,
    )
    _SignalState.noted = _SignalState.held
    delayed = not _SignalState.held and _must_delay(frame)
    # One that waits while nothing would be lost is the watchdog's to end.
    if (not delayed or _SignalState.keeps) and _SignalState.watchdog is not None:
        with suppress(OSError):  # it is told of so many that one more says nothing
            os.write(_SignalState.watchdog, bytes([TAKEN]))
    if _SignalState.held:
        return
    if delayed:
        _signal_again()
    else:
        _SignalState.delayed_since = None
        raise KeyboardInterrupt


def _must_delay(frame: FrameType | None) -> bool:
    """Return True if an import or a compilation is in progress that would stay broken, for DELAY_S at most."""
    if not ((frame is not None and frame.f_code.co_filename == _IMPORT_SYSTEM) or _is_unsafe(frame)):
        return False
    if _SignalState.delayed_since is None:
        _SignalState.delayed_since = time.monotonic()
    return time.monotonic() < _SignalState.delayed_since + DELAY_S


def _is_unsafe(frame: FrameType | None) -> bool:
    """Return True if a compiler runs (it has no frame while a compiled function does), or a package is imported."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_COMPILERS):
            return True
        if frame.f_code.co_filename == _IMPORT_SYSTEM and frame.f_code.co_name == "_load_unlocked":
            origin = getattr(frame.f_locals.get("spec"), "origin", None)
            if isinstance(origin, str) and not _INSTALLED.isdisjoint(Path(origin).parts):
                return True
        frame = frame.f_back
    return False


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


GRACE_S = 2.0
"""Seconds that the main thread has to take a signal."""
KEEP_S = 10.0
"""The same where something is found that the verb would write: a long native step may end by itself."""
_END = 0
"""A byte that no signal has."""


@contextmanager
def watch_signals() -> Iterator[None]:
    """Install the handlers, and end this process where SIGTERM, SIGHUP or a second Ctrl-C is not taken in time.

    In the main thread only. Signals that others handle meanwhile, as a server does, are theirs alone.
    """
    install()
    # Standard descriptors that are closed point at nothing, or the pair would be them and read what is printed.
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    _SignalState.watchdog = mouth.fileno()
    _forget_in_children()
    screen = os.dup(2)  # TensorFlow's own lines are taken from the second descriptor while it reads
    thread = threading.Thread(target=_watch, args=(ear, screen), name="signal watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        _SignalState.watchdog = None
        signal.set_wakeup_fd(before)
        with suppress(OSError):
            mouth.send(bytes([_END]))
        thread.join()
        os.close(screen)
        ear.close()
        mouth.close()


@cache
def _forget_in_children() -> None:
    """Keep forked processes from speaking for their parent; once a process, as such a call cannot be taken back."""

    def forget() -> None:
        with suppress(ValueError):  # it may have been forked by another thread
            signal.set_wakeup_fd(-1)
        _SignalState.watchdog = None

    os.register_at_fork(after_in_child=forget)


def _watch(ear: socket.socket, screen: int) -> None:
    """Read numbers of signals as they arrive, and `TAKEN` once the main thread has taken them.

    screen: descriptor for a last line where the process is ended.
    """
    struck: tuple[int, float] | None = None  # a signal that waits to be taken, and since when
    interrupts = 0
    while True:
        limit = KEEP_S if _SignalState.keeps else GRACE_S
        left = None if struck is None else struck[1] + limit - time.monotonic()
        if struck is not None and left is not None and left <= 0:
            if handles(struck[0]) and not _SignalState.held:
                # End this process and all below it, without any further instruction of the main thread.
                killed = set[int]()
                while more := _descendants() - killed:  # one may have begun another meanwhile
                    for process in more:
                        with suppress(ProcessLookupError, PermissionError):
                            os.kill(process, signal.SIGKILL)
                    killed |= more
                with suppress(OSError):
                    os.write(screen, b"pesto: interrupted in an import or a native call; nothing more was written\n")
                os._exit(Exit.INTERRUPTED if struck[0] == signal.SIGINT else Exit.TERMINATED)
            struck, left = None, None
        ready, _, _ = select.select([ear], [], [], left)
        for number in ear.recv(4096) if ready else b"":
            if number == _END:
                return
            interrupts += number == signal.SIGINT
            if number == TAKEN:
                struck = None
            elif struck is None and handles(number) and (number != signal.SIGINT or interrupts > 1):
                struck = number, time.monotonic()


def _descendants() -> set[int]:
    """Processes whose chain of parents leads to this one, by Linux' /proc; none on other systems."""
    parents = dict[int, int]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    processes = {os.getpid()}
    while more := {p for p, above in parents.items() if above in processes} - processes:
        processes |= more
    return processes - {os.getpid()}
