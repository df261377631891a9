"""CPU seconds of replay, list scheduling and bounds on layered random graphs, and the exponent of their growth.

Run from the project's root: `python -m benchmarks.scaling_solvers [--most 1000000] [--gpus 2 8 16]`.
"""

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

from solvers.bounds import quick_bounds
from solvers.heuristics.eft_pass import board_of, clusters_of, earliest_finish, unguided
from solvers.heuristics.list_solver import ListScheduler
from solvers.problem import FORBIDDEN, Problem
from solvers.result import Options
from solvers.structure.units import units_of
from solvers.timing.replay import bottom_levels, makespan, prepare, replay

_EDGES = 1.8
"""Edges a task."""
_REPEATS = 3
_SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)


def layered(rng: np.random.Generator, tasks: int, gpus: int) -> Problem:
    """Layers of 4 tasks a GPU on a host and GPUs; 3 % of the tasks run on the host alone, the others on any GPU.

    GPU tasks take 1..100 ticks, transfers 20..60 on a link for each ordered pair of locations.
    """
    width, places = 4 * gpus, gpus + 1
    dst = np.sort(rng.integers(width, tasks, int(_EDGES * tasks)))
    src = (dst // width - 1) * width + rng.integers(0, width, len(dst))
    producer, payload = np.unique(src, return_inverse=True)
    duration = np.repeat(rng.integers(1, 101, (tasks, 1)), places, axis=1)
    host = rng.random(tasks) < 0.03
    duration[host, 1:], duration[~host, 0] = FORBIDDEN, FORBIDDEN
    off = ~np.eye(places, dtype=bool)
    links = np.full((places, places, 1), -1)
    links[off, 0] = np.arange(off.sum())
    return Problem(
        duration=duration,
        location=np.arange(places),
        memory=np.ones(tasks, dtype=np.int64),
        capacity=np.full(places, tasks),
        src=src,
        dst=dst,
        payload=payload,
        producer=producer,
        transfer=rng.integers(20, 61, (len(producer), 1)),
        path_class=np.where(off, 0, -1),
        path_links=links,
        group=np.full(tasks, -1),
    )


def stages(problem: Problem) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is timed: a name and a call each."""
    prepared, board, units = prepare(problem), board_of(problem), units_of(problem)
    level = bottom_levels(problem)
    order = np.argsort(-level, kind="stable")
    rank = np.argsort(order)
    guide = unguided(order)
    device, _ = earliest_finish(board, clusters_of(units), guide, 0.5)
    yield "prepare", lambda: prepare(problem)
    yield "bottom levels", lambda: bottom_levels(problem)
    yield "makespan only", lambda: makespan(prepared, device, order)
    yield "replay strict", lambda: replay(problem, device, rank, prepared=prepared)
    yield "replay listed", lambda: replay(problem, device, rank, strict=False, prepared=prepared)
    yield "one placing", lambda: earliest_finish(board, clusters_of(units), guide, 0.5)
    yield "critical path", lambda: quick_bounds.critical_path(problem)
    yield "all bounds", lambda: quick_bounds.best(problem)
    yield "list", lambda: ListScheduler().solve(problem, Options(seconds=1e6), lambda _: None)


def seconds(call: Callable[[], object], repeats: int) -> float:
    """The least CPU time of some runs, as other work on the machine leaves it alone."""
    result = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        result.append(time.process_time() - began)
    return min(result)


def table(gpus: int, sizes: list[int]) -> None:
    """Print the seconds of every stage and size, and the slope of log seconds over log tasks."""
    rows: dict[str, list[float]] = {}
    for tasks in sizes:
        problem = layered(np.random.default_rng(0), tasks, gpus)
        for name, call in stages(problem):
            rows.setdefault(name, []).append(seconds(call, 1 if name == "list" else _REPEATS))
    print(f"\n{gpus} GPUs".ljust(17) + "".join(f"{tasks:>11,}" for tasks in sizes) + "   exponent")
    for name, row in rows.items():
        exponent = np.polyfit(np.log(sizes[-4:]), np.log(row[-4:]), 1)[0] if len(row) > 1 else float("nan")
        print(name.ljust(16) + "".join(f"{s:11.4f}" for s in row) + f"{exponent:11.2f}")


def _warm_up() -> None:
    """Compile everything, so that no time below is a compiler's."""
    problem = layered(np.random.default_rng(0), 100, 2)
    for _, call in stages(problem):
        call()


def main() -> None:
    """Parse the arguments and print a table for each number of GPUs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=_SIZES[-1], help="most tasks")
    parser.add_argument("--gpus", type=int, nargs="+", default=[2, 8, 16])
    options = parser.parse_args()
    _warm_up()
    for gpus in options.gpus:
        table(gpus, [tasks for tasks in _SIZES if tasks <= options.most])


if __name__ == "__main__":
    main()
