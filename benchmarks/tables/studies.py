"""The shipped studies that depend on what kernels cost, each run whole into one file."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from statistics import mean

from pesto.reporting.show.lines import head, row
from pesto.research.reproduction.cached_cells import CellResult, CellSettings, Found, Key, WorkCell

READ = (
    "SELECT instance, solver, formulation, status, makespan, lower_bound, seconds, parameters, measures FROM rows "
    "WHERE ordinal >= 0 ORDER BY ordinal"
)


def cells() -> list[WorkCell]:
    """One for each study."""
    return [WorkCell("studies", (name,), ran) for name in TABLES]


def file_of(name: str, settings: CellSettings) -> Path:
    """The study's file, from which `pesto study report` makes pages and pictures."""
    return settings.drawn / f"{name}.sqlite"


def ran(key: Key, settings: CellSettings) -> Found:
    """The rows of a study, one cell at a time; in a rehearsal its first cell alone."""
    path = file_of(key[0], settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [
        "study",
        "run",
        key[0],
        "--db",
        str(path),
        "--jobs",
        "1",
        *(["--limit-cells", "1"] if settings.tiny else []),
    ]
    done = subprocess.run([sys.executable, "-m", "pesto", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    with closing(sqlite3.connect(path)) as file:
        file.row_factory = sqlite3.Row
        return {"rows": [dict(each) for each in file.execute(READ)]}


def congestion(done: Mapping[Key, CellResult]) -> Iterator[str]:
    """What the last schedule promised and what it came to, with links and without them."""
    yield from head(
        ("step", "with: promised, real (ms)", "without: promised, real (ms)", "real, without / with", "plan ms")
    )
    for instance, pair in _pairs(_plans(done, "congestion"), "congestion").items():
        real = [each["last_step_ms"] for each in pair.values()]
        said = [f"{_one(each['coarse_ms'])}, {_one(each['last_step_ms'])}" for each in pair.values()]
        times = f"{real[1] / real[0]:.2f}" if len(real) == 2 and all(real) else "-"
        yield row((instance, *said, times, ", ".join(_one(each["step_ms"]) for each in pair.values())))


def coarsening(done: Mapping[Key, CellResult]) -> Iterator[str]:
    """Each size of coarse graph, a row a step and size."""
    yield from head(
        ("step", "nodes", "coarse ms", "its bound ms", "start, expanded ms", "last, expanded ms", "plan ms")
    )
    for each in _plans(done, "coarsening"):
        names = ("coarse_ms", "coarse_bound_ms", "start_step_ms", "last_step_ms", "step_ms")
        yield row((each["instance"], each["coarse_nodes"], *(_one(each.get(name)) for name in names)))


def _plans(done: Mapping[Key, CellResult], name: str) -> list[Found]:
    """Instance, settings and measures of each plan cell."""
    rows = done[name,].found["rows"] if (name,) in done else []
    return [{**json.loads(r["parameters"]), **json.loads(r["measures"]), "instance": r["instance"]} for r in rows]


def _pairs(plans: list[Found], setting: str) -> dict[str, dict[bool, Found]]:
    """Instance -> by the value of a setting, true first."""
    result: dict[str, dict[bool, Found]] = {}
    for each in sorted(plans, key=lambda plan: not plan[setting]):
        result.setdefault(each["instance"], {})[each[setting]] = each
    return result


def models(done: Mapping[Key, CellResult]) -> Iterator[str]:
    """Each solver on the coarse steps; the best bound is the best of all solvers."""
    rows = done["solvers-models",].found["rows"] if ("solvers-models",) in done else []
    best = {r["instance"]: max(o["lower_bound"] for o in rows if o["instance"] == r["instance"]) for r in rows}
    yield from head(("configuration", "mean gap, own bound", "mean gap, best bound"))
    for name in dict.fromkeys((r["solver"], r["formulation"]) for r in rows):
        mine = [r for r in rows if (r["solver"], r["formulation"]) == name and r["makespan"]]
        own = [1 - r["lower_bound"] / r["makespan"] for r in mine]
        known = [1 - best[r["instance"]] / r["makespan"] for r in mine]
        yield row((" ".join(name).strip(), *(f"{mean(gaps):.1%}" if gaps else "-" for gaps in (own, known))))


def _one(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.1f}"


TABLES = {"congestion": congestion, "coarsening": coarsening, "solvers-models": models}
"""By study."""
