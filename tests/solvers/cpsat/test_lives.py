"""Bytes that come and go within CP-SAT's model: what it proves, against enumeration and the checker."""

from dataclasses import replace

import numpy as np
import pytest
from exhaustive import exhaustive
from footprints import footprint_for

from solvers import Footprint, Limit, Options, Problem, Status, check, program_text, solve
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.plain import on_equal_gpus
from solvers.instances.random import generate
from solvers.memory.one_by_one import nothing_fits
from solvers.memory.usage import fits, usage
from solvers.process.judge import Judge


def proven(problem: Problem, **options):
    """What CP-SAT says, in this process."""
    return solve(problem, "cpsat", Options(**{"seconds": 30, "workers": 4, **options}))


def tight(seed: int, *, most: int = 6) -> Problem:
    """A random problem of every feature with names, in-place writes and scratch, whose list schedule hardly fits."""
    rng = np.random.default_rng(seed)
    p = generate(rng, tasks=2 + seed % (most - 1), gpus=1 + seed % 2)
    lives = replace(footprint_for(rng, p), static=p.memory)
    quick = ListScheduler().solve(p, Options(), lambda _: None).schedule
    peak = 0 if quick is None else int(usage(p, lives, quick).peak.max())
    return p.living(lives).holding(capacity=np.full(p.locations, int(peak * rng.choice([0.7, 0.85, 1.0]))))


def enumerated(seeds: range) -> dict[str, int]:
    """Asserts that each problem's schedule is valid and none is shorter, or that none is there; counts both."""
    count = {"optimal": 0, "infeasible": 0, "waits": 0}
    for seed in seeds:
        p = tight(seed)
        found = proven(p)
        assert found.status in (Status.OPTIMAL, Status.INFEASIBLE), seed
        count[str(found.status)] += 1
        if found.schedule is None:
            assert exhaustive(p) is None, seed
            continue
        assert check(p, found.schedule) == (), seed
        assert exhaustive(p, below=found.schedule.makespan) is None, seed
        assert not nothing_fits(p), seed
        roomy = p.holding(capacity=np.full(p.locations, 10**6))
        free = proven(roomy.living(None)).schedule.makespan
        assert proven(roomy).schedule.makespan == free <= found.schedule.makespan, seed
        count["waits"] += found.schedule.makespan > free
    return count


@pytest.mark.slow
def test_what_is_proven_is_what_enumeration_finds() -> None:
    """Random tight problems: optimal, or nothing there; with room for all bytes, the optimum without lives."""
    count = enumerated(range(7))
    assert min(count.values()) > 0


@pytest.mark.slow
def test_what_is_proven_is_what_enumeration_finds_of_many(seeds) -> None:
    """The same of other problems."""
    count = enumerated(range(100, 100 + len(seeds(12))))
    assert min(count.values()) > len(seeds(12)) / 20


def relay(*, capacity: int, unit: int = 1) -> Problem:
    """One GPU; task 0 and task 1 make 2 bytes each for tasks 2 and 3, which make none; 4 bytes fit only in turn."""
    p = on_equal_gpus([1, 1, 1, 1], [0, 1], [2, 3], gpus=1, transfer=np.ones(4, dtype=np.int64))
    lives = Footprint(
        static=np.zeros(4, dtype=np.int64), size=np.array([2, 2]) * unit, maker=[0, 1], passes=[-1, -1],
        read_buffer=[0, 1], read_by=[2, 3], read_payload=[0, 1],
    )  # fmt: skip
    return p.holding(capacity=[capacity]).living(lives)


def test_what_waits_for_memory_keeps_its_time() -> None:
    """A task that must wait for another GPU's reader waits in the answer, though its device is free.

    Task 0 makes 3 bytes for task 1 elsewhere (transfer of 4 ticks); task 2 needs 3 bytes beside 3 of 5: it can start
    when the transfer has ended, or first of all.
    """
    p = on_equal_gpus([2, 9, 2], [0], [1], gpus=2, transfer=np.array([4, 1, 1]))
    p = replace(p, duration=[[2, -1], [-1, 9], [2, -1]])
    lives = Footprint(
        static=[0, 0, 0], size=[3], maker=[0], passes=[-1], read_buffer=[0], read_by=[1], read_payload=[0],
        scratch=[0, 0, 3],
    )  # fmt: skip
    found = proven(p.holding(capacity=[5, 5]).living(lives))
    assert (found.status, found.schedule.makespan) == (Status.OPTIMAL, 15)
    assert found.schedule.start[2] >= 6
    assert not fits(
        p.holding(capacity=[5, 5]).living(lives), replace(found.schedule, start=[0, 6, 2], finish=[2, 15, 4])
    )


def test_the_start_is_kept_where_it_waits() -> None:
    """A start whose tasks wait for memory is not taken for one that is shorter."""
    p = relay(capacity=3)
    start = proven(p).schedule
    assert proven(p, start=start, seconds=0).schedule.makespan == start.makespan == 4


@pytest.mark.parametrize("unit", [1, 10**12])
def test_what_fits_to_the_byte_and_what_lacks_one(unit: int) -> None:
    """Bytes of any size: a common divisor is taken out, so that nothing is rounded."""
    assert proven(relay(capacity=2 * unit, unit=unit)).status is Status.OPTIMAL
    lacking = proven(relay(capacity=2 * unit - 1, unit=unit))
    assert lacking.status is Status.INFEASIBLE
    assert nothing_fits(relay(capacity=2 * unit - 1, unit=unit))


def test_rounded_bytes_are_no_proof_of_a_fit() -> None:
    """Very large sizes without a common divisor are rounded down; a schedule that then lacks a byte is refused."""
    p = relay(capacity=0)
    lives = replace(p.lives, size=[10**17 + 1, 10**17], scratch=[0, 1, 0, 1])
    found = proven(p.living(lives).holding(capacity=[10**17 + 1]))
    assert (found.status, found.schedule.makespan) == (Status.OPTIMAL, 4)
    lacking = proven(p.living(lives).holding(capacity=[10**17]))
    assert (lacking.status, lacking.schedule) == (Status.UNKNOWN, None)
    assert lacking.detail == "no schedule found but for rounded bytes"


def test_one_solver_s_word_needs_a_proof() -> None:
    """That nothing fits is believed with the orders that were looked at, and by CP-SAT alone never."""
    judge = Judge(relay(capacity=1), Options(), lambda _: None, solver="cpsat", version="")
    found = judge.ended(Status.INFEASIBLE, Limit.NONE, None, 0, "CP-SAT finds the model infeasible")
    assert found.status is Status.INFEASIBLE
    assert "one at a time" in found.detail
    assert nothing_fits(relay(capacity=1), states=1) == ""


@pytest.mark.slow
def test_engines_without_lives_are_made_to_fit() -> None:
    """A list schedule that does not fit is repaired or refused, never told as it is; its bound holds."""
    kinds = set()
    for seed in range(16):
        p = tight(seed, most=9)
        heard = []
        found = solve(p, "list", report=lambda progress: heard.append(progress.schedule))  # noqa: B023
        kinds.add(found.status)
        assert all(check(p, each) == () for each in [found.schedule, *heard] if each is not None), seed
        best = proven(p)
        assert found.schedule is None or best.lower_bound <= found.schedule.makespan, seed
        assert found.status is not Status.OPTIMAL or best.schedule.makespan == found.schedule.makespan, seed
        assert best.schedule is None or found.lower_bound <= best.schedule.makespan, seed
    assert kinds >= {Status.OPTIMAL, Status.FEASIBLE, Status.INFEASIBLE}


def test_a_start_is_never_lost() -> None:
    """An engine without lives that ends with nothing that fits keeps the start that does."""
    p = relay(capacity=3)
    start = proven(p).schedule
    assert solve(p, "list", Options(start=start)).schedule.makespan <= start.makespan
    with pytest.raises(
        ValueError, match="not a valid schedule: 4 bytes are alive at location 0 at 1, 1 more than its 3"
    ):
        solve(p, "list", Options(start=replace(start, start=[0, 1, 2, 3], finish=[1, 2, 3, 4])))


def test_integer_programs_refuse_what_they_cannot_say() -> None:
    """An LP of a problem with lives would be of another problem."""
    with pytest.raises(ValueError, match="no integer program says which bytes come and go"):
        program_text(relay(capacity=3))
