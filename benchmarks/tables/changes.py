"""What if: plans that start from older ones, sweeps over changed clusters, and plans whose times are wrong."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pesto.choosing.whatif.grid import ClusterPoint, SweepGrid
from pesto.choosing.whatif.points import Sweep, SweepTask, sweep
from pesto.choosing.whatif.rerun import evaluator_of
from pesto.core.files.disk import write_atomic
from pesto.core.plans.plan import Plan
from pesto.core.problem import StepOnCluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.flow import SolveOutcome, solve
from pesto.planning.solving.tracker import Incumbent
from pesto.planning.solving.trust import ErrorModel, measure_trust, remake_candidates
from pesto.reporting.show.lines import head, ms, row
from pesto.reporting.show.sweep_page import draw_sweep
from pesto.research.reproduction.cached_cells import CellResult, CellSettings, Found, Key, WorkCell, step

NEAR = 1.01
STARTS = (
    ("rnnlm/2x2048", "v100x2-nvlink", "rnnlm/2x2048", "v100x4"),
    ("nmt/2x1024", "v100x2-nvlink", "nmt/2x1024", "v100x4"),
    ("nmt/2x1024", "v100x2-nvlink", "nmt/2x1024", "v100x2-pcie"),
    ("rnnlm/2x2048", "v100x2-nvlink", "rnnlm/4x2048", "v100x2-nvlink"),
)
"""A model and a cluster before a change, and after it."""
AXES: dict[str, tuple[float, ...]] = {
    "compute": (0.5, 1, 2, 4), "links": (0.1, 0.5, 1, 2), "devices": (1, 2, 4, 8),
}  # fmt: skip
SWEPT, TRUSTED = ("nmt/2x1024", "v100x2-nvlink"), (("nmt/2x1024", "v100x2-nvlink"), ("nasnet/4x212", "v100x4"))
NOISES = (0.1, 0.25, 0.5)
QUANTILES = ("step_s", "p10_s", "p50_s", "p90_s")


def cells() -> list[WorkCell]:
    """Changes from an older plan, one sweep, and errors of two steps' times."""
    return [
        *(WorkCell("starts", key, started) for key in STARTS),
        WorkCell("sweep", SWEPT, swept),
        *(WorkCell("trust", key, doubted) for key in TRUSTED),
    ]


def started(key: Key, settings: CellSettings) -> Found:
    """A solve from scratch and one from the plan before the change, with the CPU seconds of what they found."""
    before, after = step(key[0], key[1], settings), step(key[2], key[3], settings)
    old = _solved(before, settings, None)[0].plan
    scratch, scratch_heard = _solved(after, settings, None)
    again, again_heard = _solved(after, settings, old)
    aim = NEAR * scratch.plan.makespan_s
    ways = (("scratch", scratch, scratch_heard), ("start", again, again_heard))
    return {
        name: {
            "first_s": heard[0][1],
            "first_cpu_s": heard[0][0],
            "near_cpu_s": next((cpu for cpu, step_s in heard if step_s <= aim), None),
            "step_s": outcome.plan.makespan_s,
        }
        for name, outcome, heard in ways
    }


def _solved(
    at: StepOnCluster, settings: CellSettings, start: Plan | None
) -> tuple[SolveOutcome, list[tuple[float, float]]]:
    """A solve, and (CPU seconds, step) of each better plan on its way."""
    heard: list[tuple[float, float]] = []
    began = time.process_time()

    def hear(incumbent: Incumbent) -> None:
        heard.append((time.process_time() - began, incumbent.makespan_s))

    return solve(at.graph, at.cluster, at.costs, settings.settings, hear, start), heard


def starts(done: Mapping[Key, CellResult]) -> Iterator[str]:
    """Two rows a change."""
    yield from head(("from", "to", "how", "first plan, ms", "after CPU s", "within 1 % after", "step ms"), 3)
    for (model, cluster, other, there), one in done.items():
        for how, result in one.found.items():
            near = f"{result['near_cpu_s']:.1f}" if result["near_cpu_s"] is not None else "never"
            ends = (f"{model} on {cluster}", f"{other} on {there}") if how == "scratch" else ("", "")
            yield row((*ends, how, ms(result["first_s"]), f"{result['first_cpu_s']:.1f}", near, ms(result["step_s"])))


def swept(key: Key, settings: CellSettings) -> Found:
    """The rows of a sweep; its picture stands beside the graphs."""
    at = step(key[0], key[1], settings)
    grid = SweepGrid(base=ClusterPoint(devices=len(at.cluster.accelerators)), values=AXES)
    task = SweepTask(
        graph=at.graph, cluster=at.cluster, costs=lambda machine: load_costs(at.graph, machine, None),
        settings=settings.settings, grid=grid,
    )  # fmt: skip
    result = sweep(task, lambda _: None)
    write_atomic(picture(settings), draw_sweep(result, "png"))
    return {axis: [_point(result, axis, k) for k in range(len(values))] for axis, values in AXES.items()}


def picture(settings: CellSettings) -> Path:
    """Where the sweep's picture is."""
    return settings.drawn / "sweep-nmt.png"


def _point(found: Sweep, axis: str, at: int) -> Found:
    point = found.on(axis)[at]
    assert point.plan is not None and point.expert is not None
    return {
        "at": getattr(point.point, axis),
        "step_s": point.plan.makespan_s,
        "expert_s": point.expert.seconds,
        "saved": point.saved,
        "gap": point.plan.gap,
    }


def sweep_table(done: Mapping[Key, CellResult]) -> Iterator[str]:
    """A row a point."""
    yield from head(("axis", "value", "step ms", "Expert ms", "saved", "gap"))
    for one in done.values():
        for axis, points in one.found.items():
            for p in points:
                saved = "-" if p["saved"] is None else f"{p['saved']:.1%}"
                yield row((axis, f"{p['at']:g}", ms(p["step_s"]), ms(p["expert_s"]), saved, f"{p['gap']:.1%}"))


def doubted(key: Key, settings: CellSettings) -> Found:
    """The shortest quick candidate and its rivals at each noise, and what the draws take."""
    at = step(key[0], key[1], settings)
    bench = evaluator_of(at.graph, at.cluster, at.costs, per_edge=False)
    list(remake_candidates(bench, at.cluster))  # compiles, or reads what was compiled
    began = time.process_time()
    made = list(remake_candidates(bench, at.cluster))
    rivals_cpu_s, rows = time.process_time() - began, []
    best = min((c for c in made if c.fits), key=lambda c: c.makespan)
    for noise in NOISES:
        began = time.process_time()
        result = measure_trust(bench, at.cluster, best, made, ErrorModel(noise=noise, draws=100))
        took, plan = time.process_time() - began, result.plan
        rival, spread = next(iter(result.rivals.items()))
        most = max((result.kinds | result.links).items(), key=lambda each: each[1], default=("-", 0.0))
        rows.append({
            "noise": noise, "plan": best.name, "cpu_s": took, "rival": rival, "most": most,
            **{name: [getattr(plan, name), getattr(spread, name)] for name in QUANTILES},
            "best": [plan.best, spread.best],
        })  # fmt: skip
    return {"rivals_cpu_s": rivals_cpu_s, "rows": rows}


def trust_table(done: Mapping[Key, CellResult]) -> Iterator[str]:
    """A plan and its nearest rival at each noise."""
    columns = (
        "step",
        "noise",
        "candidate",
        "step ms",
        "p10",
        "p50",
        "p90",
        "shortest in",
        "varies most by",
        "draws, CPU s",
    )
    yield from head(columns)
    for (model, cluster), one in done.items():
        for at, result in enumerate(one.found["rows"]):
            for k, candidate in enumerate((result["plan"], result["rival"])):
                times = [ms(result[name][k]) for name in QUANTILES]
                kind, share = result["most"]
                ends = (f"{kind} {share:.0%}", f"{result['cpu_s']:.1f}") if k == 0 else ("", "")
                first = f"{model} on {cluster}" if at == k == 0 else ""
                yield row((first, result["noise"], candidate, *times, f"{result['best'][k]:.0%}", *ends))
    made = ", ".join(f"{one.found['rivals_cpu_s']:.1f}" for one in done.values())
    yield from ("", f"CPU seconds of making the rivals: {made}.")
