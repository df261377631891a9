"""How far a study is, read while it may be running."""

import sqlite3
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pesto.core.errors import FileError, InputError
from pesto.core.files.json import shown
from pesto.research.study.cell_answer import SCHEMA
from pesto.research.study.read_only_database import REMEDY, read_consistently
from pesto.research.study.schema import check_tables
from pesto.research.study.store import StudyTally, tally


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
    return read_consistently(path, lambda connection: _peek(connection, path))


def _peek(connection: sqlite3.Connection, path: Path) -> Peek:
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
    result = connection.execute("SELECT name FROM study").fetchone()
    return Peek(name=result[0] if result else "", tally=tally(connection), statuses=statuses)
