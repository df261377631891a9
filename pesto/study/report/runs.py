"""The cells of one stage as runs of configurations on instances, with the best that anybody found as the measure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pesto.files.json import shown
from pesto.study.answers import FAILED, PLAN, REFUSED
from pesto.study.report.curves import gap
from pesto.study.report.rows import Cell, Floats, Ints, Rows

PENDING, CONTRADICTED = "pending", "contradicted"
OPTIMAL, INFEASIBLE = "optimal", "infeasible"
STATUSES = (OPTIMAL, "feasible", INFEASIBLE, "unknown", *FAILED, PENDING)
NEVER_RAN = ("missing", REFUSED, PENDING)
_MADE_OF = "of"
"""The parameter that identifies the instance, and so belongs to no configuration."""
_FILE_NAMES = ("file", "cluster")
LONGEST = 100
"""Characters of the name of an instance or a configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a study compares: a solver with its settings. `label` names what tells it from the others."""

    solver: str
    formulation: str
    limit_s: float
    parameters: tuple[tuple[str, Any], ...]
    """Those, by name, that vary over an instance's cells."""
    label: str


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The cells of a stage as columns, one entry a cell; NaN where there is no number. Times in seconds, else ticks."""

    cells: tuple[Cell, ...]
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
    start_bound: Floats
    """What was proven before the solver began, as the trace has it."""

    @cached_property
    def status(self) -> NDArray[np.str_]:
        """Status of each cell; "pending" without a result."""
        return np.array([c.outcome.status if c.outcome else PENDING for c in self.cells])

    @cached_property
    def finished(self) -> NDArray[np.bool_]:
        """Cells with a result."""
        return np.array([c.outcome is not None for c in self.cells], dtype=bool)

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
        return (self.claimed > self.best_makespan) | (self._denies & ~np.isnan(self.best_makespan))

    @cached_property
    def verdict(self) -> NDArray[np.str_]:
        """Status of each cell, "contradicted" in place of the one that it claims; a failure stays one."""
        return np.where(self.contradicted & ~np.isin(self.status, FAILED), CONTRADICTED, self.status)

    @cached_property
    def makespan(self) -> Floats:
        """Makespan at the end."""
        return _numbers(c.outcome.makespan if c.outcome else None for c in self.cells)

    @cached_property
    def start(self) -> Floats:
        """Makespan of the schedule that the solver was given."""
        return _numbers(c.outcome.start_makespan if c.outcome else None for c in self.cells)

    @cached_property
    def claimed(self) -> Floats:
        """Lower bound at the end, as the file has it."""
        return _numbers(c.outcome.lower_bound if c.outcome else None for c in self.cells)

    @cached_property
    def bound(self) -> Floats:
        """Lower bound at the end; of a contradicted cell, what was proven before it began, if that may be true."""
        before = np.where(self.start_bound <= self.best_makespan, self.start_bound, np.nan)
        return np.where(self.contradicted, before, self.claimed)

    @cached_property
    def seconds(self) -> Floats:
        """Wall-clock seconds, as the file has them."""
        return _numbers(c.outcome.seconds if c.outcome else None for c in self.cells)

    @cached_property
    def spent(self) -> Floats:
        """Seconds as they count in means: of a failed cell at least its limit, of a refused one NaN."""
        spent = np.where(np.isin(self.status, FAILED), np.fmax(self.seconds, self.limit), self.seconds)
        return np.where(self.posed, spent, np.nan)

    @cached_property
    def limit(self) -> Floats:
        """Time limit."""
        return _numbers(c.limit_s for c in self.cells)

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
        began = np.where(np.isnan(self.start_bound), np.nan, gap(self.start, self.start_bound))
        return self._closed(began, self.own_gap)

    @cached_property
    def closed(self) -> Floats:
        """(start gap - end gap) / start gap, both against the best bound known; 0 without a schedule at the end."""
        return self._closed(gap(self.start, self.best_bound), self.best_gap)

    @cached_property
    def conflicts(self) -> tuple[str, ...]:
        """What makes cells contradicted, one line each."""
        return tuple(self._conflicts())

    @cached_property
    def none_exists(self) -> NDArray[np.bool_]:
        """Cells that prove that there is no schedule."""
        return self._denies & ~self.contradicted

    @cached_property
    def _denies(self) -> NDArray[np.bool_]:
        return (self.status == INFEASIBLE) & np.isnan(self.makespan)

    def _final(self, value: Floats) -> Floats:
        return np.where(self.posed, np.where(self.none_exists, 0.0, value), np.nan)

    def _closed(self, begin: Floats, end: Floats) -> Floats:
        end = np.where(np.isnan(self.makespan), begin, end)
        known = self.posed & ~np.isnan(self.start) & (begin > 0)
        return np.where(known, (begin - end) / np.where(begin > 0, begin, 1.0), np.nan)

    def _conflicts(self) -> Iterator[str]:
        best = self.best_makespan
        for k in np.flatnonzero(self.claimed > best).tolist():
            yield f"{self._who(k)}: lower bound {self.claimed[k]:.0f}, but a schedule of {best[k]:.0f} is known"
        for k in np.flatnonzero(self._denies & ~np.isnan(best)).tolist():
            yield f"{self._who(k)}: proven infeasible, but a schedule of {best[k]:.0f} is known"

    def _who(self, k: int) -> str:
        return f"{self.configurations[self.configuration[k]].label} on {self.instances[self.instance[k]]}"


def runs_of(rows: Rows, *, plans: bool) -> Runs:
    """The cells of stage "plan", or all others, grouped."""
    at = np.array([k for k, c in enumerate(rows.cells) if (c.stage == PLAN) == plans], dtype=np.int64)
    cells = tuple(rows.cells[k] for k in at)
    found, instance = _coded([_identity(c) for c in cells])
    names = {int(i): c.instance for i, c in reversed(list(zip(instance, cells, strict=True)))}
    _, problem = _coded(list(zip(instance.tolist(), (c.seed for c in cells), strict=True)))
    configurations, configuration = _configured(cells)
    family = {int(i): c.family for i, c in zip(instance, cells, strict=True)}
    return Runs(
        cells=cells,
        at=at,
        instances=_unique([shown(names[i], LONGEST) for i in range(len(found))]),
        families=tuple(shown(family[i], LONGEST) for i in range(len(found))),
        instance=instance,
        problem=problem,
        configurations=configurations,
        configuration=configuration,
        start_bound=rows.trace.first_bound(at),
    )


def common(runs: Runs) -> tuple[Ints, Ints]:
    """What can be compared: (configurations of which a run ran, problems that each was given and has finished)."""
    drawn = np.unique(runs.configuration[runs.ran])
    kept = runs.posed & np.isin(runs.configuration, drawn)
    pairs = np.unique(np.stack([runs.problem[kept], runs.configuration[kept]]), axis=1)
    problems, count = np.unique(pairs[0], return_counts=True)
    return drawn, problems[count == len(drawn)]


def _numbers(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _coded(keys: list[Any]) -> tuple[list[Any], Ints]:
    """Distinct keys in the order of their first appearance, and each key's index among them."""
    index = {key: k for k, key in enumerate(dict.fromkeys(keys))}
    return list(index), np.array([index[key] for key in keys], dtype=np.int64)


def _identity(cell: Cell) -> tuple[str, str]:
    """Name of an instance and, since two may have one, what it is made `of`; a file is its hash, whatever its name."""
    of = cell.parameters.get(_MADE_OF)
    if isinstance(of, dict) and of.get("sha256"):
        return "", repr(sorted((k, repr(v)) for k, v in of.items() if k not in _FILE_NAMES))
    return cell.instance, repr(of)


def _configured(cells: tuple[Cell, ...]) -> tuple[tuple[Configuration, ...], Ints]:
    varied = _varied(cells)
    keys = [(c.solver, c.formulation, c.limit_s, tuple(repr(c.parameters.get(p)) for p in varied)) for c in cells]
    found, index = _coded(keys)
    first = [cells[k] for k in np.unique(index, return_index=True)[1]]
    several = [len({key[part] for key in found}) > 1 for part in range(3)]
    labels = _unique([_label(c, varied, several) for c in first])
    made = [
        Configuration(
            solver=c.solver,
            formulation=c.formulation,
            limit_s=c.limit_s,
            parameters=tuple((p, c.parameters.get(p)) for p in varied),
            label=label,
        )
        for c, label in zip(first, labels, strict=True)
    ]
    return tuple(made), index


def _varied(cells: tuple[Cell, ...]) -> list[str]:
    """Parameters with several values on one instance; one that goes with the instance says nothing new."""
    values: dict[tuple[tuple[str, str], str], set[str]] = defaultdict(set)
    names = [p for p in dict.fromkeys(p for c in cells for p in c.parameters) if p != _MADE_OF]
    for c in cells:
        for p in names:
            values[_identity(c), p].add(repr(c.parameters.get(p)))
    several = {p for (_, p), found in values.items() if len(found) > 1}
    return [p for p in names if p in several]


def said(value: Any) -> str:
    """A parameter's value for people."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _label(cell: Cell, varied: list[str], several: list[bool]) -> str:
    parts = [cell.solver] if several[0] or not (varied or any(several)) else []
    parts += [cell.formulation] if several[1] and cell.formulation else []
    parts += [f"{cell.limit_s:g} s"] if several[2] else []
    parts += [f"{p}={said(cell.parameters.get(p))}" for p in varied]
    return shown(" ".join(parts), LONGEST)


def _unique(labels: list[str]) -> tuple[str, ...]:
    """Labels that were cut to the same text, told apart by a number."""
    seen: dict[str, int] = defaultdict(int)
    made = []
    for label in labels:
        seen[label] += 1
        made.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return tuple(made)
