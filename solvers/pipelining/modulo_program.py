"""Modulo scheduling by CP-SAT, in a process of its own: `python -m solvers.pipelining.modulo_program`.

A start is q T + r; each operation lies twice on its resource, at r and at r + T, where nothing may overlap. Batches
keep their order in every operation, which loses nothing as they are alike; so at most N batches hold something at once
just where batch b has let go of it before batch b + N takes it. A schedule of period T stretches to one of T + 1 (each
start s becomes s + floor(s / T), which keeps all these constraints), so that the least T is found by bisection. Only
where layers begin and end to hold something within a stage that runs at once is each T looked at for the proof.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
from ortools.sat.python import cp_model

from solvers.pipelining.modulo_wire import ChainSpec, ModuloResult, RaceEnd, RaceImprovement, RaceRequest


def main() -> None:
    """Answer the lines of stdin by lines."""
    lines = [msgspec.json.decode(line, type=ChainSpec | RaceRequest) for line in sys.stdin.buffer]
    chains = [line for line in lines if isinstance(line, ChainSpec)]
    # The process that asked may have been killed: an alarm ends this one.
    for head in lines[:1]:
        if isinstance(head, RaceRequest):
            signal.alarm(int(2 * head.seconds) + 60)
            for answer in race(head, chains):
                _tell(answer)
            return
    for chain in chains:
        signal.alarm(int(2 * chain.seconds) + 60)
        _tell(_shortest_step(chain) if chain.flushed else least_period(chain))


def _tell(told: ModuloResult | RaceImprovement | RaceEnd) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.buffer.flush()


def race(head: RaceRequest, chains: list[ChainSpec]) -> Iterator[RaceImprovement | RaceEnd]:
    """Yield each allocation that is better than all before, then what is proven of all.

    Each is asked first for less than the best so far alone: most are refuted by that.
    """
    until, best, floor = time.monotonic() + head.seconds, head.below, head.below
    for at, chain in enumerate(chains):
        if chain.least >= best:
            break
        answer = _shorter_period(chain, best, until)
        floor = min(floor, answer.least)
        if answer.T:
            best = answer.T
            yield RaceImprovement(at=at, told=answer)
    yield RaceEnd(least=min(floor, best))


def _shorter_period(spec: ChainSpec, best: int, until: float) -> ModuloResult:
    """Return a shorter period than the best, the least there is if the time suffices."""
    left = until - time.monotonic()
    if left <= 0:
        return ModuloResult(T=0, least=spec.least, starts=[])
    seconds = min(left, spec.seconds)
    first = least_period(msgspec.structs.replace(spec, least=best - 1, most=best - 1, seconds=seconds))
    if first.T == 0 or best - 1 == spec.least:
        return msgspec.structs.replace(first, least=best if first.least >= best else spec.least)
    seconds = min(max(0.0, until - time.monotonic()), spec.seconds)
    result = least_period(msgspec.structs.replace(spec, most=best - 2, seconds=seconds))
    return result if result.T else ModuloResult(T=first.T, least=min(result.least, first.T), starts=first.starts)


def least_period(spec: ChainSpec) -> ModuloResult:
    """Return the least period that is found of those asked for, and below which there is none."""
    until = time.monotonic() + spec.seconds
    stretches = not any(late or early for _, late, _, early, _, _ in spec.held)
    low, most, best, starts = spec.least, spec.most, 0, list[list[int]]()
    attempt, shut = low, set[int]()
    while low <= most and time.monotonic() < until:
        left = until - time.monotonic()
        status, result = _solved(spec, attempt, left if low == most else left / 2)
        if result:
            best, starts, most = attempt, result, attempt - 1
        else:
            shut |= {attempt} if status == cp_model.INFEASIBLE else set()
            low = attempt + 1
        attempt = (low + most) // 2
    proven = max((one + 1 for one in shut if stretches), default=spec.least)
    while proven < (best or spec.most + 1) and not stretches and time.monotonic() < until:
        status, result = (
            (cp_model.INFEASIBLE, []) if proven in shut else _solved(spec, proven, until - time.monotonic())
        )
        if result:
            best, starts = proven, result
        elif status != cp_model.INFEASIBLE:
            break
        else:
            proven += 1
    return ModuloResult(T=best, least=proven, starts=starts)


def _solved(spec: ChainSpec, period: int, seconds: float) -> tuple[Any, list[list[int]]]:
    """Return CP-SAT's status for one period, and starts where it found any."""
    model, n, k = cp_model.CpModel(), len(spec.ticks), spec.k
    # All gaps of a batch can be made shorter than the period, so it is through in n operations and n gaps.
    periods = 2 * n + 2
    start: list[list[Any]] = []
    lanes: dict[int, list[Any]] = {}
    for ticks, resource in zip(spec.ticks, spec.resource, strict=True):
        row = []
        for _ in range(k):
            inside, number = model.new_int_var(0, period - 1, ""), model.new_int_var(0, periods, "")
            row.append(period * number + inside)
            if ticks:
                lanes.setdefault(resource, []).extend(
                    model.new_fixed_size_interval_var(inside + later, ticks, "") for later in (0, period)
                )
        start.append(row)
        for one, two in pairwise(row):
            model.add(one + ticks <= two)
        model.add(row[-1] + ticks <= row[0] + period)
    for lane in lanes.values():
        model.add_no_overlap(lane)
    model.add(start[0][0] == 0)
    _waits(model, spec, start)
    if spec.summed:
        _summed(model, spec, lambda o, batch: start[o][batch % k] + period * (batch // k), k * periods)
    else:
        _alive(model, spec, start, period)
    return _run(model, spec, start, seconds)


def _shortest_step(spec: ChainSpec) -> ModuloResult:
    model, k = cp_model.CpModel(), spec.k
    end = model.new_int_var(spec.least, spec.most, "")
    lanes: dict[int, list[Any]] = {}
    start: list[list[Any]] = []
    for ticks, resource in zip(spec.ticks, spec.resource, strict=True):
        row = [model.new_int_var(0, spec.most, "") for _ in range(k)]
        lanes.setdefault(resource, []).extend(model.new_fixed_size_interval_var(one, ticks, "") for one in row)
        start.append(row)
        for one, two in pairwise(row):
            model.add(one + ticks <= two)
        model.add(row[-1] + ticks <= end)
    for lane in lanes.values():
        model.add_no_overlap(lane)
    _waits(model, spec, start)
    if spec.summed:
        _summed(model, spec, lambda operation, batch: start[operation][batch] if batch < k else None, k)
    else:
        _alive(model, spec, start, None)
    model.minimize(end)
    _, starts = _run(model, spec, start, spec.seconds)
    bound = starts.pop()[0] if starts else spec.least
    done = max((starts[o][-1] + spec.ticks[o] for o in range(len(starts))), default=0)
    return ModuloResult(T=done, least=bound, starts=starts)


def _waits(model: Any, spec: ChainSpec, start: list[list[Any]]) -> None:
    for before, after in spec.waits:
        for one, two in zip(start[before], start[after], strict=True):
            model.add(one + spec.ticks[before] <= two)


def _summed(model: Any, spec: ChainSpec, at: Callable[[int, int], Any], most: int) -> None:
    """Add memory rows: N batches hold a thing at once, and N times the bytes of all things in a room fit there."""
    spent: list[list[Any]] = [[] for _ in spec.room]
    for first, late, last, early, room, bytes_ in spec.held:
        fit = min(spec.room[room] // bytes_, most)
        alone = sum(each[4] == room for each in spec.held) == 1
        # within[n]: at most n batches; which of them hold is left open.
        within = [] if alone else [model.new_bool_var("") for _ in range(fit)]
        for number in [fit] if alone else range(fit + 1):
            condition = [within[number]] if number < len(within) else []
            for batch in range(spec.k):
                later = at(first, batch + number)
                if later is not None:
                    gone = at(last, batch) + spec.ticks[last] - early
                    model.add(gone <= later + late).only_enforce_if(condition)
        for one, two in pairwise(within):
            model.add_implication(one, two)
        spent[room].append(bytes_ * (fit - sum(within)))
    for terms, bytes_ in zip(spent, spec.room, strict=True):
        if len(terms) > 1:
            model.add(sum(terms) <= bytes_)


def _alive(model: Any, spec: ChainSpec, start: list[list[Any]], period: int | None) -> None:
    """Add memory rows: bytes alive at any tick of a period fit; a thing held for several periods counts as often."""
    longest = spec.most if period is None else (2 * len(spec.ticks) + 3) * period
    for room, bytes_ in enumerate(spec.room):
        intervals, demands, always = [], [], 0
        for first, late, last, early, where, size in spec.held:
            for batch in range(spec.k if where == room else 0):
                begin = start[first][batch] + late
                end = start[last][batch] + spec.ticks[last] - early
                whole, part = 0, model.new_int_var(0, longest if period is None else period - 1, "")
                inside = model.new_int_var(0, longest if period is None else period - 1, "")
                if period is None:
                    model.add(inside == begin)
                else:
                    number = model.new_int_var(0, longest // period, "")
                    model.add(begin == inside + period * number)
                    whole = model.new_int_var(0, longest // period, "")
                model.add(end - begin == part + (period or 0) * whole)
                always += size * whole
                for later in (0,) if period is None else (0, period):
                    until = model.new_int_var(0, 3 * longest, "")
                    intervals.append(model.new_interval_var(inside + later, part, until, ""))
                    demands.append(size)
        if intervals:
            left = model.new_int_var(0, max(bytes_, 0), "")
            model.add(left + always == bytes_)
            model.add_cumulative(intervals, demands, left)


def _run(model: Any, spec: ChainSpec, start: list[list[Any]], seconds: float) -> tuple[Any, list[list[int]]]:
    """Solve; return the status and starts, with the objective's bound as one row more where there is one."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.05)
    solver.parameters.num_workers = spec.workers
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT refuses the model: {model.validate()}")
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return status, []
    starts = [[int(solver.value(one)) for one in row] for row in start]
    return status, [*starts, [round(solver.best_objective_bound)]] if spec.flushed else starts


if __name__ == "__main__":
    main()
