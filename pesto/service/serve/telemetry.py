"""The access log, a JSON object per request written by its own thread, and histograms of seconds for the metrics."""

import errno
import logging
import os
import queue
import sys
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pesto.core.errors import FileError
from pesto.core.files.json import shown

STDOUT = "-"
"""In place of a file's name."""
MOST_WAITING = 100_000
"""Lines that may wait for a disk that does not take them; beyond, they are counted, and the count is a line."""
CLOSE_S = 5.0
"""Seconds for which lines that nobody takes, as of a pipe that is not read, are waited for at the end."""
_LOG = logging.getLogger(__name__)


class AccessLog:
    """A file that others may rename or remove: it is made anew then, as log rotation wants it."""

    def __init__(self, name: str) -> None:
        """`name`: of the file, - for standard output, empty for no log. FileError when it cannot be opened."""
        self._path = None if name in ("", STDOUT) else Path(name)
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._file = 1 if name == STDOUT else -1
        self._dropped, self._fault = 0, ""
        self._thread = threading.Thread(target=self._write, name="access log", daemon=True) if name else None
        if self._path is not None:
            try:
                self._file = _opened(self._path)
            except OSError as error:
                why = "it is a pipe that nobody reads" if error.errno == errno.ENXIO else error.strerror
                what = f"cannot write {shown(self._path)}: {why}"
                raise FileError.build(f"{what}", remedy="name another file for the log of requests") from error
        if self._thread is not None:
            self._thread.start()

    @property
    def on(self) -> bool:
        """True where lines are written."""
        return self._thread is not None

    def add(self, entry: dict[str, Any]) -> None:
        """Write one object, soon; never waits for the disk."""
        if self._lines.qsize() >= MOST_WAITING:
            self._dropped += 1
            return
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._lines.put(_line({"time": iso_time(time.time()), "dropped": dropped}))
        self._lines.put(_line(entry))

    def close(self) -> None:
        """Write what waits, and end; what nobody takes within CLOSE_S is lost."""
        if self._thread is not None:
            self._lines.put(None)
            self._thread.join(CLOSE_S)
            if self._thread.is_alive():
                _LOG.error("lines of the log of requests are lost: nobody takes them")
                return
        if self._path is not None:
            os.close(self._file)

    def _write(self) -> None:
        going = True
        while going:
            first = self._lines.get()
            batch, going = [first or b""], first is not None
            while going and not self._lines.empty() and len(batch) < 1000:
                more = self._lines.get()
                batch.append(more or b"")
                going = more is not None
            try:
                if self._path is not None:
                    # Make the file anew where its name is of another one by now, or of none.
                    mine = os.fstat(self._file)
                    try:
                        there = self._path.stat()
                    except FileNotFoundError:
                        there = None
                    if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
                        fresh = _opened(self._path)
                        os.close(self._file)
                        self._file = fresh
                file = self._file
                data = b"".join(batch)
                if file == 1:
                    sys.stdout.flush()
                view = memoryview(data)
                while view:
                    view = view[os.write(file, view) :]
                self._fault = ""
            except OSError as error:
                if str(error) != self._fault:
                    _LOG.error("lines of the log of requests are lost: %s", error)
                self._fault = str(error)


def iso_time(seconds: float) -> str:
    """Return a time since 1970 as 2026-11-27T09:30:00.125Z."""
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{milliseconds:03d}Z"


def _opened(path: Path) -> int:
    """Open a file to append to, and make it if there is none; OSError at once for a pipe that nobody reads."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    os.set_blocking(file, True)
    return file


def _line(entry: dict[str, Any]) -> bytes:
    return msgspec.json.encode(entry) + b"\n"


REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds for requests."""
JOB_S = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0)
"""Upper bounds for jobs."""

OTHER = "other"
"""The label of what is no route, and of methods that no route has."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


class Histogram:
    """Counts of values in classes; one thread adds, others may read at any moment."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: upper bounds of all classes but the last, which has none."""
        self._bounds, self._counts, self.sum = tuple(bounds), [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulated(self) -> list[tuple[str, float]]:
        """Return for each upper bound, as Prometheus writes it, how many values are at most that."""
        total, counts = 0, list[tuple[str, float]]()
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            counts.append((bound, total))
        return counts


class RequestTimes:
    """Seconds of requests by method, route and status; a stream's are those of its whole length."""

    def __init__(self) -> None:
        self.by_labels: dict[tuple[str, str, str], Histogram] = defaultdict(lambda: Histogram(REQUEST_S))

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        named = method if method in _METHODS else OTHER
        self.by_labels[named, route or OTHER, str(status)].add(seconds)
