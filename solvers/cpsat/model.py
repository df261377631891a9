"""The interval model: optional intervals for tasks on pools and for payloads on paths, makespan minimised.

    minimise    M
    x[u,l]      unit u (a group, or a task alone) is at location l                    exactly one l
    y[i,q]      task i is on pool q (identical devices of one location)               sum over l's pools = x[u(i),l]
    S[i], E[i]  start and end of task i,  E = S + sum d[i,q] y[i,q]
    z[p,t]      payload p crosses to location t:  some consumer is there and its producer is not
    w[p,t,v]    it crosses by variant v (same ticks, same links)                      z = exactly one w
    T[p,t]      start of the crossing,  T >= E[producer];  arrival A = T + sum d[p,v] w

    S[j] >= E[i]  on every edge;    x[j,t] => S[j] >= A[p,t]  on every edge with payload p
    no-overlap on every device and link, cumulative on every pool of several;  memory on every location

T >= E holds for absent crossings too, where A = T and T = E is as good as any. Source: Pesto (Middleware '21), section
3.2, in intervals; a payload crosses once per target, which the paper counts per edge.

`add_hint` and `rough_schedule` lead from a schedule to values of the model's variables, and back.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapreplace
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from solvers.bounds.windows import ScheduleFacts
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.structure.symmetry import Symmetry, symmetry_of
from solvers.structure.units import units_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DevicePool:
    """Devices at one location with the same durations for every task."""

    location: int
    devices: tuple[int, ...]

    @property
    def lead(self) -> int:
        """The device whose column of `duration` holds for all."""
        return self.devices[0]


def pools(problem: Problem) -> list[DevicePool]:
    """Return the pools of a problem, by their first devices.

    Devices on which some task takes no time stay alone: a cumulative constraint ignores such tasks, though none may lie
    strictly inside another on its device.
    """
    alike: dict[tuple[int, bytes], list[int]] = {}
    for device, location in enumerate(problem.location.tolist()):
        column = problem.duration[:, device]
        alone = b"%d" % device if (column == 0).any() else b""
        alike.setdefault((location, alone + column.tobytes()), []).append(device)
    return [DevicePool(location=location, devices=tuple(devices)) for (location, _), devices in alike.items()]


Literal = Any
"""A Boolean variable, its negation or a constant; ortools is untyped here."""
Expression = Any
"""An integer variable or linear expression."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossingVariables:
    """One payload to one target, wherever it comes from."""

    payload: int
    to: int
    present: Literal
    start: Expression
    arrival: Expression
    variants: list[tuple[list[int], Literal]]
    """Source locations of each variant, and whether it is the one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntervalModel:
    """The CP-SAT model with its variables by what they mean."""

    problem: Problem
    pools: list[DevicePool]
    cp: Any
    most: int
    """Ticks within which everything ends."""
    makespan: Expression
    at: list[dict[int, Literal]]
    """By task: location to literal; tasks of one group share theirs."""
    on: list[dict[int, Literal]]
    """By task: pool to literal."""
    start: list[Expression]
    end: list[Expression]
    symmetry: Symmetry
    check: Callable[[], None]
    """Asked while the model is built; raises TimeoutError once it is of no use any more."""
    crossings: list[CrossingVariables] = field(default_factory=list)


def build(
    problem: Problem,
    *,
    least: int,
    most: int,
    known: ScheduleFacts | None = None,
    check: Callable[[], None] = lambda: None,
) -> IntervalModel:
    """Return the model of a problem (n >= 1) whose optimum is known to be within least..most ticks.

    `known` holds for every schedule of the problem of at most `most` ticks: when, where and in which order tasks run.
    `check` is asked on the way, and may raise TimeoutError.
    """
    cp = cp_model.CpModel()
    units = units_of(problem) if known is None else known.paths.units
    symmetry = symmetry_of(problem, units)
    problem = problem if known is None else known.problem
    first = np.zeros(problem.tasks, dtype=np.int64) if known is None else known.head
    last = np.full(problem.tasks, most) if known is None else most - known.tail - known.took
    # x: every unit at exactly one of the locations where all its tasks can run.
    where: list[dict[int, Literal]] = []
    for unit, allowed in enumerate(units.allowed):
        where.append({place: cp.new_bool_var(f"x{unit},{place}") for place in np.flatnonzero(allowed).tolist()})
        cp.add_exactly_one(where[-1].values())
    at, alike = [where[unit] for unit in units.unit.tolist()], pools(problem)
    on = [_pools(cp, alike, problem.allowed[i], at[i]) for i in range(problem.tasks)]
    start = [cp.new_int_var(int(first[i]), int(last[i]), f"S{i}") for i in range(problem.tasks)]
    model = IntervalModel(
        problem=problem,
        pools=alike,
        cp=cp,
        most=most,
        makespan=cp.new_int_var(least, most, "M"),
        at=at,
        on=on,
        start=start,
        end=[_end(cp, start[i], [(int(problem.duration[i, alike[q].lead]), y) for q, y in on[i].items()], most)
             for i in range(problem.tasks)],
        symmetry=symmetry,
        check=check,
    )  # fmt: skip
    # z and T for every payload and location that it may have to cross to.
    p = model.problem
    readers: list[set[int]] = [set() for _ in range(p.payloads)]
    for payload, reader in zip(p.payload.tolist(), p.dst.tolist(), strict=True):
        if payload >= 0:
            readers[payload].add(reader)
    for payload, tasks in enumerate(readers):
        for to in sorted({place for task in tasks for place in model.at[task]}):
            sources = [place for place in model.at[p.producer[payload]] if place != to]
            model.check()
            if sources:
                model.crossings.append(_crossing(model, (payload, to), sources, tasks, most))
    for family in (_precedence, _devices, _links, _memory, _symmetry):
        family(model)
    cp.minimize(model.makespan)
    return model


def _pools(cp: Any, alike: list[DevicePool], allowed: Any, at: dict[int, Literal]) -> dict[int, Literal]:
    """y: at its location, a task is on exactly one of the pools that can run it."""
    on: dict[int, Literal] = {}
    for place, here in at.items():
        able = [q for q, pool in enumerate(alike) if pool.location == place and allowed[pool.lead]]
        literals = [here] if len(able) == 1 else [cp.new_bool_var("") for _ in able]
        if len(able) > 1:
            cp.add_exactly_one([*literals, ~here])
        on.update(zip(able, literals, strict=True))
    return on


def _end(cp: Any, start: Expression, choices: list[tuple[int, Literal]], most: int) -> Expression:
    """Return the end of an activity of which each choice (ticks, literal) has its length: affine where they agree."""
    if len({ticks for ticks, _ in choices}) == 1:
        return start + choices[0][0]
    end = cp.new_int_var(0, most, "")
    cp.add(end == start + sum(ticks * literal for ticks, literal in choices))
    return end


def _crossing(
    model: IntervalModel, key: tuple[int, int], sources: list[int], readers: Iterable[int], most: int
) -> CrossingVariables:
    cp, (payload, to) = model.cp, key
    producer = int(model.problem.producer[payload])
    home = model.at[producer].get(to)
    there = [model.at[task][to] for task in sorted(readers) if to in model.at[task]]
    present = cp.new_bool_var(f"z{payload},{to}")
    here = [] if home is None else [home]
    for literal in there:
        cp.add_bool_or([~literal, present, *here])
    cp.add_bool_or([~present, *there])
    if home is not None:
        cp.add_implication(present, ~home)
    # w: sources with the same ticks and links share a literal; it follows the producer's location.
    alike: dict[tuple[int, frozenset[int]], list[int]] = {}
    for place in sources:
        alike.setdefault((_ticks(model.problem, key, place), _path(model.problem, place, to)), []).append(place)
    variants = [(sources, present)]
    if len(alike) > 1:
        variants = [(places, cp.new_bool_var("")) for places in alike.values()]
        cp.add_exactly_one([*(literal for _, literal in variants), ~present])
        for places, literal in variants:
            cp.add_bool_or([~literal, *(model.at[producer][place] for place in places)])
    start = cp.new_int_var(0, most, f"T{payload},{to}")
    cp.add(start >= model.end[producer])
    choices = [(_ticks(model.problem, key, held[0]), literal) for held, literal in variants]
    arrival = start + sum(ticks * literal for ticks, literal in choices)
    for literal, reader in ((model.at[task][to], task) for task in sorted(readers) if to in model.at[task]):
        cp.add(model.start[reader] >= arrival).only_enforce_if(literal)
    return CrossingVariables(payload=payload, to=to, present=present, start=start, arrival=arrival, variants=variants)


def _ticks(p: Problem, key: tuple[int, int], source: int) -> int:
    return int(p.transfer[key[0], p.path_class[source, key[1]]])


def _path(p: Problem, source: int, to: int) -> frozenset[int]:
    return frozenset(int(link) for link in p.holds[source, to] if link >= 0)


def _precedence(model: IntervalModel) -> None:
    """Edges whose payload, if any, does not cross; those that cross come with their crossing."""
    p = model.problem
    for before, after in sorted(set(zip(p.src.tolist(), p.dst.tolist(), strict=True))):
        model.cp.add(model.start[after] >= model.end[before])
    last = np.ones(p.tasks, dtype=bool)
    last[p.src] = False
    for task in np.flatnonzero(last).tolist():
        model.cp.add(model.makespan >= model.end[task])


def _devices(model: IntervalModel) -> None:
    """No two tasks at once on a device, no more than there are devices on a pool; the load is at most the makespan."""
    cp, p = model.cp, model.problem
    for q, pool in enumerate(model.pools):
        model.check()
        intervals, load = [], []
        for task in range(p.tasks):
            if q in model.on[task]:
                ticks, literal = int(p.duration[task, pool.lead]), model.on[task][q]
                intervals.append(cp.new_optional_fixed_size_interval_var(model.start[task], ticks, literal, ""))
                load.append(ticks * literal)
        size = len(pool.devices)
        if size == 1:
            cp.add_no_overlap(intervals)
        elif size < len(intervals):
            cp.add_cumulative(intervals, [1] * len(intervals), size)
        cp.add(sum(load) <= size * model.makespan)


def _links(model: IntervalModel) -> None:
    """No two transfers at once on a link; the load is at most the makespan."""
    cp, p = model.cp, model.problem
    intervals: list[list[Any]] = [[] for _ in range(p.links)]
    load: list[list[Any]] = [[] for _ in range(p.links)]
    for crossing in model.crossings:
        model.check()
        for sources, literal in crossing.variants:
            ticks = _ticks(p, (crossing.payload, crossing.to), sources[0])
            held = cp.new_optional_fixed_size_interval_var(crossing.start, ticks, literal, "")
            for link in _path(p, sources[0], crossing.to):
                intervals[link].append(held)
                load[link].append(ticks * literal)
    for link in range(p.links):
        model.check()
        cp.add_no_overlap(intervals[link])
        cp.add(sum(load[link]) <= model.makespan)


def _memory(model: IntervalModel) -> None:
    p = model.problem
    for place, capacity in enumerate(p.capacity.tolist()):
        held = [(int(p.memory[i]), model.at[i][place]) for i in range(p.tasks) if p.memory[i] and place in model.at[i]]
        if sum(size for size, _ in held) > capacity:
            model.cp.add(sum(size * literal for size, literal in held) <= capacity)


def _symmetry(model: IntervalModel) -> None:
    """The j-th of a class's tasks may only use its first j + 1 locations; devices of one location are in pools."""
    for members, tasks in model.symmetry.locations:
        for order, task in enumerate(tasks):
            for place in members[order + 1 :]:
                if place in model.at[task]:
                    model.cp.add(model.at[task][place] == 0)


def add_hint(model: IntervalModel, schedule: Schedule) -> None:
    """Hint every variable with its value in a schedule that is valid for the model's problem, locations renamed."""
    given: set[int] = set()
    for variable, value in _values(model, schedule):
        # Tasks of one group share their literals, and a variable may be hinted once.
        if hasattr(variable, "index") and variable.index not in given:
            given.add(variable.index)
            model.cp.add_hint(variable, value)


def _values(model: IntervalModel, schedule: Schedule) -> Iterator[tuple[Expression, int]]:
    p = model.problem
    origin = p.location[schedule.device]
    renamed = model.symmetry.named(origin).tolist()
    place = [renamed[here] for here in origin.tolist()]
    # Device to the pool that it belongs to once locations are renamed; alike pools of a location keep their order.
    alike, pool = dict[tuple[int, bytes], list[int]](), dict[int, int]()
    for q, devices in enumerate(model.pools):
        alike.setdefault((devices.location, p.duration[:, devices.lead].tobytes()), []).append(q)
    for (here, column), members in alike.items():
        for old, new in zip(members, alike[renamed[here], column], strict=True):
            pool.update(dict.fromkeys(model.pools[old].devices, new))
    yield model.makespan, schedule.makespan
    for task, device in enumerate(schedule.device.tolist()):
        yield from ((literal, int(here == place[task])) for here, literal in model.at[task].items())
        yield from ((literal, int(q == pool[device])) for q, literal in model.on[task].items())
        yield model.start[task], int(schedule.start[task])
        yield model.end[task], int(schedule.finish[task])
    columns = (schedule.sent_payload.tolist(), schedule.sent_to.tolist(), schedule.sent_start.tolist())
    sent = {(payload, renamed[to]): begin for payload, to, begin in zip(*columns, strict=True)}
    for crossing in model.crossings:
        key = crossing.payload, crossing.to
        producer = int(p.producer[crossing.payload])
        yield crossing.start, sent.get(key, int(schedule.finish[producer]))
        yield crossing.present, int(key in sent)
        for sources, literal in crossing.variants:
            yield literal, int(key in sent and place[producer] in sources)


def rough_schedule(model: IntervalModel, value: Callable[[Expression], int]) -> Schedule:
    """Return the schedule that the variables' values describe, in the model's ticks."""
    start = np.asarray([value(s) for s in model.start], dtype=np.int64)
    finish = np.asarray([value(e) for e in model.end], dtype=np.int64)
    pool = np.asarray([next(q for q, y in on.items() if value(y)) for on in model.on], dtype=np.int64)
    sent = [c for c in model.crossings if value(c.present)]
    # A device of its pool for every task, by interval colouring: the one that has been free longest.
    device = np.asarray([p.lead for p in model.pools], dtype=np.int64)[pool]
    free = [[(-1, d) for d in p.devices] for p in model.pools]
    for task in np.lexsort((finish, start)).tolist():
        waiting = free[pool[task]]
        if len(waiting) > 1:
            device[task] = waiting[0][1]
            heapreplace(waiting, (int(finish[task]), waiting[0][1]))
    return Schedule(
        device=device,
        start=start,
        finish=finish,
        sent_payload=[c.payload for c in sent],  # type: ignore[arg-type]
        sent_to=[c.to for c in sent],  # type: ignore[arg-type]
        sent_start=[value(c.start) for c in sent],  # type: ignore[arg-type]
        sent_finish=[value(c.arrival) for c in sent],  # type: ignore[arg-type]
    )
