"""Whole plans of training steps: every measure by the settings that vary."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pesto.files.json import shown
from pesto.study.report.rows import Floats
from pesto.study.report.runs import Configuration, Runs, said
from pesto.study.report.table import Column, Kind, Table, Value
from pesto.study.report.tables import summary

SECONDS = "seconds"
"""The measure that every cell has."""
_CIRCUMSTANCES = ("cores", "pesto")
"""Measures that say where a cell ran, not what came of it."""
_NO_MULTIPLE = "bound_ms"
"""Of a bound a multiple says neither better nor worse; so does any measure whose name ends with this."""
MOST_MEASURES = 200
MOST = 1e300
"""A number that is larger is no measure."""


Measured = list[dict[str, Value]]
"""The measures of each cell by name; nothing for one without a result."""


def measured_of(runs: Runs) -> Measured:
    """What was measured: of a nested group, each value as group.name; what is no number, truth or text is left out.

    So is where a cell ran, and a text that is the same in several cells, all that have it. Seconds are
    `Runs.spent`; a cell that was refused has none.
    """
    told = [dict(_leaves(cell.outcome.measures, "")) if cell.outcome else {} for cell in runs.cells]
    dull = {*_CIRCUMSTANCES, *_constant_texts(told)}
    return [
        ({} if s != s else {SECONDS: s}) | {name: v for name, v in found.items() if name not in dull}  # noqa: PLR0124
        for s, found in zip(runs.spent.tolist(), told, strict=True)
    ]


def _constant_texts(told: Measured) -> Iterator[str]:
    values: dict[str, list[Value]] = defaultdict(list)
    for found in told:
        for name, value in found.items():
            values[name].append(value)
    for name, all_of_it in values.items():
        if len(all_of_it) > 1 and isinstance(all_of_it[0], str) and len(set(all_of_it)) == 1:
            yield name


def plans(runs: Runs, measured: Measured) -> Table:
    """One row an instance and setting: status, and the mean over the seeds of each measure."""
    settings, names = _settings(runs), _names(measured)
    columns = (
        Column(key="instance", title="instance", kind="text"),
        *(Column(key=name, title=name, kind=kind) for name, kind in settings),
        Column(key="cells", title="cells"),
        Column(key="status", title="status", kind="text"),
        *(Column(key=name, title=titled(name), kind=kind) for name, kind in names.items()),
    )
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for cell, place in enumerate(zip(runs.instance.tolist(), runs.configuration.tolist(), strict=True)):
        groups[place].append(cell)
    rows: list[tuple[Value, ...]] = []
    for (i, k), mine in sorted(groups.items()):
        values = [_setting(runs.configurations[k], name) for name, _ in settings]
        numbers = [_together([measured[m].get(name) for m in mine]) for name in names]
        rows.append((runs.instances[i], *values, len(mine), summary(runs.verdict[mine].tolist()), *numbers))
    return Table(key="plans", title="Plans", columns=columns, rows=tuple(rows))


def multiples(runs: Runs, measured: Measured) -> Table:
    """One row a setting: each measure as a multiple of the first setting's, a geometric mean over common instances.

    Common are the instances for which every setting has the measure, above 0; a measure without one is left out.
    """
    numeric = [name for name, kind in _names(measured).items() if kind != "text" and not name.endswith(_NO_MULTIPLE)]
    values = {name: measure(runs, measured, name) for name in numeric}
    kept = {name: value[common] for name, value in values.items() if (common := (value > 0).all(axis=1)).any()}
    columns = (
        Column(key="setting", title="setting", kind="text"),
        *(Column(key=name, title=f"{stem(name)}, {len(v)} instances", kind="multiple") for name, v in kept.items()),
    )
    ratio = [np.exp(np.log(v / v[:, :1]).mean(axis=0)) for v in kept.values()]
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (c.label, *(float(r[k]) for r in ratio)) for k, c in enumerate(runs.configurations)
    )
    note = "Multiples of the first row; each a geometric mean over the instances for which every setting has it."
    return Table(key="plan_multiples", title="Plans by setting", columns=columns, rows=rows if kept else (), note=note)


def measure(runs: Runs, measured: Measured, name: str) -> Floats:
    """One numeric measure, instances x settings: the mean over the seeds, NaN where no finished cell has it."""
    shape = (len(runs.instances), len(runs.configurations))
    values = np.array([_number(found.get(name)) for found in measured])
    total, count = np.zeros(shape), np.zeros(shape)
    known = ~np.isnan(values)
    place = runs.instance[known], runs.configuration[known]
    np.add.at(total, place, values[known])
    np.add.at(count, place, 1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def stem(name: str) -> str:
    """step_ms as "step"."""
    return titled(name).rpartition(" (")[0] or name.replace("_", " ")


def titled(name: str) -> str:
    """step_ms as "step (ms)"."""
    stem, _, unit = name.rpartition("_")
    text = f"{stem} ({unit})" if stem and unit in ("ms", "s") else name
    return text.replace("_", " ")


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _leaves(measures: dict[str, Any], prefix: str) -> Iterator[tuple[str, Value]]:
    for name, value in measures.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, str) or (isinstance(value, int | float) and abs(value) < MOST):
            yield shown(prefix + name, 60), value


def _names(measured: Iterable[dict[str, Value]]) -> dict[str, Kind]:
    """Measures in the order of their first appearance; one that anywhere is no number is a text."""
    kinds: dict[str, Kind] = {}
    for found in measured:
        for name, value in found.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            kinds[name] = "number" if number and kinds.get(name, "number") == "number" else "text"
    return dict(list(kinds.items())[:MOST_MEASURES])


def _together(values: list[Value]) -> Value:
    """Several seeds' values as one: the mean of numbers, the distinct ones of texts."""
    found = [v for v in values if v is not None]
    if not found:
        return None
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in found):
        numbers = [v for v in found if isinstance(v, int | float)]
        return numbers[0] if len(set(numbers)) == 1 else math.fsum(numbers) / len(numbers)
    return ", ".join(dict.fromkeys(shown(said(v), 60) for v in found))


def _settings(runs: Runs) -> list[tuple[str, Kind]]:
    """Names of what varies among the settings, and whether it is a number."""
    names = ["solver", "formulation", "limit_s", *dict(runs.configurations[0].parameters)]
    found: list[tuple[str, Kind]] = []
    for name in names:
        values = [_setting(c, name) for c in runs.configurations]
        if len(set(map(repr, values))) > 1:
            plain = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
            found.append((name, "number" if plain else "text"))
    return found


def _setting(configuration: Configuration, name: str) -> Value:
    if name in ("solver", "formulation", "limit_s"):
        value = getattr(configuration, name)
        return value if isinstance(value, float) else shown(value, 60)
    value = dict(configuration.parameters)[name]
    return value if isinstance(value, int | float) else shown(said(value), 60)
