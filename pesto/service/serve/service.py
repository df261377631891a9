"""A running service: everything that its routes need, in one value, and who watches which job."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from pesto.service.serve.blobs import Blobs
from pesto.service.serve.scheduler import Scheduler
from pesto.service.serve.serve_config import ServeConfig
from pesto.service.serve.store.opening import Store
from pesto.service.serve.telemetry import AccessLog, RequestTimes
from pesto.service.serve.tokens import TokenAuthenticator


class Watchers:
    """Watchers of jobs in one event loop; `announce` alone may be called from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[int, set[asyncio.Event]] = defaultdict(set)
        self.closed = False
        self.turn = asyncio.Lock()
        """Held while one of them reads: one in each turn of the loop, so that a request waits for one, not for all."""

    @property
    def count(self) -> int:
        """Number of watchers; from any thread."""
        return sum(map(len, list(self._waiting.values())))

    def watched(self) -> list[int]:
        """Return the numbers of the jobs that somebody watches; from any thread."""
        return list(self._waiting)

    def attach(self) -> None:
        """Use the event loop that runs now."""
        self._loop = asyncio.get_running_loop()

    def announce(self, jobs: set[int]) -> None:
        """Wake the watchers of jobs, by number, that have new events."""
        if jobs and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, jobs)

    def announce_all(self) -> None:
        """Wake all watchers; from any thread."""
        self.announce(set(self.watched()))

    def join(self, job: int) -> asyncio.Event:
        """One more watches: what is set when there is something new."""
        event = asyncio.Event()
        self._waiting[job].add(event)
        return event

    def leave(self, job: int, event: asyncio.Event) -> None:
        """Remove a watcher."""
        self._waiting[job].discard(event)
        if not self._waiting[job]:
            del self._waiting[job]

    def close(self) -> None:
        """End all watches."""
        self.closed = True
        self._wake(set(self._waiting))

    def _wake(self, jobs: set[int]) -> None:
        for job in jobs:
            for event in self._waiting.get(job, ()):
                event.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Open as long as the server runs."""

    config: ServeConfig
    folder: Path
    store: Store
    blobs: Blobs
    authenticator: TokenAuthenticator
    scheduler: Scheduler
    watchers: Watchers
    access_log: AccessLog
    request_times: RequestTimes
    diffs: asyncio.Semaphore
    """Plans that are compared at a time."""

    def trouble(self) -> str:
        """Return why jobs are not taken or not run now, on one line; empty where they are."""
        if self.watchers.closed or not self.scheduler.alive:
            return "the service begins or ends"
        if not self.store.there():
            return "the database does not answer"
        return self.scheduler.trouble
