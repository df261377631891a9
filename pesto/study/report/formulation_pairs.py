"""Two formulations of one solver side by side: on the same problems, with the same settings."""

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from pesto.files.json import shown
from pesto.study.answers import FAILED
from pesto.study.report.rows import Ints
from pesto.study.report.runs import OPTIMAL, Runs, said
from pesto.study.report.table import Column, Kind, Table, Value, written
from pesto.study.report.tables import geometric, mean

_SIDES: tuple[tuple[str, str, Kind, Callable[[Runs, Ints], float | None]], ...] = (
    ("optimal", "optimal", "number", lambda r, k: int((r.verdict[k] == OPTIMAL).sum())),
    ("failed", "failed", "number", lambda r, k: int(np.isin(r.status[k], FAILED).sum())),
    ("own_gap", "mean gap, own bound", "percent", lambda r, k: mean(r.own_gap[k])),
    ("closed_own", "gap closed, own bound", "percent", lambda r, k: mean(r.closed_own[k])),
    ("best_gap", "mean gap, best bound", "percent", lambda r, k: mean(r.best_gap[k])),
    ("closed", "gap closed, best bound", "percent", lambda r, k: mean(r.closed[k])),
    ("geometric_mean_s", "shifted geometric mean s", "seconds", lambda r, k: geometric(r.spent[k])),
)
"""Key, title, kind and function of what is stated of each side."""
_DUELS = (("makespan", "shorter schedule"), ("gap", "smaller gap"))
_OUTCOMES = ("a_better", "equal", "b_better")
NOTE = (
    "Each pair on the problems that both were given and have finished, the first of two numbers being that of the "
    "first formulation; of three, the second counts the problems on which both are equal (gaps: to a millionth)."
)


def formulations(runs: Runs) -> Table:
    """Every pair of formulations that one solver has with equal settings, "tight" first; a row a pair, for the CSV."""
    columns = (
        Column(key="solver", title="solver", kind="text"),
        Column(key="settings", title="settings", kind="text"),
        Column(key="problems", title="problems"),
        *(Column(key=f"formulation_{x}", title=f"formulation {x}", kind="text") for x in "ab"),
        *(Column(key=f"{key}_{x}", title=f"{title} {x}", kind=kind) for key, title, kind, _ in _SIDES for x in "ab"),
        *(Column(key=f"{key}_{x}", title=f"{title} {x}") for key, title in _DUELS for x in _OUTCOMES),
    )
    rows = tuple(_side_by_side(runs, a, b) for a, b in formulation_pairs(runs))
    return Table(key="formulations", title="Formulations side by side", columns=columns, rows=rows, note=NOTE)


def compact(table: Table) -> Table:
    """The same for people: both sides in one column."""
    kinds = {c.key: c.kind for c in table.columns}
    merged = [("formulations", ["formulation_a", "formulation_b"])]
    merged += [(title, [f"{key}_{x}" for x in "ab"]) for key, title, _, _ in _SIDES]
    merged += [(title, [f"{key}_{x}" for x in _OUTCOMES]) for key, title in _DUELS]
    lines = [dict(zip(kinds, row, strict=True)) for row in table.rows]
    rows = tuple(
        (
            *(line[key] for key in ("solver", "settings", "problems")),
            *(" / ".join(written(line[key], kinds[key]) for key in keys) for _, keys in merged),
        )
        for line in lines
    )
    columns = (*table.columns[:3], *(Column(key=title, title=title, kind="text") for title, _ in merged))
    return Table(key=table.key, title=table.title, columns=columns, rows=rows, note=table.note)


def formulation_pairs(runs: Runs) -> list[tuple[int, int]]:
    """Configurations that differ in nothing but their formulation, two by two, "tight" before others."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for k, c in enumerate(runs.configurations):
        if c.formulation:
            groups[c.solver, c.limit_s, repr(c.parameters)].append(k)
    pairs = []
    for group in groups.values():
        ordered = sorted(group, key=lambda k: runs.configurations[k].formulation != "tight")
        pairs += [(a, b) for i, a in enumerate(ordered) for b in ordered[i + 1 :]]
    return pairs


def paired(runs: Runs, a: int, b: int) -> tuple[Ints, Ints]:
    """Cells of configurations `a` and `b` on each problem that both were given and have finished, in one order."""
    mine = [np.flatnonzero((runs.configuration == k) & runs.posed) for k in (a, b)]
    _, first, second = np.intersect1d(runs.problem[mine[0]], runs.problem[mine[1]], return_indices=True)
    return mine[0][first], mine[1][second]


def _side_by_side(runs: Runs, a: int, b: int) -> tuple[Value, ...]:
    cells = paired(runs, a, b)
    one, other = runs.configurations[a], runs.configurations[b]
    settings = " ".join([f"{one.limit_s:g} s", *(f"{p}={said(v)}" for p, v in one.parameters)])
    made = [np.where(np.isnan(runs.makespan[k]), np.inf, runs.makespan[k]) for k in cells]
    gaps = [np.round(runs.own_gap[k], 6) for k in cells]
    return (
        *(shown(one.solver), shown(settings), len(cells[0]), shown(one.formulation), shown(other.formulation)),
        *(f(runs, k) for *_, f in _SIDES for k in cells),
        *(int(x.sum()) for p, q in (made, gaps) for x in (p < q, p == q, q < p)),
    )
