"""The oracle is right: by hand, against every start time there is, and under changes that keep the optimum."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from exhaustive import exhaustive

from solvers.checker import check
from solvers.instances.plain import chain, fork
from solvers.instances.random import Features, generate
from solvers.problem import FORBIDDEN, Problem


def optimum(p: Problem) -> int | None:
    found = exhaustive(p)
    assert found is None or check(p, found) == ()
    return None if found is None else found.makespan


def two(edges=(), *, ticks, transfer=(), payload=None, **changes) -> Problem:
    """Tasks on two equal GPUs and one link both ways; `payload` defaults to one for each edge."""
    src, dst = [u for u, _ in edges], [v for _, v in edges]
    payload = list(range(len(edges))) if payload is None else payload
    producer = {sent: u for sent, u in zip(payload, src, strict=True) if sent >= 0}
    given = {
        "duration": np.array([ticks, ticks]).T, "location": [0, 1], "memory": [1] * len(ticks), "capacity": [99, 99],
        "src": src, "dst": dst, "payload": payload, "producer": [producer[sent] for sent in sorted(producer)],
        "transfer": np.reshape(transfer, (-1, 1)), "path_class": [[-1, 0], [0, -1]],
        "path_links": [[[-1], [0]], [[0], [-1]]], "group": [-1] * len(ticks),
    }  # fmt: skip
    return Problem(**(given | changes))


def test_a_chain_stays_on_one_device():
    """Moving costs a transfer and gains nothing: 5 tasks of 1 tick take 5."""
    assert optimum(chain(5)) == 5


def test_a_fork_spreads_where_transfers_are_cheap():
    """1 + 4 + 1 tasks of 1 tick and transfers of 1.

    One GPU takes 6. Two: task 0 to 1, transfer to 2; GPU 0 runs two tasks to 3 and a third to 4; GPU 1 one task 2..3
    and its transfer to 4; the join runs 4..5. In 4 ticks, the join starts at 3: what crosses back must finish by 2 and
    thus start by 1, before the transfer of task 0's payload arrives; so all run on one GPU, which takes 6.
    """
    assert optimum(fork(6)) == 5
    # Transfers of 9 make every crossing dearer than the 6 ticks on one GPU.
    assert optimum(fork(6, transfer=9)) == 6


def test_independent_tasks_balance():
    """5, 4, 3 on two devices: {5} and {4, 3} end at 7, {5, 3} at 8, {5, 4} at 9."""
    assert optimum(two(ticks=[5, 4, 3])) == 7


def test_a_shared_payload_crosses_once():
    """Task 0 (no memory left beside it) sends 4 ticks to tasks 1 and 2 of 1 tick each: 1 + 4 + 1 + 1 = 7.

    As a payload an edge, the second crosses after the first: 1 + 4 + 4 + 1 = 10, task 1 running meanwhile.
    """
    apart = {"memory": [9, 1, 1], "capacity": [9, 9]}
    edges = ((0, 1), (0, 2))
    assert optimum(two(edges, ticks=[1, 1, 1], payload=[0, 0], transfer=[4], **apart)) == 7
    assert optimum(two(edges, ticks=[1, 1, 1], transfer=[4, 4], **apart)) == 10


def test_a_link_carries_one_transfer_at_a_time():
    """Two chains of two tasks that must change device, in opposite directions: 1 + 4 + 1 = 6 on links of their own.

    On one shared link the second transfer waits for the first: 1 + 4 + 4 + 1 = 10.
    """
    ticks = np.array([[1, FORBIDDEN], [FORBIDDEN, 1], [FORBIDDEN, 1], [1, FORBIDDEN]])
    shared = two(((0, 1), (2, 3)), ticks=[1] * 4, transfer=[4, 4], duration=ticks)
    assert optimum(shared) == 10
    assert optimum(replace(shared, path_links=[[[-1], [0]], [[1], [-1]]])) == 6
    assert optimum(replace(shared, path_links=[[[-1, -1], [0, 2]], [[1, 2], [-1, -1]]])) == 10
    assert optimum(replace(shared, path_links=[[[-1], [-1]], [[-1], [-1]]])) == 6


def test_precedence_alone_crosses_for_nothing():
    """0 -> 1 without payload: 2 + 3 = 5 wherever both run, even on different devices."""
    ticks = np.array([[2, FORBIDDEN], [FORBIDDEN, 3]])
    assert optimum(two(((0, 1),), ticks=[2, 3], payload=[-1], duration=ticks)) == 5


def test_waiting_for_the_better_device_pays():
    """Task 1 waits for device 0, where it takes 1, rather than start at once on device 1, where it takes 9: 2 + 1."""
    assert optimum(two(ticks=[2, 1], duration=np.array([[2, 99], [1, 9]]))) == 3


def test_a_device_may_wait_for_a_task_to_come():
    """0 (1 tick, device 1) -> 1 (1 tick, device 0) -> 2 (10 ticks, device 1), and 3 (5 ticks, device 0).

    Device 0 idles until 1 is ready: 1 + 1 + 10 = 12. Were 3 first, as no device ever waiting means: 5 + 1 + 10 = 16.
    """
    ticks = np.array([[FORBIDDEN, 1], [1, FORBIDDEN], [FORBIDDEN, 10], [5, FORBIDDEN]])
    assert optimum(two(((0, 1), (1, 2)), ticks=[1] * 4, payload=[-1, -1], duration=ticks)) == 12


def test_a_task_of_no_ticks_fits_between_but_not_inside():
    """On one device: 0 (4 ticks), 1 (no ticks) and 1 -> 2 (4 ticks): 8, with 1 before or between the others.

    If also 3 (3 ticks on the second device) precedes 1, then 1 starts at 3 or later: not inside 0, so 0 waits or 1
    does. 0 at 0..4, 1 at 4, 2 at 4..8 is 8 again.
    """
    ticks = np.array([[4, FORBIDDEN], [0, FORBIDDEN], [4, FORBIDDEN], [FORBIDDEN, 3]])
    assert optimum(two(((1, 2), (3, 1)), ticks=[1] * 4, payload=[-1, -1], duration=ticks)) == 8
    # 1 -> 4 of 5 ticks on the second device: 1 at 3 needs 0 and 2 after it (3 + 4 + 4); 1 at 4 makes 4 + 5 = 9.
    ticks = np.vstack([ticks, [FORBIDDEN, 5]])
    assert optimum(two(((1, 2), (3, 1), (1, 4)), ticks=[1] * 5, payload=[-1] * 3, duration=ticks)) == 9


def test_memory_and_groups_bind():
    """Two tasks of 3 ticks: 3 apart, 6 when memory or a group puts them on one device; None when both disagree."""
    assert optimum(two(ticks=[3, 3])) == 3
    assert optimum(two(ticks=[3, 3], capacity=[2, 0])) == 6
    assert optimum(two(ticks=[3, 3], group=[5, 5])) == 6
    assert optimum(two(ticks=[3, 3], group=[5, 5], capacity=[1, 1])) is None
    assert optimum(two(ticks=[3, 3], capacity=[1, 0])) is None
    assert optimum(two(ticks=[3, 3], group=[5, 5], duration=np.array([[3, -1], [-1, 3]]))) is None


def test_nothing_takes_no_time():
    """No task, no tick; a task of no ticks, no tick."""
    assert optimum(chain(0)) == 0
    assert optimum(two(ticks=[0])) == 0


def test_limits_are_refused():
    """More than 8 tasks, more than a million placements, and times beyond 62 bits are refused, not tried."""
    with pytest.raises(ValueError, match="9 tasks are more than 8"):
        exhaustive(chain(9))
    with pytest.raises(ValueError, match="placements"):
        exhaustive(chain(8, gpus=8))
    with pytest.raises(ValueError, match="62 bits"):
        exhaustive(two(ticks=[2**61, 2**61]))


def operations(p: Problem, device: tuple[int, ...]) -> list[tuple[int, set[str], set[str], str]]:
    """(ticks, resources, what it waits for, name) of each task and transfer, what is waited for first."""
    at = [int(p.location[unit]) for unit in device]
    found: dict[str, tuple[int, set[str], set[str], str]] = {}
    while len([name for name in found if name.isdigit()]) < p.tasks:
        for task in set(range(p.tasks)) - {int(name) for name in found if name.isdigit()}:
            edges = np.flatnonzero(p.dst == task)
            if not all(str(p.src[edge]) in found for edge in edges):
                continue
            waits = set()
            for src, sent in zip(p.src[edges].tolist(), p.payload[edges].tolist(), strict=True):
                name = str(src) if sent < 0 or at[src] == at[task] else f"payload {sent} to {at[task]}"
                if name not in found:
                    ticks = int(p.transfer[sent, p.path_class[at[src], at[task]]])
                    links = {f"link {link}" for link in p.path_links[at[src], at[task]] if link >= 0}
                    found[name] = (ticks, links, {str(src)}, name)
                waits.add(name)
            found[str(task)] = (int(p.duration[task, device[task]]), {f"device {device[task]}"}, waits, str(task))
    return list(found.values())


def fits(todo: list, horizon: int, done: dict) -> bool:
    """Whether some start in 0..horizon of each operation works: every one is tried."""
    if not todo:
        return True
    ticks, resources, waits, name = todo[0]
    for start in range(max((done[other][1] for other in waits), default=0), horizon - ticks + 1):
        clash = any(held & resources and start < end and begin < start + ticks for begin, end, held in done.values())
        if not clash and fits(todo[1:], horizon, done | {name: (start, start + ticks, resources)}):
            return True
    return False


def possible(p: Problem, horizon: int) -> bool:
    """Whether any placement has a schedule that ends by the horizon."""
    for device in product(*(np.flatnonzero(row) for row in p.allowed)):
        at = p.location[list(device)]
        used = np.bincount(at, p.memory, p.locations)
        split = any(p.group[i] == p.group[j] >= 0 and at[i] != at[j] for i in range(p.tasks) for j in range(i))
        if not split and (used <= p.capacity).all() and fits(operations(p, device), horizon, {}):
            return True
    return False


def test_no_start_times_beat_it(seeds):
    """On problems of short ticks, trying all start times ends by the optimum and never a tick sooner."""
    makespans = []
    for seed in seeds(100):
        rng = np.random.default_rng(seed)
        p = generate(rng, tasks=int(rng.integers(1, 5)), gpus=int(rng.integers(1, 3)), features=Features(cores=False))
        p = replace(p, duration=np.minimum(p.duration, 3), transfer=np.minimum(p.transfer, 2))
        best = optimum(p)
        makespans.append(best)
        assert possible(p, best)
        assert not possible(p, best - 1)
    assert max(makespans) > 5


def test_changes_that_keep_the_optimum(seeds):
    """Tasks under other numbers keep the optimum, ticks x 3 triple it, more memory or fewer edges never raise it."""
    for seed in seeds(50):
        rng = np.random.default_rng(seed)
        p = generate(rng, tasks=int(rng.integers(1, 7)))
        best, new = optimum(p), rng.permutation(p.tasks)
        rows = {name: getattr(p, name)[np.argsort(new)] for name in ("duration", "memory", "group")}
        assert optimum(replace(p, **rows, src=new[p.src], dst=new[p.dst], producer=new[p.producer])) == best
        ticks = np.where(p.allowed, 3 * p.duration, FORBIDDEN)
        assert optimum(replace(p, duration=ticks, transfer=3 * p.transfer)) == 3 * best
        assert optimum(replace(p, capacity=p.capacity + 99)) <= best
        assert optimum(replace(p, src=p.src[1:], dst=p.dst[1:], payload=p.payload[1:])) <= best
