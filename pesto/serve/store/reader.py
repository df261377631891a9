"""Questions of the event loop to the store: answered at once by SQLite, in another thread by a database elsewhere."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pesto.serve.store.readings import Readings
from pesto.serve.store.waiting import Waiting

T = TypeVar("T")


class Reader:
    """Asks `Readings` for an event loop, which a database that does not answer must not hold up."""

    def __init__(self, readings: Readings, waiting: Callable[[], Waiting], *, apart: bool) -> None:
        """`apart`: whether questions are asked in a thread of their own, one at a time."""
        self._readings, self._waiting = readings, waiting
        self._thread = ThreadPoolExecutor(1, "reader") if apart else None

    async def asked(self, ask: Callable[[Readings], T]) -> T:
        """Return what `ask` gives. LaterError while the database does not answer."""
        if self._thread is None:
            return ask(self._readings)
        return await asyncio.get_running_loop().run_in_executor(self._thread, ask, self._readings)

    async def waiting(self) -> Waiting:
        """Return who waits and who runs, as of now or of a moment ago."""
        return await self.asked(lambda _: self._waiting())

    def close(self) -> None:
        """Wait for the question that is being answered, and end the thread."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
