"""SQLite's errors are one line with a remedy, whatever is kept in its files."""

import sqlite3
from contextlib import closing

import pytest

from pesto.core.errors import FileError, InputError, UsageError
from pesto.core.files.lock import explain_errors


@pytest.mark.parametrize("wrong", [UsageError, InputError])
def test_a_file_of_something_else_and_one_that_cannot_be_written(tmp_path, wrong):
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"no database" * 100)
    remedy = pytest.raises(wrong, match=r"a\.sqlite: file is not a database - give another")
    with remedy, explain_errors(path, "give another", wrong), closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT * FROM sqlite_schema")
    absent = tmp_path / "none" / "a.sqlite"
    with (
        pytest.raises(FileError, match=r"cannot write .*unable to open"),
        explain_errors(absent, "give another", wrong),
    ):
        sqlite3.connect(absent)
