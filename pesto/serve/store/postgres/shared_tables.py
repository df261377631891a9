"""The tables of one database for several servers, and the folder of its files, which all of them see."""

import secrets
from pathlib import Path

import psycopg

from pesto.errors import UsageError
from pesto.files.disk import read_bytes, write_atomic
from pesto.files.json import shown
from pesto.serve.store.ledger_schema import SCHEMA, Types, tables
from pesto.serve.store.postgres.session import ALONE, SCHEMA_NAME, Session
from pesto.serve.store.sqlite_file import FILE, MARK

_TYPES = Types(
    key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", whole="BIGINT", real="DOUBLE PRECISION", bytes="BYTEA"
)
_ABOUT = """
CREATE TABLE about (version BIGINT NOT NULL, folder TEXT NOT NULL, paired BOOLEAN NOT NULL);
CREATE TABLE servers (id TEXT PRIMARY KEY, turn BIGINT NOT NULL, seen TIMESTAMPTZ NOT NULL);
CREATE TABLE leases (
    job BIGINT PRIMARY KEY REFERENCES jobs (number),
    attempt BIGINT NOT NULL,
    server TEXT NOT NULL,
    until TIMESTAMPTZ NOT NULL
);
"""


def prepare(session: Session, folder: Path, where: str) -> None:
    """Make the tables unless they are there, and pair database and folder for good.

    UsageError for tables of another version, for another folder than the database's, and for no right to make tables;
    AwayError when there is no database.
    """
    if (folder / FILE).exists():
        raise UsageError(f"{shown(folder)} has the jobs of a server without --database - give another --data")
    session.begin()
    try:
        session.execute("SELECT pg_advisory_xact_lock(?)", (ALONE,))
        _make(session, where)
        _pair(session, folder, where)
    except psycopg.Error as error:
        session.undo()
        said = str(error).splitlines()[0]
        raise UsageError(
            f"{where}: {shown(said)} - give one where this user may make the schema {SCHEMA_NAME}"
        ) from error
    except BaseException:
        session.undo()
        raise
    session.commit()


def _make(session: Session, where: str) -> None:
    (there,) = session.execute("SELECT to_regclass(?) IS NOT NULL", (f"{SCHEMA_NAME}.about",)).fetchone() or (False,)
    if not there:
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA_NAME}")
        session.execute(tables(_TYPES))
        session.execute(_ABOUT)
        session.execute("INSERT INTO about VALUES (?, ?, false)", (SCHEMA, secrets.token_hex(16)))
    (version,) = session.execute("SELECT version FROM about").fetchone() or (None,)
    if version != SCHEMA:
        what = f"its tables are of version {version}, this program's are {SCHEMA}"
        raise UsageError(f"{where}: {what} - give another database, or use the program of that version")


def _pair(session: Session, folder: Path, where: str) -> None:
    """The folder has the database's mark: whoever has another would miss files, or remove those of others."""
    identity, paired = session.execute("SELECT folder, paired FROM about").fetchone() or ("", False)
    path = folder / MARK
    found = read_bytes(path).decode(errors="replace").strip() if path.exists() else None
    if found is None and not paired:
        write_atomic(path, f"{identity}\n".encode())
    elif found != identity:
        what = "is not the folder of that database's servers" if found is None else "is the folder of another database"
        raise UsageError(f"{shown(folder)} {what} at {where} - give the --data that all its servers share")
    session.execute("UPDATE about SET paired = true WHERE NOT paired")
