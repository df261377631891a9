"""Bytes that come and go within the program, beside plans repaired after the fact, on tight memories.

    python -m benchmarks.lives [--instances 30] [--shares 0.6 0.8 1] [--oracle] [--seconds 10]

For each of so many random problems of 8 to 12 tasks on two equal GPUs, and each share of what one GPU needs to run all:
what CP-SAT proves with lives, and what becomes of the best schedule without them and of the list schedule when they are
repaired (`solvers.heuristics.overflow.relief`). --oracle also enumerates the schedules of up to
9 tasks, which takes CPU minutes.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from solvers import Footprint, Options, Problem, Result, Status, check, solve
from solvers.arrays import rank_of
from solvers.heuristics.overflow.relief import relieve
from solvers.instances.plain import on_equal_gpus
from solvers.memory.usage import fits, usage

SHARES = (0.6, 0.7, 0.8, 0.9, 1.0)


def instance(seed: int, share: float, *, in_place: bool = True) -> Problem:
    """A random problem of 8 to 12 tasks with lives; a GPU has so large a share of what one needs that runs all."""
    rng = np.random.default_rng(seed)
    tasks = 8 + seed % 5
    pairs = {(int(rng.integers(max(0, task - 4), task)), task) for task in range(1, tasks) for _ in range(2)}
    src, dst = (np.array(column) for column in zip(*sorted(pairs), strict=True))
    ticks, transfer = rng.integers(1, 10, tasks), rng.integers(1, 4, tasks)
    problem = on_equal_gpus(ticks, src, dst, gpus=2, transfer=transfer)
    size, carried = rng.integers(1, 6, tasks), problem.payload
    first = np.array([np.append(np.flatnonzero(problem.dst == task), -1)[0] for task in range(tasks)])
    maker = problem.producer
    lives = Footprint(
        static=rng.integers(0, 3, tasks),
        size=size[maker],
        maker=maker,
        passes=np.where(rng.random(len(maker)) < 0.1, first[maker], -1),
        read_buffer=carried,
        read_by=problem.dst,
        read_payload=carried,
        reuses=np.where(rng.random(len(maker)) < 0.5 * in_place, first[maker], -1),
        scratch=rng.integers(0, 3, tasks),
    )
    roomy = problem.holding(capacity=np.full(2, 10**6)).living(lives)
    alone = solve(roomy.living(None), "single").schedule
    peak = 0 if alone is None else int(usage(roomy, lives, alone).peak.max())
    return roomy.holding(capacity=np.full(2, int(share * peak)))


class LivesRow(NamedTuple):
    """What became of one problem."""

    exact: Result
    repaired: int | None
    """Ticks of the better repair, None where no repair was found."""
    unlimited: int
    """Ticks of the best schedule where memory has no limit."""
    seconds: float


def repaired(problem: Problem) -> tuple[int | None, int]:
    """Ticks of the better of two schedules that know nothing of lives, once repaired; and the shorter before."""
    bare, result, lives = problem.living(None), [], problem.lives
    free = [solve(bare, name, Options(seconds=10)).schedule for name in ("cpsat", "list")]
    for schedule in free:
        if schedule is None or lives is None:
            continue
        order = rank_of(np.lexsort((schedule.finish, schedule.start)))
        relief = relieve(problem, lives, schedule.device, order=order)
        result += [schedule] * fits(problem, schedule) + [relief.schedule] * relief.fits
    return min((s.makespan for s in result), default=None), min(s.makespan for s in free if s is not None)


def row(problem: Problem, seconds: float) -> LivesRow:
    """Both ways; AssertionError where the checker has something against what CP-SAT says."""
    began = time.monotonic()
    exact = solve(problem, "cpsat", Options(seconds=seconds))
    took = time.monotonic() - began
    if exact.schedule is not None and check(problem, exact.schedule):
        raise AssertionError("an invalid schedule")
    better, unlimited = repaired(problem)
    return LivesRow(exact, better, unlimited, took)


def verdict(lives_row: LivesRow) -> str:
    """Which of a table's columns a problem counts in."""
    exact = lives_row.exact
    if exact.status is Status.INFEASIBLE:
        return "proven that nothing fits"
    if exact.status is not Status.OPTIMAL or exact.schedule is None:
        return "open"
    if lives_row.repaired is None:
        return "repair finds nothing"
    if lives_row.repaired > exact.schedule.makespan:
        return "repair is longer"
    return "repair is as good" if lives_row.repaired == exact.schedule.makespan else "repair is shorter"


def refuted(problem: Problem, exact: Result) -> bool:
    """Return True if enumeration finds nothing shorter, or nothing at all where CP-SAT says so."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "oracles"))
    from exhaustive import exhaustive

    return exhaustive(problem, below=None if exact.schedule is None else exact.schedule.makespan) is None


COLUMNS = (
    "repair is as good", "repair is longer", "repair finds nothing", "proven that nothing fits", "open",
    "repair is shorter",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="CP-SAT with lives beside repair")
    parser.add_argument("--instances", type=int, default=30)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--oracle", action="store_true")
    asked = parser.parse_args(arguments)
    print(f"| share of one GPU's peak | {' | '.join(COLUMNS)} | repair, mean | seconds, mean |", flush=True)
    print(f"|---|{'--:|' * (len(COLUMNS) + 2)}")
    for share in asked.shares:
        count, over, seconds, wrong = Counter[str](), [], [], 0
        for seed in range(asked.instances):
            problem = instance(seed, share)
            result = row(problem, asked.seconds)
            count[verdict(result)] += 1
            seconds.append(result.seconds)
            if result.exact.schedule is not None and result.repaired is not None:
                over.append(result.repaired / result.exact.schedule.makespan - 1)
            wrong += asked.oracle and problem.tasks <= 9 and not refuted(problem, result.exact)
        cells = " | ".join(str(count[name]) for name in COLUMNS)
        print(f"| {share} | {cells} | {np.mean(over or [0]):+.1%} | {np.mean(seconds):.1f} |", flush=True)
        if asked.oracle:
            print(f"enumeration disagrees with {wrong}", flush=True)


if __name__ == "__main__":
    main()
