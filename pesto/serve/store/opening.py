"""The service's store, open: its writer, its reader, and who waits."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pesto.files.lock import Kind, held
from pesto.serve.store.group_commit import Writer
from pesto.serve.store.ledger import Ledger
from pesto.serve.store.readings import Readings
from pesto.serve.store.sqlite_file import FILE, connected, reading
from pesto.serve.store.waiting import Waiting

_LOCK = Kind("service", "server", "give another --data")
Committed = Callable[[set[int]], None]
"""Hears, after a commit, the numbers of the jobs that have new events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """What the service remembers."""

    writer: Writer
    readings: Readings
    """For the event loop's thread."""
    waiting: Callable[[], Waiting]
    """Who waits and who runs, as of now or of a moment ago."""


@contextmanager
def of_one_server(folder: Path, committed: Committed) -> Iterator[Store]:
    """SQLite in a folder that no other server may use meanwhile; what ran before is queued again.

    UsageError when the folder is another server's, or of another version; FileError when it cannot be written to.
    """
    with ExitStack() as stack:
        stack.enter_context(held(folder / FILE, _LOCK))
        connection = connected(folder)
        stack.callback(connection.close)
        everybody = connection.crowd()
        writer = Writer(connection, Ledger(connection, crowd=everybody), committed)
        stack.callback(writer.close)
        writer.do(lambda ledger: ledger.recover())
        read = reading(folder)
        stack.callback(read.close)
        yield Store(writer=writer, readings=Readings(read), waiting=lambda: everybody)
