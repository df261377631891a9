"""Search against the enumerated optimum of small random problems with every feature.

    python -m benchmarks.search_oracle [--count 2000] [--tasks 6] [--seconds 0.2]

Counts how often annealing and then exact neighbourhoods reach the optimum, and bounds (the full graph's and the
solver's) that exceed it.
"""

import argparse

import numpy as np

from solvers.bounds.full import full_bound
from solvers.checker import check
from solvers.instances.random import generate
from solvers.result import Options
from solvers.search.solver import LocalSearch
from tests.oracles.exhaustive import exhaustive


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.2)
    asked = parser.parse_args()
    feasible = reached = above = invalid = infeasible = 0
    for seed in range(asked.count):
        rng = np.random.default_rng([6, seed])
        p = generate(rng, tasks=int(rng.integers(1, asked.tasks + 1)), gpus=int(rng.integers(1, 4)))
        best = exhaustive(p)
        result = LocalSearch().solve(p, Options(seconds=asked.seconds, workers=2, seed=seed), lambda _: None)
        if best is None:
            infeasible += 1
            invalid += result.schedule is not None
            continue
        feasible += 1
        above += result.lower_bound > best.makespan or full_bound(p).ticks > best.makespan
        if result.schedule is not None:
            invalid += bool(check(p, result.schedule))
            reached += result.schedule.makespan == best.makespan
    print(f"{feasible} feasible, {infeasible} infeasible; optimum reached {reached} ({reached / max(feasible, 1):.2%})")
    print(f"bounds above the optimum {above}, invalid schedules {invalid}")


if __name__ == "__main__":
    main()
