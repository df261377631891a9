"""The file of a study: one SQLite database, the truth about which cells are done and what came of them.

A result, its trace and the cell's state are one transaction, so a cell is done with all of it or not at all, whatever
is killed and when. Who does not own the file reads it as of one moment, and never writes it.
"""

import json
import os
import socket
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from pesto.core.errors import FileError, InputError, PestoError, UsageError
from pesto.core.files.json import quoted, shown
from pesto.core.files.lock import LockKind, explain_errors
from pesto.research.study.cells import FAILED, SCHEMA, CellAnswer, StudyCell, canonical
from pesto.research.study.spec import Study

TABLES = """
CREATE TABLE study (name TEXT NOT NULL, spec_json TEXT NOT NULL, created_by_version TEXT NOT NULL);
CREATE TABLE cells (
    key TEXT PRIMARY KEY, ordinal INTEGER NOT NULL, stage TEXT NOT NULL, instance TEXT NOT NULL, family TEXT NOT NULL,
    solver TEXT NOT NULL, formulation TEXT NOT NULL, limit_s REAL NOT NULL, seed INTEGER NOT NULL,
    parameters TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('pending', 'running', 'done')), owner TEXT
);
CREATE TABLE results (
    key TEXT PRIMARY KEY REFERENCES cells (key), status TEXT NOT NULL, limit_reason TEXT NOT NULL, makespan INTEGER,
    lower_bound INTEGER NOT NULL, bound_by TEXT NOT NULL, start_makespan INTEGER, seconds REAL NOT NULL,
    version TEXT NOT NULL, detail TEXT NOT NULL, tasks INTEGER NOT NULL, devices INTEGER NOT NULL,
    edges INTEGER NOT NULL, measures TEXT NOT NULL
);
CREATE TABLE traces (
    key TEXT NOT NULL REFERENCES cells (key), seconds REAL NOT NULL, makespan INTEGER, lower_bound INTEGER NOT NULL
);
CREATE INDEX traces_of ON traces (key);
CREATE VIEW rows AS
    SELECT key, ordinal, stage, instance, family, solver, formulation, limit_s, seed, parameters, state, status,
           limit_reason, makespan, lower_bound, bound_by, start_makespan, seconds, version, detail, tasks, devices,
           edges, measures
    FROM cells JOIN results USING (key);
"""
"""Tables for programs, and a view for people, which no program reads."""


def check_tables(connection: sqlite3.Connection, path: Path, remedy: str) -> None:
    """Raise InputError unless each table of a study is a plain table with all its columns, and no trigger runs."""
    # A virtual table is a table, too, but for its SQL.
    plain = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
    result = {name for (name,) in connection.execute(plain)}
    with closing(sqlite3.connect(":memory:")) as model:
        model.executescript(TABLES)
        tables = model.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        wanted = {name: [row[1] for row in model.execute(f"PRAGMA table_info({name})")] for (name,) in tables}
    for table, columns in wanted.items():
        if table not in result:
            raise InputError.build(f"not a study: it has no table {table}", where=shown(path), remedy=remedy)
        # Hidden ones are generated: they are computed, however long that takes, when they are read.
        hidden = {row[1]: row[6] for row in connection.execute(f"PRAGMA table_xinfo({table})")}
        wrong = [column for column in columns if hidden.get(column) != 0]
        if wrong:
            raise InputError.build(f"no such column: {table}.{wrong[0]}", where=shown(path), remedy=remedy)
    if connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").fetchone() != (0,):
        raise InputError.build("not a study: it has triggers", where=shown(path), remedy=remedy)


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
        rows = [
            (c.key, c.ordinal, c.stage, c.instance.label, c.instance.family, c.solver, c.formulation, c.limit_s, c.seed,
             json.dumps(c.parameters, sort_keys=True))
            for c in cells
        ]  # fmt: skip
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
                rows,
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
    """Read by a connection that cannot write and sees one state of the file; SQLite's errors become this project's."""
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
    budget = _StepBudget(path)
    try:
        name = f"file:{quote(os.path.realpath(path))}?{how}"
        with closing(sqlite3.connect(name, uri=True, timeout=WAIT_S)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.set_progress_handler(budget, _LOOK)
            connection.execute("BEGIN")
            return read(connection)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """The state of a study at one moment."""

    name: str
    tally: StudyTally
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
    if not path.is_file():
        raise FileError.build(f"cannot read {shown(path)}: there is no such file", remedy=REMEDY)

    def peek(connection: sqlite3.Connection) -> Peek:
        if connection.execute("PRAGMA user_version").fetchone()[0] != SCHEMA:
            raise InputError.build(f"no study of schema {SCHEMA}", where=shown(path), remedy=REMEDY)
        check_tables(connection, path, REMEDY)
        counted = """
            SELECT solver, formulation, status, count(*) FROM cells JOIN results USING (key) WHERE ordinal >= 0
            GROUP BY 1, 2, 3 ORDER BY min(ordinal), 4 DESC
        """
        statuses: dict[tuple[str, str], dict[str, int]] = {}
        for solver, formulation, status, count in connection.execute(counted):
            statuses.setdefault((solver, formulation), {})[status] = count
        study = connection.execute("SELECT name FROM study").fetchone()
        return Peek(name=study[0] if study else "", tally=tally(connection), statuses=statuses)

    return read_consistently(path, peek)
