"""How far a study is, read while it may be running."""

import os
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pesto.errors import FileError, InputError
from pesto.files.json import shown
from pesto.study.answers import SCHEMA
from pesto.study.store import Tally, tally

_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """The state of a study at one moment."""

    name: str
    tally: Tally
    statuses: dict[tuple[str, str], dict[str, int]]
    """By solver and formulation: how many done cells ended in which status."""

    def as_object(self) -> dict[str, Any]:
        """The keys of `pesto study status --json`."""
        rows = [
            {"solver": solver, "formulation": formulation, "statuses": statuses}
            for (solver, formulation), statuses in self.statuses.items()
        ]
        return {"study": self.name, **asdict(self.tally), "solvers": rows}


def peeked(path: Path) -> Peek:
    """The state of the study at `path`. FileError when it cannot be read, InputError when it is no study."""
    remedy = "name a file that pesto study run wrote"
    if not path.is_file():
        raise FileError(f"cannot read {shown(path)}: there is no such file - {remedy}")
    try:
        for _ in range(_TRIES):
            before = _writers(path)
            try:
                found = _read(path, still=before is None, remedy=remedy)
            except sqlite3.DatabaseError:
                if _writers(path) == before:
                    raise
                continue
            if before is not None or _writers(path) is None:
                return found
        raise FileError(f"cannot read {shown(path)}: runs begin and end all the time - try again")
    except sqlite3.OperationalError as error:
        raise FileError(f"cannot read {shown(path)}: {shown(error)} - {remedy}") from error
    except sqlite3.DatabaseError as error:
        raise InputError(f"{shown(path)}: {shown(error)} - {remedy}") from error


def _writers(path: Path) -> int | None:
    """The log of whoever has the file open, told apart by its number; None where nobody has."""
    log = Path(f"{os.path.realpath(path)}-wal")
    return log.stat().st_ino if log.exists() else None


def _read(path: Path, *, still: bool, remedy: str) -> Peek:
    """Without writing to the folder: SQLite needs its log and index beside a file that somebody may be writing."""
    name = f"file:{quote(os.fsencode(os.path.realpath(path)))}?mode=ro{'&immutable=1' * still}"
    with closing(sqlite3.connect(name, uri=True, timeout=30)) as connection:
        if connection.execute("PRAGMA user_version").fetchone()[0] != SCHEMA:
            raise InputError(f"{shown(path)}: no study of schema {SCHEMA} - {remedy}")
        return _peek(connection)


def _peek(connection: sqlite3.Connection) -> Peek:
    counted = """
        SELECT solver, formulation, status, count(*) FROM rows WHERE ordinal >= 0
        GROUP BY 1, 2, 3 ORDER BY min(ordinal), 4 DESC
    """
    statuses: dict[tuple[str, str], dict[str, int]] = {}
    connection.execute("BEGIN")
    for solver, formulation, status, count in connection.execute(counted):
        statuses.setdefault((solver, formulation), {})[status] = count
    found = connection.execute("SELECT name FROM study").fetchone()
    return Peek(name=found[0] if found else "", tally=tally(connection), statuses=statuses)
