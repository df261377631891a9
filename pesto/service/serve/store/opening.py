"""The open store: one writer thread with group commit, a reader, and the queue in memory."""

import asyncio
import os
import queue
import secrets
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pesto.core.distribution import install_command
from pesto.core.errors import PestoError, SolverError
from pesto.core.files.lock import LockKind, hold_lock
from pesto.service.protocol import State
from pesto.service.serve.store.database import Database, LaterError, UncertainError
from pesto.service.serve.store.job_records import Job, RunningJobs, WatchedJobs
from pesto.service.serve.store.ledger import Ledger
from pesto.service.serve.store.readings import Readings
from pesto.service.serve.store.sqlite_file import FILE, connected, explained_damage, reading
from pesto.service.serve.store.waiting import RecentWaiting, Waiting

T = TypeVar("T")
Act = Callable[[Ledger], Any]
_Answer = tuple[Any, Any, BaseException | None]
"""A future with its value or its error."""
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
        """About the number of acts that are not begun."""
        return self._acts.qsize()

    def do(self, act: Callable[[Ledger], T]) -> T:
        """Do an act and return its value: for threads, never for an event loop."""
        future: Future[T] = Future()
        self._acts.put((act, future))
        return future.result()

    async def ask(self, act: Callable[[Ledger], T]) -> T:
        """Do an act and return its value, in an event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._acts.put((act, future))
        return await future

    def probe(self) -> None:
        """Try the database where nothing waits for it: one that was away is connected to again."""
        if not self._acts.qsize():
            self._acts.put((lambda _: None, Future()))

    def close(self) -> None:
        """Do the acts that wait, and end the thread."""
        self._acts.put(None)
        self._thread.join()

    def _write(self) -> None:
        act = self._acts.get()
        while act is not None:
            batch = [act]
            while len(batch) < _MOST and not self._acts.empty():
                act = self._acts.get()
                if act is None:
                    self._acts.put(None)  # end after this batch
                    break
                batch.append(act)
            self._transaction(batch)
            act = self._acts.get()

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
            self._committed(self._ledger.changed_jobs())
            _answer(answers)

    def _failed(self, batch: list[tuple[Act, Any]], answers: list[_Answer], error: Exception) -> None:
        """Undo a transaction; where one of its acts may have spoilt it for all, do them one by one."""
        reason = self._db.explained(error)
        try:
            self._db.undo()
            self._ledger.reload()
        except Exception as other:  # the database cannot even be asked
            reason = self._db.explained(other)
        if isinstance(reason, UncertainError):
            _answer([(future, None, refused or reason.holding(value)) for future, value, refused in answers])
        elif isinstance(reason, LaterError) or len(batch) == 1:
            _answer([(future, None, reason) for _, future in batch])
        else:
            for pair in batch:
                self._transaction([pair])


def _answer(answers: list[_Answer]) -> None:
    """Resolve the futures: of threads at once, of each event loop in one call."""

    def tell(group: list[_Answer]) -> None:
        for future, value, error in group:
            if future.done():  # who waited has gone
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

    loops: dict[asyncio.AbstractEventLoop, list[_Answer]] = defaultdict(list)
    for future, value, error in answers:
        if isinstance(future, asyncio.Future):
            loops[future.get_loop()].append((future, value, error))
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)
    for loop, group in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, group)


# Questions of the event loop to the store: answered at once by SQLite, in another thread by a database elsewhere.


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

    async def ask(self, ask: Callable[[Readings], T]) -> T:
        """Return what `ask` gives. LaterError while the database does not answer."""
        if self._thread is None:
            return ask(self._readings)
        return await asyncio.get_running_loop().run_in_executor(self._thread, ask, self._readings)

    async def ask_slow(self, ask: Callable[[Readings, Waiting], T]) -> T:
        """Return what `ask` gives, which takes milliseconds; never in the event loop's thread."""

        def answer() -> T:
            return ask(self._lists, self._waiting())

        return await asyncio.get_running_loop().run_in_executor(self._lister, answer)

    async def place(self, job: Job) -> int | None:
        """As `Readings.place`."""
        if job.state != State.QUEUED:
            return None
        return await self.ask(lambda store: store.place(job, self._waiting()))

    async def waiting(self) -> Waiting:
        """Return who waits and who runs, as of now or of a moment ago."""
        return await self.ask(lambda _: self._waiting())

    def close(self) -> None:
        """Wait for the question that is being answered, and end the thread."""
        self._lister.shutdown(cancel_futures=True)


_LOCK = LockKind("service", "server", "give another --data")
Committed = Callable[[set[int]], None]
"""Hears, after a commit, the numbers of the jobs that have new events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The open store of a service."""

    writer: Writer
    readings: Readings
    """For the thread that opened it, before requests are answered."""
    reader: Reader
    """For the event loop."""
    there: Callable[[], bool]
    """Return True if the database answers, as far as is known."""
    background: Callable[[RunningJobs, WatchedJobs], AbstractContextManager[object]]
    """Context manager of background work, such as renewing leases."""


@contextmanager
def opened_store(folder: Path, database: str, committed: Committed) -> Iterator[Store]:
    """The store of a server. `database`: an address of PostgreSQL; empty for SQLite in the folder.

    As `of_one_server` and `of_several_servers`.
    """
    store_of = of_several_servers(folder, database, committed) if database else of_one_server(folder, committed)
    with store_of as store:
        yield store


@contextmanager
def of_one_server(folder: Path, committed: Committed) -> Iterator[Store]:
    """SQLite in a folder that no other server may use meanwhile; what ran before is queued again.

    UsageError when the folder is another server's, or of a newer version; FileError when it cannot be written to.
    """
    with ExitStack() as stack:
        stack.enter_context(hold_lock(folder / FILE, _LOCK))
        connection = connected(folder)
        stack.callback(connection.close)
        everybody = connection.queue_stats()
        with explained_damage(folder / FILE):
            ledger = Ledger(connection, stats=everybody)
        writer = Writer(connection, ledger, committed)
        stack.callback(writer.close)
        writer.do(lambda ledger: ledger.recover())
        read = reading(folder)
        stack.callback(read.close)
        readings = Readings(read)
        lists = stack.enter_context(closing(reading(folder)))
        reader = Reader(readings, lambda: everybody, apart=False, lists=Readings(lists))
        stack.callback(reader.close)
        yield Store(
            writer=writer, readings=readings, reader=reader, there=lambda: True, background=lambda _, __: nullcontext()
        )


@contextmanager
def of_several_servers(folder: Path, database: str, committed: Committed) -> Iterator[Store]:
    """PostgreSQL; the folder is one that all its servers share.

    UsageError for what is no address, for tables of a newer version, and for another folder than the database's;
    AwayError when it cannot be reached; SolverError where psycopg is not installed.
    """
    try:
        from pesto.service.serve.store.postgres.leases import Leases
        from pesto.service.serve.store.postgres.session import MIGRATE_S, READ_S, Session, addressed
        from pesto.service.serve.store.postgres.shared_tables import prepare
    except ImportError as error:
        raise SolverError.build(
            f"--database needs {error.name}", remedy=f"{install_command('serve-postgres')}"
        ) from error
    address = addressed(database)
    server = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        with closing(Session(address, server, answer_s=MIGRATE_S)) as first:
            prepare(first, folder, address.where)
        written, read, leasing = (
            Session(address, server, turns=True), Session(address, server, answer_s=READ_S), Session(address, server)
        )  # fmt: skip
        for session in (written, read, leasing):
            stack.enter_context(closing(session)).connect()
        writer = Writer(written, Ledger(written), committed)
        stack.callback(writer.close)
        readings = Readings(read)
        reader = Reader(readings, RecentWaiting(read), apart=True)
        stack.callback(reader.close)

        def mend() -> None:
            read.connect()
            if not written.there:
                writer.probe()

        yield Store(
            writer=writer,
            readings=readings,
            reader=reader,
            there=lambda: written.there and read.there and leasing.there,
            background=lambda works, watched: closing(Leases(leasing, mend, server, works, watched)),
        )
