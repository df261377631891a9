"""Child processes of this project: their start, their last words, the pipe that wakes a waiter, and memory in use."""

import os
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO

from pesto.core.files.json import shown

_TAIL = 4096


def start_process(module: str, *words: object) -> tuple[Connection, IO[bytes], "subprocess.Popen[bytes]"]:
    """Run a module as a process, with this one's id and its end of a connection before the words.

    Return this one's end, the file of all that it writes, and the process.
    """
    ours, theirs = Pipe()
    # The project is importable from where it is.
    home = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
    output: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed by whoever ends the process
    with theirs:
        # -P: a file in the working directory must not shadow a module. A session of its own: Ctrl-C is not for it.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *map(str, (os.getpid(), theirs.fileno(), *words))],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {"PYTHONPATH": path},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return ours, output, process


def last_line(output: IO[bytes]) -> str:
    """Return the last line that a process wrote and that is not empty, fit to be shown; empty for none."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL))
    lines = [line for line in output.read().decode("utf-8", "replace").split("\n") if line.strip()]
    return shown(lines[-1].strip()) if lines else ""


class WakeupPipe:
    """Wakes a thread that waits for connections: `reader` is ready from the first `wake` until `clear`."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        for end in (self.reader, self._writer):
            end.setblocking(False)

    def wake(self) -> None:
        """Make the reader ready; from any thread."""
        with suppress(OSError):  # it is full, and so ready, or closed
            self._writer.send(b"!")

    def clear(self) -> None:
        """Empty the pipe."""
        with suppress(OSError):
            while self.reader.recv(4096):
                pass

    def close(self) -> None:
        """Close both ends."""
        self._writer.close()
        self.reader.close()


_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(roots: Iterable[int]) -> dict[int, int]:
    """Return the resident bytes of each process and of all below it, added up: shared pages are counted repeatedly.

    0 where the system does not tell.
    """
    below, held = defaultdict[int, list[int]](list), dict[int, int]()
    for entry in os.listdir(_PROC) if _PROC.is_dir() else ():  # noqa: PTH208  # names alone
        if entry.isdigit():
            with suppress(OSError):  # it has ended
                row = (_PROC / entry / "stat").read_text().rpartition(")")[2].split()
                below[int(row[1])].append(int(entry))
                held[int(entry)] = int(row[21]) * _PAGE
    total: dict[int, int] = {}
    for root in roots:
        total[root], left = 0, [root]
        while left:
            pid = left.pop()
            total[root] += held.get(pid, 0)
            left += below.get(pid, [])
    return total


def usable_memory_bytes() -> int:
    """Return the memory of this machine, or less where control groups (containers, systemd) limit this process."""
    limits = [os.sysconf("SC_PHYS_PAGES") * _PAGE]
    try:
        rows = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:  # not Linux
        rows = []
    # The limits of this process's control group and of all above it, in versions 1 and 2 of cgroups.
    for row in rows:
        controllers, _, path = row.partition(":")[2].partition(":")
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        root, name = (_CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (_CGROUPS, "memory.max")
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):  # in a container the path may be of the host: its root is there
            with suppress(OSError, ValueError):  # no such group, or "max"
                limits.append(int((folder / name).read_text()))
            if folder == root:
                break
    return min(limits)
