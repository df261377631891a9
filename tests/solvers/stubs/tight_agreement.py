"""The tight program on HiGHS against enumeration, in a process of its own: `tight_agreement.py FIRST COUNT TASKS`.

Prints one JSON object: how many problems of each kind, and the disagreements. Pytest's process may hold what HiGHS
cannot be loaded beside.
"""

import json
import math
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
from exhaustive import exhaustive

from solvers.checker import check
from solvers.instances.random import EVERYTHING, Features, generate
from solvers.milp.formulations import MakespanLimits, NoScheduleError
from solvers.milp.tight.program import build
from solvers.milp.vendor import RunRequest, run_program
from solvers.milp.vendors.highs import run
from solvers.problem import FORBIDDEN
from solvers.structure.units import serial
from solvers.timing.rebuild import rebuild

ALIKE = Features(heterogeneous=False, holes=False, classes=False, shared_links=False, long_paths=False, memory=False)
"""GPUs that are interchangeable, so that breaking their symmetry is tried."""
SCALES = (1, 1, 997, 1_000_003)


class Nobody:
    enough = False

    def incumbent(self, values):
        pass

    def bound(self, objective):
        pass

    def line(self, text):
        pass


def highs(program, start=None):
    return run_program(run, program, RunRequest(seconds=600, gap=0.0, seed=0, threads=1, start=start), Nobody())


def scaled(problem, factor):
    ticks = np.where(problem.allowed, problem.duration * factor, FORBIDDEN)
    return replace(problem, duration=ticks, transfer=problem.transfer * factor)


def disagreements(problem, rng, seen):
    optimum = exhaustive(problem)
    best = optimum.makespan
    most = int((serial(problem), best, best + 5)[rng.integers(0, 3)])
    # Windows may be cut short anywhere.
    settle_by = (math.inf, -math.inf)[rng.integers(0, 2)]
    limits = MakespanLimits(least=int(rng.integers(0, best + 1)), most=most, settle_by=settle_by)
    seen["cut short"] += settle_by < 0
    program = build(problem, limits)
    seen["orders"] += any(order.forth is not None for order in program.orders)
    seen["waiting"] += bool(program.waiting)
    seen["crossings"] += bool(program.crossings)
    seen["units of time"] += limits.unit > 1
    seen["interchangeable"] += bool(program.symmetry.locations or program.symmetry.devices)
    start = program.values(optimum)
    wrong = []
    every = program.linear
    if every.violation(start) > 1e-9:
        wrong.append(f"an optimal schedule is {every.violation(start)} off")
    if abs(program.linear.cost @ start * limits.unit - max(best, limits.least)) > 1e-6 * limits.unit:
        wrong.append("its cost is not its makespan")
    outcome = highs(program, start if rng.random() < 0.5 else None)
    off = abs(outcome.bound * limits.unit - best)
    if outcome.status != "optimal" or off > 1e-4 * limits.unit:
        wrong.append(f"{outcome.status} {outcome.bound * limits.unit}, the optimum is {best}")
    else:
        found = rebuild(problem, program.schedule(outcome.values))
        wrong += [v.text for v in check(problem, found)]
        wrong += [f"rebuilt to {found.makespan}, not {best}"] if found.makespan != best else []
        alone = run(every, RunRequest(seconds=600, gap=0.0, seed=0, threads=1, start=None), Nobody())
        wrong += [f"{alone.bound} with all rows"] if abs(alone.bound - outcome.bound) > 1e-4 else []
    return wrong + below(problem, best, seen)


def below(problem, best, seen):
    """Nothing is left of the program when less than the optimum is demanded."""
    try:
        program = build(problem, MakespanLimits(least=0, most=best - 1)) if best else None
    except NoScheduleError:
        seen["closed by windows"] += 1
        return []
    outcome = highs(program) if program else None
    return [f"{outcome.status} below the optimum"] if outcome and outcome.status != "infeasible" else []


def main():
    first, count, tasks = map(int, sys.argv[1:])
    seen, wrong = Counter(), []
    for seed in range(first, first + count):
        rng = np.random.default_rng([seed, tasks])
        features = ALIKE if seed % 4 == 0 else EVERYTHING
        problem = generate(rng, tasks=int(rng.integers(1, tasks + 1)), gpus=int(rng.integers(1, 5)), features=features)
        problem = scaled(problem, SCALES[int(rng.integers(0, len(SCALES)))])
        seen["problems"] += 1
        wrong += [f"seed {seed}: {line}" for line in disagreements(problem, rng, seen)]
    print(json.dumps({"seen": seen, "wrong": wrong}))


if __name__ == "__main__":
    main()
