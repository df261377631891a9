"""Lower bounds: what anchors add on full graphs, and each idea on coarse ones."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from benchmarks import bounds as ideas
from benchmarks.tables.steps import CLUSTERS
from pesto.core.problem import TICK_S
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.reporting.show.lines import head, ms, row
from pesto.research.instances import coarsened
from pesto.research.reproduction.cached_cells import (
    PAPER,
    CellResult,
    CellSettings,
    Found,
    Key,
    WorkCell,
    file_of,
    step,
)
from solvers import Options, api
from solvers.bounds import quick_bounds
from solvers.bounds.certificate import follows
from solvers.bounds.full import full_bound

COARSE = (
    ("nmt/2x1024", "v100x2-nvlink"), ("transformer/6x16x2048", "v100x4"), ("rnnlm/2x2048", "v100x2-pcie"),
    ("nasnet/4x212", "v100x2-nvlink"),
)  # fmt: skip
NODES, WINDOWS_S, REFUTING_S = 200, 5.0, 5.0
"""Of the coarse graphs; of `cpsat-windows`, which counts effort; of the refuting ideas, by the clock."""


def cells() -> list[WorkCell]:
    """Full graphs on the two clusters of two GPUs, and some coarse ones."""
    full = [WorkCell("bounds", (model, cluster), bounded) for model in PAPER for cluster in CLUSTERS[:2]]
    return full + [WorkCell("bounds-coarse", key, coarse) for key in COARSE]


def bounded(key: Key, settings: CellSettings) -> Found:
    """The fast bound, the bound by anchors, and the check of its evidence, in CPU seconds."""
    problem = step(key[0], key[1], settings).problem()
    full_bound(problem, seconds=0.0)  # compiles, or reads what was compiled
    fast, began = quick_bounds.best(problem)[0], time.process_time()
    result = full_bound(problem, seconds=float("inf"))
    then = time.process_time()
    if result.evidence is not None and follows(problem, result.evidence) != result.ticks:
        raise AssertionError("the evidence does not prove the bound")
    return {
        "ops": problem.tasks,
        "fast_s": fast * TICK_S,
        "bound_s": result.ticks * TICK_S,
        "cpu_s": then - began,
        "check_cpu_s": time.process_time() - then,
        "kB": len(json.dumps(msgspec.to_builtins(result.evidence))) / 1e3 if result.evidence else 0.0,
    }


def full(done: Mapping[Key, CellResult], plans: Mapping[Key, CellResult]) -> Iterator[str]:
    """Bounds of full graphs, beside the plans of the results."""
    columns = (
        "step",
        "links",
        "ops",
        "plan ms",
        "fast ms",
        "bound ms",
        "gap before",
        "after",
        "CPU s",
        "check CPU s",
        "kB",
    )
    yield from head(columns, 2)
    gaps: dict[str, list[tuple[float, float]]] = {}
    for (model, cluster), one in done.items():
        result, links = one.found, cluster.rpartition("-")[2]
        plan = plans[model, cluster].found["step_s"] if (model, cluster) in plans else None
        pair = [1 - result[name] / plan for name in ("fast_s", "bound_s")] if plan else []
        gaps.setdefault(links, []).extend([(pair[0], pair[1])] if pair else [])
        yield row((
            model, links, result["ops"], ms(plan), ms(result["fast_s"]), ms(result["bound_s"]),
            *([f"{g:.1%}" for g in pair] or ["-", "-"]),
            f"{result['cpu_s']:.1f}", f"{result['check_cpu_s']:.2f}", f"{result['kB']:.0f}",
        ))  # fmt: skip
    for links, pairs in gaps.items():
        means = [f"{sum(column) / len(pairs):.1%}" for column in zip(*pairs, strict=True)]
        yield row(("mean", links, "", "", "", "", *means, "", "", "")) if pairs else ""


def coarse(key: Key, settings: CellSettings) -> Found:
    """Each idea's gap on a coarse graph, to the best of list scheduling, exact windows and CP-SAT."""
    result = coarsened(Source(file=file_of(key[0], settings)), key[1], Settings(coarsen_to=NODES)).problem
    listed = api.solve(result, "list").schedule
    options = Options(seconds=WINDOWS_S, deterministic=True, start=listed)
    best = api.solve(result, "cpsat-windows", options).schedule
    best = api.solve(result, "cpsat", replace(options, start=best)).schedule
    assert listed is not None and best is not None
    return {"start_s": listed.makespan * TICK_S, "row": ideas.row(result, best.makespan, REFUTING_S)}


def coarse_table(done: Mapping[Key, CellResult]) -> Iterator[str]:
    """Gaps in per cent; ticks as milliseconds."""
    middle = ("fast", *ideas.SEGMENTS, *ideas.REFUTING)
    yield from head(("coarse graph", "cluster", "nodes", "list ms", "known ms", *middle, "bound ms", "CPU s"), 2)
    for (model, cluster), one in done.items():
        tasks, known, *gaps, bound, cpu = one.found["row"]
        known, bound = (ms(int(ticks) * TICK_S) for ticks in (known, bound))
        yield row((model, cluster, tasks, ms(one.found["start_s"]), known, *gaps, bound, cpu))
