"""The tables of a study's report: configurations, instances, failures, single cells."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pesto.files.json import shown
from pesto.study.answers import FAILED
from pesto.study.report.gap_over_time import Progress
from pesto.study.report.profiles import shifted_geometric_mean
from pesto.study.report.rows import Floats, Ints
from pesto.study.report.runs import CONTRADICTED, INFEASIBLE, OPTIMAL, PENDING, STATUSES, Runs
from pesto.study.report.table import Column, Kind, Table, Value, written

Mask = NDArray[np.bool_]
DETAIL = 160
"""Characters of a failure's reason."""
_NOTE = (
    "Gaps are (makespan - bound) / makespan; a cell without a schedule counts as 100 %, a proof that none exists "
    'as 0 %. In all seconds a failed cell counts with at least its limit, in "to proof" every cell without a '
    "proof. Refused cells enter no number but their count; a contradicted one is in no other column of statuses, "
    "but for a failure's."
)


def configurations(runs: Runs, progress: Progress) -> Table:
    """One row a configuration: what became of its cells, seconds, gaps, what it improved, primal integrals."""
    statuses = [*STATUSES, *sorted(set(runs.status.tolist()) - set(STATUSES))]
    columns = (
        Column(key="configuration", title="configuration", kind="text"),
        Column(key="solver", title="solver", kind="text"),
        Column(key="formulation", title="formulation", kind="text"),
        Column(key="limit_s", title="limit (s)"),
        Column(key="cells", title="cells"),
        *(Column(key=shown(s, 40), title=shown(s, 40)) for s in statuses),
        Column(key=CONTRADICTED, title=CONTRADICTED),
        *(Column(key=key, title=title, kind=kind) for key, title, kind, _ in _STATISTICS),
        Column(key="primal_integral_s", title="primal integral (s)", kind="seconds"),
        Column(key="primal_integral_share", title="primal integral / limit", kind="percent"),
    )
    rows = []
    for k, c in enumerate(runs.configurations):
        mine = runs.configuration == k
        count = Counter(runs.verdict[mine].tolist())
        head = (c.label, shown(c.solver), shown(c.formulation), c.limit_s, int(mine.sum()))
        any_ran = bool((mine & runs.ran).any())
        numbers = [f(runs, mine & runs.posed) if any_ran else None for *_, f in _STATISTICS]
        area = mean(progress.primal_integral[mine]) if any_ran else None
        share = area / c.limit_s if area is not None and c.limit_s else None
        false = int((mine & runs.contradicted).sum())
        rows.append((*head, *(count[s] for s in statuses), false, *numbers, area, share))
    return Table(key="configurations", title="Configurations", columns=columns, rows=tuple(rows), note=_NOTE)


def mean(values: Floats) -> float | None:
    """The mean of those that are numbers; None without one."""
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else None


def geometric(values: Floats) -> float | None:
    """The shifted geometric mean; None without a value."""
    return shifted_geometric_mean(values) if len(values) else None


def _to_proof(runs: Runs, mine: Mask) -> float | None:
    spent = np.where(runs.proved, runs.seconds, np.fmax(runs.spent, runs.limit))
    return geometric(spent[mine])


_STATISTICS: tuple[tuple[str, str, Kind, Callable[[Runs, Mask], float | None]], ...] = (
    ("mean_s", "mean s", "seconds", lambda r, m: mean(r.spent[m])),
    ("geometric_mean_s", "shifted geometric mean s", "seconds", lambda r, m: geometric(r.spent[m])),
    ("to_proof_s", "to proof, geometric mean s", "seconds", _to_proof),
    ("own_gap", "mean gap, own bound", "percent", lambda r, m: mean(r.own_gap[m])),
    ("best_gap", "mean gap, best bound", "percent", lambda r, m: mean(r.best_gap[m])),
    ("started", "with a start", "number", lambda r, m: int((~np.isnan(r.start[m])).sum())),
    ("improved", "start improved", "number", lambda r, m: int((r.makespan[m] < r.start[m]).sum())),
    ("closed", "gap closed, best bound", "percent", lambda r, m: mean(r.closed[m])),
    ("closed_own", "gap closed, own bound", "percent", lambda r, m: mean(r.closed_own[m])),
)
"""Key, title, kind and function of each number in the table of configurations."""


def instances(runs: Runs) -> tuple[Table, ...]:
    """Matrices instance x configuration: overview, status, and means over seeds of makespan, bound, gap, seconds."""
    cell = runs.instance * len(runs.configurations) + runs.configuration
    shape = (len(runs.instances), len(runs.configurations))
    statuses: dict[int, list[str]] = defaultdict(list)
    for where, status in zip(cell.tolist(), runs.verdict.tolist(), strict=True):
        statuses[where].append(status)
    word = [summary(statuses[k]) if k in statuses else None for k in range(shape[0] * shape[1])]
    means = {key: _means(cell, values, shape[0] * shape[1]) for key, _, _, values in _measured(runs)}
    overview = [_glance(w, g, s) for w, g, s in zip(word, means["gap"], means["seconds"], strict=True)]
    return (
        _matrix(runs, "overview", "gap by the own bound, and seconds to the proof of an optimum", "text", overview),
        _matrix(runs, "status", "status", "text", word),
        *(_matrix(runs, key, title, kind, means[key]) for key, title, kind, _ in _measured(runs)),
    )


def _measured(runs: Runs) -> tuple[tuple[str, str, Kind, Floats], ...]:
    return (
        ("makespan", "makespan (ticks)", "number", runs.makespan),
        ("bound", "lower bound (ticks)", "number", runs.bound),
        ("gap", "gap by the own bound", "percent", runs.own_gap),
        ("seconds", "seconds", "seconds", runs.spent),
    )


def _means(cell: Ints, values: Floats, size: int) -> list[float | None]:
    known = ~np.isnan(values)
    count = np.bincount(cell[known], minlength=size)
    total = np.bincount(cell[known], weights=values[known], minlength=size)
    return [t / n if n else None for t, n in zip(total.tolist(), count.tolist(), strict=True)]


def summary(statuses: Sequence[str]) -> str:
    """Several cells' statuses: the one that all have, or how many have which."""
    count = Counter(statuses)
    if len(count) == 1:
        return shown(statuses[0], 40)
    return ", ".join(f"{n} {shown(status, 40)}" for status, n in count.most_common())


def _glance(status: str | None, gap: float | None, seconds: float | None) -> str | None:
    if status == OPTIMAL:
        return f"0 % in {written(seconds, 'seconds')} s"
    return (
        status if status in (*FAILED, PENDING, INFEASIBLE, CONTRADICTED, "unknown", None) else written(gap, "percent")
    )


def _matrix(runs: Runs, key: str, title: str, kind: Kind, values: Sequence[Value]) -> Table:
    width = len(runs.configurations)
    first = np.unique(runs.instance, return_index=True)[1]
    tasks = np.zeros(len(runs.instances), dtype=np.int64)
    np.maximum.at(tasks, runs.instance, [c.outcome.tasks if c.outcome else 0 for c in runs.cells])
    columns = (
        Column(key="instance", title="instance", kind="text"),
        Column(key="family", title="family", kind="text"),
        Column(key="tasks", title="tasks"),
        Column(key="best_makespan", title="best makespan (ticks)"),
        Column(key="best_bound", title="best bound (ticks)"),
        *(Column(key=c.label, title=c.label, kind=kind) for c in runs.configurations),
    )
    rows = tuple(
        (
            name, runs.families[k], int(tasks[k]) or None, *_ticks(runs.best_makespan[at], runs.best_bound[at]),
            *values[k * width : (k + 1) * width],
        )
        for k, (name, at) in enumerate(zip(runs.instances, first, strict=True))
    )  # fmt: skip
    return Table(key=f"instances_{key}", title=f"Instances: {title}", columns=columns, rows=rows)


def _ticks(*values: float) -> Iterable[int | None]:
    return (None if np.isnan(v) else int(v) for v in values)


def failures(runs: Runs) -> Table:
    """Every cell that failed, and why."""
    columns = tuple(
        Column(key=key, title=key, kind="text") for key in ("configuration", "instance", "seed", "status", "detail")
    )
    rows = tuple(
        (
            runs.configurations[runs.configuration[k]].label, runs.instances[runs.instance[k]],
            str(cell.seed), cell.outcome.status, shown(cell.outcome.detail, DETAIL),
        )
        for k, cell in enumerate(runs.cells)
        if cell.outcome and cell.outcome.status in FAILED
    )  # fmt: skip
    return Table(key="failures", title="Failed cells", columns=columns, rows=rows)


def single_cells(runs: Runs, progress: Progress) -> Table:
    """One row a cell, the pending ones too: what the file has, and what follows from comparing it with the others."""
    numbers: dict[str, Floats] = {
        "limit_s": runs.limit, "seconds": runs.seconds, "makespan": runs.makespan, "lower_bound": runs.claimed,
        "start_makespan": runs.start, "best_makespan": runs.best_makespan, "best_bound": runs.best_bound,
        "own_gap": runs.own_gap, "best_gap": runs.best_gap, "closed": runs.closed, "closed_own": runs.closed_own,
        "primal_integral_s": progress.primal_integral,
    }  # fmt: skip
    columns = (*(Column(key=t, title=t, kind="text") for t in _TEXTS), *(Column(key=n, title=n) for n in numbers))
    values = np.stack(list(numbers.values()), axis=1)
    rows = tuple(
        (*_texts(runs, k), *(None if v != v else int(v) if v.is_integer() else v for v in line))  # noqa: PLR0124
        for k, line in enumerate(values.tolist())
    )
    return Table(key="cells", title="Cells", columns=columns, rows=rows)


_TEXTS = (
    "key", "stage", "instance", "family", "solver", "formulation", "seed", "parameters", "configuration", "status",
    "contradicted", "limit_reason", "bound_by", "version", "detail",
)  # fmt: skip


def _texts(runs: Runs, k: int) -> tuple[str, ...]:
    c, o = runs.cells[k], runs.cells[k].outcome
    said = json.dumps(c.parameters, sort_keys=True)
    label = runs.configurations[runs.configuration[k]].label
    head = (c.key, c.stage, c.instance, c.family, c.solver, c.formulation, str(c.seed), said, label)
    false = "yes" if runs.contradicted[k] else ""
    return (*head, *((o.status, false, o.limit_reason, o.bound_by, o.version, o.detail) if o else (c.state, *[""] * 5)))
