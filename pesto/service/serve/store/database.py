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
    """The database cannot do it now; it may be asked again."""


class AwayError(LaterError):
    """The database does not answer now, and nothing of what was asked has happened."""


class UncertainError(LaterError):
    """The database went away during a commit: whether what was asked has happened is known once it is back."""

    def __init__(self, happened: Callable[[], bool], value: Any = None) -> None:
        """`happened`: to be asked within a later transaction. `value`: what the act gives if so."""
        super().__init__("the database went away while it was written")
        self._remedy = "send the request again, with its key"
        self._happened, self._value = happened, value

    def holding(self, value: Any) -> Self:
        """The same of one act, with its value."""
        return type(self)(self._happened, value)

    def again(self, act: Callable[[L], T]) -> Callable[[L], T]:
        """The act (on a ledger), done only if it has not happened."""
        return lambda ledger: self._value if self._happened() else act(ledger)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDialect:
    """SQL wherein the databases differ; parameters are `?` in both."""

    by_turn: str
    """After `FROM jobs`, where waiting jobs are asked for by token."""
    locked: str
    """At the end of a SELECT of rows that are then changed."""
    unless_locked: str
    """The same, of a row that nobody else is changing."""
    left: str
    """Rows (number, attempt) of jobs whose server is gone."""
    left_why: str
    """Message of such a job."""


class Rows(Protocol):
    """Rows that a statement returns."""

    @property
    def rowcount(self) -> int:
        """Rows that it changed."""

    def fetchone(self) -> Any:
        """The next row; None after the last."""

    def fetchall(self) -> list[Any]:
        """All rows."""

    def __iter__(self) -> Iterator[Any]:
        """Row by row."""


class Queryable(Protocol):
    """A database that answers questions."""

    def execute(self, sql: str, given: Sequence[Any] = (), /) -> Rows:
        """Have one statement done."""


class QueueStats(Protocol):
    """Queued and running jobs, as of this moment of a transaction."""

    @property
    def running(self) -> Mapping[str, int]:
        """Running jobs by token; none of a token that has none."""

    def queued_of(self, token: str) -> int:
        """A token's waiting jobs."""

    def __len__(self) -> int:
        """All waiting jobs."""

    def may_begin(self, token: str, most: int) -> bool:
        """Return True if one more of a token's jobs may run, of `most`."""

    def reload(self, database: Queryable) -> None:
        """Begin anew, at the start and after a rollback."""

    def join(self, token: str, priority: int, number: int) -> None:
        """One more waits."""

    def leave(self, token: str, priority: int, number: int) -> None:
        """One less waits."""

    def begin(self, token: str) -> None:
        """One more runs."""

    def end(self, token: str) -> None:
        """One less runs."""


class Database(Queryable, Protocol):
    """One connection, of one thread at a time; acts happen between `begin` and `commit`."""

    dialect: SqlDialect

    def executemany(self, sql: str, given: Sequence[Sequence[Any]], /) -> Any:
        """Have one statement done with each of these."""

    def begin(self) -> None:
        """Begin a transaction. AwayError when there is nobody to begin it with."""

    def commit(self) -> Any:
        """Have it last. UncertainError when nobody answered."""

    def undo(self) -> None:
        """Forget what was done since `begin`."""

    def explained(self, error: Exception) -> Exception:
        """An error as it is told: one line and a remedy where it is the database's."""

    def queue_stats(self) -> QueueStats:
        """Return the queued and running jobs, for one ledger."""

    def alone(self) -> None:
        """From here to the end of the transaction no other server takes in jobs or files, or removes files."""

    def lease(self, number: int, attempt: int) -> None:
        """A job's attempt is this server's."""

    def release_lease(self, number: int) -> None:
        """A job runs no more."""

    def shrink(self, pages: int) -> int:
        """Give the disk so many free pages at most, within a transaction; return how many are left."""
