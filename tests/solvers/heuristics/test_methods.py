"""Every placement method of the table: placements are valid on every problem, schedules pass the checker."""

from dataclasses import replace
from importlib import util

import numpy as np
import pytest

from solvers import api
from solvers.checker import check
from solvers.heuristics.devices_of_location import devices_at, elements
from solvers.heuristics.methods import PLACERS, NoRoomError
from solvers.instances.plain import chain, fork, lstm_grid
from solvers.instances.random import Features, generate
from solvers.problem import Problem
from solvers.result import Options, Status
from solvers.structure.units import units_of

BESIDE = [name for name, row in PLACERS.items() if row.package is not None]
"""Those with a process of their own, which the default run starts for one test each."""
QUICK = Options(seconds=0.2, deterministic=True)
MISSING = {"metis": "pymetis"}
NAMES = [
    pytest.param(n, marks=pytest.mark.skipif(n in MISSING and not util.find_spec(MISSING[n]), reason="not installed"))
    for n in PLACERS
]
HERE = [
    p if p.values[0] not in BESIDE else pytest.param(*p.values, marks=[*p.marks, pytest.mark.matrix]) for p in NAMES
]


def without_mcmc(names):
    """The same parameters, of which a default run leaves out the one that walks for seconds."""
    return [pytest.param(*p.values, marks=[*p.marks, *[pytest.mark.matrix] * (p.values[0] == "mcmc")]) for p in names]


def some(seed, most=30):
    """A random problem with every feature."""
    rng = np.random.default_rng([7, seed])
    return generate(rng, tasks=int(rng.integers(0, most)), gpus=int(rng.integers(1, 5)))


@pytest.mark.parametrize("name", without_mcmc(NAMES))
def test_placements_are_valid_on_random_problems(name, seeds):
    """Devices that can run the tasks, groups whole, an order along the precedence, and memory where it is promised."""
    row, placed = PLACERS[name], 0
    method = row.load()
    options = (
        replace(QUICK, seconds=0.0) if row.package == "ortools" else QUICK
    )  # which must not load beside TensorFlow
    for seed in seeds(30):
        p = some(seed)
        try:
            found = method(p, options)
        except NoRoomError as short:
            assert row.memory and any(c.isdigit() for c in str(short)), seed
            continue
        placed += 1
        assert found.device.shape == (p.tasks,), seed
        assert p.allowed[np.arange(p.tasks), found.device].all(), seed
        at = p.location[found.device]
        for group in range(int(p.group.max(initial=-1)) + 1):
            assert len(set(at[p.group == group].tolist())) <= 1, seed
        if found.rank is not None:
            assert np.array_equal(np.sort(found.rank), np.arange(p.tasks)), seed
            assert (found.rank[p.src] < found.rank[p.dst]).all(), seed
        if row.memory:
            used = np.zeros(p.locations, dtype=np.int64)
            np.add.at(used, at, p.memory)
            assert (used <= p.capacity).all(), seed
    assert placed >= (0.3 if row.memory else 1.0) * len(seeds(30))


@pytest.mark.parametrize("name", without_mcmc(HERE))
def test_schedules_are_checked_and_the_same_again(name):
    """As a solver: valid, or unknown for want of memory, which it says; and the same seed gives the same."""
    for seed in range(2 if PLACERS[name].package else 10):
        p = some(seed)
        one, two = (api.solve(p, name, QUICK) for _ in range(2))
        assert one.status in (Status.OPTIMAL, Status.FEASIBLE, Status.UNKNOWN, Status.INFEASIBLE), one.detail
        if one.schedule is None:
            assert "memory" in one.detail and one.status is not Status.FEASIBLE
            continue
        assert not check(p, one.schedule)
        assert two.schedule is not None and np.array_equal(one.schedule.device, two.schedule.device)
        assert one.lower_bound <= one.schedule.makespan


@pytest.mark.parametrize("name", HERE)
def test_nothing_one_task_and_one_device(name):
    """No task: makespan 0. A chain and a fork on one GPU take the sum of their durations, whatever the method."""
    one_gpu = Features(host=False, lanes=False, heterogeneous=False, holes=False, memory=False)
    nothing = api.solve(generate(np.random.default_rng(0), tasks=0, gpus=2), name, QUICK)
    assert nothing.schedule is not None and nothing.schedule.makespan == 0
    for tasks in (1, 9):
        p = generate(np.random.default_rng(tasks), tasks=tasks, gpus=1, features=one_gpu)
        result = api.solve(p, name, QUICK)
        assert result.schedule is not None and result.schedule.makespan == int(p.duration[:, 0].sum())


@pytest.mark.parametrize("name", NAMES)
def test_no_memory_no_time_and_a_start(name):
    """Three tasks of 4 bytes at two locations of 5: infeasible, with a proof. No time, and a start: never worse."""
    full = replace(chain(3), memory=np.full(3, 4), capacity=np.full(2, 5))
    proven = api.solve(full, name, QUICK)
    assert proven.status is Status.INFEASIBLE and proven.detail
    p = fork(6)
    start = api.solve(p, "list", Options()).schedule
    assert start is not None
    result = api.solve(p, name, Options(seconds=0, start=start))
    assert result.schedule is not None and result.schedule.makespan <= start.makespan


@pytest.mark.parametrize("name", HERE)
def test_structured_families(name):
    """Chains, forks and an LSTM grid have an answer, and none takes longer than all tasks and transfers in a row."""
    for p in (chain(12), fork(6), lstm_grid(2, 4)):
        result = api.solve(p, name, Options(seconds=1.0, deterministic=True))
        assert result.schedule is not None and not check(p, result.schedule)
        worst = int(p.duration.max(axis=1).sum()) + p.locations * int(p.transfer.max(axis=1, initial=0).sum())
        assert result.schedule.makespan <= worst


def test_elements_are_the_locations_with_a_choice():
    """Of a host and two GPUs, one task for the host alone and one for the GPUs: the GPUs. Only host tasks: the host."""
    assert elements(units_of(machine([[1, -1, -1], [-1, 2, 2]]))).tolist() == [1, 2]
    assert elements(units_of(machine([[1, -1, -1], [3, -1, -1]]))).tolist() == [0]


def test_cores_of_a_host_are_shared_out():
    """Five equal tasks at a host of two cores: three and two; a task that only the second core runs gets that."""
    p = machine([[2, 2], [2, 2], [2, 2], [2, 2], [-1, 2]], location=[0, 0])
    device = devices_at(p, np.zeros(5, dtype=np.int64))
    assert sorted(np.bincount(device, minlength=2).tolist()) == [2, 3] and device[4] == 1


def machine(duration, location=None):
    """Tasks without edges; a device a column, a location each unless they are given."""
    duration = np.array(duration)
    location = np.arange(duration.shape[1]) if location is None else np.array(location)
    tasks, places, none = len(duration), int(location.max()) + 1, np.zeros(0, dtype=np.int64)
    return Problem(
        duration=duration,
        location=location,
        memory=np.zeros(tasks, dtype=np.int64),
        capacity=np.zeros(places, dtype=np.int64),
        src=none,
        dst=none,
        payload=none,
        producer=none,
        transfer=np.zeros((0, 1), dtype=np.int64),
        path_class=np.where(np.eye(places, dtype=bool), -1, 0),
        path_links=np.full((places, places, 1), -1),
        group=np.full(tasks, -1),
    )
