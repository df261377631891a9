"""The compiled event loop against hand-made examples and the properties that its contract states."""

from dataclasses import replace

import numpy as np
import pytest

from solvers.checker import check
from solvers.compiled.dag import topological_order
from solvers.instances.plain import chain
from solvers.instances.random import generate
from solvers.problem import FORBIDDEN, Problem
from solvers.schedule import Schedule
from solvers.timing.replay import bottom_levels, makespan, prepare, replay

COLUMNS = ("device", "start", "finish", "sent_payload", "sent_to", "sent_start", "sent_finish")


def machine(duration, edges, transfer, *, links=None, group=None, location=None):
    """Devices at a location each unless told, one link for each ordered pair, edges (src, dst, payload or -1)."""
    duration = np.array(duration, dtype=np.int64)
    n, m = duration.shape
    location = np.arange(m) if location is None else np.array(location)
    places = int(location.max()) + 1
    off = ~np.eye(places, dtype=bool)
    if links is None:
        links = np.full((places, places, 1), -1)
        links[off, 0] = np.arange(off.sum())
    src, dst, payload = (np.array([e[k] for e in edges], dtype=np.int64) for k in range(3))
    producer = [next(e[0] for e in edges if e[2] == p) for p in range(len(transfer))]
    return Problem(
        duration=duration,
        location=location,
        memory=np.zeros(n, dtype=np.int64),
        capacity=np.zeros(places, dtype=np.int64),
        src=src,
        dst=dst,
        payload=payload,
        producer=np.array(producer, dtype=np.int64),
        transfer=np.array(transfer, dtype=np.int64).reshape(-1, 1),
        path_class=np.where(off, 0, -1),
        path_links=links,
        group=np.full(n, -1) if group is None else group,
    )


def random_case(seed, most=14):
    """A random problem, devices that can run its tasks, and a random rank."""
    rng = np.random.default_rng(seed)
    p = generate(rng, tasks=int(rng.integers(1, most)), gpus=int(rng.integers(1, 4)))
    device = np.array([rng.choice(np.flatnonzero(row)) for row in p.allowed], dtype=np.int64)
    return p, device, rng.integers(0, p.tasks, p.tasks)


def topological_rank(p):
    """A rank that no strict replay refuses."""
    rank = np.empty(p.tasks, dtype=np.int64)
    rank[topological_order(p.tasks, p.src, p.dst)] = np.arange(p.tasks)
    return rank


def inputs_there(p: Problem, s: Schedule):
    """[n] when the last predecessor has finished and the last payload has arrived."""
    ready = np.zeros(p.tasks, dtype=np.int64)
    arrival = {(q, to): end for q, to, end in zip(s.sent_payload, s.sent_to, s.sent_finish, strict=True)}
    for u, v, q in zip(p.src, p.dst, p.payload, strict=True):
        ready[v] = max(ready[v], s.finish[u], arrival.get((q, p.location[s.device[v]]), 0) if q >= 0 else 0)
    return ready


def test_a_payload_crosses_once_for_two_consumers():
    """Both consumers at the other location wait for the one transfer of their payload."""
    # Task 0 runs 0..3 on device 0; its payload crosses 3..7; tasks 1 and 2 run 7..8 and 8..10 on device 1.
    p = machine([[3, 3], [1, 1], [2, 2]], [(0, 1, 0), (0, 2, 0)], [4])
    s = replay(p, np.array([0, 1, 1]), np.array([0, 1, 2]))
    assert s.start.tolist() == [0, 7, 8]
    assert (s.sent_payload.tolist(), s.sent_to.tolist(), s.sent_start.tolist()) == ([0], [1], [3])
    assert s.makespan == 10


def test_links_serve_in_order_of_finish_then_rank():
    """Of two producers that finish together, the one of less rank sends first on the shared bus."""
    # Tasks 0 and 1 finish at 2 on devices 0 and 1 and send 5 ticks to device 2 over one bus: 2..7 and 7..12.
    bus = np.where(np.eye(3, dtype=bool), -1, 0)[:, :, None]
    p = machine([[2] * 3, [2] * 3, [1] * 3, [1] * 3], [(0, 2, 0), (1, 3, 1)], [5, 5], links=bus)
    device = np.array([0, 1, 2, 2])
    assert replay(p, device, np.array([0, 1, 2, 3])).sent_payload.tolist() == [0, 1]
    swapped = replay(p, device, np.array([1, 0, 2, 3]))
    assert swapped.sent_payload.tolist() == [1, 0]
    # Strictly, task 2 comes first on device 2 though its payload comes at 12: 12..13, then task 3 13..14.
    assert swapped.start.tolist() == [0, 0, 12, 13]
    # Listed, task 3 starts when its payload is there, at 7, and task 2 at 12.
    assert replay(p, device, np.array([1, 0, 2, 3]), strict=False).start.tolist() == [0, 0, 12, 7]


def test_a_transfer_of_no_ticks_waits_for_its_link():
    """A payload of no ticks is behind another one on the bus, and arrives when that one has."""
    # Payload 0 holds the bus 1..7; payload 1, requested at 2 when task 1 finishes, starts and ends at 7.
    bus = np.where(np.eye(3, dtype=bool), -1, 0)[:, :, None]
    p = machine([[1] * 3, [2] * 3, [1] * 3, [1] * 3], [(0, 2, 0), (1, 3, 1)], [6, 0], links=bus)
    s = replay(p, np.array([0, 1, 2, 2]), np.arange(4))
    assert s.sent_start.tolist() == [1, 7]
    assert s.sent_finish.tolist() == [7, 7]


def test_a_path_without_links_never_waits():
    """Two transfers at once on a path of no links."""
    free = np.full((2, 2, 1), -1)
    p = machine([[1, 1], [0, 0], [1, 1], [1, 1]], [(0, 2, 0), (1, 3, 1)], [5, 5], links=free)
    s = replay(p, np.array([0, 0, 1, 1]), np.arange(4))
    # Task 0 and then task 1, of no ticks, finish at 1: both transfers last 1..6.
    assert s.sent_start.tolist() == [1, 1]
    assert s.makespan == 8


def test_an_order_against_the_precedence_is_refused_by_name():
    """A device that must run a successor first can never start, and the error says which task waits for which."""
    p = chain(3, gpus=1)
    with pytest.raises(ValueError, match="device 0 must run task 2 next, which waits for task 1"):
        replay(p, np.zeros(3, dtype=np.int64), np.array([1, 2, 0]))
    assert makespan(prepare(p), np.zeros(3, dtype=np.int64), np.array([2, 0, 1])) == -1
    # List scheduling takes ranks as wishes only: the chain takes its 3 ticks.
    assert replay(p, np.zeros(3, dtype=np.int64), np.array([1, 2, 0]), strict=False).makespan == 3


def test_bad_devices_are_refused_by_name():
    """Devices out of range, forbidden ones and wrong lengths each name what is wrong."""
    p = machine([[1, FORBIDDEN], [1, 1]], [], [])
    with pytest.raises(ValueError, match="task 1 is on device 2, which does not exist"):
        replay(p, np.array([0, 2]), np.arange(2))
    with pytest.raises(ValueError, match="task 0 cannot run on device 1"):
        replay(p, np.array([1, 1]), np.arange(2))
    with pytest.raises(ValueError, match="one entry for each of 2 tasks"):
        replay(p, np.array([0]), np.arange(2))


def test_random_replays_are_valid(seeds):
    """The checker finds nothing in either mode but memory and groups, which random devices do not respect."""
    for seed in seeds(150):
        p, device, rank = random_case(seed)
        for s in (replay(p, device, topological_rank(p)), replay(p, device, rank, strict=False)):
            assert not [v for v in check(p, s) if v.kind not in ("memory", "group")], seed


def test_strict_starts_are_the_earliest(seeds):
    """Each task starts when its inputs are there and the task before it on its device has finished."""
    for seed in seeds(80):
        p, device, _ = random_case(seed)
        rank = topological_rank(p)
        s = replay(p, device, rank)
        ready = inputs_there(p, s)
        for d in range(p.devices):
            free = 0
            for task in sorted(np.flatnonzero(device == d), key=lambda t: rank[t]):
                assert s.start[task] == max(free, ready[task]), seed
                free = s.finish[task]


def test_listed_devices_neither_idle_nor_pass_over_a_task(seeds):
    """A task starts with its last input or its device's last finish; none overtakes a ready task of less rank."""
    for seed in seeds(80):
        p, device, rank = random_case(seed)
        s = replay(p, device, rank, strict=False)
        ready = inputs_there(p, s)
        for d in range(p.devices):
            mine = np.flatnonzero(device == d)
            for task in mine:
                busy_until = max((s.finish[t] for t in mine if t != task and s.finish[t] <= s.start[task]), default=0)
                assert s.start[task] == max(ready[task], busy_until), seed
                ahead = [t for t in mine if s.start[t] > s.start[task] and ready[t] < s.start[task]]
                assert all((rank[t], t) > (rank[task], task) for t in ahead), seed


def test_replay_is_a_function_of_its_arguments(seeds):
    """Twice the same, prepared or not, from a permutation or its multiples; and `makespan` agrees."""
    for seed in seeds(40):
        p, device, _ = random_case(seed)
        rank = topological_rank(p)
        g = prepare(p)
        one, two, three = replay(p, device, rank), replay(p, device, rank, prepared=g), replay(p, device, 7 * rank - 3)
        for column in COLUMNS:
            assert np.array_equal(getattr(one, column), getattr(two, column)), seed
            assert np.array_equal(getattr(one, column), getattr(three, column)), seed
        assert makespan(g, device, np.argsort(rank, kind="stable")) == one.makespan


def test_costs_times_k_give_times_times_k(seeds):
    """Every time of the schedule scales with the durations and transfers."""
    for seed in seeds(40):
        p, device, _ = random_case(seed)
        rank = topological_rank(p)
        larger = replace(p, duration=np.where(p.allowed, 5 * p.duration, FORBIDDEN), transfer=5 * p.transfer)
        assert np.array_equal(replay(larger, device, rank).start, 5 * replay(p, device, rank).start), seed


def test_bottom_levels_of_a_diamond():
    """The longest remaining path, with mean, least or placed costs."""
    # 0 -> 1, 2 -> 3; on two devices task 1 takes 4 or 8, the others 2; the payload to task 1 takes 6, precedence 0.
    p = machine([[2, 2], [4, 8], [2, 2], [2, 2]], [(0, 1, 0), (0, 2, -1), (1, 3, -1), (2, 3, -1)], [6])
    # Mean: 3 is 2, 1 is 6 + 2, 2 is 2 + 2, 0 is 2 + 6 + 8.
    assert bottom_levels(p).tolist() == [16, 8, 4, 2]
    # Least duration, no transfer: 1 is 4 + 2, 0 is 2 + 6.
    assert bottom_levels(p, mean=False, communication=0).tolist() == [8, 6, 4, 2]
    # Half of the transfer counts: 0 is 2 + 3 + 8.
    assert bottom_levels(p, communication=0.5).tolist() == [13, 8, 4, 2]
    # All on device 1: no transfer, task 1 takes 8. Task 1 alone on device 0: the transfer counts, it takes 4.
    assert bottom_levels(p, device=np.ones(4, dtype=np.int64)).tolist() == [12, 10, 4, 2]
    assert bottom_levels(p, device=np.array([1, 0, 1, 1])).tolist() == [14, 6, 4, 2]


def test_nothing_and_long_things_replay():
    """No task at all, a chain of 100 000 and a star of 100 000."""
    empty = chain(0, gpus=1)
    assert replay(empty, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)).makespan == 0
    n = 100_000
    p = chain(n, gpus=2, transfer=3)
    # Alternating devices: every edge crosses, n ticks and 3 for each of the n - 1 transfers.
    assert replay(p, np.arange(n) % 2, np.arange(n)).makespan == n + 3 * (n - 1)
    star = machine(np.ones((n, 2), dtype=np.int64), [(0, k, 0) for k in range(1, n)], [9])
    # The centre, one transfer for all, then n - 1 tasks one after another.
    assert replay(star, np.append(0, np.ones(n - 1, dtype=np.int64)), np.arange(n)).makespan == 1 + 9 + n - 1
