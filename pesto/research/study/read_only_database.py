"""An SQLite file read by one who does not own it: never written, as of one moment, whoever is writing it."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from pesto.core.errors import FileError, InputError, PestoError
from pesto.core.files.json import shown

T = TypeVar("T")

WAIT_S = 30.0
"""Seconds to wait for whoever is writing."""
TRIES = 5
"""How often a file is read without locks that changes while it is read."""
REMEDY = "name a file that pesto study run wrote"
STEPS = 10**6
"""Steps of SQLite's machine that reading any file may take; a study's own takes a few for each of its bytes."""
STEPS_A_BYTE = 100
_LOOK = 10_000
"""Steps after which the reader looks whether it may go on, and hears of signals."""


def read_consistently(path: Path, read: Callable[[sqlite3.Connection], T]) -> T:
    """Return the result of `read`, which may be called several times; each call sees one consistent state of the file.

    FileError when the file cannot be read, InputError when it is no database; and what `read` raises.
    """
    # A file that stands still is read without locks, which would leave SQLite's own files beside it (and could not
    # be had in a folder that is read-only). Had it changed meanwhile, what was read says nothing. Of a file that is
    # being written, SQLite itself shows one state.
    for _ in range(TRIES):
        before = _state(path)
        still = before is not None and before.log is None
        try:
            result = _read(path, "mode=ro&immutable=1" if still else "mode=ro", read)
        except PestoError:
            if _state(path) == before:
                raise
            continue
        if not still or _state(path) == before:
            return result
    return _read(path, "mode=ro", read)


class _FileState(NamedTuple):
    """State of a file that changes whenever it is written, or its writer changes."""

    written_ns: int
    size: int
    log: int | None
    """Number of the log of changes to it; None where nobody is writing."""


def _state(path: Path) -> _FileState | None:
    """None where there is no such file."""
    try:
        logs = [Path(f"{os.path.realpath(path)}{log}") for log in ("-wal", "-journal")]
        log = next((log.stat().st_ino for log in logs if log.exists()), None)
        result = path.stat()
    except (OSError, ValueError):
        return None
    return _FileState(result.st_mtime_ns, result.st_size, log)


def _read(path: Path, how: str, read: Callable[[sqlite3.Connection], T]) -> T:
    with _opened(path, how) as connection:
        return read(connection)


@contextmanager
def _opened(path: Path, how: str) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write and sees one state of the file; errors of SQLite become this project's."""
    _require_file(path)
    budget = _StepBudget(path)
    try:
        name = f"file:{quote(os.path.realpath(path))}?{how}"
        with closing(sqlite3.connect(name, uri=True, timeout=WAIT_S)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.set_progress_handler(budget, _LOOK)
            connection.execute("BEGIN")
            yield connection
    except sqlite3.DatabaseError as error:
        raise _explained(error, path, budget) from error


class _StepBudget:
    """Told of every so many steps of a connection; ends what takes more than a file of its size needs."""

    def __init__(self, path: Path) -> None:
        files = (path, Path(f"{os.path.realpath(path)}-wal"))
        size = sum(file.stat().st_size for file in files if file.exists())
        self.looks = (STEPS + STEPS_A_BYTE * size) // _LOOK

    def __call__(self) -> bool:
        """Return True if to end it."""
        self.looks -= 1
        return self.looks < 0


def _explained(error: sqlite3.DatabaseError, path: Path, budget: _StepBudget) -> BaseException:
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_INTERRUPT and budget.looks >= 0:
        return KeyboardInterrupt()  # a signal's, which came while SQLite worked, and which SQLite has swallowed
    if code == sqlite3.SQLITE_INTERRUPT:
        return InputError.build("reading it takes longer than any study of its size", where=shown(path), remedy=REMEDY)
    if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR:
        remedy = "try again when the study is not being written, or read a copy"
        return FileError.build(f"cannot read {shown(path)}: {shown(error)}", remedy=remedy)
    # Not a database, a damaged one, or one whose tables are others (SQLITE_ERROR).
    return InputError.build(f"{shown(error)}", where=shown(path), remedy=REMEDY)


def _require_file(path: Path) -> None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError.build("not a regular file", where=shown(path), remedy=REMEDY)
        if not os.access(path, os.R_OK):
            raise FileError.build(f"cannot read {shown(path)}: permission denied", remedy="change the permissions")
    except OSError as error:
        raise FileError.build(
            f"cannot read {shown(path)}: {(error.strerror or 'failed').lower()}", remedy=REMEDY
        ) from error
    except ValueError as error:  # a null byte in the name
        raise FileError.build(f"cannot read {shown(path)}: {shown(error)}", remedy="choose another name") from error
