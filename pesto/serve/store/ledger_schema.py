"""The tables of the service's database, and how its file is opened."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pesto.errors import FileError, UsageError
from pesto.files.json import shown

SCHEMA = 1
"""The version of these tables; a file of another one is refused."""

FILE = "pesto-serve.sqlite"
"""Its name in the service's folder."""

TABLES = """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL,
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    label TEXT NOT NULL,
    priority INTEGER NOT NULL,
    request BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'cancelling', 'done', 'failed', 'cancelled')),
    attempt INTEGER NOT NULL DEFAULT 0,
    deaths INTEGER NOT NULL DEFAULT 0,
    events INTEGER NOT NULL DEFAULT 0,
    stage TEXT NOT NULL DEFAULT '',
    best_s REAL,
    bound_s REAL,
    created REAL NOT NULL,
    started REAL,
    finished REAL,
    seconds REAL NOT NULL DEFAULT 0,
    kept INTEGER NOT NULL DEFAULT 0,
    outcome BLOB,
    expired INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX jobs_waiting ON jobs (priority DESC, number) WHERE state = 'queued';
CREATE INDEX jobs_under_way ON jobs (number) WHERE state IN ('running', 'cancelling');
CREATE INDEX jobs_of_token ON jobs (token, number);
CREATE INDEX jobs_labelled ON jobs (label, number) WHERE label != '';
CREATE INDEX jobs_kept ON jobs (finished) WHERE kept > 0 AND expired = 0;
CREATE TABLE events (
    job INTEGER NOT NULL REFERENCES jobs (number),
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE keys (
    token TEXT NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    job INTEGER NOT NULL REFERENCES jobs (number),
    PRIMARY KEY (token, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE sums (
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs INTEGER NOT NULL,
    seconds REAL NOT NULL,
    gap REAL NOT NULL,
    gaps INTEGER NOT NULL,
    PRIMARY KEY (kind, model, state)
) STRICT, WITHOUT ROWID;
CREATE TABLE blobs (
    digest TEXT PRIMARY KEY,
    bytes INTEGER NOT NULL,
    token TEXT NOT NULL,
    used REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE needs (
    digest TEXT NOT NULL REFERENCES blobs (digest),
    job INTEGER NOT NULL REFERENCES jobs (number),
    PRIMARY KEY (digest, job)
) STRICT, WITHOUT ROWID;
"""


def connected(folder: Path) -> sqlite3.Connection:
    """The database of the service's folder, made if there is none; hold the folder's lock meanwhile.

    UsageError when it is of another version or something else; FileError when it cannot be read or written.
    """
    path = folder / FILE
    with explained(path):
        connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def reading(folder: Path) -> sqlite3.Connection:
    """A second connection to the same database, which cannot write."""
    path = folder / FILE
    with explained(path):
        connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA query_only = ON")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    new = version == 0 and objects == 0
    if not new and version != SCHEMA:
        what = f"it is of version {version}, this program's is {SCHEMA}" if version else "it is no data of this service"
        raise UsageError(f"{shown(path)}: {what} - give another --data, or the program of that version")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if new:
        connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors as one line with a remedy."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise FileError(f"cannot write {shown(path)}: {shown(error)} - check the folder and the disk") from error
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{shown(path)}: {shown(error)} - give another --data") from error
