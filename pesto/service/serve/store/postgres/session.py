"""One PostgreSQL connection that is made again when it breaks, with a limit on every wait."""

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.service.serve.refusals import RefusedError
from pesto.service.serve.store.database import AwayError, LaterError, Queryable, SqlDialect, UncertainError
from pesto.service.serve.tokens import MACHINE

T = TypeVar("T")


class LimitedConnection(psycopg.Connection[Any]):
    """As psycopg's, but closed by a statement that was not answered within `answer_s` seconds.

    A server that is stopped, or cut off, does not keep its own `statement_timeout`.
    """

    answer_s = 12.0

    def wait(self, gen: Generator[Any, Any, T], *given: Any, **named: Any) -> T:
        """Wait for a statement. OperationalError after `answer_s` seconds without an answer."""
        try:
            return super().wait(_limited(gen, self.answer_s), *given, **named)
        except _SlowError as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {self.answer_s:g} s") from error


class _SlowError(Exception):
    """There was no answer in time."""


def _limited(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """Return the generator, which is sent a false value each time that psycopg has waited for its socket in vain."""
    until, ready = time.monotonic() + seconds, None
    while True:
        try:
            waits_for = gen.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value
        ready = yield waits_for
        if not ready and time.monotonic() >= until:
            raise _SlowError


SCHEMES = ("postgresql://", "postgres://")
CONNECT_S = 3
"""Seconds within which a connection must be made."""
_USUAL: dict[str, str | int] = {
    "application_name": "pesto serve", "client_encoding": "utf8", "connect_timeout": CONNECT_S,
    "tcp_user_timeout": 5000, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3,
}  # fmt: skip
"""Options of a connection unless the address sets them: a server that is gone is noticed within seconds."""


@dataclass(frozen=True, slots=True)
class Address:
    """A database of a PostgreSQL server."""

    conninfo: str = field(repr=False)
    """For libpq, with the password if there is one."""
    where: str
    """For people: host:port/name."""
    password: str = field(repr=False)

    def said(self, error: BaseException) -> str:
        """Return the first line of what an error says, without the password."""
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return shown(line.replace(self.password, "***") if self.password else line)


def addressed(url: str) -> Address:
    """Read an address. UsageError, without a word of it, for what is none."""
    remedy = "write postgresql://USER@HOST:5432/NAME, the password in PGPASSWORD or ~/.pgpass"
    if not url.startswith(SCHEMES):
        raise UsageError.build("the database's address is none of PostgreSQL", remedy=remedy)
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        raise UsageError.build("the database's address cannot be read", remedy=remedy) from None
    conninfo = make_conninfo("", **(_USUAL | {key: value for key, value in parts.items() if value is not None}))
    host, port, name = (parts.get(key) for key in ("host", "port", "dbname"))
    where = f"{host or 'localhost'}:{port or 5432}/{name or parts.get('user') or ''}"
    return Address(conninfo, shown(where), str(parts.get("password") or ""))


# Who waits and who runs, counted by the database: exact within a transaction, whatever other servers do.

_RUNNING = "state IN ('running', 'cancelling')"


class _Alone(Queryable, Protocol):
    transactions: int

    def alone(self) -> None: ...


class CountedQueueStats:
    """Counts are asked for once a transaction, while no other server takes in jobs, and kept up from there."""

    def __init__(self, database: _Alone) -> None:
        self._db, self._of = database, -1
        self._queued, self._all = dict[str, int](), 0
        self._has_all = False

    @property
    def running(self) -> dict[str, int]:
        """As of now; one that is begun elsewhere meanwhile is seen by `may_begin`."""
        sql = f"SELECT token, count(*) FROM jobs WHERE {_RUNNING} GROUP BY token"  # noqa: S608 - constants
        return dict(self._db.execute(sql).fetchall())

    def queued_of(self, token: str) -> int:
        """Return the number of a token's queued jobs."""
        self._afresh()
        if token not in self._queued:
            sql = "SELECT count(*) FROM jobs WHERE state = 'queued' AND token = ?"
            self._queued[token] = int(self._db.execute(sql, (token,)).fetchone()[0])
        return self._queued[token]

    def __len__(self) -> int:
        """Return the number of queued jobs."""
        self._afresh()
        if not self._has_all:
            self._all = int(self._db.execute("SELECT count(*) FROM jobs WHERE state = 'queued'").fetchone()[0])
            self._has_all = True
        return self._all

    def may_begin(self, token: str, most: int) -> bool:
        """Return True, without a wait, if one more may run and no other server begins one of the token's."""
        if most >= MACHINE.jobs:
            return True
        if not self._db.execute("SELECT pg_try_advisory_xact_lock(1, hashtext(?))", (token,)).fetchone()[0]:
            return False
        sql = f"SELECT count(*) FROM jobs WHERE token = ? AND {_RUNNING}"  # noqa: S608 - constants
        return int(self._db.execute(sql, (token,)).fetchone()[0]) < most

    def reload(self, database: Queryable) -> None:  # noqa: ARG002 - what is counted is this session's
        """Count anew."""
        self._of = -1

    def join(self, token: str, priority: int, number: int) -> None:  # noqa: ARG002 - places are not kept here
        """Count one more queued job of a token."""
        self._change(token, 1)

    def leave(self, token: str, priority: int, number: int) -> None:  # noqa: ARG002
        """Count one queued job less."""
        self._change(token, -1)

    def begin(self, token: str) -> None:
        """Count one more running job."""

    def end(self, token: str) -> None:
        """Count one running job less."""

    def _afresh(self) -> None:
        """Forget the counts of another transaction; keep others out before counting."""
        self._db.alone()
        if self._of != self._db.transactions:
            self._of, self._queued, self._has_all = self._db.transactions, {}, False

    def _change(self, token: str, by: int) -> None:
        if self._of == self._db.transactions:
            self._all += by
            if token in self._queued:
                self._queued[token] += by


SCHEMA_NAME = "pesto_serve"
"""The schema of all tables, so that the database may have others."""
LEASE_S = 30
"""Seconds for which a job is a server's without a word of it."""
ALONE = 0x_7E_57_00
"""The advisory lock of who takes in jobs or files, or removes files."""
RETRY_S = 1.0
"""Seconds between two tries to connect."""
_SETTINGS = f"""
SET search_path = {SCHEMA_NAME};
SET client_min_messages = warning;
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '10s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
"""
"""A server that stops within a transaction is cut off, so that it holds up the others for a moment only."""
ANSWER_S = 12.0
"""Seconds within which a statement must be answered; more than others hold up one."""
READ_S = 5.0
"""The same, of questions for which requests wait."""
MIGRATE_S = 3600.0
"""The same, where tables are made or changed."""


class Session:
    """A `pesto.service.serve.store.database.Database`; also read by one thread while another has it mended."""

    dialect = SqlDialect(
        by_turn="",
        locked=" FOR UPDATE",
        unless_locked=" FOR UPDATE SKIP LOCKED",
        left="SELECT number, jobs.attempt FROM jobs LEFT JOIN leases ON job = number"
        " WHERE state IN ('running', 'cancelling') AND coalesce(until, '-infinity') < clock_timestamp()"
        " FOR UPDATE OF jobs SKIP LOCKED",
        left_why="its server is gone",
    )

    def __init__(self, address: Address, server: str, *, turns: bool = False, answer_s: float = ANSWER_S) -> None:
        """Connect to nothing yet.

        server: whose leases it makes. turns: whether it counts transactions, to know of lost commits. answer_s: seconds
        within which a statement must be answered, or else the connection is given up.
        """
        self._address, self._server, self._turns, self._answer_s = address, server, turns, answer_s
        self._connection: LimitedConnection | None = None
        self._tried = self.mended = -float("inf")
        self.transactions = 0
        self._turn, self._lost, self._came_through = 0, 0, set[int]()
        self._wrote = self._is_alone = False

    @property
    def there(self) -> bool:
        """True while it is connected, as far as is known."""
        return self._connection is not None

    def connect(self) -> None:
        """Be connected. AwayError when that cannot be, at once where it could not be a moment ago."""
        if self._connection is not None:
            return
        now = time.monotonic()
        if now < self._tried + RETRY_S:
            raise self._away()
        again, self._tried = self._tried > 0, now
        try:
            connection = LimitedConnection.connect(self._address.conninfo, autocommit=True)
            connection.answer_s = min(CONNECT_S, self._answer_s)
            connection.execute(_SETTINGS)
            connection.execute(f"SET statement_timeout = '{self._answer_s:g}s'".encode())
            if self._turns:
                connection.execute("DELETE FROM servers WHERE seen < clock_timestamp() - interval '1 day'")
                connection.execute(
                    "INSERT INTO servers VALUES (%s, 0, clock_timestamp()) ON CONFLICT DO NOTHING", (self._server,)
                )
        except psycopg.Error as error:
            raise self._away(f": {self._address.said(error)}") from None
        connection.answer_s = self._answer_s
        self.mended = time.monotonic() if again else self.mended
        self._connection = connection

    def execute(self, sql: str, given: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        """Execute one statement. LaterError where it cannot be done now."""
        connection = self._connection
        if connection is None:
            raise self._away()
        self._wrote = self._wrote or not sql.startswith("SELECT")
        try:
            return connection.execute(_marked(sql), given)
        except psycopg.Error as error:
            raise self.explained(error) from error

    def executemany(self, sql: str, given: Sequence[Sequence[Any]], /) -> None:
        """Execute one statement with each of these."""
        if self._connection is None:
            raise self._away()
        self._wrote = True
        try:
            with self._connection.cursor() as cursor:
                cursor.executemany(_marked(sql), given)
        except psycopg.Error as error:
            raise self.explained(error) from error

    def begin(self) -> None:
        """Begin a transaction, connected anew if need be; find out what became of a commit that was not answered.

        A session that is cut off may still be at that commit: its turn is locked until it has ended.
        """
        self.connect()
        self.transactions += 1
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        if self._lost:
            sql = "SELECT turn FROM servers WHERE id = ? FOR UPDATE"
            if self.execute(sql, (self._server,)).fetchone() == (self._lost,):
                self._came_through.add(self._lost)
            self._lost = 0
        self._wrote = self._is_alone = False

    def commit(self) -> None:
        """Commit, with the number of this turn."""
        turn = 0
        if self._wrote and self._turns:
            turn = self._turn = self._turn + 1
            sql = "UPDATE servers SET turn = ?, seen = clock_timestamp() WHERE id = ?"
            self.execute(sql, (turn, self._server))
        try:
            self.execute("COMMIT")
        except AwayError as error:
            if not turn:
                raise
            self._lost = turn
            raise UncertainError(lambda: turn in self._came_through) from error

    def undo(self) -> None:
        """Undo everything since `begin`."""
        try:
            if self._connection is not None:
                self._connection.execute("ROLLBACK")
        except psycopg.Error as error:
            self.explained(error)

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def explained(self, error: Exception) -> Exception:
        """AwayError when the connection is broken; LaterError where the statement may go well another time."""
        if isinstance(error, psycopg.DataError):
            return RefusedError(400, "a text has characters that the database cannot store", remedy="remove them")
        if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError):
            return error
        if self._connection is not None and not self._connection.closed:
            return LaterError.build(f"the database is busy: {self._address.said(error)}", remedy="try again")
        self._connection = None
        return self._away(f": {self._address.said(error)}")

    def queue_stats(self) -> CountedQueueStats:
        """Return counts by the database, since other servers change it too."""
        return CountedQueueStats(self)

    def alone(self) -> None:
        """Wait until no other server takes in or removes anything; once a transaction."""
        if not self._is_alone:
            self.execute("SELECT pg_advisory_xact_lock(?)", (ALONE,))
            self._is_alone = True

    def lease(self, number: int, attempt: int) -> None:
        """Give this server the lease of a job."""
        self.execute(
            f"INSERT INTO leases VALUES (?, ?, ?, clock_timestamp() + interval '{LEASE_S} s') ON CONFLICT (job)"  # noqa: S608
            " DO UPDATE SET attempt = excluded.attempt, server = excluded.server, until = excluded.until",
            (number, attempt, self._server),
        )

    def release_lease(self, number: int) -> None:
        """End the lease of a job."""
        self.execute("DELETE FROM leases WHERE job = ?", (number,))

    def shrink(self, pages: int) -> int:  # noqa: ARG002
        """Return 0: PostgreSQL's own autovacuum uses free pages again."""
        return 0

    def _away(self, why: str = "") -> AwayError:
        what = f"cannot reach the database at {self._address.where}{why}"
        return AwayError.build(f"{what}", remedy="see that it runs and lets this user in, and try again")


@cache
def _marked(sql: str) -> bytes:
    """Return SQL with parameters as psycopg has them."""
    return sql.replace("?", "%s").encode()
