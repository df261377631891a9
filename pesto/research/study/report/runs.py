"""The file of a study as values, and its cells as runs of configurations on instances beside the best known."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.research.study.cells import FAILED, PLAN, REFUSED, SCHEMA, CellAnswer, FiniteAmount
from pesto.research.study.report import curves
from pesto.research.study.report.curves import gap
from pesto.research.study.store import REMEDY, check_tables, read_consistently

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
T = TypeVar("T")

MOST_PARTS = 200
"""Objects and lists in the parameters or measures of one cell, which so nest no deeper."""

_CELL = (
    "ordinal", "key", "stage", "instance", "family", "solver", "formulation", "limit_s", "seed", "parameters", "state",
)  # fmt: skip
_ANSWER = (
    "key", "status", "limit_reason", "makespan", "lower_bound", "bound_by", "start_makespan", "seconds", "version",
    "detail", "tasks", "devices", "edges", "measures",
)  # fmt: skip
_CELLS = f"""
    SELECT {", ".join(f"c.{name}" for name in _CELL)}, {", ".join(f"r.{name}" for name in _ANSWER)}
    FROM cells AS c LEFT JOIN results AS r ON r.key = c.key
    WHERE c.ordinal >= 0 ORDER BY c.ordinal, c.key
"""  # noqa: S608 - constants
_TRACES = """
    SELECT c.ordinal, CAST(t.seconds AS REAL), CAST(coalesce(t.makespan, -1) AS INTEGER),
           CAST(coalesce(t.lower_bound, 0) AS INTEGER)
    FROM traces AS t JOIN cells AS c ON c.key = t.key
    WHERE c.ordinal >= 0 AND typeof(t.seconds) IN ('real', 'integer')
"""
_FORMER = "SELECT count(*) FROM cells JOIN results USING (key) WHERE ordinal < 0"
_STEP = np.dtype([("cell", "i8"), ("seconds", "f8"), ("makespan", "i8"), ("bound", "i8")])


class CellRow(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the grid: a row of `cells`, and its outcome once there is one."""

    ordinal: int = 0
    key: str
    stage: str = ""
    instance: str = ""
    family: str = ""
    solver: str = ""
    formulation: str = ""
    limit_s: FiniteAmount
    seed: int
    parameters: dict[str, Any] = {}
    state: str = ""
    outcome: CellAnswer | None = None


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
    cells = list[CellRow]()
    for row in connection.execute(_CELLS):
        own, came = row[: len(_CELL)], row[len(_CELL) :]
        try:
            outcome = None if came[0] is None else _decoded(CellAnswer, _ANSWER, came)
            cells.append(msgspec.structs.replace(_decoded(CellRow, _CELL, own), outcome=outcome))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            where = f"{shown(path)}: cell {shown(row[1], 40)} is damaged"
            raise InputError.build(f"{where} ({shown(error, 80)})", remedy="restore a copy of the file") from error
    ordinals = [cell.ordinal for cell in cells]
    if len(set(ordinals)) < len(ordinals):
        raise InputError.build("two cells have one ordinal", where=shown(path), remedy="restore a copy of the file")
    if not cells:
        raise InputError.build(
            "the study has no cells", where=shown(path), remedy="give it some: pesto study run STUDY.toml"
        )
    (former,) = connection.execute(_FORMER).fetchone()
    # Every step of every cell, sorted; steps at no possible time are left out.
    steps = np.fromiter(connection.execute(_TRACES), dtype=_STEP)
    steps = steps[np.isfinite(steps["seconds"]) & (steps["seconds"] >= 0)]
    cell = np.searchsorted(
        np.array(ordinals, dtype=np.int64), steps["cell"]
    )  # the cells come in the order of their ordinals
    order = np.lexsort((steps["seconds"], cell))
    makespan = np.maximum(steps["makespan"][order], -1)
    bound = np.maximum(steps["bound"][order], 0)
    trace = ProgressTrace(cell=cell[order], seconds=steps["seconds"][order], makespan=makespan, bound=bound)
    return StudyRows(name=str(name), created_by=str(created_by), cells=tuple(cells), trace=trace, former=former)


def _decoded(kind: type[T], names: Sequence[str], row: Sequence[Any]) -> T:
    """The struct that the columns of a row hold; NULL is the default. ValueError for a value that it cannot have."""
    values = {name: value for name, value in zip(names, row, strict=True) if value is not None}
    for name in values.keys() & {"parameters", "measures"}:
        text = values[name]
        if text.count("{") + text.count("[") > MOST_PARTS:
            raise ValueError("JSON of too many parts")
        values[name] = json.loads(text or "{}", parse_constant=_refuse_constant)
        if not isinstance(values[name], dict):
            raise ValueError("JSON that is no object")
    return msgspec.convert(values, kind)


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} in JSON")


PENDING, CONTRADICTED = "pending", "contradicted"
OPTIMAL, INFEASIBLE = "optimal", "infeasible"
STATUSES = (OPTIMAL, "feasible", INFEASIBLE, "unknown", *FAILED, PENDING)
NEVER_RAN = ("missing", REFUSED, PENDING)
_MADE_OF = "of"
"""The parameter that identifies the instance, and so belongs to no configuration."""
_FILE_NAMES = ("file", "cluster")
LONGEST = 100
"""Characters of the name of an instance or a configuration."""
_NOTHING = np.iinfo(np.int64).max
"""Stands for no schedule among makespans, where the least counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Unit of comparison of a study: a solver with its settings. `label` distinguishes it from the others."""

    solver: str
    formulation: str
    limit_s: float
    parameters: tuple[tuple[str, Any], ...]
    """Those, by name, that vary over an instance's cells."""
    label: str

    def settings(self, but: str = "") -> list[str]:
        """The parameters for people, less one of them."""
        return [f"{p}={parameter_text(v)}" for p, v in self.parameters if p != but]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The steps of all runs that were posed and have finished, sorted by run and time, as `curves` takes them."""

    run: Ints
    """Index into the cells of the `StageRuns`."""
    seconds: Floats
    gap: Floats
    """Primal-dual gap of the run from here on, by its own bound."""
    primal: Floats
    """Primal gap from here on, against the best makespan known for the instance."""


@dataclass(frozen=True, kw_only=True)
class StageRuns:
    """The cells of a stage as columns, one entry a cell; NaN where there is no number. Times in seconds, else ticks."""

    cells: tuple[CellRow, ...]
    at: Ints
    """Index of each cell in the whole study."""
    instances: tuple[str, ...]
    families: tuple[str, ...]
    """One entry an instance."""
    instance: Ints
    problem: Ints
    """Instance and seed; runs of one problem are comparable one by one."""
    configurations: tuple[Configuration, ...]
    configuration: Ints
    trace: ProgressTrace
    """Progress of all cells of the study."""
    status: NDArray[np.str_]
    """Status of each cell; "pending" without a result."""
    finished: NDArray[np.bool_]
    """Cells with a result."""
    makespan: Floats
    """Makespan at the end."""
    start: Floats
    """Makespan of the schedule that the solver was given."""
    claimed: Floats
    """Lower bound at the end, as the file has it."""
    seconds: Floats
    """Wall-clock seconds, as the file has them."""
    limit: Floats
    """Time limit, seconds."""

    @cached_property
    def posed(self) -> NDArray[np.bool_]:
        """Cells with a result whose solver was given the problem: only these are compared."""
        return self.finished & (self.status != REFUSED)

    @cached_property
    def ran(self) -> NDArray[np.bool_]:
        """Cells whose solver ran at all."""
        return ~np.isin(self.status, NEVER_RAN)

    @cached_property
    def proved(self) -> NDArray[np.bool_]:
        """Cells that are decided: optimal, or proven infeasible; not those that a known schedule contradicts."""
        return np.isin(self.status, (OPTIMAL, INFEASIBLE)) & ~self.contradicted

    @cached_property
    def contradicted(self) -> NDArray[np.bool_]:
        """Cells with a bound above a known schedule, or with a proof that none exists where there is one."""
        return (self.claimed > self.best_makespan) | self._denied

    @cached_property
    def verdict(self) -> NDArray[np.str_]:
        """Status of each cell, "contradicted" in place of the one that it claims; a failure stays one."""
        return np.where(self.contradicted & ~np.isin(self.status, FAILED), CONTRADICTED, self.status)

    @cached_property
    def bound(self) -> Floats:
        """Lower bound at the end; of a contradicted cell, what was proven before it began, if that may be true."""
        before = np.where(self._first_bound <= self.best_makespan, self._first_bound, np.nan)
        return np.where(self.contradicted, before, self.claimed)

    @cached_property
    def spent(self) -> Floats:
        """Seconds as they count in means: of a failed cell at least its limit, of a refused one NaN."""
        spent = np.where(np.isin(self.status, FAILED), np.fmax(self.seconds, self.limit), self.seconds)
        return np.where(self.posed, spent, np.nan)

    @cached_property
    def best_makespan(self) -> Floats:
        """Least makespan known for each cell's instance: by any configuration, seed or start."""
        known = np.fmin(self.makespan, self.start)
        best = np.full(len(self.instances), np.inf)
        np.fmin.at(best, self.instance, known)
        return np.where(np.isinf(best), np.nan, best)[self.instance]

    @cached_property
    def best_bound(self) -> Floats:
        """Largest bound proven by any configuration for each cell's instance, without the contradicted ones."""
        best = np.zeros(len(self.instances))
        np.fmax.at(best, self.instance, self.bound)
        return best[self.instance]

    @cached_property
    def own_gap(self) -> Floats:
        """Gap of each cell that was posed against its own bound: 1 without a schedule, 0 if proven infeasible."""
        return self._final(gap(self.makespan, self.bound))

    @cached_property
    def best_gap(self) -> Floats:
        """Gap of each cell that was posed against the best bound known."""
        return self._final(gap(self.makespan, self.best_bound))

    @cached_property
    def closed_own(self) -> Floats:
        """Share of the gap between the start and the bound known before that the cell closed by itself."""
        began = np.where(np.isnan(self._first_bound), np.nan, gap(self.start, self._first_bound))
        return self._closed(began, self.own_gap)

    @cached_property
    def closed(self) -> Floats:
        """(start gap - end gap) / start gap, both against the best bound known; 0 without a schedule at the end."""
        return self._closed(gap(self.start, self.best_bound), self.best_gap)

    @cached_property
    def conflicts(self) -> tuple[str, ...]:
        """Describe the contradictions between cells, one line each."""
        best, lines = self.best_makespan, []
        for wrong, what in ((self.claimed > best, "lower bound {:.0f}"), (self._denied, "proven infeasible")):
            for k in np.flatnonzero(wrong).tolist():
                who = f"{self.configurations[self.configuration[k]].label} on {self.instances[self.instance[k]]}"
                lines.append(f"{who}: {what.format(self.claimed[k])}, but a schedule of {best[k]:.0f} is known")
        return tuple(lines)

    @cached_property
    def progress(self) -> RunProgress:
        """Steps from the traces, from the start and from the final result, which has the last word.

        A streamed makespan better than what the run delivered does not count, nor a bound above its last one, nor
        anything past the limit. A run that delivers no schedule had a gap of 1 throughout; a proof of infeasibility
        leaves no gap. So a failure is as bad as can be, not absent.
        """
        trace, proven = self.trace, _whole(self.bound)
        delivered = np.where(np.isnan(self.makespan), _NOTHING, _whole(self.makespan))
        run = np.minimum(np.searchsorted(self.at, trace.cell), max(len(self.at) - 1, 0))
        counts = (self.at[run] == trace.cell) & self.posed[run] & (trace.seconds <= self.limit[run])
        run = run[counts]
        streamed = np.where(trace.makespan < 0, _NOTHING, trace.makespan)[counts]
        begun, ended = np.flatnonzero(self.posed & ~np.isnan(self.start)), np.flatnonzero(self.posed)
        started = np.maximum(_whole(self.start), delivered)[begun]
        stopped = np.minimum(self.seconds, self.limit)[ended]
        makespan = np.concatenate([np.maximum(streamed, delivered[run]), started, delivered[ended]])
        bound = np.concatenate([np.minimum(trace.bound[counts], proven[run]), np.zeros_like(begun), proven[ended]])
        run = np.concatenate([run, begun, ended])
        seconds = np.concatenate([trace.seconds[counts], np.zeros(len(begun)), stopped])
        order = np.lexsort((seconds, run))
        run, seconds = run[order], seconds[order]
        lowest = curves.lowest_so_far(run, makespan[order])
        highest = -curves.lowest_so_far(run, -bound[order])
        schedule = np.where(lowest == _NOTHING, np.nan, lowest)
        decided = self.none_exists[run] & (order >= len(order) - int(self.posed.sum()))
        return RunProgress(
            run=run,
            seconds=seconds,
            gap=np.where(decided, 0.0, gap(schedule, highest.astype(np.float64))),
            primal=np.where(decided, 0.0, curves.primal_gap(schedule, self.best_makespan[run])),
        )

    @cached_property
    def primal_integral(self) -> Floats:
        """Seconds, up to the cell's limit; NaN while it is pending or if it was refused."""
        area = curves.integral(self.progress.run, self.progress.seconds, self.progress.primal, self.limit)
        return np.where(self.posed, area, np.nan)

    @cached_property
    def none_exists(self) -> NDArray[np.bool_]:
        """Cells that prove that there is no schedule."""
        return self._denies & ~self.contradicted

    @cached_property
    def _first_bound(self) -> Floats:
        return self.trace.first_bound(self.at)

    @cached_property
    def _denies(self) -> NDArray[np.bool_]:
        return (self.status == INFEASIBLE) & np.isnan(self.makespan)

    @cached_property
    def _denied(self) -> NDArray[np.bool_]:
        return self._denies & ~np.isnan(self.best_makespan)

    def mean(self, values: Floats) -> Floats:
        """The mean over seeds of one value a cell, instances x configurations; NaN where no cell has a number."""
        total, count = np.zeros((2, len(self.instances), len(self.configurations)))
        known = ~np.isnan(values)
        place = self.instance[known], self.configuration[known]
        np.add.at(total, place, values[known])
        np.add.at(count, place, 1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def _final(self, value: Floats) -> Floats:
        return np.where(self.posed, np.where(self.none_exists, 0.0, value), np.nan)

    def _closed(self, begin: Floats, end: Floats) -> Floats:
        end = np.where(np.isnan(self.makespan), begin, end)
        known = self.posed & ~np.isnan(self.start) & (begin > 0)
        return np.where(known, (begin - end) / np.where(begin > 0, begin, 1.0), np.nan)


def group_runs(rows: StudyRows, *, plans: bool) -> StageRuns:
    """The cells of stage "plan", or all others, grouped."""
    at = np.array([k for k, c in enumerate(rows.cells) if (c.stage == PLAN) == plans], dtype=np.int64)
    cells = tuple(rows.cells[k] for k in at)
    result, instance = _coded([_identity(c) for c in cells])
    names = {int(i): c.instance for i, c in reversed(list(zip(instance, cells, strict=True)))}
    _, problem = _coded(list(zip(instance.tolist(), (c.seed for c in cells), strict=True)))
    configurations, configuration = _configured(cells)
    family = {int(i): c.family for i, c in zip(instance, cells, strict=True)}

    def told(name: str) -> Floats:
        return np.array([getattr(c.outcome, name, None) for c in cells], dtype=np.float64)

    return StageRuns(
        cells=cells,
        at=at,
        instances=_unique([shown(names[i], LONGEST) for i in range(len(result))]),
        families=tuple(shown(family[i], LONGEST) for i in range(len(result))),
        instance=instance,
        problem=problem,
        configurations=configurations,
        configuration=configuration,
        trace=rows.trace,
        status=np.array([c.outcome.status if c.outcome else PENDING for c in cells]),
        finished=np.array([c.outcome is not None for c in cells], dtype=bool),
        makespan=told("makespan"),
        start=told("start_makespan"),
        claimed=told("lower_bound"),
        seconds=told("seconds"),
        limit=np.array([c.limit_s for c in cells]),
    )


def comparable(runs: StageRuns) -> tuple[Ints, Ints]:
    """Comparable runs: (configurations of which a run ran, problems that each was given and has finished)."""
    drawn = np.unique(runs.configuration[runs.ran])
    kept = runs.posed & np.isin(runs.configuration, drawn)
    pairs = np.unique(np.stack([runs.problem[kept], runs.configuration[kept]]), axis=1)
    problems, count = np.unique(pairs[0], return_counts=True)
    return drawn, problems[count == len(drawn)]


def pairs_of_formulations(runs: StageRuns) -> list[tuple[int, int]]:
    """Configurations that differ in nothing but their formulation, two by two, "tight" before others."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for k, c in enumerate(runs.configurations):
        if c.formulation:
            groups[c.solver, c.limit_s, repr(c.parameters)].append(k)
    ordered = (sorted(g, key=lambda k: runs.configurations[k].formulation != "tight") for g in groups.values())
    return [pair for group in ordered for pair in combinations(group, 2)]


def paired_cells(runs: StageRuns, a: int, b: int) -> tuple[Ints, Ints]:
    """Cells of configurations `a` and `b` on each problem that both were given and have finished, in one order."""
    mine = [np.flatnonzero((runs.configuration == k) & runs.posed) for k in (a, b)]
    _, first, second = np.intersect1d(runs.problem[mine[0]], runs.problem[mine[1]], return_indices=True)
    return mine[0][first], mine[1][second]


def _whole(values: Floats) -> Ints:
    return np.nan_to_num(values, nan=0.0).astype(np.int64)


def _coded(keys: list[Any]) -> tuple[list[Any], Ints]:
    """Distinct keys in the order of their first appearance, and each key's index among them."""
    index = {key: k for k, key in enumerate(dict.fromkeys(keys))}
    return list(index), np.array([index[key] for key in keys], dtype=np.int64)


def _identity(cell: CellRow) -> tuple[str, str]:
    """Name of an instance and, since two may have one, what it is made `of`; a file is its hash, whatever its name."""
    of = cell.parameters.get(_MADE_OF)
    if isinstance(of, dict) and of.get("sha256"):
        return "", repr(sorted((k, repr(v)) for k, v in of.items() if k not in _FILE_NAMES))
    return cell.instance, repr(of)


def _configured(cells: tuple[CellRow, ...]) -> tuple[tuple[Configuration, ...], Ints]:
    # Parameters with several values on one instance; one that goes with the instance says nothing new.
    values: dict[tuple[tuple[str, str], str], set[str]] = defaultdict(set)
    names = [p for p in dict.fromkeys(p for c in cells for p in c.parameters) if p != _MADE_OF]
    for c in cells:
        for p in names:
            values[_identity(c), p].add(repr(c.parameters.get(p)))
    several_values = {p for (_, p), texts in values.items() if len(texts) > 1}
    varied = [p for p in names if p in several_values]
    keys = [(c.solver, c.formulation, c.limit_s, tuple(repr(c.parameters.get(p)) for p in varied)) for c in cells]
    result, index = _coded(keys)
    first = [cells[k] for k in np.unique(index, return_index=True)[1]]
    several = [len({key[part] for key in result}) > 1 for part in range(3)]
    labels = []
    for c in first:
        parts = [c.solver] if several[0] or not (varied or any(several)) else []
        parts += [c.formulation] if several[1] and c.formulation else []
        parts += [f"{c.limit_s:g} s"] if several[2] else []
        parts += [f"{p}={parameter_text(c.parameters.get(p))}" for p in varied]
        labels.append(shown(" ".join(parts), LONGEST))
    made = (
        Configuration(
            solver=c.solver, formulation=c.formulation, limit_s=c.limit_s, label=label,
            parameters=tuple((p, c.parameters.get(p)) for p in varied),
        )
        for c, label in zip(first, _unique(labels), strict=True)
    )  # fmt: skip
    return tuple(made), index


def parameter_text(value: Any) -> str:
    """A parameter's value for people."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _unique(labels: list[str]) -> tuple[str, ...]:
    """Labels that were cut to the same text, told apart by a number."""
    seen: dict[str, int] = defaultdict(int)
    made = []
    for label in labels:
        seen[label] += 1
        made.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return tuple(made)
