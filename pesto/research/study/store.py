"""The file of a study: one SQLite database, the truth about which cells are done and what came of them.

A result, its trace and the cell's state are one transaction, so a cell is done with all of it or not at all, whatever
is killed and when.
"""

import json
import os
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pesto.core.errors import FileError, InputError, UsageError
from pesto.core.files.json import quoted, shown
from pesto.core.files.lock import LockKind, explain_errors
from pesto.research.study.cell_answer import FAILED, SCHEMA, CellAnswer
from pesto.research.study.cells import StudyCell, canonical
from pesto.research.study.schema import TABLES, check_tables
from pesto.research.study.spec import Study

LOCK = LockKind("study", "run", "give another --db")
"""Lock of a study's file, held by its writer."""
_SET_ASIDE = """
UPDATE cells SET ordinal = aside.place
FROM (SELECT key AS of, -row_number() OVER (ORDER BY ordinal, key) AS place FROM cells) AS aside WHERE key = aside.of
"""
_RESULT = (
    "key", "status", "limit_reason", "makespan", "lower_bound", "bound_by", "start_makespan", "seconds", "version",
    "detail", "tasks", "devices", "edges",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTally:
    """How many cells of the study are in which state."""

    done: int
    running: int
    pending: int
    former_done: int
    """Done cells that an earlier form of the study had and the present one has not."""
    former_pending: int
    """Such cells that never ran, and will not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryVersions:
    """Versions that results come from."""

    pesto: set[str]
    solvers: dict[str, set[str]]
    """By the solver's name."""


class StudyStore:
    """A study's file, open for the one process that runs it."""

    def __init__(self, connection: sqlite3.Connection, owner: str) -> None:
        self._connection, self._owner = connection, owner

    def sync(self, study: Study, cells: Sequence[StudyCell], version: str) -> None:
        """Make the file's pending cells those of `cells`, and free what an ended run held.

        Done cells stay. Cells that the study no longer has stay too, with a negative ordinal. UsageError when the file
        is of another study.
        """
        with self._transaction() as db:
            held = db.execute("SELECT name FROM study").fetchone()
            if held is not None and held[0] != study.spec.name:
                raise UsageError.build(
                    f"the file holds the study {quoted(held[0])}, not {study.spec.name!r}", remedy="give another --db"
                )
            spec = canonical(msgspec.to_builtins(study.spec))
            if held is None:
                db.execute("INSERT INTO study VALUES (?, ?, ?)", (study.spec.name, spec, version))
            db.execute("UPDATE study SET spec_json = ?", (spec,))
            # Whoever held these is dead: it would have the lock.
            db.execute("UPDATE cells SET state = 'pending', owner = NULL WHERE state = 'running'")
            # Each its own, below all that are in use.
            db.execute(_SET_ASIDE)
            db.executemany(
                "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', NULL)"
                " ON CONFLICT (key) DO UPDATE SET ordinal = excluded.ordinal, instance = excluded.instance,"
                " family = excluded.family, parameters = excluded.parameters",
                [_row(cell) for cell in cells],
            )

    def retry_failed(self) -> int:
        """Make the study's cells that failed pending again, without their results; how many there were."""
        marks = ", ".join("?" * len(FAILED))
        failed = f"SELECT key FROM cells JOIN results USING (key) WHERE ordinal >= 0 AND status IN ({marks})"  # noqa: S608 - constants
        with self._transaction() as db:
            keys = db.execute(failed, FAILED).fetchall()
            db.executemany("UPDATE cells SET state = 'pending' WHERE key = ?", keys)
            db.executemany("DELETE FROM traces WHERE key = ?", keys)
            db.executemany("DELETE FROM results WHERE key = ?", keys)
        return len(keys)

    def pending(self) -> set[str]:
        """Keys of the cells of the study that are still to be run."""
        return {
            key for (key,) in self._connection.execute("SELECT key FROM cells WHERE state = 'pending' AND ordinal >= 0")
        }

    def versions(self) -> LibraryVersions:
        """Versions that made the results of the study's done cells."""
        result = LibraryVersions(pesto=set(), solvers={})
        told = """
            SELECT DISTINCT solver, version, json_extract(measures, '$.pesto') FROM cells JOIN results USING (key)
            WHERE ordinal >= 0
        """
        for solver, version, pesto in self._connection.execute(told):
            result.pesto.update([pesto] if pesto else [])
            result.solvers.setdefault(solver, set()).update([version] if version else [])
        return result

    def lease(self, key: str) -> None:
        """Note that a cell is being run; FileError when another process has it, or has done it."""
        taken = "UPDATE cells SET state = 'running', owner = ? WHERE key = ? AND state = 'pending'"
        with self._transaction() as db:
            _one(db.execute(taken, (self._owner, key)))

    def free(self) -> None:
        """Make what this process has leased pending again."""
        freed = "UPDATE cells SET state = 'pending', owner = NULL WHERE state = 'running' AND owner = ?"
        with self._transaction() as db:
            db.execute(freed, (self._owner,))

    def commit(self, answer: CellAnswer) -> None:
        """Write the answer to a cell that this process has leased: all of it or, with FileError, nothing."""
        done = "UPDATE cells SET state = 'done', owner = NULL WHERE key = ? AND state = 'running' AND owner = ?"
        values = [getattr(answer, name) for name in _RESULT]
        with self._transaction() as db:
            _one(db.execute(done, (answer.key, self._owner)))
            marks = ", ".join("?" * (len(_RESULT) + 1))
            db.execute(
                f"INSERT INTO results ({', '.join(_RESULT)}, measures) VALUES ({marks})",  # noqa: S608 - constants
                (*values, canonical(answer.measures)),
            )
            db.executemany(
                "INSERT INTO traces VALUES (?, ?, ?, ?)",
                [(answer.key, point.seconds, point.makespan, point.lower_bound) for point in answer.trace],
            )

    def tally(self) -> StudyTally:
        """How far the study is."""
        return tally(self._connection)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


@contextmanager
def opened(path: Path) -> Iterator[StudyStore]:
    """The study's file, made if there is none; for one process at a time, so hold its lock meanwhile.

    InputError when the file is something else or of another version; FileError when it cannot be read or written.
    """
    with explain_errors(path, "give another --db", InputError):
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            new = version == 0 and objects == 0
            if not new and version != SCHEMA:
                what = f"schema {version}, this program's is {SCHEMA}" if version else "no study"
                raise InputError.build(f"{what}", where=shown(path), remedy="give another --db")
            if not new:
                check_tables(connection, path, "give another --db")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            if new:
                connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
            yield StudyStore(connection, owner())
        finally:
            connection.close()


def tally(connection: sqlite3.Connection) -> StudyTally:
    """`StudyStore.tally` of any connection."""
    counted = "SELECT ordinal >= 0, state, count(*) FROM cells GROUP BY 1, 2"
    result = {(bool(own), state): n for own, state, n in connection.execute(counted)}
    return StudyTally(
        done=result.get((True, "done"), 0),
        running=result.get((True, "running"), 0),
        pending=result.get((True, "pending"), 0),
        former_done=result.get((False, "done"), 0),
        former_pending=result.get((False, "pending"), 0) + result.get((False, "running"), 0),
    )


def owner() -> str:
    """This process, told apart from all that ever had its number: host, pid and start time (Linux: /proc)."""
    try:
        stat = Path(f"/proc/{os.getpid()}/stat").read_text()
        started = stat.rsplit(")", 1)[1].split()[19]
    except OSError:
        started = ""
    return f"{socket.gethostname()} {os.getpid()} {started}".strip()


def _one(changed: sqlite3.Cursor) -> None:
    if changed.rowcount != 1:
        raise FileError.build("another run has taken the study's file over", remedy="let only one run at a time")


def _row(cell: StudyCell) -> tuple[Any, ...]:
    return (
        cell.key, cell.ordinal, cell.stage, cell.instance.label, cell.instance.family, cell.solver, cell.formulation,
        cell.limit_s, cell.seed, json.dumps(cell.parameters, sort_keys=True),
    )  # fmt: skip
