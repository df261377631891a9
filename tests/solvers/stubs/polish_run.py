"""Polishes list schedules with HiGHS, in a process of its own; prints one JSON object.

Each run counts effort and not time, so that it can be repeated.
"""

import json

import numpy as np
from exhaustive import exhaustive

from solvers.checker import check
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.plain import lstm_grid
from solvers.instances.random import generate
from solvers.milp.polishing import PolishSettings, polish
from solvers.milp.vendor import RunRequest
from solvers.milp.vendors.highs import run
from solvers.result import Options


def listed(problem):
    return ListScheduler().solve(problem, Options(), lambda _: None).schedule


def polished(problem, start, formulation="tight", effort=6.0, least=0, seed=0):
    """Makespans, in order, of the start, of all that is told, and of the answer; and what is wrong with these."""
    told = []
    ask = RunRequest(seconds=3600, gap=0.0, seed=seed, threads=1, start=None, effort=effort)
    best = polish(problem, start, PolishSettings(run=run, formulation=formulation, ask=ask, least=least), told.append)
    spans = [s.makespan for s in (start, *told, best)]
    return spans, [v.text for s in (*told, best) for v in check(problem, s)]


def small(count):
    """Random problems of every feature: never worse than the start, never better than the optimum."""
    wrong, reached = [], 0
    for seed in range(count):
        problem = generate(np.random.default_rng(seed), tasks=6, gpus=3)
        start, optimum = listed(problem), exhaustive(problem)
        if start is None or optimum is None:
            continue
        spans, invalid = polished(problem, start)
        wrong += [f"seed {seed}: {line}" for line in invalid]
        if spans[-1] < optimum.makespan or spans[-1] > start.makespan or sorted(spans, reverse=True) != spans:
            wrong.append(f"seed {seed}: {spans}, the optimum is {optimum.makespan}")
        reached += spans[-1] == optimum.makespan
    return {"wrong": wrong, "reached": reached}


def main():
    grid = lstm_grid(2, 4)
    start = listed(grid)
    first, again = polished(grid, start), polished(grid, start)
    found = {
        "grid": first, "again": again, "paper": polished(grid, start, "paper", effort=3.0),
        "least": polished(grid, start, least=start.makespan - 1), "small": small(20),
    }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
