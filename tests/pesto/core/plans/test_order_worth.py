"""What an order is worth: a placement whose four times are known by hand, and the real simulators on random ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pesto.core.plans.execution_modes import order_worth, send_ranks
from pesto.core.simulator import simulate
from solvers.compiled.dag import topological_order
from solvers.instances.random import generate
from solvers.problem import Problem

LINKS = [[[-1], [0]], [[1], [-1]]]


def problem() -> Problem:
    """Two GPUs: task 0 (9 ticks, read by nobody), 1 (1 tick) whose payloads 0 and 1 feed 2 (1 tick) and 3 (8 ticks)."""
    return Problem(
        duration=np.repeat([[9], [1], [1], [8]], 2, axis=1), location=np.arange(2), memory=np.zeros(4, dtype=np.int64),
        capacity=np.zeros(2, dtype=np.int64), src=np.array([1, 1]), dst=np.array([2, 3]), payload=np.array([0, 1]),
        producer=np.array([1, 1]), transfer=np.array([[5], [5]]), path_class=np.array([[-1, 0], [0, -1]]),
        path_links=np.array(LINKS), group=np.full(4, -1),
    )  # fmt: skip


def test_each_time_by_hand() -> None:
    """Placement: 0 and 1 on GPU 0; 2 and 3 on GPU 1. The plan runs 1 before 0, and 3 before 2."""
    found = order_worth(problem(), np.array([0, 0, 1, 1]), np.array([1, 0, 3, 2]))
    # Enforced: 1 ends at 1; payload 0 crosses 1..6, payload 1 6..11; 3 runs 11..19, 2 19..20; 0 1..10.
    assert found.enforced == 20
    # FIFO: 0 runs first, 0..9, then 1 9..10; payloads 10..15 and 15..20; 2 15..16, 3 20..28.
    assert found.fifo == 28
    # Listed: bottom levels are 9, 1 + 5 + 8 = 14, 1, 8: 1 first; 2 6..7, as it is there first; 3 11..19.
    assert found.listed == 19
    # Scheduled: payload 1 first, as 3 comes first: 1..6; 3 6..14; 2's payload 6..11; 2 14..15.
    assert found.scheduled == 15
    assert found.gain == pytest.approx(1 - 20 / 28)
    assert found.scheduled_gain == pytest.approx(0.25)


def test_a_payload_is_as_urgent_as_its_first_reader_elsewhere() -> None:
    """Readers at home do not count; what nobody reads elsewhere comes last."""
    p = problem()
    assert send_ranks(p, np.array([0, 0, 1, 1]), np.array([1, 0, 3, 2])).tolist() == [3, 2]
    assert send_ranks(p, np.array([0, 0, 0, 1]), np.array([1, 0, 3, 2])).tolist() == [4, 2]


@given(st.integers(0, 2**32 - 1))
def test_the_times_of_the_plan_s_order_are_the_reference_simulator_s(seed: int) -> None:
    """Enforced and scheduled to the tick; on one device without gaps every order takes the sum of the durations."""
    rng = np.random.default_rng(seed)
    p = generate(rng, tasks=int(rng.integers(1, 20)), gpus=int(rng.integers(1, 4)))
    device = np.array([rng.choice(np.flatnonzero(row)) for row in p.allowed])
    rank = np.empty(p.tasks, dtype=np.int64)
    rank[topological_order(p.tasks, p.src, p.dst)] = np.arange(p.tasks)
    found = order_worth(p, device, rank)
    assert found.enforced == simulate(p, device, rank).schedule.makespan
    by_priority = simulate(p, device, rank, send_rank=send_ranks(p, device, rank))
    assert found.scheduled == by_priority.schedule.makespan
    work = p.duration[np.arange(p.tasks), device]
    if len(set(device.tolist())) == 1:
        assert {found.enforced, found.fifo, found.listed, found.scheduled} == {int(work.sum())}
