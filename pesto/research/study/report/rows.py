"""The file of a study as values: read-only, as of one moment, nothing in it believed."""

import json
import math
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.research.study.cell_answer import SCHEMA, CellAnswer
from pesto.research.study.read_only_database import REMEDY, read_consistently
from pesto.research.study.schema import check_tables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_PARTS = 200
"""Objects and lists in the parameters or measures of one cell, which so nest no deeper."""

_CELLS = """
    SELECT c.ordinal, c.key, c.stage, c.instance, c.family, c.solver, c.formulation, c.limit_s, c.seed, c.parameters,
           c.state, r.key, r.status, r.limit_reason, r.makespan, r.lower_bound, r.bound_by, r.start_makespan,
           r.seconds, r.version, r.detail, r.tasks, r.devices, r.edges, r.measures
    FROM cells AS c LEFT JOIN results AS r ON r.key = c.key
    WHERE c.ordinal >= 0 ORDER BY c.ordinal, c.key
"""
_TRACES = """
    SELECT c.ordinal, CAST(t.seconds AS REAL), CAST(coalesce(t.makespan, -1) AS INTEGER),
           CAST(coalesce(t.lower_bound, 0) AS INTEGER)
    FROM traces AS t JOIN cells AS c ON c.key = t.key
    WHERE c.ordinal >= 0 AND typeof(t.seconds) IN ('real', 'integer')
"""
_FORMER = "SELECT count(*) FROM cells JOIN results USING (key) WHERE ordinal < 0"
_STEP = np.dtype([("cell", "i8"), ("seconds", "f8"), ("makespan", "i8"), ("bound", "i8")])


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """One cell of the grid: a row of `cells`, and its outcome once there is one."""

    key: str
    stage: str
    instance: str
    family: str
    solver: str
    formulation: str
    limit_s: float
    seed: int
    parameters: dict[str, Any]
    state: str
    outcome: CellAnswer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressTrace:
    """Progress of all cells, one entry a step, sorted by cell and time."""

    cell: Ints
    """Index into `StudyRows.cells`."""
    seconds: Floats
    makespan: Ints
    """Ticks; -1 while there is no schedule."""
    bound: Ints
    """Ticks that no schedule can beat, as far as proven by then."""

    def first_bound(self, at: Ints) -> Floats:
        """Bounds proven when each of the cells `at` began, in ticks; NaN where no step reports one."""
        if not len(self.cell):
            return np.full(len(at), np.nan)
        first = np.minimum(np.searchsorted(self.cell, at), len(self.cell) - 1)
        begun = (self.cell[first] == at) & (self.seconds[first] == 0)
        return np.where(begun, self.bound[first].astype(np.float64), np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRows:
    """A study as it stands at one moment; the cells in the order of the grid."""

    name: str
    created_by: str
    cells: tuple[CellRow, ...]
    trace: ProgressTrace
    former: int
    """Cells with a result that an earlier form of the study had (ordinal below 0); they are left out of the rest."""


def read(path: Path) -> StudyRows:
    """The study at `path`; a runner may be writing it meanwhile: what is read is one consistent state of it.

    FileError when it cannot be read; InputError when it is no study, newer than this program, damaged or empty.
    """
    return read_consistently(path, lambda connection: _read(connection, path))


def _read(connection: sqlite3.Connection, path: Path) -> StudyRows:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise InputError.build(
            f"schema {version} is newer than this program's {SCHEMA}", where=shown(path), remedy="update pesto"
        )
    if version < SCHEMA:
        raise InputError.build(f"not a study (schema {version})", where=shown(path), remedy=REMEDY)
    check_tables(connection, path, REMEDY)
    result = connection.execute("SELECT name, created_by_version FROM study").fetchall()
    if not result:
        raise InputError.build(
            "the study has no name, so it was never set up", where=shown(path), remedy="run pesto study run again"
        )
    name, created_by = result[0]
    ordinals, cells = _cells(connection, path)
    if not cells:
        raise InputError.build(
            "the study has no cells", where=shown(path), remedy="give it some: pesto study run STUDY.toml"
        )
    (former,) = connection.execute(_FORMER).fetchone()
    # Every step of every cell, sorted; steps at no possible time are left out.
    steps = np.fromiter(connection.execute(_TRACES), dtype=_STEP)
    steps = steps[np.isfinite(steps["seconds"]) & (steps["seconds"] >= 0)]
    cell = np.searchsorted(ordinals, steps["cell"])  # the cells come in the order of their ordinals
    order = np.lexsort((steps["seconds"], cell))
    makespan = np.maximum(steps["makespan"][order], -1)
    bound = np.maximum(steps["bound"][order], 0)
    trace = ProgressTrace(cell=cell[order], seconds=steps["seconds"][order], makespan=makespan, bound=bound)
    return StudyRows(name=str(name), created_by=str(created_by), cells=cells, trace=trace, former=former)


def _cells(connection: sqlite3.Connection, path: Path) -> tuple[Ints, tuple[CellRow, ...]]:
    ordinals, cells = [], []
    for row in connection.execute(_CELLS):
        try:
            ordinals.append(_whole(row[0]))
            _, *own = row[: len(_CELL) + 1]
            answered, *came = row[len(_CELL) + 1 :]
            outcome = None if answered is None else CellAnswer(key=str(answered), **_converted(_ANSWER, came))
            cell = CellRow(outcome=outcome, **_converted(_CELL, own))
            cells.append(cell)
        except (ValueError, TypeError, RecursionError) as error:
            where = f"{shown(path)}: cell {shown(row[1], 40)} is damaged"
            raise InputError.build(f"{where} ({shown(error, 80)})", remedy="restore a copy of the file") from error
    if len(set(ordinals)) < len(ordinals):
        raise InputError.build("two cells have one ordinal", where=shown(path), remedy="restore a copy of the file")
    return np.array(ordinals, dtype=np.int64), tuple(cells)


def _converted(fields: dict[str, Callable[[Any], Any]], values: list[Any]) -> dict[str, Any]:
    return {name: convert(value) for (name, convert), value in zip(fields.items(), values, strict=True)}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _count(value: Any) -> int:
    if _whole(value) < 0:
        raise ValueError(f"{value} is negative")
    return int(value)


def _amount(value: Any) -> float:
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not a number >= 0")
    return float(value)


def _object(text: Any) -> dict[str, Any]:
    if text and text.count("{") + text.count("[") > MOST_PARTS:
        raise ValueError("JSON of too many parts")
    result = json.loads(text or "{}", parse_constant=_refused)
    if not isinstance(result, dict):
        raise ValueError("JSON that is no object")
    return result


def _refused(word: str) -> float:
    raise ValueError(f"{word} in JSON")


def _maybe(value: Any) -> int | None:
    return None if value is None else _count(value)


def _or_zero(value: Any) -> int:
    return _count(value or 0)


_CELL: dict[str, Callable[[Any], Any]] = {
    "key": str, "stage": _text, "instance": _text, "family": _text, "solver": _text, "formulation": _text,
    "limit_s": _amount, "seed": _whole, "parameters": _object, "state": _text,
}  # fmt: skip
_ANSWER: dict[str, Callable[[Any], Any]] = {
    "status": _text, "limit_reason": _text, "makespan": _maybe, "lower_bound": _or_zero, "bound_by": _text,
    "start_makespan": _maybe, "seconds": lambda value: _amount(value or 0.0), "version": _text, "detail": _text,
    "tasks": _or_zero, "devices": _or_zero, "edges": _or_zero, "measures": _object,
}  # fmt: skip
"""How each value of a row becomes one of `CellRow` and `CellAnswer`, in the order of `_CELLS`."""
