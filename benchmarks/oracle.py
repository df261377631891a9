"""Random small problems on which a solver must agree with exhaustive search, all in one process.

Run from the project's root: `python -m benchmarks.oracle highs [--formulation paper] [--count 1000] [--first 0]`.
Prints every disagreement with its seed, and at the end what was found; exits 1 where anything disagrees, or where more
than a few optima are met but not proven. With `--seconds 0.1` most runs are cut short, and what they claim must still
hold.

A schedule of the optimum's length is not enough: a program that has lost rows still meets most optima, since times are
rebuilt from its placement and order, and only its bound stays below. So a run that proves nothing is *unproven* where
the program is exact, a unit of its time is a tick, and the limit is not what ended it (or was AMPLE_S and more). Only
one in UNPROVEN problems may be: a vendor may give up on numbers that it finds hard. Where a horizon has more ticks than
a program has units, tolerances are worth ticks, and leave some open: "met, not proven" counts those, and runs that a
shorter limit ended.

A seed decides on size (1 to 7 tasks), machine, features, on a warm start (every second has the list schedule's), on
transfers that are five times as long and share links (two in five, of 5 to 7 tasks), on times of billions of ticks
(every seventh), and on capacities that are cut (every ninth, of which some cannot be met).
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from solvers.api import SOLVERS
from solvers.base import Progress, UnavailableError
from solvers.checker import check
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.random import EVERYTHING, Features, generate
from solvers.milp.formulations import FORMULATIONS, HORIZON, MakespanLimits, formulate
from solvers.problem import FORBIDDEN, Problem
from solvers.result import Limit, Options, Result, Status
from solvers.schedule import Schedule
from solvers.structure.units import serial
from tests.oracles.exhaustive import exhaustive

_SIZES = (1, 2, 3, 4, 4, 5, 5, 5, 5, 6, 6, 7)
_LONG = 10**9 + 7
"""Ticks of a tick, where times are long."""
CONTENDED = (1, 3)
"""Of five seeds, those whose problems have contended links, and"""
_HEAVY = 5
"""ticks of a tick of a transfer there."""
UNPROVEN = 500
"""Problems for each one that may be left unproven, or part of as many."""
AMPLE_S = 30.0
"""A limit that programs of seven tasks should not need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleRun:
    """One solve: what was asked, heard and answered."""

    problem: Problem
    result: Result
    heard: list[Progress]
    formulation: str
    """"" for a solver with a model of its own."""
    seconds: float
    """The limit."""

    @property
    def binding(self) -> bool:
        """True if the solver's program is exact for the problem."""
        if not self.formulation or not self.problem.tasks:
            return True
        limits = MakespanLimits(least=0, most=serial(self.problem))
        return formulate(self.problem, self.formulation, limits).binding

    @property
    def provable(self) -> bool:
        """True if a proof was to be expected: tolerances are no tick, and neither was the limit short nor the program
        another one."""
        stopped = self.result.limit is Limit.TIME and self.seconds < AMPLE_S
        return not stopped and serial(self.problem) <= HORIZON and self.binding


def problem_of(seed: int, formulation: str) -> Problem:
    """The problem of a seed; for `paper` mostly without shared payloads, where its program is exact."""
    rng = np.random.default_rng([seed, 41])
    chosen = {f.name: bool(rng.random() < 0.7) for f in fields(Features)}
    features = EVERYTHING if seed % 2 else Features(**chosen)
    if formulation == "paper" and seed % 3:
        features = replace(features, shared_payloads=False)
    tasks, gpus = int(rng.choice(_SIZES)), int(rng.integers(1, 4))
    if seed % 5 in CONTENDED:
        features, tasks, gpus = replace(features, shared_links=True), 5 + tasks % 3, min(gpus, 2)
    problem = generate(rng, tasks=tasks, gpus=gpus, features=features)
    if seed % 5 in CONTENDED:
        problem = _contended(problem, seed)
    if seed % 9 == 4:
        problem = _edited(problem, capacity=(problem.capacity * rng.uniform(0.6, 1.0)).astype(np.int64))
    if seed % 7 == 3:
        long = np.where(problem.duration == FORBIDDEN, FORBIDDEN, problem.duration * _LONG)
        problem = _edited(problem, duration=long, transfer=problem.transfer * _LONG)
    return problem


def _contended(problem: Problem, seed: int) -> Problem:
    """Long transfers, of which those that hold any link hold the same one, a bus, or (every second time) as they do."""
    links = problem.path_links
    if seed % 2:
        held = (links >= 0).any(axis=2)
        links = np.full_like(links, -1)
        links[..., 0] = np.where(held, 0, -1)
    return _edited(problem, transfer=problem.transfer * _HEAVY, path_links=links)


def _edited(problem: Problem, **changed: object) -> Problem:
    kept = {f.name: getattr(problem, f.name) for f in fields(Problem) if f.init}
    return Problem(**(kept | changed))


def start_of(problem: Problem, seed: int) -> Schedule | None:
    """Every second time the list schedule, where there is one."""
    return ListScheduler().solve(problem, Options(), lambda _: None).schedule if seed % 4 < 2 else None


def verdict(run: OracleRun) -> tuple[str, str]:
    """What the result is called, and what is wrong with it ("" for nothing)."""
    schedules = [p.schedule for p in run.heard] + [run.result.schedule]
    wrong = [w.text for s in schedules if s is not None for w in check(run.problem, s)]
    if wrong:
        return "invalid", f"an invalid schedule: {wrong[0]}"
    best = exhaustive(run.problem)
    return _infeasible(run) if best is None else _feasible(run, best.makespan)


def _infeasible(run: OracleRun) -> tuple[str, str]:
    status = run.result.status
    if status is Status.INFEASIBLE:
        return "infeasible", ""
    # A program that is not exact may be infeasible by itself, and says so; a limit may come first.
    open_ = run.result.limit is Limit.TIME or "nothing of this problem" in run.result.detail
    return "not proven infeasible", "" if status is Status.UNKNOWN and open_ else f"{status} where there is no schedule"


def _feasible(run: OracleRun, best: int) -> tuple[str, str]:
    result = run.result
    bound = max([result.lower_bound, *(p.lower_bound for p in run.heard)])
    outcome = "nothing" if result.schedule is None else str(result.schedule.makespan)
    told = f"{result.status} {outcome} ({result.detail}), bound {bound}, the optimum is {best}"
    if bound > best or result.status is Status.INFEASIBLE:
        return "false", told
    if outcome == str(best):
        if result.status is Status.OPTIMAL:
            return "proven", ""
        return ("unproven" if run.provable else "met, not proven"), ""
    if not run.binding:
        return "not binding", ""
    if result.limit is not Limit.TIME:
        return "missed", told
    return ("unproven" if run.provable else "stopped"), ""


def main() -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solver", choices=[n for n, e in SOLVERS.items() if e.formulations or n == "cpsat"])
    parser.add_argument("--formulation", choices=list(FORMULATIONS), default="tight")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of a solve")
    chosen = parser.parse_args()
    entry = SOLVERS[chosen.solver]
    formulation = chosen.formulation if entry.formulations else ""
    options = Options(
        seconds=chosen.seconds, workers=1 if formulation else 8, formulation=formulation or chosen.formulation
    )
    found: Counter[str] = Counter()
    wrong, began = 0, time.monotonic()
    for seed in range(chosen.first, chosen.first + chosen.count):
        name, fault = _try(entry.load().solve, seed, options, formulation)
        found[name] += 1
        wrong += bool(fault)
        if fault or name == "unproven":
            print(f"seed {seed}: {fault or name}", flush=True)
    most = -(-chosen.count // UNPROVEN)
    seconds = time.monotonic() - began
    counts = ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
    print(f"{chosen.solver} {formulation}: {chosen.count} problems, {wrong} disagreements: {counts}")
    print(f"{found['unproven']} unproven, at most {most} may be; {chosen.count / seconds:.1f} problems a second")
    sys.exit(1 if wrong or found["unproven"] > most else 0)


def _try(solve: Callable[..., Result], seed: int, options: Options, formulation: str) -> tuple[str, str]:
    problem, heard = problem_of(seed, formulation), list[Progress]()
    options = replace(options, seed=seed, start=start_of(problem, seed))
    try:
        result = solve(problem, options, heard.append)
    except UnavailableError:
        return "beyond the licence", ""
    except Exception as error:
        return "raised", f"{type(error).__name__}: {error}"
    return verdict(
        OracleRun(problem=problem, result=result, heard=heard, formulation=formulation, seconds=options.seconds)
    )


if __name__ == "__main__":
    main()
