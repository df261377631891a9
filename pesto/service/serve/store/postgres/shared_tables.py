"""The tables of one database for several servers, and the folder of its files, which all of them see."""

import secrets
from pathlib import Path

import psycopg

from pesto.core.errors import UsageError
from pesto.core.files.disk import read_bytes, write_atomic
from pesto.core.files.json import shown
from pesto.service.serve.store.ledger_schema import NEWER_REMEDY, Types, newest_version, statements_since, wrong_version
from pesto.service.serve.store.postgres.session import ALONE, SCHEMA_NAME, Session
from pesto.service.serve.store.sqlite_file import FILE, MARK, RESTORE, left_files

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
    """Make the tables or bring them to the newest version, and pair database and folder for good.

    UsageError for tables of a newer version, for another folder than the database's, and for no right to make tables;
    AwayError when there is no database.
    """
    if (folder / FILE).exists():
        raise UsageError.build(
            f"{shown(folder)} has the jobs of a server without --database", remedy="give another --data"
        )
    session.begin()
    try:
        session.execute("SELECT pg_advisory_xact_lock(?)", (ALONE,))
        # Bring the tables to the newest version; in one transaction, while other servers that begin wait.
        (there,) = session.execute("SELECT to_regclass(?) IS NOT NULL", (f"{SCHEMA_NAME}.about",)).fetchone() or (
            False,
        )
        version = 0
        if there:
            (version,) = session.execute("SELECT version FROM about").fetchone() or (0,)
        if version > newest_version():
            raise UsageError.build(
                f"{wrong_version(version)}", where=where, remedy=f"{NEWER_REMEDY}, or give another database"
            )
        if not there:
            session.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA_NAME}")
        if version < newest_version():
            session.execute(statements_since(version, _TYPES))
        if not there:
            session.execute(_ABOUT)
            session.execute("INSERT INTO about VALUES (?, ?, false)", (newest_version(), secrets.token_hex(16)))
        session.execute("UPDATE about SET version = ? WHERE version < ?", (newest_version(),) * 2)
        _pair(session, folder, where)
    except psycopg.Error as error:
        session.undo()
        reason = str(error).splitlines()[0]
        raise UsageError.build(
            f"{shown(reason)}", where=where, remedy=f"give one where this user may make the schema {SCHEMA_NAME}"
        ) from error
    except BaseException:
        session.undo()
        raise
    session.commit()


def _pair(session: Session, folder: Path, where: str) -> None:
    """The folder has the database's mark: whoever has another would miss files, or remove those of others."""
    identity, paired = session.execute("SELECT folder, paired FROM about").fetchone() or ("", False)
    path = folder / MARK
    mark = read_bytes(path).decode(errors="replace").strip() if path.exists() else None
    if mark is None and not paired and (left := left_files(folder)):
        raise UsageError.build(
            f"the database is empty, and {left}", where=where, remedy=f"{RESTORE}, or give another --data"
        )
    if mark is None and not paired:
        write_atomic(path, f"{identity}\n".encode())
    elif mark != identity:
        what = "is not the folder of that database's servers" if mark is None else "is the folder of another database"
        raise UsageError.build(
            f"{shown(folder)} {what} at {where}", remedy="give the --data that all its servers share"
        )
    session.execute("UPDATE about SET paired = true WHERE NOT paired")
