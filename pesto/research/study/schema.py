"""Schema of a study's file, and its check: a view in place of a table could run for ever."""

import sqlite3
from contextlib import closing
from pathlib import Path

from pesto.core.errors import InputError
from pesto.core.files.json import shown

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
    """InputError unless each table of a study is a plain table with all its columns, and nothing runs by itself."""
    # A virtual table is a table, too, but for its SQL.
    plain = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
    result = {name for (name,) in connection.execute(plain)}
    for table, columns in _columns().items():
        if table not in result:
            raise InputError.build(f"not a study: it has no table {table}", where=shown(path), remedy=remedy)
        # Hidden ones are generated: they are computed, however long that takes, when they are read.
        hidden = {row[1]: row[6] for row in connection.execute(f"PRAGMA table_xinfo({table})")}
        wrong = [column for column in columns if hidden.get(column) != 0]
        if wrong:
            raise InputError.build(f"no such column: {table}.{wrong[0]}", where=shown(path), remedy=remedy)
    if connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").fetchone() != (0,):
        raise InputError.build("not a study: it has triggers", where=shown(path), remedy=remedy)


def _columns() -> dict[str, list[str]]:
    """The columns of each table."""
    with closing(sqlite3.connect(":memory:")) as model:
        model.executescript(TABLES)
        tables = model.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {name: [row[1] for row in model.execute(f"PRAGMA table_info({name})")] for (name,) in tables}
