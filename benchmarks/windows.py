"""What engines make of windows of a plan, and annealing of the same plan, for each CPU second.

    python -m benchmarks.windows GRAPH... --seconds 5

GRAPH is a file of `pesto import`. The plan is that of a solve without windows (`--first`, seconds of the clock), on two
V100 with NVLink. Then annealing on the full graph, and windows by each engine, one at a time and in one thread, go on
from it for so many CPU seconds, however long they take; a slice of an integer program is one of the clock.
"""

import argparse
import os
import time
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

import numpy as np

from pesto.core.files.graph_file import load
from pesto.core.problem import build_problem
from pesto.core.settings import Settings
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.flow import solve
from solvers import Options, Problem, Schedule
from solvers.arrays import rank_of
from solvers.base import SolveMonitor
from solvers.search.annealing import PointValue, Temperature, Walk
from solvers.search.workspace import Solution, Workspace
from solvers.windows.solver import WindowSearch

CLUSTER = "v100x2-nvlink"
ENGINES = {"cpsat": "ortools", "highs": "highspy", "cbc": "pulp"}
HEATS = (5e-4, 1e-4)
"""Of annealing on the full graph: as hot as the first round of a solve on it, and as the last."""


def main() -> None:
    """Print a line for each graph and engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=Path, metavar="GRAPH")
    parser.add_argument("--seconds", type=float, default=5.0, help="CPU seconds of each engine")
    parser.add_argument("--first", type=float, default=15.0, help="time limit of the plan to begin with")
    given = parser.parse_args()
    print("| step | begins with, ms | engine | CPU s | less | less a CPU second |\n|---|---:|---|---:|---:|---:|")
    for path in given.graphs:
        graph, machine = load(path), load_cluster(CLUSTER)
        costs = load_costs(graph, machine, None)
        problem = build_problem(graph, costs, machine, memory=graph.param_bytes)
        with mock.patch("pesto.planning.solving.exact.WINDOW_SHARE", 0.0):
            start = solve(graph, machine, costs, Settings(time_limit_s=given.first), lambda _: None).plan.schedule
        for name in (*(f"annealing, {heat:g}" for heat in HEATS), *ENGINES):
            # OR-Tools and HiGHS crash in one process.
            with get_context("spawn").Pool(1) as pool:
                makespan, cpu_s = pool.apply(measured, (name, problem_parts(problem), start, given.seconds))
            less = 1 - makespan / start.makespan
            begun = f"{start.makespan / 1e6:.1f}"
            print(f"| {path.stem} | {begun} | {name} | {cpu_s:.1f} | {less:.3%} | {less / cpu_s:.4%} |", flush=True)


def problem_parts(problem: Problem) -> dict[str, object]:
    """What a problem is made of, for another process."""
    names = "duration location memory capacity src dst payload producer transfer path_class path_links group"
    return {name: getattr(problem, name) for name in names.split()}


def measured(name: str, parts: dict[str, object], start: Schedule, seconds: float) -> tuple[int, float]:
    """(ticks, CPU seconds) of what an engine makes of a plan."""
    problem = Problem(**parts)  # type: ignore[arg-type]
    run = _annealed if name.startswith("annealing") else _windowed
    return run(name, problem, start, seconds)


def _windowed(name: str, problem: Problem, start: Schedule, seconds: float) -> tuple[int, float]:
    solver = WindowSearch(name, ENGINES[name])
    solver.compile_ahead()
    began = _cpu()
    with mock.patch.object(SolveMonitor, "elapsed", property(lambda _: _cpu() - began)):
        options = Options(seconds=seconds, workers=1, start=start)
        result = solver.solve(problem, options, lambda _: None).schedule
    assert result is not None
    return result.makespan, _cpu() - began


def _annealed(name: str, problem: Problem, start: Schedule, seconds: float) -> tuple[int, float]:
    heat, arena = float(name.split()[1]), Workspace.of(problem, [])
    none = np.zeros(problem.locations, dtype=np.int64)

    def weigh(spot: Solution) -> PointValue:
        return PointValue(makespan=spot.makespan, device=arena.devices(spot.at), rank=rank_of(spot.order), over=none)

    walk = Walk(arena, arena.solution_of(start), Temperature(heat, heat / 10), weigh, 0)
    walk.stretch(0.0)
    began = _cpu()
    while (spent := _cpu() - began) < seconds:
        walk.stretch(spent / seconds)
    walk.pause()
    assert walk.kept is not None
    return min(walk.kept.makespan, start.makespan), _cpu() - began


def _cpu() -> float:
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


if __name__ == "__main__":
    began_s = time.perf_counter()
    main()
    print(f"\n{_cpu():.0f} CPU s in {time.perf_counter() - began_s:.0f} s, load {os.getloadavg()[0]:.1f} at the end.")
