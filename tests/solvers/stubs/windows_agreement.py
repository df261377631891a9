"""CP-SAT's models against enumeration, in a process of its own: `windows_agreement.py FIRST COUNT TASKS`.

Prints one JSON object: how many of each kind were looked at, and the disagreements. No model may cut off an optimum,
and no window may promise what its schedule does not keep.
"""

import json
import sys
from collections import Counter

import numpy as np
from exhaustive import exhaustive
from ortools.sat.python import cp_model

from solvers.bounds.windows import informed
from solvers.checker import check
from solvers.cpsat.descent import Descent
from solvers.cpsat.model import add_hint, build, rough_schedule
from solvers.cpsat.window import FreeTasks, ScheduleCut, Window, network_of, timeline_of
from solvers.instances.random import EVERYTHING, Features, generate, random_order
from solvers.schedule import Schedule
from solvers.structure.units import serial
from solvers.timing.rebuild import rebuild

ALIKE = Features(heterogeneous=False, holes=False, classes=False, shared_links=False, long_paths=False, memory=False)


def solved(cp, *, hinted=False):
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.fix_variables_to_their_hinted_value = hinted
    return solver, solver.solve(cp)


def whole(problem, optimum):
    """The model of the whole problem, without and with all that must hold at its tightest."""
    horizon = serial(problem)
    for upper in (horizon, optimum.makespan):
        known = informed(problem, upper)
        if known is None:
            yield f"said to be impossible within {upper}"
            continue
        model = build(problem, least=0, most=upper, known=known)
        solver, found = solved(model.cp)
        if found != cp_model.OPTIMAL or solver.value(model.makespan) != optimum.makespan:
            yield f"{solver.status_name(found)} {solver.objective_value} within {upper}, not {optimum.makespan}"
        elif check(problem, rebuild(problem, rough_schedule(model, solver.value))):
            yield "an invalid schedule"
        hinted = build(problem, least=0, most=upper, known=known)
        add_hint(hinted, optimum)
        if solved(hinted.cp, hinted=True)[1] != cp_model.OPTIMAL:
            yield f"the optimum is no solution within {upper}"


def somehow(problem, optimum, rng):
    """A valid schedule of a random placement, or where chance finds none, of the optimum's, in a random order."""
    none, rank = np.zeros(0, dtype=np.int64), random_order(problem, rng)
    sent = {"sent_payload": none, "sent_to": none, "sent_start": none, "sent_finish": none}
    for _ in range(20):
        device = np.array([rng.choice(np.flatnonzero(row)) for row in problem.allowed])
        found = rebuild(problem, Schedule(device=device, start=rank, finish=rank, **sent))
        if not check(problem, found):
            return found
    return rebuild(problem, Schedule(device=optimum.device, start=rank, finish=rank, **sent))


def cut(problem, timeline, rng):
    """Some tasks set free: of one period, or any."""
    tasks = rng.permutation(problem.tasks)
    if rng.random() < 0.5:
        tasks = np.argsort(timeline.start[: problem.tasks], kind="stable")
    first = int(rng.integers(0, problem.tasks))
    free = frozenset(tasks[first : first + int(rng.integers(1, problem.tasks + 1))].tolist())
    network = timeline.network
    units = (u for u in {network.unit[i] for i in free} if free.issuperset(network.members[u]) and rng.random() < 0.8)
    places = None if rng.random() < 0.7 else frozenset([0, 1])
    return ScheduleCut(timeline, FreeTasks(free, frozenset(units), places))


def windows(problem, optimum, start, rng):
    """One window on everything finds the optimum; any window contains its schedule and keeps what it promises."""
    network = network_of(problem)
    timeline = timeline_of(network, start)
    everything = FreeTasks(frozenset(range(problem.tasks)), frozenset(range(len(network.members))))
    window = Window(ScheduleCut(timeline, everything), start.makespan)
    solver, found = solved(window.cp)
    if found != cp_model.OPTIMAL or round(solver.objective_value) != optimum.makespan:
        yield f"{solver.status_name(found)} {solver.objective_value} in all, not {optimum.makespan}"
    for _ in range(3):
        part = cut(problem, timeline, rng)
        window = Window(part, timeline.makespan)
        if solved(window.cp, hinted=True)[1] != cp_model.OPTIMAL:
            yield "a schedule is not in its own neighbourhood"
        solver, found = solved(window.cp)
        again = rebuild(problem, window.answer(solver.value))
        if check(problem, again):
            yield f"a window's schedule is invalid: {check(problem, again)[0].text}"
        if again.makespan > round(solver.objective_value) and not part.amid:
            yield f"a window promises {solver.objective_value}, its schedule takes {again.makespan}"


def descent(problem, optimum, start, seed):
    told = []
    search = Descent(problem, start, seed=seed, lanes=1)
    search.run(told.append, lambda: 60.0, rounds=4)
    spans = [start.makespan, *(s.makespan for s in told)]
    if spans != sorted(set(spans), reverse=True) or search.best.makespan != spans[-1] or spans[-1] < optimum.makespan:
        yield f"a descent from {start.makespan} tells of {spans[1:]}"
    one, two = (Descent(problem, start, seed=seed, lanes=2) for _ in range(2))
    for each in (one, two):
        each.run(lambda _: None, lambda: 60.0, rounds=4)
    if (one.best.start != two.best.start).any() or (one.best.device != two.best.device).any():
        yield "the same seed and rounds end in two schedules"
    if any(check(problem, s) for s in told):
        yield "a descent tells of an invalid schedule"


def main():
    first, count, tasks = map(int, sys.argv[1:])
    seen, wrong = Counter(), []
    for seed in range(first, first + count):
        rng = np.random.default_rng([seed, tasks, 7])
        features = ALIKE if seed % 4 == 0 else EVERYTHING
        problem = generate(rng, tasks=int(rng.integers(1, tasks + 1)), gpus=int(rng.integers(1, 4)), features=features)
        optimum = exhaustive(problem)
        seen["infeasible" if optimum is None else "feasible"] += 1
        if optimum is not None:
            start = somehow(problem, optimum, rng)
            seen["better"] += start.makespan > optimum.makespan
            lines = [*whole(problem, optimum), *windows(problem, optimum, start, rng)]
            lines += [*descent(problem, optimum, start, seed)]
            wrong += [f"seed {seed}: {line}" for line in lines]
    print(json.dumps({"seen": seen, "wrong": wrong[:20]}))


if __name__ == "__main__":
    main()
