"""One thread that writes: what waits is done in one transaction, and told when that is on the disk."""

import asyncio
import queue
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pesto.errors import FileError, PestoError
from pesto.files.json import shown
from pesto.serve.store.ledger import Ledger

T = TypeVar("T")
Act = Callable[[Ledger], Any]
_MOST = 256
"""Acts of one transaction, about."""


class Writer:
    """Acts on the ledger, in the order in which they come; each is answered after its transaction's commit.

    A failure of the database (the disk is full) is answered to all acts of its transaction, none of which has
    happened then; the next transaction is tried anew.
    """

    def __init__(
        self, connection: sqlite3.Connection, ledger: Ledger, committed: Callable[[set[int]], None] = lambda _: None
    ) -> None:
        """`committed` hears, in the writer's thread after a commit, the numbers of the jobs that have new events."""
        self._db, self._ledger, self._committed = connection, ledger, committed
        self._acts: queue.SimpleQueue[list[tuple[Act, Any]] | None] = queue.SimpleQueue()
        self._gathered: list[tuple[Act, Any]] = []
        self._thread = threading.Thread(target=self._write, name="writer")
        self._thread.start()

    @property
    def waiting(self) -> int:
        """About how many turns of acts are not begun."""
        return self._acts.qsize()

    def do(self, act: Callable[[Ledger], T]) -> T:
        """Have it done and wait for it: for threads, never for an event loop."""
        future: Future[T] = Future()
        self._acts.put([(act, future)])
        return future.result()

    async def asked(self, act: Callable[[Ledger], T]) -> T:
        """Have it done, in an event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if not self._gathered:
            loop.call_soon(self._hand_over)
        self._gathered.append((act, future))
        return await future

    def _hand_over(self) -> None:
        """What was asked in one turn of the loop goes together: waking the writer costs more than an act."""
        gathered, self._gathered = self._gathered, []
        self._acts.put(gathered)

    def close(self) -> None:
        """Do what waits, and end the thread."""
        self._acts.put(None)
        self._thread.join()

    def _write(self) -> None:
        going = True
        while going:
            first = self._acts.get()
            batch, going = list(first or ()), first is not None
            while going and len(batch) < _MOST and not self._acts.empty():
                more = self._acts.get()
                batch += more or ()
                going = more is not None
            if batch:
                self._transaction(batch)

    def _transaction(self, batch: list[tuple[Act, Any]]) -> None:
        answers: list[tuple[Any, Any, BaseException | None]] = []
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for act, future in batch:
                try:
                    answers.append((future, act(self._ledger), None))
                except PestoError as refused:
                    answers.append((future, None, refused))
            self._db.execute("COMMIT")
        except Exception as error:  # whatever it is, who waits must hear of it
            self._undo()
            if len(batch) > 1:  # one of them may have spoilt it for all
                for one in batch:
                    self._transaction([one])
                return
            answers = [(batch[0][1], None, _explained(error))]
        else:
            self._committed(self._ledger.told())
        _answer(answers)

    def _undo(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._ledger.reload()


def _explained(error: Exception) -> Exception:
    if not isinstance(error, sqlite3.Error):
        return error
    return FileError(f"cannot write the service's database: {shown(error)} - check the folder and the disk")


def _answer(answers: list[tuple[Any, Any, BaseException | None]]) -> None:
    """Tell who waits: threads at once, each event loop in one call."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[Any, Any, BaseException | None]]] = defaultdict(list)
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


def _tell(told: list[tuple[Any, Any, BaseException | None]]) -> None:
    for future, value, error in told:
        if future.done():  # who waited has gone
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)
