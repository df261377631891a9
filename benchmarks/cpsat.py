"""What each idea brings to CP-SAT's whole model, and windows against it, as Markdown tables.

Run from the project's root: `python -m benchmarks.cpsat ideas|solvers [--seconds 60] [PROBLEM.json ...]`.

A second here is so much CPU time of this process as two cores have in a second, so that a machine that does other
things beside measures what an idle one would. Every run starts with the list schedule.
"""

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from ortools.sat.python import cp_model

from solvers.base import Solver
from solvers.bounds import quick_bounds
from solvers.bounds.windows import ScheduleFacts, informed
from solvers.checker import check
from solvers.cpsat.exact import HORIZON, scale
from solvers.cpsat.model import IntervalModel, add_hint, build
from solvers.cpsat.solver import CpSat, CpSatWindows
from solvers.files.problem_json import load_problem
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.plain import lstm_grid, transformer
from solvers.problem import Problem
from solvers.result import Options
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild

CORES = 2
_POLL_S = 0.05
_FOREVER_S = 1e6

Extra = Callable[[IntervalModel, ScheduleFacts | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Idea:
    """A change to the whole model, or to how it is searched."""

    known: bool = True
    """Windows, places and orders of `solvers.bounds` at the length of the start."""
    adds: Extra | None = None
    parameters: dict[str, Any] = field(default_factory=dict)


def overall(model: IntervalModel, _: ScheduleFacts | None) -> None:
    """No more tasks at a time than devices, wherever they are."""
    p, cp = model.problem, model.cp
    if (p.duration >= 0).all() and (p.duration == p.duration[:, :1]).all():
        ticks = p.duration[:, 0].tolist()
        held = [cp.new_fixed_size_interval_var(s, d, "") for s, d in zip(model.start, ticks, strict=True)]
        cp.add_cumulative(held, [1] * len(held), p.devices)


def apart(model: IntervalModel, known: ScheduleFacts | None) -> None:
    """Pairs of tasks that cannot share a location."""
    if known is not None and len(known.apart):
        for i, j in zip(*known.apart.nonzero(), strict=True):
            for place in set(model.at[i]) & set(model.at[j]) if i < j else ():
                model.cp.add_bool_or([~model.at[i][place], ~model.at[j][place]])


def part_loads(model: IntervalModel, known: ScheduleFacts | None) -> None:
    """The load of a device among the tasks of late heads, or of late tails, between the least of these."""
    for values, _ in ((known.head, 0), (known.tail, 1)) if known is not None else ():
        for least in sorted(set(values.tolist()))[:: max(1, len(set(values.tolist())) // 8)]:
            for q, pool in enumerate(model.pools):
                tasks = [i for i in range(model.problem.tasks) if values[i] >= least and q in model.on[i]]
                load = sum(int(model.problem.duration[i, pool.lead]) * model.on[i][q] for i in tasks)
                model.cp.add(load + int(least) * len(pool.devices) <= len(pool.devices) * model.makespan)


def placement_first(model: IntervalModel, _: ScheduleFacts | None) -> None:
    """Decide placements in the order of heads, then starts, least first."""
    literals = [literal for at in model.at for literal in at.values()]
    model.cp.add_decision_strategy(literals, cp_model.CHOOSE_FIRST, cp_model.SELECT_MAX_VALUE)
    model.cp.add_decision_strategy(model.start, cp_model.CHOOSE_LOWEST_MIN, cp_model.SELECT_MIN_VALUE)


IDEAS = {
    "as it was": Idea(known=False),
    "known": Idea(),
    "known, all devices as one cumulative": Idea(adds=overall),
    "known, pairs apart": Idea(adds=apart),
    "known, loads between heads and tails": Idea(adds=part_loads),
    "known, placement decided first": Idea(adds=placement_first),
    "known, 2 workers": Idea(parameters={"num_workers": 2}),
    "known, 12 workers": Idea(parameters={"num_workers": 12}),
    "known, symmetry_level 3": Idea(parameters={"symmetry_level": 3}),
    "known, linearization_level 0": Idea(parameters={"linearization_level": 0}),
    "known, linearization_level 2": Idea(parameters={"linearization_level": 2}),
    "known, no precedences in disjunctive": Idea(parameters={"use_precedences_in_disjunctive_constraint": False}),
    "known, objective_lb_search": Idea(parameters={"extra_subsolvers": ["objective_lb_search", "probing"]}),
    "known, three full workers, five for LNS": Idea(parameters={"subsolvers": ["no_lp", "default_lp", "max_lp"]}),
    "known, repair_hint": Idea(parameters={"repair_hint": True}),
}

SOLVERS: dict[str, Callable[[], Solver]] = {
    "whole model": lambda: CpSat(windows=0.0),
    "windows": CpSatWindows,
    "both": CpSat,
}


def instances(files: list[Path]) -> Iterator[tuple[str, Problem]]:
    """The grids, two transformers, and the files."""
    for gpus in (2, 4):
        for backward in (1, 2):
            yield f"grid 4x20, {gpus} GPUs, backward {backward}", lstm_grid(4, 20, gpus=gpus, backward=backward)
    yield "transformer 2x4, 4 GPUs", transformer(2, gpus=4, transfer=4)
    yield "transformer 4x8, 4 GPUs", transformer(4, 8, gpus=4, transfer=4)
    yield from ((file.stem, load_problem(file)) for file in files)


def list_schedule(problem: Problem) -> Schedule:
    """The start of every run."""
    result = ListScheduler().solve(problem, Options(), lambda _: None).schedule
    assert result is not None
    return result


def cpu_seconds() -> float:
    """Seconds of CORES cores that this process has used."""
    return time.process_time() / CORES


def stopping(solver: Any, seconds: float, solve: Callable[[], Any]) -> Any:
    """`solve()`, stopped after so many seconds of `cpu_seconds`."""
    ends, over = cpu_seconds() + seconds, threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_S):
            if cpu_seconds() > ends:
                solver.stop_search()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return solve()
    finally:
        over.set()
        watcher.join()


def try_idea(problem: Problem, start: Schedule, idea: Idea, seconds: float) -> tuple[int, int, float]:
    """Makespan, bound and seconds of the whole model, in the scaled ticks of CP-SAT."""
    began = cpu_seconds()
    scaled = scale(problem, start, HORIZON)
    first = rebuild(scaled.problem, start)
    known = informed(scaled.problem, first.makespan) if idea.known else None
    least = min(first.makespan, scaled.at_least(quick_bounds.best(problem)[0]))
    model = build(scaled.problem, least=least, most=first.makespan, known=known)
    if idea.adds is not None:
        idea.adds(model, known)
    add_hint(model, first)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 8
    for name, value in idea.parameters.items():
        if isinstance(value, list):
            getattr(solver.parameters, name).extend(value)
        else:
            setattr(solver.parameters, name, value)
    stopping(solver, seconds - (cpu_seconds() - began), lambda: solver.solve(model.cp))
    return round(solver.objective_value), round(solver.best_objective_bound), cpu_seconds() - began


def try_solver(problem: Problem, solver: Solver, options: Options) -> tuple[int, int, float]:
    """Makespan, bound and seconds of a solver, whose clock is `cpu_seconds`."""
    plain = cp_model.CpSolver.solve

    def solve(self: Any, model: Any, callback: Any = None) -> Any:
        seconds = self.parameters.max_time_in_seconds
        self.parameters.max_time_in_seconds = _FOREVER_S
        return stopping(self, seconds, lambda: plain(self, model, callback))

    with mock.patch.object(time, "monotonic", cpu_seconds), mock.patch.object(cp_model.CpSolver, "solve", solve):
        result = solver.solve(problem, options, lambda _: None)
    assert result.schedule is not None and not check(problem, result.schedule)
    return result.schedule.makespan, result.lower_bound, result.seconds


def row(name: str, start: int, result: tuple[int, int, float]) -> str:
    """One line of a table."""
    makespan, bound, seconds = result
    return f"| {name} | {start} | {makespan} | {bound} | {1 - bound / makespan:.2%} | {seconds:.0f} |"


def main() -> None:
    """Print one table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=("ideas", "solvers"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default="", help="instances whose name has this in it")
    parser.add_argument("--what", default="", help="ideas or solvers whose name has this in it")
    asked = parser.parse_args()
    print("| instance, how | list | makespan | bound | gap | s |\n|---|---:|---:|---:|---:|---:|")
    for name, problem in instances(asked.files):
        if asked.only not in name:
            continue
        start = list_schedule(problem)
        for what in IDEAS if asked.table == "ideas" else SOLVERS:
            if asked.what not in what:
                continue
            if asked.table == "ideas":
                result = try_idea(problem, start, IDEAS[what], asked.seconds)
            else:
                result = try_solver(problem, SOLVERS[what](), Options(seconds=asked.seconds, start=start))
            print(row(f"{name}: {what}", start.makespan, result), flush=True)


if __name__ == "__main__":
    main()
