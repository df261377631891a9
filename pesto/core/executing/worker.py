"""The process that does work, one after another: `python -m pesto.core.executing.worker PARENT FD CORES NICE [READY]`.

READY is a `module:function` that is called before the first work. It reads works from its connection and writes what
they tell, and their answers, to it. It dies with its parent, and what a solver started dies with it
(`solvers.process.worker`), so that a killed run leaves nothing behind.
"""

import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import cast

import msgspec

from pesto.core.executing.worker_channel import PipeChannel, SignalLatch, WorkerChannel
from solvers.process.niceness import keep_niceness

_PR_SET_PDEATHSIG = 1
Entry = Callable[[bytes, WorkerChannel], bytes]


class WorkHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is sent before the data of a work."""

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
    _serve(Connection(descriptor), *sys.argv[5:])


def die_with(parent: int) -> None:
    """Have the system kill this process once its parent, of that id, has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before that call
        os._exit(128 + signal.SIGKILL)


def entry_of(name: str) -> Entry:
    """The function of works that `module:function` names."""
    return cast(Entry, function_of(name))


def function_of(name: str) -> Callable[..., object]:
    """The function that `module:function` names."""
    module, _, function = name.partition(":")
    return cast(Callable[..., object], getattr(importlib.import_module(module), function))


def _serve(connection: Connection, ready: str = "") -> None:
    signals = SignalLatch()
    signals.idle()
    if ready:
        with suppress(Exception):  # what is wrong is so at a work, too, which tells of it
            function_of(ready)()
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
        answer = entry_of(begin.entry)(data, line)
        signals.remember()
        line.answer(answer)
        if line.retired:
            return
        signals.idle()


if __name__ == "__main__":
    main()
