"""A thread that ends a process which a signal cannot interrupt, since its main thread is stuck in native code.

A signal wakes the thread at once, by the file descriptor that Python's own handler in C writes to. What
`pesto.planning.solving.interrupt` does for the signal runs in the main thread, between two of its instructions, and
writes to the same descriptor: where that does not come in time, no instruction of the main thread has ended. A main
thread that has taken the signal is left alone, however long it saves what it has found. While a package is imported, or
a function compiled, a signal waits until that has ended: where nothing is found yet, the process is ended in place of
it.

The thread needs the interpreter's lock. Native calls that may last release it: sessions of TensorFlow, compiled
functions, exact solvers.
"""

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from pesto.core.errors import Exit
from pesto.planning.solving import interrupt

GRACE_S = 2.0
"""Seconds that the main thread has to take a signal."""
KEEP_S = 10.0
"""The same where something is found that the verb would write: a long native step may end by itself."""
_END = 0
"""A byte that no signal has."""


@contextmanager
def watch_signals() -> Iterator[None]:
    """End this process where SIGTERM, SIGHUP or a second Ctrl-C inside is not taken in time. In the main thread only.

    Needs `interrupt.install`; signals that others handle meanwhile, as a server does, are theirs alone.
    """
    _open_closed_streams()
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    interrupt.report_to(mouth.fileno())
    _forget_in_children()
    screen = os.dup(2)  # TensorFlow's own lines are taken from the second descriptor while it reads
    thread = threading.Thread(target=_watch, args=(ear, screen), name="signal watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        interrupt.report_to(None)
        signal.set_wakeup_fd(before)
        with suppress(OSError):
            mouth.send(bytes([_END]))
        thread.join()
        os.close(screen)
        ear.close()
        mouth.close()


def _open_closed_streams() -> None:
    """Point standard descriptors that are closed at nothing, or a pair below would be them and read what is printed."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)


@cache
def _forget_in_children() -> None:
    """Once a process: such a call cannot be taken back."""
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """A forked process must not speak for its parent."""
    with suppress(ValueError):  # it may have been forked by another thread
        signal.set_wakeup_fd(-1)
    interrupt.report_to(None)


def _watch(ear: socket.socket, screen: int) -> None:
    """Read numbers of signals as they arrive, and `interrupt.TAKEN` once the main thread has taken them.

    screen: descriptor for a last line where the process is ended.
    """
    struck: tuple[int, float] | None = None  # a signal that waits to be taken, and since when
    interrupts = 0
    while True:
        limit = KEEP_S if interrupt.keeps() else GRACE_S
        left = None if struck is None else struck[1] + limit - time.monotonic()
        if struck is not None and left is not None and left <= 0:
            if interrupt.handles(struck[0]) and not interrupt.holds():
                _end(struck[0], screen)
            struck, left = None, None
        ready, _, _ = select.select([ear], [], [], left)
        for number in ear.recv(4096) if ready else b"":
            if number == _END:
                return
            interrupts += number == signal.SIGINT
            if number == interrupt.TAKEN:
                struck = None
            elif struck is None and interrupt.handles(number) and (number != signal.SIGINT or interrupts > 1):
                struck = number, time.monotonic()


def _end(number: int, screen: int) -> None:
    """End this process and all below it, without any further instruction of the main thread."""
    killed = set[int]()
    while more := _descendants() - killed:  # one may have begun another meanwhile
        for process in more:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        killed |= more
    with suppress(OSError):
        os.write(screen, b"pesto: interrupted in an import or a native call; nothing more was written\n")
    os._exit(Exit.INTERRUPTED if number == signal.SIGINT else Exit.TERMINATED)


def _descendants() -> set[int]:
    """Processes whose chain of parents leads to this one, by Linux' /proc; none on other systems."""
    parents = dict[int, int]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {p for p, above in parents.items() if above in found} - found:
        found |= more
    return found - {os.getpid()}
