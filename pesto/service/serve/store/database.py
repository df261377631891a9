"""The database as the ledger uses it: SQLite for one server, PostgreSQL for several; rules are the ledger's."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from pesto.core.errors import FileError

L = TypeVar("L")
T = TypeVar("T")
AGAIN_S = 2
"""Seconds after which a request may be sent again that found no database."""


class LaterError(FileError):
    """The database cannot do it now; a later try may succeed."""


class AwayError(LaterError):
    """The database does not answer now, and nothing of the request has happened."""


class UncertainError(LaterError):
    """The database went away during a commit: whether what was asked has happened is known once it is back."""

    def __init__(self, happened: Callable[[], bool], value: Any = None) -> None:
        """`happened`: to be asked within a later transaction. `value`: what the act gives if so."""
        super().__init__("the database went away while it was written")
        self.remedy = "send the request again, with its key"
        self._happened, self._value = happened, value

    def holding(self, value: Any) -> Self:
        """Return the same of one act, with its value."""
        return type(self)(self._happened, value)

    def again(self, act: Callable[[L], T]) -> Callable[[L], T]:
        """Return the act (on a ledger), done only if it has not happened."""
        return lambda ledger: self._value if self._happened() else act(ledger)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDialect:
    """SQL in which the databases differ; parameters are `?` in both."""

    by_turn: str
    """Text after `FROM jobs` in queries of queued jobs by token."""
    locked: str
    """End of a SELECT of rows that are then changed."""
    unless_locked: str
    """The same, for a row that nobody else is changing."""
    left: str
    """Query of (number, attempt) of jobs whose server is gone."""
    left_why: str
    """Message of such a job."""


class Rows(Protocol):
    """Rows that a statement returns."""

    @property
    def rowcount(self) -> int:
        """Number of rows that it changed."""

    def fetchone(self) -> Any:
        """Return the next row; None after the last."""

    def fetchall(self) -> list[Any]:
        """Return all rows."""

    def __iter__(self) -> Iterator[Any]:
        """Yield row by row."""


class Queryable(Protocol):
    """A database that executes statements."""

    def execute(self, sql: str, given: Sequence[Any] = (), /) -> Rows:
        """Execute one statement."""


class QueueStats(Protocol):
    """Queued and running jobs, as of this moment of a transaction."""

    @property
    def running(self) -> Mapping[str, int]:
        """Running jobs by token; none of a token that has none."""

    def queued_of(self, token: str) -> int:
        """Return the number of a token's queued jobs."""

    def __len__(self) -> int:
        """Return the number of queued jobs."""

    def may_begin(self, token: str, most: int) -> bool:
        """Return True if one more of a token's jobs may run, of `most`."""

    def reload(self, database: Queryable) -> None:
        """Count anew, at the start and after a rollback."""

    def join(self, token: str, priority: int, number: int) -> None:
        """Count one more queued job of a token."""

    def leave(self, token: str, priority: int, number: int) -> None:
        """Count one queued job less."""

    def begin(self, token: str) -> None:
        """Count one more running job."""

    def end(self, token: str) -> None:
        """Count one running job less."""


class Database(Queryable, Protocol):
    """One connection, of one thread at a time; acts happen between `begin` and `commit`."""

    dialect: SqlDialect

    def executemany(self, sql: str, given: Sequence[Sequence[Any]], /) -> Any:
        """Execute one statement with each of these."""

    def begin(self) -> None:
        """Begin a transaction. AwayError when there is nobody to begin it with."""

    def commit(self) -> Any:
        """Make the transaction durable. UncertainError when nobody answered."""

    def undo(self) -> None:
        """Undo everything since `begin`."""

    def explained(self, error: Exception) -> Exception:
        """Return an error as it is shown: one line and a remedy where it is the database's."""

    def queue_stats(self) -> QueueStats:
        """Return the queued and running jobs, for one ledger."""

    def alone(self) -> None:
        """Keep other servers from taking in jobs or files, or removing files, until the transaction ends."""

    def lease(self, number: int, attempt: int) -> None:
        """Give this server the lease of a job's attempt."""

    def release_lease(self, number: int) -> None:
        """End the lease of a job."""

    def shrink(self, pages: int) -> int:
        """Give the disk so many free pages at most, within a transaction; return how many are left."""
