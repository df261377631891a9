"""The service's database as one SQLite file of one server, which alone opens it."""

import logging
import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from pesto.core.errors import FileError, UsageError
from pesto.core.files.json import shown
from pesto.core.files.lock import explain_errors
from pesto.service.serve.store.database import SqlDialect
from pesto.service.serve.store.ledger import BLOBS, JOBS
from pesto.service.serve.store.ledger_schema import NEWER_REMEDY, Types, newest_version, statements_since, wrong_version
from pesto.service.serve.store.waiting import Waiting

_LOG = logging.getLogger(__name__)
FILE = "pesto-serve.sqlite"
"""Name of the database in the service's folder."""
MARK = "pesto-serve.shared"
"""A file in a folder that several servers share, whose database is elsewhere."""
RESTORE = "restore a backup (pesto serve restore)"
"""The first half of the remedy where a database has lost what its folder has."""
_TYPES = Types(
    key="INTEGER PRIMARY KEY AUTOINCREMENT", whole="INTEGER", real="REAL", bytes="BLOB", strict=" STRICT",
    by_key=" STRICT, WITHOUT ROWID",
)  # fmt: skip


class SqliteFile(sqlite3.Connection):
    """One server's `pesto.service.serve.store.database.Database`; its transactions shut out everybody else anyway."""

    dialect = SqlDialect(
        by_turn=" INDEXED BY jobs_next_of_token",
        locked="",
        unless_locked="",
        left="SELECT number, attempt FROM jobs WHERE state IN ('running', 'cancelling')",
        left_why="the service was restarted",
    )

    def begin(self) -> None:
        """Begin a transaction that writes."""
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Write the transaction to the disk."""
        self.execute("COMMIT")

    def undo(self) -> None:
        """Undo everything since `begin`."""
        if self.in_transaction:
            self.execute("ROLLBACK")

    def explained(self, error: Exception) -> Exception:
        """Return a FileError for errors of SQLite: mostly the disk is full."""
        if not isinstance(error, sqlite3.Error):
            return error
        return FileError.build(
            f"cannot write the service's database: {shown(error)}", remedy="check the folder and the disk"
        )

    def queue_stats(self) -> Waiting:
        """Return the queue, which is all in memory."""
        return Waiting()

    def alone(self) -> None:
        """Do nothing: there is no other server."""

    def lease(self, number: int, attempt: int) -> None:
        """Do nothing: there is no other server."""

    def release_lease(self, number: int) -> None:
        """Do nothing: there is no other server."""

    def shrink(self, pages: int) -> int:
        """Give the disk so many free pages at most; return how many are left."""
        self.execute(f"PRAGMA incremental_vacuum({int(pages)})").fetchall()
        return int(self.execute("PRAGMA freelist_count").fetchone()[0])


def connected(folder: Path) -> SqliteFile:
    """Return the database of the service's folder, made if there is none; hold the folder's lock meanwhile.

    An older version is brought to this program's. UsageError when it is of a newer one or something else; FileError
    when it cannot be read or written.
    """
    path = folder / FILE
    if (folder / MARK).exists():
        raise UsageError.build(
            f"{shown(folder)} is shared by the servers of a database", remedy="give --database, or another --data"
        )
    with explained_damage(path):
        connection = _open(path)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def reading(folder: Path) -> SqliteFile:
    """Open a second connection to the same database, which cannot write."""
    path = folder / FILE
    with explained_damage(path):
        connection = _open(path)
        connection.execute("PRAGMA query_only = ON")
    return connection


def explained_damage(path: Path) -> AbstractContextManager[None]:
    """Tell SQLite's errors as FileError, a damaged database with how to get another."""
    return explain_errors(path, f"{RESTORE}, or give another --data", FileError)


def left_files(folder: Path) -> str:
    """Say which of the service's folders has files, as a clause; empty where none has."""
    for name in (BLOBS, JOBS):
        if any((folder / name).glob("*")):
            return f"{shown(folder / name)} has files of another one"
    return ""


def _open(path: Path) -> SqliteFile:
    return sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False, factory=SqliteFile)


def _prepare(connection: SqliteFile, path: Path) -> None:
    """Bring the tables to the newest version, all at once or not at all. UsageError for those of no known version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if version > newest_version():
        raise UsageError.build(
            f"{wrong_version(version)}", where=shown(path), remedy=f"{NEWER_REMEDY}, or give another --data"
        )
    if version < 0 or (version == 0) != (objects == 0):
        raise UsageError.build("it is no data of this service", where=shown(path), remedy="give another --data")
    if version == 0 and (left := left_files(path.parent)):
        raise UsageError.build(
            f"{shown(path)} is empty or gone, and {left}", remedy=f"{RESTORE}, or give another --data"
        )
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if version < newest_version():
        steps = statements_since(version, _TYPES)
        connection.executescript(f"BEGIN IMMEDIATE; {steps} PRAGMA user_version = {newest_version()}; COMMIT;")
    if connection.execute("PRAGMA auto_vacuum").fetchone() != (2,):  # made before version 4: written anew, once
        try:
            connection.execute("VACUUM")
        except sqlite3.OperationalError as error:  # no room for a second file
            _LOG.warning("%s cannot be made smaller: %s; free some space", shown(path), error)
