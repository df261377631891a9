"""The reference simulator: hand-made steps, the compiled event loop, the checker."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pesto.core.errors import InputError
from pesto.core.simulator import simulate
from solvers.checker import check
from solvers.instances.random import generate
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.replay import replay


def two_gpus(**changes: object) -> Problem:
    """Task 0 feeds tasks 1 and 2 with one payload of 5 ticks; two GPUs, one link each way."""
    fields = {
        "duration": [[10, 10], [20, 20], [30, 30]], "location": [0, 1], "memory": [0, 0, 0], "capacity": [9, 9],
        "src": [0, 0], "dst": [1, 2], "payload": [0, 0], "producer": [0], "transfer": [[5]],
        "path_class": [[-1, 0], [0, -1]], "path_links": [[[-1], [0]], [[1], [-1]]], "group": [-1, -1, -1],
    }  # fmt: skip
    return Problem(**{k: np.array(v) for k, v in {**fields, **changes}.items()})


def same(a: Schedule, b: Schedule) -> bool:
    return all(np.array_equal(getattr(a, f), getattr(b, f)) for f in ("device", "start", "finish")) and (
        sorted(zip(a.sent_payload, a.sent_to, a.sent_start, a.sent_finish, strict=True))
        == sorted(zip(b.sent_payload, b.sent_to, b.sent_start, b.sent_finish, strict=True))
    )


def random_run(rng: np.random.Generator) -> tuple[Problem, np.ndarray, np.ndarray]:
    """A random problem, a random allowed device of each task and a random order that keeps the precedence."""
    p = generate(rng, tasks=int(rng.integers(1, 25)), gpus=int(rng.integers(1, 4)))
    device = np.array([rng.choice(np.flatnonzero(row)) for row in p.allowed])
    key, rank = rng.random(p.tasks), np.zeros(p.tasks, dtype=np.int64)
    waiting = np.bincount(p.dst, minlength=p.tasks)
    for at in range(p.tasks):
        ready = np.flatnonzero(waiting == 0)
        task = ready[np.argmin(key[ready])]
        rank[task] = at
        waiting[task] = -1
        np.subtract.at(waiting, p.dst[p.src == task], 1)
    return p, device, rank


def test_one_device_runs_in_order() -> None:
    """On one GPU nothing is sent, so the step is the sum of its ops."""
    line = simulate(two_gpus(), np.array([0, 0, 0]), np.array([0, 1, 2]))
    assert line.schedule.makespan == 10 + 20 + 30
    assert len(line.schedule.sent_payload) == 0


def test_a_payload_crosses_once_however_many_read_it() -> None:
    """Both readers on the other GPU share one transfer: 10 + 5 + 20 + 30."""
    line = simulate(two_gpus(), np.array([0, 1, 1]), np.array([0, 1, 2]))
    assert line.schedule.makespan == 65
    assert line.schedule.sent_start.tolist() == [10]
    assert line.link_busy_s.tolist() == [5e-9, 0.0]
    assert line.busy_s.tolist() == pytest.approx([10e-9, 50e-9])


def test_per_edge_payloads_queue_on_the_link() -> None:
    """With a payload an edge, the second transfer waits for the first: 10 + 5 + 5 + 30 = 50 ends last."""
    per_edge = two_gpus(payload=[0, 1], producer=[0, 0], transfer=[[5], [5]], duration=[[10, 10], [1, 1], [30, 30]])
    line = simulate(per_edge, np.array([0, 1, 1]), np.array([0, 1, 2]))
    assert line.schedule.sent_start.tolist() == [10, 15]
    assert line.schedule.makespan == 50


def test_an_order_against_the_precedence_is_refused() -> None:
    """Task 1 before its producer on one device can never start."""
    with pytest.raises(InputError, match="contradicts the precedence"):
        simulate(two_gpus(), np.array([0, 0, 0]), np.array([1, 0, 2]))


def test_equals_the_compiled_event_loop_to_the_tick_and_passes_the_checker(seeds) -> None:
    """Two programs written apart agree on every start and every transfer, and the checker finds no fault in time."""
    rng = np.random.default_rng(7)
    for _ in seeds(200):
        p, device, rank = random_run(rng)
        line = simulate(p, device, rank)
        assert same(line.schedule, replay(p, device, rank))
        # Random placements split groups and overfill memory; times must be right all the same.
        kinds = {v.kind for v in check(p, line.schedule)}
        assert kinds <= {"group", "memory"}, kinds


@given(st.integers(0, 2**32 - 1))
def test_scheduled_links_too_are_the_same_to_the_tick_in_both_programs(seed: int) -> None:
    """With random priorities of the payloads; and the checker finds no fault in time."""
    rng = np.random.default_rng(seed)
    p, device, rank = random_run(rng)
    send_rank = rng.integers(0, p.payloads + 1, p.payloads)
    line = simulate(p, device, rank, send_rank=send_rank)
    assert same(line.schedule, replay(p, device, rank, send_rank=send_rank))
    kinds = {v.kind for v in check(p, line.schedule)}
    assert kinds <= {"group", "memory"}, kinds


def test_a_free_task_waits_for_nobody() -> None:
    """Two tasks of one GPU without inputs start together when the second is free, and the first is not kept by it."""
    apart = two_gpus(src=[1], dst=[2], payload=[0], producer=[1])
    free = np.array([False, True, False])
    line = simulate(apart, np.array([0, 0, 0]), np.array([0, 1, 2]), free=free)
    assert line.schedule.start.tolist() == [0, 0, 20] and line.schedule.makespan == 50


def test_a_free_task_that_needs_its_device_asks_for_it() -> None:
    """It asks with the first of the order, which has the lower rank, and goes before what asks when that has ended."""
    apart = two_gpus(src=[0], dst=[2], payload=[0], producer=[0])
    free, nobody = np.array([False, True, False]), np.zeros(3, dtype=bool)
    line = simulate(apart, np.array([0, 0, 0]), np.array([0, 1, 2]), free=free, beside=nobody)
    assert line.schedule.start.tolist() == [0, 10, 30] and line.schedule.makespan == 60
    first = simulate(apart, np.array([0, 0, 0]), np.array([1, 0, 2]), free=free, beside=nobody)
    assert first.schedule.start.tolist() == [20, 0, 30]


@given(st.integers(0, 2**32 - 1))
def test_devices_that_are_asked_for_run_one_task_at_a_time(seed: int) -> None:
    """Those of no time apart; and with all beside their devices it is the simulation without `beside`."""
    rng = np.random.default_rng(seed)
    p, device, rank = random_run(rng)
    free = rng.random(p.tasks) < 0.4
    alone = simulate(p, device, rank, free=free).schedule
    assert same(simulate(p, device, rank, free=free, beside=free).schedule, alone)
    s = simulate(p, device, rank, free=free, beside=np.zeros(p.tasks, bool)).schedule
    for d in range(p.devices):
        mine = np.flatnonzero((device == d) & (s.finish > s.start))
        mine = mine[np.argsort(s.start[mine])]
        assert (s.start[mine[1:]] >= s.finish[mine[:-1]]).all()
        chain = np.flatnonzero((device == d) & ~free)
        chain = chain[np.argsort(rank[chain])]
        assert (s.start[chain[1:]] >= s.finish[chain[:-1]]).all()


@given(st.integers(0, 2**32 - 1))
def test_free_tasks_start_with_their_inputs_and_the_others_in_order(seed: int) -> None:
    """What is free starts when the last input is there; of the rest none starts before its neighbour has ended."""
    rng = np.random.default_rng(seed)
    p, device, rank = random_run(rng)
    assert same(simulate(p, device, rank, free=np.zeros(p.tasks, bool)).schedule, replay(p, device, rank))
    free = rng.random(p.tasks) < 0.4
    s = simulate(p, device, rank, free=free).schedule
    sent = zip(s.sent_payload.tolist(), s.sent_to.tolist(), s.sent_finish.tolist(), strict=True)
    there = {(payload, to): end for payload, to, end in sent}
    ready = np.zeros(p.tasks, dtype=np.int64)
    for a, b, payload in zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True):
        crosses = payload >= 0 and p.location[device[a]] != p.location[device[b]]
        at = there[payload, int(p.location[device[b]])] if crosses else s.finish[a]
        ready[b] = max(ready[b], at)
    assert (s.start[free] == ready[free]).all() and (s.start >= ready).all()
    for d in range(p.devices):
        mine = np.flatnonzero((device == d) & ~free)
        mine = mine[np.argsort(rank[mine])]
        assert (s.start[mine[1:]] == np.maximum(s.finish[mine[:-1]], ready[mine[1:]])).all()
