"""Search against the oracle on small random problems; in a process of its own, where CP-SAT is alone.

Arguments: a seed and how many problems. Prints how many have a schedule, and of these how many optima were reached.
"""

import sys

import numpy as np
from exhaustive import exhaustive

from solvers.checker import check
from solvers.instances.random import generate
from solvers.result import Options
from solvers.search.solver import LocalSearch


def main(seed: int, problems: int) -> None:
    """Annealing for a third of a second, then exact windows, which find the optimum or go on for ten minutes."""
    reached = count = 0
    for k in range(problems):
        rng = np.random.default_rng([5, seed, k])
        p = generate(rng, tasks=int(rng.integers(1, 7)), gpus=int(rng.integers(1, 4)))
        best = exhaustive(p)
        seconds, enough = (0.0, 0) if best is None else (600.0, best.makespan)
        options = Options(seconds=seconds, workers=2, lower_bound=enough)
        result = LocalSearch(walking=1 / 1800).solve(p, options, lambda _: None)
        assert result.schedule is None or not check(p, result.schedule)
        if best is None:
            assert result.schedule is None
            continue
        count += 1
        reached += result.schedule is not None and result.schedule.makespan == best.makespan
    print(count, reached)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
