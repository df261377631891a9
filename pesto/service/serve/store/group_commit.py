"""Single writer thread with group commit: batches waiting acts into one transaction, then answers them."""

import asyncio
import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pesto.core.errors import PestoError
from pesto.service.serve.store.database import Database, LaterError, UncertainError
from pesto.service.serve.store.ledger import Ledger

T = TypeVar("T")
Act = Callable[[Ledger], Any]
_Answer = tuple[Any, Any, BaseException | None]
"""Who waits, for what, or why not."""
_MOST = 256
"""Most acts of one transaction."""


class Writer:
    """Acts on the ledger, in the order in which they come; each is answered after its transaction's commit.

    A failure of the database (the disk is full, nobody answers) is told to all acts of its transaction, none of which
    has happened then, or to each that nobody knows it (`UncertainError`); the next transaction is tried anew.
    """

    def __init__(
        self, database: Database, ledger: Ledger, committed: Callable[[set[int]], None] = lambda _: None
    ) -> None:
        """`committed` hears, in the writer's thread after a commit, the numbers of the jobs that have new events."""
        self._db, self._ledger, self._committed = database, ledger, committed
        self._acts: queue.SimpleQueue[tuple[Act, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="writer")
        self._thread.start()

    @property
    def waiting(self) -> int:
        """About how many acts are not begun."""
        return self._acts.qsize()

    def do(self, act: Callable[[Ledger], T]) -> T:
        """Have it done and wait for it: for threads, never for an event loop."""
        future: Future[T] = Future()
        self._acts.put((act, future))
        return future.result()

    async def asked(self, act: Callable[[Ledger], T]) -> T:
        """Have it done, in an event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._acts.put((act, future))
        return await future

    def probe(self) -> None:
        """Try the database where nothing waits for it: one that was away is connected to again."""
        if not self._acts.qsize():
            self._acts.put((lambda _: None, Future()))

    def close(self) -> None:
        """Do what waits, and end the thread."""
        self._acts.put(None)
        self._thread.join()

    def _write(self) -> None:
        while batch := self._next_batch():
            self._transaction(batch)

    def _next_batch(self) -> list[tuple[Act, Any]]:
        """Wait for an act and take those behind it too; the batch is empty once the writer is closed."""
        batch: list[tuple[Act, Any]] = []
        act = self._acts.get()
        while act is not None:
            batch.append(act)
            if len(batch) == _MOST or self._acts.empty():
                return batch
            act = self._acts.get()
        if batch:
            self._acts.put(None)  # end at the next turn
        return batch

    def _transaction(self, batch: list[tuple[Act, Any]]) -> None:
        answers: list[_Answer] = []
        try:
            self._db.begin()
            for act, future in batch:
                try:
                    answers.append((future, act(self._ledger), None))
                except PestoError as refused:
                    if isinstance(refused, LaterError):
                        raise
                    answers.append((future, None, refused))
            self._db.commit()
        except Exception as error:  # whatever it is, who waits must hear of it
            self._failed(batch, answers, error)
        else:
            self._committed(self._ledger.told())
            _answer(answers)

    def _failed(self, batch: list[tuple[Act, Any]], answers: list[_Answer], error: Exception) -> None:
        """Undo a transaction; where one of its acts may have spoilt it for all, do them one by one."""
        said = self._db.explained(error)
        try:
            self._db.undo()
            self._ledger.reload()
        except Exception as other:  # the database cannot even be asked
            said = self._db.explained(other)
        if isinstance(said, UncertainError):
            _answer([(future, None, refused or said.holding(value)) for future, value, refused in answers])
        elif isinstance(said, LaterError) or len(batch) == 1:
            _answer([(future, None, said) for _, future in batch])
        else:
            for one in batch:
                self._transaction([one])


def _answer(answers: list[_Answer]) -> None:
    """Tell who waits: threads at once, each event loop in one call."""
    loops: dict[asyncio.AbstractEventLoop, list[_Answer]] = defaultdict(list)
    for future, value, error in answers:
        if isinstance(future, asyncio.Future):
            loops[future.get_loop()].append((future, value, error))
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)
    for loop, told in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_tell, told)


def _tell(told: list[_Answer]) -> None:
    for future, value, error in told:
        if future.done():  # who waited has gone
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)
