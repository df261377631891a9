"""Questions of the event loop to the store: answered at once by SQLite, in another thread by a database elsewhere."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pesto.service.protocol.job_states import State
from pesto.service.serve.store.job_records import Job
from pesto.service.serve.store.readings import Readings
from pesto.service.serve.store.waiting import Waiting

T = TypeVar("T")


class Reader:
    """Asks `Readings` for an event loop, which a database that does not answer must not hold up."""

    def __init__(
        self, readings: Readings, waiting: Callable[[], Waiting], *, apart: bool, lists: Readings | None = None
    ) -> None:
        """`apart`: whether questions are asked in a thread of their own, one at a time.

        lists: for lists, which are always asked for in another thread; by default the same connection.
        """
        self._readings, self._waiting = readings, waiting
        self._thread = ThreadPoolExecutor(1, "reader") if apart else None
        self._lists = readings if lists is None else lists
        self._lister = ThreadPoolExecutor(1, "lister") if self._thread is None else self._thread

    async def asked(self, ask: Callable[[Readings], T]) -> T:
        """Return what `ask` gives. LaterError while the database does not answer."""
        if self._thread is None:
            return ask(self._readings)
        return await asyncio.get_running_loop().run_in_executor(self._thread, ask, self._readings)

    async def listed(self, ask: Callable[[Readings, Waiting], T]) -> T:
        """Return what `ask` gives, which takes milliseconds; never in the event loop's thread."""

        def answer() -> T:
            return ask(self._lists, self._waiting())

        return await asyncio.get_running_loop().run_in_executor(self._lister, answer)

    async def place(self, job: Job) -> int | None:
        """As `Readings.place`."""
        if job.state != State.QUEUED:
            return None
        return await self.asked(lambda store: store.place(job, self._waiting()))

    async def waiting(self) -> Waiting:
        """Return who waits and who runs, as of now or of a moment ago."""
        return await self.asked(lambda _: self._waiting())

    def close(self) -> None:
        """Wait for the question that is being answered, and end the thread."""
        self._lister.shutdown(cancel_futures=True)
