"""What workers do in tests of executors: functions that answer, tell, wait for a signal, hold memory, and die."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from pesto.core.executing.worker import WorkerChannel

PATIENCE_S = 600.0
"""Seconds after which one that waits gives up: only a hang takes them."""


def echo(data: bytes, line: WorkerChannel) -> bytes:
    """The data twice, told before, after as many messages as it says."""
    for number in range(int(data)):
        line.tell(b"%d" % number)
    return data * 2


def where(data: bytes, line: WorkerChannel) -> bytes:
    """Its process, the cores that it may use and how nice it is."""
    del data, line
    return f"{os.getpid()} {sorted(os.sched_getaffinity(0))} {os.nice(0)}".encode()


def session(data: bytes, line: WorkerChannel) -> bytes:
    """How nice its session is, where there are autogroups."""
    del data, line
    return Path("/proc/self/autogroup").read_bytes()


_PREPARED = list[int]()


def prepare() -> None:
    """Remembers in which process it was called."""
    _PREPARED.append(os.getpid())


def prepare_if() -> None:
    """Ends its process where the file that the environment names is not there."""
    if not Path(os.environ["PREPARED_IF"]).exists():
        print("no such thing", file=sys.stderr, flush=True)
        os._exit(3)


def prepared(data: bytes, line: WorkerChannel) -> bytes:
    """Its process, and those that `prepare` was called in, here."""
    del data, line
    return f"{os.getpid()} {_PREPARED}".encode()


def awaits(data: bytes, line: WorkerChannel) -> bytes:
    """Says that it is there, then answers with the first signal that comes for it."""
    del data
    line.tell(b"here")
    return _signal(line)


def retires(data: bytes, line: WorkerChannel) -> bytes:
    """Its process, which is to do no further work."""
    del data
    line.retire()
    return str(os.getpid()).encode()


def forks_and_hangs(data: bytes, line: WorkerChannel) -> bytes:
    """Tells a child in its process group that nothing ends; both mind neither SIGINT nor SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    child = os.fork()
    if child:
        line.tell(b"%d" % child)
    time.sleep(PATIENCE_S)
    return data


def sketches(data: bytes, line: WorkerChannel) -> bytes:
    """Writes results into the folder that the data names, and waits for a signal; then it has one of them alone."""
    out = Path(line.here(data.decode()))
    for name in ("sketch", "other"):
        (out / name).write_bytes(name.encode())
    line.tell(b"here")
    _signal(line)
    (out / "sketch").unlink()
    return b""


def stubborn(data: bytes, line: WorkerChannel) -> bytes:
    """Says that it is there, and minds no signal."""
    line.tell(b"here")
    time.sleep(PATIENCE_S)
    return data


def asleep(data: bytes, line: WorkerChannel) -> bytes:
    """The same with a slow beginning, in which it has not looked for a signal yet."""
    del data
    time.sleep(0.2)
    return _signal(line)


def _signal(line: WorkerChannel) -> bytes:
    until = time.monotonic() + PATIENCE_S
    while line.interrupted() is None and time.monotonic() < until:
        time.sleep(0.01)
    return str(line.interrupted()).encode()


def storm(data: bytes, line: WorkerChannel) -> bytes:
    """Tells without end until it is interrupted by a handler that raises; the message that it is at is sent whole."""

    def strike(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    sent, until = 0, time.monotonic() + PATIENCE_S
    signal.signal(signal.SIGINT, strike)
    try:
        while time.monotonic() < until:
            line.tell(b"%d " % sent + data)
            sent += 1
            time.sleep(0.001)
    except KeyboardInterrupt:
        pass
    return b"%d" % sent


def hoard(data: bytes, line: WorkerChannel) -> bytes:
    """Holds so many bytes more and more, in a process below its own, until it is killed."""
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
        held, until = [], time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if len(held) < 100:
                held.append(b"x" * int(data))
            time.sleep(0.001)
        os._exit(0)
    line.tell(b"%d" % child)
    os.waitpid(child, 0)
    return b""


def dies(data: bytes, line: WorkerChannel) -> bytes:
    """Ends without an answer, after a last line."""
    line.tell(b"before")
    time.sleep(0.05)  # what is told is written by a thread
    print("worse than ever", file=sys.stderr, flush=True)
    os._exit(int(data))


def raises(data: bytes, line: WorkerChannel) -> bytes:
    """Fails."""
    raise RuntimeError(data.decode())


def shouts(data: bytes, line: WorkerChannel) -> bytes:
    """Writes what it reads in capitals, once it is sent a signal where the data says so; answers with its folder."""
    folder, out, name, waits = (part.decode() for part in data.split(b"\n"))
    line.tell(line.here(folder).encode())
    if waits:
        _signal(line)
    Path(line.here(out), "loud").write_bytes(Path(line.here(folder), name).read_bytes().upper())
    return line.here(folder).encode()
