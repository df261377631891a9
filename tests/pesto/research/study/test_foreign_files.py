"""Files that are not ours, or were made to keep a reader busy: refused, bounded, and left at a signal."""

import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from pesto.core.errors import InputError
from pesto.research.study import store
from pesto.research.study.report import runs
from pesto.research.study.store import peeked

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT count(*) FROM n"
"""As many rows as anybody waits for."""
TAMPERED = {
    "a view for a table": ("DROP TABLE {0}", f"CREATE VIEW {{0}} AS {ENDLESS}"),
    "a virtual table": (  # TensorFlow's own SQLite, which takes the place of Python's once it is loaded, has no fts5
        "DROP TABLE {0}",
        "PRAGMA writable_schema = ON",
        "INSERT INTO sqlite_master VALUES ('table', '{0}', '{0}', 0, 'CREATE VIRTUAL TABLE {0} USING fts5(key)')",
    ),
    "a generated column": (
        "ALTER TABLE {0} DROP COLUMN {1}",
        "ALTER TABLE {0} ADD COLUMN {1} AS (zeroblob(99999999))",
    ),
    "a missing column": ("ALTER TABLE {0} DROP COLUMN {1}",),
    "a trigger": (f"CREATE TRIGGER t AFTER INSERT ON {{0}} BEGIN INSERT INTO {{0}} ({{1}}) {ENDLESS}; END",),
}
"""What is done to a study's file, by table and one of its columns."""


def study(path: Path) -> Path:
    """A study's file as the program makes it, in one piece."""
    with store.opened(path):
        pass
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO study VALUES ('n', '{}', '1')")
        db.execute("DROP VIEW rows")  # it would keep columns from being dropped
        db.commit()
        db.execute("PRAGMA journal_mode = DELETE")
    return path


@pytest.mark.parametrize("how", TAMPERED.values(), ids=TAMPERED.keys())
@pytest.mark.parametrize(("table", "column"), [("study", "name"), ("cells", "ordinal"), ("results", "makespan")])
def test_what_a_study_is_not_made_of_is_refused_before_it_is_read(how, table: str, column: str, tmp_path: Path) -> None:
    """By status, by the report, and by a run, which would write to it."""
    path = study(tmp_path / "s.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for change in how:
            db.execute(change.format(table, column))
    for reader in (peeked, runs.read, lambda path: store.opened(path).__enter__()):
        with pytest.raises(InputError, match=r"not a study|no such column"):
            reader(path)


def test_the_view_for_people_is_read_by_nobody(tmp_path: Path) -> None:
    """Whatever `rows` is made into, it costs no time."""
    path = study(tmp_path / "s.sqlite")
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE VIEW rows AS {ENDLESS}")
    assert peeked(path).name == "n"
    with store.opened(path) as file:
        assert file.retry_failed() == 0 and file.versions().pesto == set()


def test_what_never_ends_is_ended(tmp_path: Path) -> None:
    """Whatever a check of the schema may have missed: a small file has some millions of steps, and no more."""
    path = study(tmp_path / "s.sqlite")
    with pytest.raises(InputError, match="takes longer than any study of its size"):
        store.read_consistently(path, lambda connection: connection.execute(ENDLESS).fetchone())


def test_a_signal_ends_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent while SQLite works, to one who would wait for ever: KeyboardInterrupt, not an error of the file."""
    path = study(tmp_path / "s.sqlite")
    monkeypatch.setattr(store, "STEPS", 10**15)

    def read(connection: sqlite3.Connection) -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        connection.execute(ENDLESS).fetchone()

    with pytest.raises(KeyboardInterrupt):
        store.read_consistently(path, read)


@pytest.mark.slow
def test_a_large_study_is_read_within_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 000 cells with results and traces, without the steps that any file has: a tenth of what they are given."""
    path, count = study(tmp_path / "s.sqlite"), 20_000
    with closing(sqlite3.connect(path)) as db:
        keys = [f"{k:064x}" for k in range(count)]
        cell = "INSERT INTO cells VALUES (?, ?, 'schedule', 'i', 'f', 's', '', 1.0, 0, '{}', 'done', NULL)"
        db.executemany(cell, [(key, k) for k, key in enumerate(keys)])
        result = "INSERT INTO results VALUES (?, 'optimal', '', 3, 3, '', 4, .5, '', '', 1, 1, 0, '{}')"
        db.executemany(result, [(key,) for key in keys])
        db.executemany("INSERT INTO traces VALUES (?, ?, 4, 1)", [(key, float(k)) for key in keys for k in range(5)])
        db.commit()
    monkeypatch.setattr(store, "STEPS", 0)
    monkeypatch.setattr(store, "STEPS_A_BYTE", store.STEPS_A_BYTE // 10)
    assert peeked(path).tally.done == len(runs.read(path).cells) == count
