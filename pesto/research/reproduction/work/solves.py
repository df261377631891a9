"""Solves, methods, sweeps and profiles for Pesto's tables and figures; seconds of a step are predictions."""

import time

import numpy as np

from pesto.choosing.comparison.contest import Entrants, compete
from pesto.core.costs.measured import load_profile, spread_quantiles
from pesto.core.files.graph_file import load
from pesto.core.problem import TICK_S, StepOnCluster, lanes
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.exact import ExactOutcome, solve_coarse
from pesto.planning.solving.flow import solve
from pesto.planning.solving.quick_candidates import baselines, multilevel
from pesto.planning.solving.tracker import run_stage
from pesto.research.reproduction.cached_cells import (
    CellSettings,
    Found,
    Key,
    file_of,
    machine,
    model_name,
    run_pesto,
    step,
    step_on,
)
from solvers import Options
from solvers.arrays import Ints
from solvers.heuristics.methods import PLACERS
from solvers.instances.plain import fork

BAECHI = ("m-topo", "m-etf", "m-sct")
RIVALS = ("single", "expert", *BAECHI)
"""Methods in the paper's Fig 7, and one GPU."""
CLASSES_S = (0.0, 10e-6, 100e-6, np.inf)
"""Table 1's classes of durations."""
STRIPES = 600
"""Stripes of a timeline: operations nearer than a step over this number are drawn as one."""
CLOCKED = "not repeatable"
"""Message of a solver that the clock ended although it should have counted effort."""
EXACT_S, NODES = 10.0, 200
"""Effort of the exact solver as seconds, and nodes of the coarse graph, in Fig 5."""


def counted(key: Key, settings: CellSettings) -> Found:
    """Ops of each class of Table 1, by the device on which an op is fastest."""
    seconds = np.nanmin(step(key[0], "v100x2-nvlink", settings).costs.compute_s, axis=1)
    return {"ops": np.histogram(seconds, bins=CLASSES_S)[0].tolist()}


def solved(key: Key, settings: CellSettings) -> Found:
    """The plan and its bound; seconds of a step."""
    return _solved(step(key[0], key[1], settings), settings)


def swept(key: Key, settings: CellSettings) -> Found:
    """The same on a cluster whose compute or links are VALUE times as fast: model, cluster, axis, value."""
    model, cluster, axis, value = key
    return _solved(step_on(model, machine(cluster, **{axis: float(value)}), settings), settings)


def _solved(at: StepOnCluster, settings: CellSettings) -> Found:
    graph, cluster, costs = at
    outcome = solve(graph, cluster, costs, settings.settings, lambda _: None)
    plan, made = outcome.plan, outcome.plan.provenance
    tick = plan.tick_s
    candidates = {name: c.makespan * tick for name, c in outcome.candidates.items() if c and c.fits}
    return {
        "step_s": plan.makespan_s,
        "bound_s": made.lower_bound_ticks * tick,
        "gap": plan.gap,
        "chosen": made.chosen,
        "order_saves": outcome.order.gain,
        "candidates_s": candidates,
    }


def rivalled(key: Key, settings: CellSettings) -> Found:
    """The steps of RIVALS, and whether each fits the memory."""
    graph, cluster, costs = step(key[0], key[1], settings)
    result = compete(graph, cluster, costs, settings.settings, lambda _: None, entrants=Entrants(RIVALS))
    entries = {
        e.method: {"step_s": e.makespan_s, "fits": e.plan is not None, "detail": e.detail} for e in result.entries
    }
    return {"methods": entries}


def placed(key: Key, settings: CellSettings) -> Found:
    """CPU seconds of Baechi's methods on the full graph: the least of two runs, once their code is there."""
    at = step(key[0], key[1], settings)
    problem = formulate(at.graph, at.costs, at.cluster, settings.settings)
    took = {}
    for name in BAECHI:
        place, runs = PLACERS[name].load(), []
        place(fork(4), Options(seconds=0))  # compiles, or reads what was compiled
        for _ in range(2):
            began = time.process_time()
            place(problem, Options(seconds=settings.seconds, deterministic=True))
            runs.append(time.process_time() - began)
        took[name] = min(runs)
    return {"ops": at.graph.ops, "cpu_s": took}


def congested(key: Key, settings: CellSettings) -> Found:
    """Predicted and simulated steps of an exact solver's schedule, with links and without them, and its timeline."""
    at, runs = step(key[0], key[1], settings), {}
    for name in ("with", "without"):
        exact = Settings(
            time_limit_s=min(EXACT_S, settings.seconds) if settings.tiny else EXACT_S, deterministic=True,
            solver="cpsat-windows", coarsen_to=NODES, congestion=name == "with", search=False,
        )  # fmt: skip
        problem = formulate(at.graph, at.costs, at.cluster, exact)
        evaluator = CandidateEvaluator.of(at.graph, problem, per_edge=False)
        planning = run_stage(baselines(evaluator, at.cluster))
        level = run_stage(multilevel(evaluator, planning, exact))[0]
        done: ExactOutcome = run_stage(solve_coarse(evaluator, level, exact))
        if CLOCKED in done.result.detail:
            raise RuntimeError(f"the exact solver was {done.result.detail}")
        last = done.last or (done.start.expanded if done.start else None)
        if last is None or done.result.schedule is None:
            raise RuntimeError("the exact solver found no schedule")
        schedule = last.timeline.schedule
        result, location = {}, np.array([index for _, index in lanes(at.cluster)])
        least = schedule.makespan / STRIPES
        for lane, (row, _) in enumerate(lanes(at.cluster)):
            mine = schedule.device == lane
            result[row] = _stripes(schedule.start[mine], schedule.finish[mine], least)
        source = location[schedule.device[last.timeline.problem.producer[schedule.sent_payload]]]
        held = last.timeline.problem.path_links[source, schedule.sent_to]
        for link, row in enumerate(at.cluster.links):
            mine = (held == link).any(axis=1)
            result[row] = _stripes(schedule.sent_start[mine], schedule.sent_finish[mine], least)
        runs[name] = {
            "promised_s": done.result.schedule.makespan * TICK_S,
            "step_s": last.makespan * TICK_S,
            "fits": last.fits,
            "transfers": len(last.timeline.schedule.sent_payload),
            "rows": {row: stripes for row, stripes in result.items() if stripes},
        }
    return runs


def _stripes(start: Ints, finish: Ints, least: float) -> list[list[float]]:
    """Intervals in seconds, those that all but touch as one."""
    result: list[list[float]] = []
    for k in np.argsort(start, kind="stable"):
        if result and start[k] - result[-1][1] <= least:
            result[-1][1] = max(result[-1][1], float(finish[k]))
        elif finish[k] > start[k]:
            result.append([float(start[k]), float(finish[k])])
    return [[round(a * TICK_S, 7), round(b * TICK_S, 7)] for a, b in result]


LEVELS = tuple(k / 40 for k in range(41))
"""Shares of the ops of 10 us or more."""
ITERATIONS = 100
"""Traced steps (Pesto, 3.1)."""


def measured(key: Key, settings: CellSettings) -> Found:
    """Quantiles of the normalised standard deviation, without the slowest tenth of the samples and of all."""
    name, _, batch = model_name(key[0], settings).partition("@")
    family, variant = name.split("/")
    path = settings.drawn / f"{family}-{variant}.profile.json"
    words = ["profile", "--model", family, "--variant", variant, *(["--batch", batch] if batch else [])]
    steps = str(3 if settings.tiny else ITERATIONS)
    run_pesto([*words, "--iterations", steps, "--keep-disturbed", "-o", str(path)])
    profile = load_profile(path, load(file_of(key[0], settings)))
    trimmed, raw = (spread_quantiles(profile, LEVELS, raw=raw) for raw in (False, True))
    seen = profile.seconds[~np.isnan(profile.seconds)]
    return {
        "device": profile.device,
        "others_cores": profile.noise.others_cores if profile.noise else None,
        "ops": len(seen),
        "long_ops": int((seen >= 10e-6).sum()),
        "trimmed": None if trimmed is None else [float(value) for value in trimmed],
        "raw": None if raw is None else [float(value) for value in raw],
    }
