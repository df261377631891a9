"""Who watches which job: woken when it has told something new, which the watcher then reads from the store."""

import asyncio
from collections import defaultdict


class Watchers:
    """Of one event loop; `told` alone may be called from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[int, set[asyncio.Event]] = defaultdict(set)
        self.closed = False
        self.turn = asyncio.Lock()
        """Held while one of them reads: one in each turn of the loop, so that a request waits for one, not for all."""

    @property
    def count(self) -> int:
        """How many watch."""
        return sum(map(len, self._waiting.values()))

    def watched(self) -> list[int]:
        """The numbers of the jobs that somebody watches; from any thread."""
        return list(self._waiting)

    def attach(self) -> None:
        """Belong to the loop that runs now."""
        self._loop = asyncio.get_running_loop()

    def told(self, jobs: set[int]) -> None:
        """Jobs, by number, have new events."""
        if jobs and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, jobs)

    def told_all(self) -> None:
        """Have everybody look who watches; from any thread."""
        self.told(set(self.watched()))

    def join(self, job: int) -> asyncio.Event:
        """One more watches: what is set when there is something new."""
        event = asyncio.Event()
        self._waiting[job].add(event)
        return event

    def leave(self, job: int, event: asyncio.Event) -> None:
        """One less watches."""
        self._waiting[job].discard(event)
        if not self._waiting[job]:
            del self._waiting[job]

    def close(self) -> None:
        """Send everybody home."""
        self.closed = True
        self._wake(set(self._waiting))

    def _wake(self, jobs: set[int]) -> None:
        for job in jobs:
            for event in self._waiting.get(job, ()):
                event.set()
