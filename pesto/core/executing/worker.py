"""The process that does work, one after another: `python -m pesto.core.executing.worker PARENT FD CORES NICE [READY]`.

READY is a `module:function` that is called before the first work. It reads works from its connection and writes what
they tell, and their answers, to it. It dies with its parent, and what a solver started dies with it
(`solvers.process.worker`), so that a killed run leaves nothing behind.
"""

import ctypes
import importlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Protocol, cast

import msgspec

from solvers.process.one_shot import keep_niceness

READY, BEGAN, SAID, ANSWER, LAST_ANSWER = b"r", b"b", b"s", b"a", b"l"
"""First byte of a message; after LAST_ANSWER the process is to get no further work."""


class WorkerChannel(Protocol):
    """The line between work and whoever began it, which the function of a work is given beside its data."""

    @property
    def cores(self) -> int | None:
        """Processors that were promised to the work, where nobody binds it to them; else None."""

    def here(self, folder: str) -> str:
        """Return where the worker has a folder of the work's `WorkFiles`: there itself, or a copy."""

    def tell(self, data: bytes) -> None:
        """Send a message; from any thread, and from the handler of a signal."""

    def interrupted(self) -> signal.Signals | None:
        """Return the signal that came since the work began, while the function had no handler of its own, or None."""

    def retire(self) -> None:
        """Have the process do no further work after this one, which may have left it broken."""


class SignalLatch:
    """SIGINT and SIGTERM while nobody else looks to them: remembered, so that none is lost between two handlers."""

    def __init__(self) -> None:
        self._came: signal.Signals | None = None
        self._busy = False

    def idle(self) -> None:
        """Note that no work is at hand: SIGTERM ends this process. Called by the main thread, as the others."""
        self.remember()
        self._busy = False

    def begin(self, *, live: bool) -> None:
        """Forget what came before; from now on remember, or leave signals as they are in any other process."""
        self._came, self._busy = None, True
        if not live:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def remember(self) -> None:
        """Remember signals from now on, whatever handlers the work has put in place."""

        def note(signum: int, _: FrameType | None) -> None:
            if not self._busy and signum == signal.SIGTERM:
                os._exit(128 + signum)
            self._came = signal.Signals(signum)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, note)

    @property
    def came(self) -> signal.Signals | None:
        """The last one since `begin`."""
        return self._came


class PipeChannel:
    """The line of a local worker.

    A thread of its own writes, which no signal strikes: a message is sent whole or, where the process dies, not at all.
    """

    cores: int | None = None

    def __init__(self, connection: Connection, signals: SignalLatch) -> None:
        """Begin to send."""
        self._connection, self._signals = connection, signals
        self.retired = False
        """True if this process must do no further work."""
        self._messages: queue.SimpleQueue[bytes | Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._send, daemon=True).start()

    def ready(self) -> None:
        """Say that what is done before the first work is done."""
        self._messages.put(READY)

    def began(self) -> None:
        """Say that signals are for the work at hand from now on."""
        self._messages.put(BEGAN)

    def here(self, folder: str) -> str:
        """Return the folder itself: a local worker sees the same files."""
        return folder

    def tell(self, data: bytes) -> None:
        """Send a message."""
        self._messages.put(SAID + data)

    def interrupted(self) -> signal.Signals | None:
        """Return the signal that came, or None."""
        return self._signals.came

    def retire(self) -> None:
        """Answer with LAST_ANSWER."""
        self.retired = True

    def answer(self, data: bytes) -> None:
        """Send the answer, and wait until it is written."""
        sent = threading.Event()
        self._messages.put((LAST_ANSWER if self.retired else ANSWER) + data)
        self._messages.put(sent.set)
        sent.wait()

    def _send(self) -> None:
        while True:
            message = self._messages.get()
            if callable(message):
                message()
                continue
            try:
                self._connection.send_bytes(message)
            except OSError:  # nobody reads any more: this process is about to be ended
                os._exit(0)


_PR_SET_PDEATHSIG = 1


class WorkHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Message to a worker before the data of a work."""

    entry: str
    live: bool


def main() -> None:
    """Answer works until the connection ends, or a work retires this process."""
    descriptor = int(sys.argv[2])
    die_with(int(sys.argv[1]))
    cores = {int(core) for core in sys.argv[3].split(",") if core}
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    os.nice(int(sys.argv[4]))
    keep_niceness(os.getpid())
    signals = SignalLatch()
    signals.idle()
    for ready in sys.argv[5:]:
        with suppress(Exception):  # what is wrong is so at a work, too, which tells of it
            function_of(ready)()
    connection = Connection(descriptor)
    line = PipeChannel(connection, signals)
    line.ready()
    while True:
        try:
            begin = msgspec.json.decode(connection.recv_bytes(), type=WorkHeader)
            data = connection.recv_bytes()
        except EOFError:
            return
        signals.begin(live=begin.live)
        line.began()
        answer: bytes = function_of(begin.entry)(data, line)
        signals.remember()
        line.answer(answer)
        if line.retired:
            return


def die_with(parent: int) -> None:
    """Have the system kill this process once its parent, of that id, has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before that call
        os._exit(128 + signal.SIGKILL)


def function_of(name: str) -> Callable[..., Any]:
    """Return the function that `module:function` names; a work's takes its data and channel, and answers bytes."""
    module, _, function = name.partition(":")
    return cast(Callable[..., Any], getattr(importlib.import_module(module), function))


if __name__ == "__main__":
    main()
