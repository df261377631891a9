"""CP-SAT against enumeration on random problems, in a process of its own: `agreement.py FIRST COUNT TASKS HORIZON`.

Prints one JSON object: how many problems of each kind, and the disagreements. Pytest's process may hold TensorFlow,
beside which CP-SAT crashes.
"""

import json
import sys
from collections import Counter

import numpy as np
from exhaustive import exhaustive
from ortools.sat.python import cp_model

from solvers.checker import check
from solvers.cpsat.exact import scale
from solvers.cpsat.model import add_hint, build
from solvers.cpsat.solver import CpSat
from solvers.instances.random import EVERYTHING, Features, generate
from solvers.result import Options
from solvers.timing.rebuild import rebuild

ALIKE = Features(heterogeneous=False, holes=False, classes=False, shared_links=False, long_paths=False, memory=False)
"""GPUs that are interchangeable, so that breaking their symmetry is tried."""


def disagreements(engine, problem, optimum, start, horizon):
    """What is wrong with the result and with everything streamed before it."""
    streamed = []
    result = engine.solve(problem, Options(seconds=600, start=start), streamed.append)
    if optimum is None:
        return [] if result.status == "infeasible" else [f"{result.status} where nothing is feasible"]
    best = optimum.makespan
    found = result.schedule.makespan
    wrong = [f"invalid: {v.text}" for s in streamed if s.schedule for v in check(problem, s.schedule)]
    wrong += [f"invalid: {v.text}" for v in check(problem, result.schedule)]
    wrong += [f"bound {s.lower_bound} above the optimum {best}" for s in streamed if s.lower_bound > best]
    exact = result.status == "optimal" and found == best == result.lower_bound
    # With rounded times, the answer may be off, but the claims must hold, and name what is open.
    rounded = result.lower_bound <= best <= found and "up to rounding" in result.detail
    if not exact and not (horizon < 10**9 and rounded):
        wrong.append(f"{result.status} {found} {result.lower_bound} {result.detail!r}, the optimum is {best}")
    if start is not None and found > start.makespan:
        wrong.append(f"{found} is worse than the start {start.makespan}")
    return wrong


def unfit(problem, start, horizon):
    """What keeps the hint for a start from being a whole solution, as long as the start at the model's resolution."""
    scaled = scale(problem, start, horizon)
    first = rebuild(scaled.problem, start)
    model = build(scaled.problem, least=0, most=first.makespan)
    add_hint(model, first)
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    solver.parameters.num_workers = 1
    if len(model.cp.proto.solution_hint.vars) != len(model.cp.proto.variables):
        return ["the hint is incomplete"]
    if solver.solve(model.cp) != cp_model.OPTIMAL or solver.value(model.makespan) != first.makespan:
        return ["the hint is no solution"]
    return []


def main():
    first, count, tasks, horizon = map(int, sys.argv[1:])
    seen, wrong = Counter(), []
    for seed in range(first, first + count):
        rng = np.random.default_rng([seed, tasks])
        features = ALIKE if seed % 4 == 0 else EVERYTHING
        problem = generate(rng, tasks=int(rng.integers(0, tasks + 1)), gpus=int(rng.integers(1, 4)), features=features)
        optimum = exhaustive(problem)
        start = None
        if optimum is not None and seed % 3 == 0:
            # A valid start that is not optimal: the optimum, later and spread out.
            late = {n: 3 * getattr(optimum, n) + 2 for n in ("start", "sent_start")}
            ticks, sent = optimum.finish - optimum.start, optimum.sent_finish - optimum.sent_start
            start = type(optimum)(
                device=optimum.device, start=late["start"], finish=late["start"] + ticks,
                sent_payload=optimum.sent_payload, sent_to=optimum.sent_to,
                sent_start=late["sent_start"], sent_finish=late["sent_start"] + sent,
            )  # fmt: skip
            assert not check(problem, start)
        seen["infeasible" if optimum is None else "start" if start else "cold"] += 1
        # Without windows and without a hint a start is a limit alone.
        alone = CpSat(horizon=horizon, windows=0.0, workers=2, near=0.0)
        engine = CpSat(horizon=horizon) if seed % 2 else alone
        found = disagreements(engine, problem, optimum, start, horizon)
        found += unfit(problem, start, horizon) if start is not None and problem.tasks else []
        wrong += [f"seed {seed}: {line}" for line in found]
    print(json.dumps({"seen": seen, "wrong": wrong}))


if __name__ == "__main__":
    main()
