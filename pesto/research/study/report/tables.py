"""The tables of a study's report: configurations, formulations, instances, failures, single cells, whole plans."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pesto.core.files.json import shown
from pesto.reporting.show.lines import Column, Kind, Table, Value, format_value, texts
from pesto.research.study.cells import FAILED
from pesto.research.study.report.curves import shifted_geometric_mean
from pesto.research.study.report.runs import (
    CONTRADICTED,
    INFEASIBLE,
    OPTIMAL,
    PENDING,
    STATUSES,
    Configuration,
    Floats,
    Ints,
    StageRuns,
    paired_cells,
    pairs_of_formulations,
    parameter_text,
)  # fmt: skip

_TEXTS = (
    "key", "stage", "instance", "family", "solver", "formulation", "seed", "parameters", "configuration", "status",
    "contradicted", "limit_reason", "bound_by", "version", "detail",
)  # fmt: skip
DETAIL = 160
"""Characters of a failure's reason."""
SECONDS = "seconds"
"""The measure that every cell of a plan has."""
_CIRCUMSTANCES = ("cores", "pesto")
"""Measures that say where a cell ran, not what came of it."""
_NO_MULTIPLE = "bound_ms"
"""Suffix of measures whose multiples are neither better nor worse, as those of bounds."""
MOST_MEASURES = 200
MOST = 1e300
"""A number that is larger is no measure."""
_SETTINGS = ("solver", "formulation", "limit_s")
Measured = list[dict[str, Value]]
"""The measures of each cell by name; nothing for one without a result."""
_NOTE = (
    "Gaps are (makespan - bound) / makespan; a cell without a schedule counts as 100 %, a proof that none exists "
    'as 0 %. In all seconds a failed cell counts with at least its limit, in "to proof" every cell without a '
    "proof. Refused cells enter no number but their count; a contradicted one is in no other column of statuses, "
    "but for a failure's."
)
_SIDES_NOTE = (
    "Each pair on the problems that both were given and have finished, the first of two numbers being that of the "
    "first formulation; of three, the second counts the problems on which both are equal (gaps: to a millionth)."
)
_PLANS_NOTE = "Multiples of the first row; each a geometric mean over the instances for which every setting has it."


def mean(values: Floats) -> float | None:
    """The mean of those that are numbers; None without one."""
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else None


def geometric(values: Floats) -> float | None:
    """The shifted geometric mean; None without a value."""
    return shifted_geometric_mean(values) if len(values) else None


def _of_limit(runs: StageRuns, mine: Ints) -> float | None:
    limit = runs.limit[mine][0] if len(mine) else 0.0
    area = mean(runs.primal_integral[mine])
    return area / float(limit) if area is not None and limit else None


_STATISTICS: dict[str, tuple[str, Kind, Callable[[StageRuns, Ints], float | None]]] = {
    "optimal": ("optimal", "number", lambda r, k: int((r.verdict[k] == OPTIMAL).sum())),
    "failed": ("failed", "number", lambda r, k: int(np.isin(r.status[k], FAILED).sum())),
    "mean_s": ("mean s", "seconds", lambda r, k: mean(r.spent[k])),
    "geometric_mean_s": ("shifted geometric mean s", "seconds", lambda r, k: geometric(r.spent[k])),
    "to_proof_s": (
        "to proof, geometric mean s",
        "seconds",
        lambda r, k: geometric(np.where(r.proved, r.seconds, np.fmax(r.spent, r.limit))[k]),
    ),
    "own_gap": ("mean gap, own bound", "percent", lambda r, k: mean(r.own_gap[k])),
    "best_gap": ("mean gap, best bound", "percent", lambda r, k: mean(r.best_gap[k])),
    "started": ("with a start", "number", lambda r, k: int((~np.isnan(r.start[k])).sum())),
    "improved": ("start improved", "number", lambda r, k: int((r.makespan[k] < r.start[k]).sum())),
    "closed": ("gap closed, best bound", "percent", lambda r, k: mean(r.closed[k])),
    "closed_own": ("gap closed, own bound", "percent", lambda r, k: mean(r.closed_own[k])),
    "primal_integral_s": ("primal integral (s)", "seconds", lambda r, k: mean(r.primal_integral[k])),
    "primal_integral_share": ("primal integral / limit", "percent", _of_limit),
}
"""Title, kind and function of each number that is stated of some cells that were posed, by its key."""
_OF_A_CONFIGURATION = tuple(_STATISTICS)[2:]
_OF_A_SIDE = ("optimal", "failed", "own_gap", "closed_own", "best_gap", "closed", "geometric_mean_s")
_DUELS = (("makespan", "shorter schedule"), ("gap", "smaller gap"))
_OUTCOMES = ("a_better", "equal", "b_better")


def configurations(runs: StageRuns) -> Table:
    """One row a configuration: what became of its cells, seconds, gaps, what it improved, primal integrals."""
    statuses = [*STATUSES, *sorted(set(runs.status.tolist()) - set(STATUSES))]
    columns = (
        *texts("configuration", "solver", "formulation"),
        Column(key="limit_s", title="limit (s)"),
        *(Column(key=shown(s, 40), title=shown(s, 40)) for s in ("cells", *statuses, CONTRADICTED)),
        *(Column(key=key, title=_STATISTICS[key][0], kind=_STATISTICS[key][1]) for key in _OF_A_CONFIGURATION),
    )
    rows = []
    for k, c in enumerate(runs.configurations):
        mine = runs.configuration == k
        count = Counter(runs.verdict[mine].tolist())
        posed, ran = np.flatnonzero(mine & runs.posed), (mine & runs.ran).any()
        numbers = [_STATISTICS[key][2](runs, posed) if ran else None for key in _OF_A_CONFIGURATION]
        head = (c.label, shown(c.solver), shown(c.formulation), c.limit_s, int(mine.sum()))
        rows.append((*head, *(count[s] for s in statuses), int((mine & runs.contradicted).sum()), *numbers))
    return Table(key="configurations", title="Configurations", columns=columns, rows=tuple(rows), note=_NOTE)


def formulations(runs: StageRuns) -> Table:
    """Every pair of formulations that one solver has with equal settings, "tight" first; a row a pair, for the CSV."""
    sides = ((key, *_STATISTICS[key][:2], x) for key in _OF_A_SIDE for x in "ab")
    columns = (
        *texts("solver", "settings"),
        Column(key="problems", title="problems"),
        *(Column(key=f"formulation_{x}", title=f"formulation {x}", kind="text") for x in "ab"),
        *(Column(key=f"{key}_{x}", title=f"{title} {x}", kind=kind) for key, title, kind, x in sides),
        *(Column(key=f"{key}_{x}", title=f"{title} {x}") for key, title in _DUELS for x in _OUTCOMES),
    )
    rows: list[tuple[Value, ...]] = []
    for a, b in pairs_of_formulations(runs):
        cells = paired_cells(runs, a, b)
        one, other = runs.configurations[a], runs.configurations[b]
        made = [np.where(np.isnan(runs.makespan[k]), np.inf, runs.makespan[k]) for k in cells]
        gaps = [np.round(runs.own_gap[k], 6) for k in cells]
        settings = shown(" ".join([f"{one.limit_s:g} s", *one.settings()]))
        head = (shown(one.solver), settings, len(cells[0]), shown(one.formulation), shown(other.formulation))
        numbers = (_STATISTICS[key][2](runs, k) for key in _OF_A_SIDE for k in cells)
        duels = (int(x.sum()) for p, q in (made, gaps) for x in (p < q, p == q, q < p))
        rows.append((*head, *numbers, *duels))
    title = "Formulations side by side"
    return Table(key="formulations", title=title, columns=columns, rows=tuple(rows), note=_SIDES_NOTE)


def compact(table: Table) -> Table:
    """The table of formulations for people: both sides in one column."""
    kinds = {c.key: c.kind for c in table.columns}
    merged = {"formulations": ["formulation_a", "formulation_b"]}
    merged |= {_STATISTICS[key][0]: [f"{key}_{x}" for x in "ab"] for key in _OF_A_SIDE}
    merged |= {title: [f"{key}_{x}" for x in _OUTCOMES] for key, title in _DUELS}
    rows = []
    for row in table.rows:
        line = dict(zip(kinds, row, strict=True))
        joined = (" / ".join(format_value(line[key], kinds[key]) for key in keys) for keys in merged.values())
        rows.append((*row[:3], *joined))
    columns = (*table.columns[:3], *texts(*merged))
    return Table(key=table.key, title=table.title, columns=columns, rows=tuple(rows), note=table.note)


def instances(runs: StageRuns) -> tuple[Table, ...]:
    """Matrices instance x configuration: overview, status, and means over seeds of makespan, bound, gap, seconds."""
    statuses: dict[tuple[int, int], list[str]] = defaultdict(list)
    for i, k, status in zip(runs.instance.tolist(), runs.configuration.tolist(), runs.verdict.tolist(), strict=True):
        statuses[i, k].append(status)
    places = [(i, k) for i in range(len(runs.instances)) for k in range(len(runs.configurations))]
    word = [summary(statuses[place]) if place in statuses else None for place in places]
    measured: tuple[tuple[str, str, Kind, Floats], ...] = (
        ("makespan", "makespan (ticks)", "number", runs.makespan),
        ("bound", "lower bound (ticks)", "number", runs.bound),
        ("gap", "gap by the own bound", "percent", runs.own_gap),
        ("seconds", "seconds", "seconds", runs.spent),
    )
    means = {key: [None if v != v else v for v in runs.mean(x).ravel().tolist()] for key, _, _, x in measured}  # noqa: PLR0124
    bare, overview = (*FAILED, PENDING, INFEASIBLE, CONTRADICTED, "unknown", None), list[str | None]()
    for status, gap, seconds in zip(word, means["gap"], means["seconds"], strict=True):
        if status == OPTIMAL:
            overview.append(f"0 % in {format_value(seconds, 'seconds')} s")
        else:
            overview.append(status if status in bare else format_value(gap, "percent"))
    return (
        _matrix(runs, ("overview", "gap by the own bound, and seconds to the proof of an optimum", "text"), overview),
        _matrix(runs, ("status", "status", "text"), word),
        *(_matrix(runs, (key, title, kind), means[key]) for key, title, kind, _ in measured),
    )


def summary(statuses: Sequence[str]) -> str:
    """Several cells' statuses: the one that all have, or how many have which."""
    count = Counter(statuses)
    if len(count) == 1:
        return shown(statuses[0], 40)
    return ", ".join(f"{n} {shown(status, 40)}" for status, n in count.most_common())


def _matrix(runs: StageRuns, what: tuple[str, str, Kind], values: Sequence[Value]) -> Table:
    key, title, kind = what
    width = len(runs.configurations)
    first = np.unique(runs.instance, return_index=True)[1]
    tasks = np.zeros(len(runs.instances), dtype=np.int64)
    np.maximum.at(tasks, runs.instance, [c.outcome.tasks if c.outcome else 0 for c in runs.cells])
    columns = (
        *texts("instance", "family"),
        Column(key="tasks", title="tasks"),
        Column(key="best_makespan", title="best makespan (ticks)"),
        Column(key="best_bound", title="best bound (ticks)"),
        *(Column(key=c.label, title=c.label, kind=kind) for c in runs.configurations),
    )
    best = [[None if np.isnan(v) else int(v) for v in x[first]] for x in (runs.best_makespan, runs.best_bound)]
    rows = tuple(
        (name, family, int(n) or None, made, bound, *values[k * width : (k + 1) * width])
        for k, (name, family, n, made, bound) in enumerate(
            zip(runs.instances, runs.families, tasks, *best, strict=True)
        )
    )
    return Table(key=f"instances_{key}", title=f"Instances: {title}", columns=columns, rows=rows)


def failures(*stages: StageRuns) -> Table:
    """Every cell that failed, and why."""
    rows = tuple(
        (
            runs.configurations[runs.configuration[k]].label, runs.instances[runs.instance[k]],
            str(cell.seed), cell.outcome.status, shown(cell.outcome.detail, DETAIL),
        )
        for runs in stages
        for k, cell in enumerate(runs.cells)
        if cell.outcome and cell.outcome.status in FAILED
    )  # fmt: skip
    columns = texts("configuration", "instance", "seed", "status", "detail")
    return Table(key="failures", title="Failed cells", columns=columns, rows=rows)


def single_cells(runs: StageRuns, key: str) -> Table:
    """One row a cell, the pending ones too: what the file has, and what follows from comparing it with the others."""
    numbers: dict[str, Floats] = {
        "limit_s": runs.limit, "seconds": runs.seconds, "makespan": runs.makespan, "lower_bound": runs.claimed,
        "start_makespan": runs.start, "best_makespan": runs.best_makespan, "best_bound": runs.best_bound,
        "own_gap": runs.own_gap, "best_gap": runs.best_gap, "closed": runs.closed, "closed_own": runs.closed_own,
        "primal_integral_s": runs.primal_integral,
    }  # fmt: skip
    columns = (*texts(*_TEXTS), *(Column(key=name, title=name) for name in numbers))
    rows: list[tuple[Value, ...]] = []
    for k, line in enumerate(np.stack(list(numbers.values()), axis=1).tolist()):
        c, o = runs.cells[k], runs.cells[k].outcome
        label, parameters = runs.configurations[runs.configuration[k]].label, json.dumps(c.parameters, sort_keys=True)
        head = (c.key, c.stage, c.instance, c.family, c.solver, c.formulation, str(c.seed), parameters, label)
        false = "yes" if runs.contradicted[k] else ""
        end = (o.status, false, o.limit_reason, o.bound_by, o.version, o.detail) if o else (c.state, *[""] * 5)
        rows.append((*head, *end, *(None if v != v else int(v) if v.is_integer() else v for v in line)))  # noqa: PLR0124
    return Table(key=key, title="Cells", columns=columns, rows=tuple(rows))


def measured_of(runs: StageRuns) -> Measured:
    """Flatten measures: values of a nested group as group.name; only numbers, booleans and texts are kept.

    So is where a cell ran, and a text that is the same in several cells, all that have it. Seconds are
    `StageRuns.spent`; a cell that was refused has none.
    """
    told = [dict(_leaves(cell.outcome.measures, "")) if cell.outcome else {} for cell in runs.cells]
    values: dict[str, list[Value]] = defaultdict(list)
    for name, value in (item for result in told for item in result.items()):
        values[name].append(value)
    same = {name for name, v in values.items() if len(v) > 1 and isinstance(v[0], str) and len(set(v)) == 1}
    return [
        ({} if s != s else {SECONDS: s})  # noqa: PLR0124
        | {name: v for name, v in result.items() if name not in same and name not in _CIRCUMSTANCES}
        for s, result in zip(runs.spent.tolist(), told, strict=True)
    ]


def _leaves(measures: dict[str, Any], prefix: str) -> Iterator[tuple[str, Value]]:
    for name, value in measures.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, str) or (isinstance(value, int | float) and abs(value) < MOST):
            yield shown(prefix + name, 60), value


def is_number(value: object) -> bool:
    """Return True if a setting or a measure is a number, and no truth."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def measure(runs: StageRuns, measured: Measured, name: str) -> Floats:
    """One numeric measure, instances x settings: the mean over the seeds, NaN where no finished cell has it."""
    result = (cell.get(name) for cell in measured)
    return runs.mean(np.array([value if is_number(value) else None for value in result], dtype=np.float64))


def plans(runs: StageRuns, measured: Measured) -> Table:
    """One row an instance and setting: status, and the mean over the seeds of each measure."""
    settings, names = dict[str, Kind](), _names(measured)
    for name in (*_SETTINGS, *dict(runs.configurations[0].parameters)):
        options = [_setting(c, name) for c in runs.configurations]
        if len(set(map(repr, options))) > 1:
            settings[name] = "number" if all(map(is_number, options)) else "text"
    columns = (
        *texts("instance"),
        *(Column(key=name, title=name, kind=kind) for name, kind in settings.items()),
        Column(key="cells", title="cells"),
        *texts("status"),
        *(Column(key=name, title=titled(name), kind=kind) for name, kind in names.items()),
    )
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for cell, place in enumerate(zip(runs.instance.tolist(), runs.configuration.tolist(), strict=True)):
        groups[place].append(cell)
    rows: list[tuple[Value, ...]] = []
    for (i, k), mine in sorted(groups.items()):
        values = [_setting(runs.configurations[k], name) for name in settings]
        numbers = [_together([measured[m].get(name) for m in mine]) for name in names]
        rows.append((runs.instances[i], *values, len(mine), summary(runs.verdict[mine].tolist()), *numbers))
    return Table(key="plans", title="Plans", columns=columns, rows=tuple(rows))


def multiples(runs: StageRuns, measured: Measured) -> Table:
    """One row a setting: each measure as a multiple of the first setting's, a geometric mean over common instances.

    Common are the instances for which every setting has the measure, above 0; a measure without one is left out.
    """
    numeric = [name for name, kind in _names(measured).items() if kind != "text" and not name.endswith(_NO_MULTIPLE)]
    values = {name: measure(runs, measured, name) for name in numeric}
    kept = {name: value[common] for name, value in values.items() if (common := (value > 0).all(axis=1)).any()}
    columns = (
        *texts("setting"),
        *(Column(key=name, title=f"{stem(name)}, {len(v)} instances", kind="multiple") for name, v in kept.items()),
    )
    ratio = [np.exp(np.log(v / v[:, :1]).mean(axis=0)).tolist() for v in kept.values()]
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (c.label, *(r[k] for r in ratio)) for k, c in enumerate(runs.configurations)
    )
    return Table(
        key="plan_multiples", title="Plans by setting", columns=columns, rows=rows if kept else (), note=_PLANS_NOTE
    )


def stem(name: str) -> str:
    """step_ms as "step"."""
    return titled(name).rpartition(" (")[0] or name.replace("_", " ")


def titled(name: str) -> str:
    """step_ms as "step (ms)"."""
    stem, _, unit = name.rpartition("_")
    return (f"{stem} ({unit})" if stem and unit in ("ms", "s") else name).replace("_", " ")


def _names(measured: Measured) -> dict[str, Kind]:
    """Measures in the order of their first appearance; one that anywhere is no number is a text."""
    kinds: dict[str, Kind] = {}
    for name, value in (item for result in measured for item in result.items()):
        kinds[name] = "number" if is_number(value) and kinds.get(name, "number") == "number" else "text"
    return dict(list(kinds.items())[:MOST_MEASURES])


def _together(values: list[Value]) -> Value:
    result = [v for v in values if v is not None]
    numbers = [v for v in result if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(result):
        return ", ".join(dict.fromkeys(shown(parameter_text(v), 60) for v in result))
    if len(set(numbers)) < 2:
        return numbers[0] if numbers else None
    return math.fsum(numbers) / len(numbers)


def _setting(configuration: Configuration, name: str) -> Value:
    value = getattr(configuration, name) if name in _SETTINGS else dict(configuration.parameters)[name]
    return value if isinstance(value, int | float) else shown(parameter_text(value), 60)
