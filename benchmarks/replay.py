"""Full evaluations a second of the compiled event loop, the exponent of its growth, and how far plain Python is behind.

Run from the project's root: `python -m benchmarks.replay [--most 100000] [--gpus 2 8] [--graphs FILE...]`, the files
as `pesto import` writes them. Each figure is one core's: the least CPU time of some runs, as other work on the machine
leaves it alone. The synthetic graph is that of `benchmarks.scaling_solvers`, every GPU task on a random GPU; a graph of
a file is placed by list scheduling on the preset `--cluster`. The runs of a figure are all of one placement and order,
which the processor's branch predictor comes to know: runs that all differ take 5 to 25 % longer.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.scaling_solvers import layered
from pesto.core.files.graph_file import load
from pesto.core.memory import footprint
from pesto.core.plans.execution_modes import send_ranks
from pesto.core.problem import build_problem
from pesto.core.simulator import simulate
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from solvers.arrays import Ints, ints
from solvers.heuristics.list_solver import ListScheduler
from solvers.memory.peaks import gauge, peaks
from solvers.memory.usage import usage
from solvers.problem import Problem
from solvers.result import Options
from solvers.timing.loop import run_tasks, state_for
from solvers.timing.replay import bottom_levels, fifo, makespan, prepare, replay

_SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
_SECONDS = 0.4
"""CPU seconds spent on each figure at least."""
_PYTHON_MOST = 30_000
"""Tasks beyond which the plain simulator is left out."""
_COLUMNS = ("makespan", "listed", "replay", "listed", "scheduled", "fifo", "python", "strict/py")


def least(call: Callable[[], object]) -> float:
    """CPU seconds of a call: the least of as many as fit, three at least."""
    call()
    result: list[float] = []
    while len(result) < 3 or sum(result) < _SECONDS:
        began = time.process_time()
        call()
        result.append(time.process_time() - began)
    return min(result)


def runs(problem: Problem, device: Ints) -> list[float]:
    """Seconds of: makespan alone, the list mode's kernel; full schedules strict, listed, scheduled, FIFO; Python."""
    g = prepare(problem)
    by_level = np.argsort(-bottom_levels(problem, device=device), kind="stable")
    priority = np.argsort(by_level)
    listed = replay(problem, device, priority, strict=False, prepared=g)
    order = ints(np.lexsort((priority, listed.finish, listed.start)))
    rank, device, by_level = ints(np.argsort(order)), ints(device), ints(by_level)
    send_rank, state = send_ranks(problem, device, rank), state_for(g, device)
    calls: list[Callable[[], object]] = [
        lambda: makespan(g, device, order, state=state),
        lambda: run_tasks(g, device, by_level, rule="listed"),
        lambda: replay(problem, device, rank, prepared=g),
        lambda: replay(problem, device, priority, strict=False, prepared=g),
        lambda: replay(problem, device, rank, send_rank=send_rank, prepared=g),
        lambda: fifo(problem, device, prepared=g),
    ]
    result = [least(call) for call in calls]
    if problem.tasks > _PYTHON_MOST:
        return [*result, float("nan")]
    began = time.process_time()
    simulate(problem, device, rank)
    return [*result, time.process_time() - began]


def header(title: str) -> None:
    """Two lines above a table."""
    print(f"\n{title}\n{'':34}{'kernels, runs/s':^24}{'whole schedules, runs/s':^52}".rstrip())
    print("tasks".rjust(24) + "edges".rjust(10) + "".join(name.rjust(12) for name in _COLUMNS))


def row(name: str, problem: Problem, seconds: list[float]) -> None:
    """One line: evaluations a second, and how many times longer plain Python takes than a whole strict schedule."""
    cells = "".join(f"{1 / s:12,.0f}" for s in seconds[:-1]) + f"{1 / seconds[-1]:12.1f}"
    ratio = seconds[-1] / seconds[2]
    print(f"{name:14}{problem.tasks:10,}{problem.edges:10,}{cells}{ratio:12.0f}")


def synthetic(gpus: int, limit: int) -> None:
    """A table of sizes, and the exponents."""
    header(f"layered graph on a host and {gpus} GPUs")
    rng, sizes, rows = np.random.default_rng(0), [n for n in _SIZES if n <= limit], []
    for tasks in sizes:
        problem = layered(rng, tasks, gpus)
        device = np.where(problem.allowed[:, 0], 0, 1 + rng.integers(gpus, size=tasks))
        rows.append(runs(problem, device))
        row("", problem, rows[-1])
    if len(sizes) > 1:
        columns = np.array(rows)[:, :-1].T
        slopes = [np.polyfit(np.log(sizes), np.log(column), 1)[0] for column in columns]
        print("exponent".ljust(34) + "".join(f"{slope:12.2f}" for slope in slopes))


def real(path: Path, cluster_name: str) -> None:
    """A line of a graph file, and what its peak bytes take."""
    graph, cluster = load(path), load_cluster(cluster_name)
    problem = build_problem(graph, load_costs(graph, cluster, None), cluster, memory=graph.param_bytes)
    placed = ListScheduler().solve(problem, Options(seconds=10), lambda _: None).schedule
    assert placed is not None
    row(path.stem[:13], problem, runs(problem, placed.device))
    held = footprint(graph)
    ready = gauge(problem, held)
    slow, fast = least(lambda: usage(problem, held, placed)), least(lambda: peaks(ready, placed))
    print(f"{'':14}peak bytes: {1e3 * fast:.2f} ms compiled, {1e3 * slow:.2f} ms by `usage`")


def main() -> None:
    """Parse the arguments, compile, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=_SIZES[-1], help="most tasks of the synthetic graphs")
    parser.add_argument("--gpus", type=int, nargs="*", default=[2, 8])
    parser.add_argument("--graphs", type=Path, nargs="*", default=[], help="graph files")
    parser.add_argument("--cluster", default="v100x2-nvlink", help="cluster preset or file, for graph files")
    options = parser.parse_args()
    small = layered(np.random.default_rng(0), 100, 2)
    runs(small, small.allowed.argmax(axis=1))
    for gpus in options.gpus:
        synthetic(gpus, options.most)
    if options.graphs:
        header(f"graph files on {options.cluster}, placed by list scheduling")
    for path in options.graphs:
        real(path, options.cluster)


if __name__ == "__main__":
    main()
