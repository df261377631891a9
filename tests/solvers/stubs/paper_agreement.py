"""The paper's program, solved by HiGHS in a process of its own, on random problems or on those in files.

`paper_agreement.py FIRST COUNT TASKS` compares it with enumeration; `paper_agreement.py FOLDER` solves each
`NAME.problem` there. Prints one JSON object. Pytest's process may hold what HiGHS cannot be loaded beside.
"""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import highspy
import numpy as np
from exhaustive import exhaustive

from solvers.checker import check
from solvers.files.npz import unpack_problem
from solvers.instances.random import EVERYTHING, generate
from solvers.milp.formulations import MakespanLimits
from solvers.milp.paper.program import PaperStyle, build, styled
from solvers.milp.paper.rows import unshared
from solvers.structure.units import serial
from solvers.timing.rebuild import rebuild

PER_EDGE = replace(EVERYTHING, shared_payloads=False)


def highs(linear):
    """Status, optimum and point."""
    solver, kinds = highspy.Highs(), highspy.HighsVarType
    for name, value in {"log_to_console": False, "threads": 1, "time_limit": 60.0, "mip_rel_gap": 0.0}.items():
        solver.setOptionValue(name, value)
    solver.passModel(
        linear.columns, linear.rows, len(linear.column), 2, 1, 0.0,
        linear.cost, linear.lower, linear.upper, linear.row_lower, linear.row_upper,
        linear.offset.astype(np.int32), linear.column.astype(np.int32), linear.coefficient,
        np.where(linear.integer, int(kinds.kInteger), int(kinds.kContinuous)).astype(np.int32),
    )  # fmt: skip
    solver.run()
    status = solver.modelStatusToString(solver.getModelStatus())
    return status, solver.getInfo().objective_function_value, np.array(solver.getSolution().col_value)


def as_printed(problem, limits):
    """The program with + M_s delta_ij and + M_s (1 - delta_ij) in (10), the constants far apart; no transfers."""
    program = styled(problem, limits, PaperStyle(big=(1, 2, 10)))
    linear, order = program.linear, program.pairs[2]
    flipped = np.isin(linear.column, order)
    row = np.repeat(np.arange(linear.rows), np.diff(linear.offset))
    second = row[flipped & (linear.coefficient < 0)]
    least = linear.row_lower.copy()
    least[second] += 2 * 2 * limits.most / limits.unit
    return replace(linear, coefficient=np.where(flipped, -linear.coefficient, linear.coefficient), row_lower=least)


def solve(problem, name):
    limits = MakespanLimits(least=0, most=serial(problem))
    if name.endswith("printed"):
        return {"status": highs(as_printed(problem, limits))[0]}
    program = build(problem, limits)
    status, objective, values = highs(program.linear)
    if status != "Optimal":
        return {"status": status}
    found = rebuild(problem, program.schedule(values))
    return {
        "status": status, "optimum": round(objective * limits.unit, 4), "makespan": found.makespan,
        "wrong": [v.text for v in check(problem, found)],
    }  # fmt: skip


def disagreements(problem, rng, seen):
    optimum, own = exhaustive(problem), unshared(problem)
    best = exhaustive(own.problem).makespan
    most = (serial(problem), optimum.makespan, optimum.makespan + 5)[rng.integers(0, 3)]
    program = build(problem, MakespanLimits(least=int(rng.integers(0, optimum.makespan + 1)), most=most))
    seen["binding" if program.binding else "shared"] += 1
    seen["longer"] += best > optimum.makespan
    seen[f"{problem.locations} locations"] += 1
    start = program.linear.violation(program.values(optimum))
    wrong = [f"the optimum misses a row by {start}"] if start > 1e-9 else []
    if program.binding and best != optimum.makespan:
        wrong.append(f"binding, but {best} is not the optimum {optimum.makespan}")
    status, objective, values = highs(program.linear)
    if status != "Optimal" or abs(objective - best) > 1e-4:
        return [*wrong, f"{status} {objective}, the optimum is {best}"]
    found = rebuild(problem, program.schedule(values))
    wrong += [v.text for v in check(problem, found)]
    if not optimum.makespan <= found.makespan <= best:
        wrong.append(f"rebuilt to {found.makespan}, the optimum is {optimum.makespan}")
    return wrong


def agree(first, count, tasks):
    seen, wrong = Counter(), []
    for seed in range(first, first + count):
        rng = np.random.default_rng([seed, tasks])
        features = EVERYTHING if seed % 3 else PER_EDGE
        size = int(rng.integers(1, tasks + 1))
        problem = generate(rng, tasks=size, gpus=int(rng.integers(1, 5)), features=features)
        wrong += [f"seed {seed}: {line}" for line in disagreements(problem, rng, seen)]
    return {"seen": seen, "wrong": wrong}


def main():
    if len(sys.argv) == 4:
        print(json.dumps(agree(*map(int, sys.argv[1:]))))
    else:
        files = sorted(Path(sys.argv[1]).glob("*.problem"))
        print(json.dumps({f.stem: solve(unpack_problem(f.read_bytes()), f.stem) for f in files}))


if __name__ == "__main__":
    main()
