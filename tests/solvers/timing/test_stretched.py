"""Stretched runs are replays of the problem with other times, to the tick."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.compiled.dag import topological_order
from solvers.instances.random import generate
from solvers.problem import FORBIDDEN
from solvers.timing.replay import fifo, prepare, replay, stretched_makespans


def case(seed):
    """A random problem of up to 24 tasks on up to three GPUs, and two placements with one order that they can have."""
    rng = np.random.default_rng(seed)
    p = generate(rng, tasks=int(rng.integers(1, 25)), gpus=int(rng.integers(1, 4)))
    rank = np.empty(p.tasks, dtype=np.int64)
    rank[topological_order(p.tasks, p.src, p.dst)] = np.arange(p.tasks)
    devices = [np.array([rng.choice(np.flatnonzero(row)) for row in p.allowed], dtype=np.int64) for _ in range(2)]
    return rng, p, [(device, rank) for device in devices]


def scaled(p, of_task, of_payload):
    """The problem with its times multiplied, rounded to the nearest tick."""
    duration = np.where(p.duration == FORBIDDEN, FORBIDDEN, np.rint(p.duration * of_task[:, None]).astype(np.int64))
    return replace(p, duration=duration, transfer=np.rint(p.transfer * of_payload).astype(np.int64))


@given(st.integers(0, 2**32 - 1))
def test_each_is_the_replay_of_the_problem_with_these_times(seed) -> None:
    """Two placements, three sets of factors from nothing to tenfold; ones give the replay of the problem itself.

    Without a rank they are runs first in, first out.
    """
    rng, p, runs = case(seed)
    drawn = [(rng.uniform(0, 10, p.tasks), rng.uniform(0, 10, p.transfer.shape)) for _ in range(3)]
    factors = [*drawn, (np.ones(p.tasks), np.ones(p.transfer.shape))]
    found = stretched_makespans(prepare(p), runs, iter(factors))
    freely = stretched_makespans(prepare(p), [(device, None) for device, _ in runs], iter(factors))
    assert freely.tolist() == [[fifo(scaled(p, *each), device).makespan for device, _ in runs] for each in factors]
    wanted = [[replay(scaled(p, *each), *run).makespan for run in runs] for each in factors]
    assert found.tolist() == wanted
    assert found[-1].tolist() == [replay(p, *run).makespan for run in runs]


def test_without_runs_there_is_a_row_for_each_draw() -> None:
    _, p, _ = case(1)
    assert stretched_makespans(prepare(p), [], [(np.ones(p.tasks), np.ones(p.transfer.shape))] * 3).shape == (3, 0)


def test_times_that_64_bits_cannot_add_up_are_refused() -> None:
    """For tasks and for transfers."""
    _, p, runs = case(5)
    assert p.payloads and p.duration.max() > 0
    for of_task, of_payload in ((1e30, 1.0), (1.0, 1e30)):
        factors = [(np.full(p.tasks, of_task), np.full(p.transfer.shape, of_payload))]
        with pytest.raises(ValueError, match="beyond what 64 bits can add up"):
            stretched_makespans(prepare(p), runs, factors)
