"""The service's store, open: its writer, its reader, and who waits."""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pesto.core.distribution import install_command
from pesto.core.errors import SolverError
from pesto.core.files.lock import LockKind, hold_lock
from pesto.service.protocol.job_states import State
from pesto.service.serve.store.beside import Watched, Works
from pesto.service.serve.store.group_commit import Writer
from pesto.service.serve.store.job_records import Job
from pesto.service.serve.store.ledger import Ledger
from pesto.service.serve.store.readings import Readings
from pesto.service.serve.store.sqlite_file import FILE, connected, explained_damage, reading
from pesto.service.serve.store.waiting import RecentWaiting, Waiting

# Questions of the event loop to the store: answered at once by SQLite, in another thread by a database elsewhere.

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


_LOCK = LockKind("service", "server", "give another --data")
Committed = Callable[[set[int]], None]
"""Hears, after a commit, the numbers of the jobs that have new events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """What the service remembers."""

    writer: Writer
    readings: Readings
    """For the thread that opened it, before requests are answered."""
    reader: Reader
    """For the event loop."""
    there: Callable[[], bool]
    """Whether the database answers, as far as is known."""
    beside: Callable[[Works, Watched], AbstractContextManager[object]]
    """What must go on as long as jobs run here."""


@contextmanager
def opened_store(folder: Path, database: str, committed: Committed) -> Iterator[Store]:
    """The store of a server. `database`: an address of PostgreSQL; empty for SQLite in the folder.

    As `of_one_server` and `of_several_servers`.
    """
    way = of_several_servers(folder, database, committed) if database else of_one_server(folder, committed)
    with way as store:
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
        everybody = connection.crowd()
        with explained_damage(folder / FILE):
            ledger = Ledger(connection, crowd=everybody)
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
            writer=writer, readings=readings, reader=reader, there=lambda: True, beside=lambda _, __: nullcontext()
        )


@contextmanager
def of_several_servers(folder: Path, database: str, committed: Committed) -> Iterator[Store]:
    """PostgreSQL; the folder is one that all its servers share.

    UsageError for what is no address, for tables of a newer version, and for another folder than the database's;
    AwayError when it cannot be reached; SolverError where psycopg is not installed.
    """
    try:
        from pesto.service.serve.store.postgres.address import addressed
        from pesto.service.serve.store.postgres.leases import Leases
        from pesto.service.serve.store.postgres.session import MIGRATE_S, READ_S, Session
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
        written, read, beside = (
            Session(address, server, turns=True), Session(address, server, answer_s=READ_S), Session(address, server)
        )  # fmt: skip
        for session in (written, read, beside):
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
            there=lambda: written.there and read.there and beside.there,
            beside=lambda works, watched: closing(Leases(beside, mend, server, works, watched)),
        )
