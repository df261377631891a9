"""What SQLite's errors are told as, of whatever is kept in its files."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pesto.core.errors import FileError, PestoError
from pesto.core.files.json import shown


@contextmanager
def explain_errors(path: Path, remedy: str, wrong: type[PestoError]) -> Iterator[None]:
    """SQLite's errors as one line: FileError where it cannot write, `wrong` with a remedy for what is not its own."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise FileError.build(
            f"cannot write {shown(path)}: {shown(error)}", remedy="check the folder and the disk"
        ) from error
    except sqlite3.DatabaseError as error:
        raise wrong(f"{shown(path)}: {shown(error)} - {remedy}") from error
