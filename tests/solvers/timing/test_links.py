"""Scheduled links and first-in, first-out devices: cases by hand, and a plain transcription of the contract."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.checker import check
from solvers.compiled.dag import topological_order
from solvers.instances.random import generate
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.loop import state_for
from solvers.timing.replay import fifo, makespan, prepare, replay

seeds = st.integers(0, 2**32 - 1)


def bus(duration, edges, transfer) -> Problem:
    """Devices at a location each, all joined by one link; edges (src, dst, payload)."""
    duration = np.array(duration, dtype=np.int64)
    n, m = duration.shape
    src, dst, payload = (np.array([e[k] for e in edges], dtype=np.int64) for k in range(3))
    off = ~np.eye(m, dtype=bool)
    return Problem(
        duration=duration,
        location=np.arange(m),
        memory=np.zeros(n, dtype=np.int64),
        capacity=np.zeros(m, dtype=np.int64),
        src=src,
        dst=dst,
        payload=payload,
        producer=[next(e[0] for e in edges if e[2] == k) for k in range(len(transfer))],
        transfer=np.array(transfer, dtype=np.int64).reshape(-1, 1),
        path_class=np.where(off, 0, -1),
        path_links=np.where(off, 0, -1)[:, :, None],
        group=np.full(n, -1),
    )


def random_case(seed):
    """A random problem, devices that can run its tasks, a topological rank, any rank, and ranks of the payloads."""
    rng = np.random.default_rng(seed)
    p = generate(rng, tasks=int(rng.integers(1, 16)), gpus=int(rng.integers(1, 4)))
    device = np.array([rng.choice(np.flatnonzero(row)) for row in p.allowed], dtype=np.int64)
    rank = np.empty(p.tasks, dtype=np.int64)
    rank[topological_order(p.tasks, p.src, p.dst)] = np.arange(p.tasks)
    return p, device, rank, rng.integers(0, p.tasks, p.tasks), rng.integers(0, p.payloads + 1, p.payloads)


class Plain:
    """List scheduling as `replay` and `fifo` describe it, round by round, with no queue and no heap."""

    def __init__(self, p: Problem, device, rank, send_rank) -> None:
        self.p, self.device, self.rank, self.send_rank = p, device.tolist(), rank, send_rank
        self.at = p.location[device].tolist()
        self.edges = list(zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True))
        self.start: dict[int, int] = {}
        self.over: set[int] = set()
        self.sent: dict[tuple[int, int], tuple[int, int]] = {}
        self.waiting: set[tuple[int, int]] = set()
        self.free = [0] * p.links
        self.came: dict[int, int] = {}

    def finish(self, task):
        return self.start[task] + int(self.p.duration[task, self.device[task]])

    def links(self, payload, to):
        return [k for k in self.p.holds[self.at[self.p.producer[payload]], to].tolist() if k >= 0]

    def send(self, payload, to, now):
        begin = max([now, *(self.free[k] for k in self.links(payload, to))])
        ticks = int(self.p.transfer[payload, self.p.path_class[self.at[self.p.producer[payload]], to]])
        self.sent[payload, to] = begin, begin + ticks
        for k in self.links(payload, to):
            self.free[k] = begin + ticks

    def there(self, edge, now):
        """Whether what an edge brings is there."""
        src, dst, payload = edge
        if payload < 0 or self.at[src] == self.at[dst]:
            return src in self.over
        return self.sent.get((payload, self.at[dst]), (0, now + 1))[1] <= now

    def round(self, now, number, first_come):
        due = [t for t in self.start if t not in self.over and self.finish(t) == now]
        for task in sorted(due, key=lambda t: (self.rank[t], t)):
            self.over.add(task)
            away = {(q, self.at[v]) for u, v, q in self.edges if u == task and q >= 0 and self.at[v] != self.at[u]}
            if self.send_rank is None:
                for payload, to in sorted(away):
                    self.send(payload, to, now)
            self.waiting |= away if self.send_rank is not None else set()
        for payload, to in sorted(self.waiting, key=lambda w: (self.send_rank[w[0]], w)):
            if all(self.free[k] <= now for k in self.links(payload, to)):
                self.waiting.remove((payload, to))
                self.send(payload, to, now)
        for task in range(self.p.tasks):
            if task not in self.came and all(self.there(e, now) for e in self.edges if e[1] == task):
                self.came[task] = number
        for d in range(self.p.devices):
            mine = [t for t in self.came if self.device[t] == d]
            idle = all(t in self.over for t in mine if t in self.start)
            ready = [t for t in mine if t not in self.start]
            if idle and ready:
                self.start[min(ready, key=lambda t: (self.came[t] if first_come else self.rank[t], t))] = now

    def run(self, *, first_come=False) -> Schedule:
        now, number = 0, 0
        while len(self.over) < self.p.tasks:
            self.round(now, number, first_come)
            number += 1
            ends = [self.finish(t) for t in self.start if t not in self.over]
            if now not in ends and len(self.over) < self.p.tasks:
                now = min(t for t in [*ends, *(end for _, end in self.sent.values()), *self.free] if t > now)
        start = np.array([self.start[t] for t in range(self.p.tasks)], dtype=np.int64)
        rows = sorted((q, to, *times) for (q, to), times in self.sent.items())
        sent = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        finish = start + self.p.duration[np.arange(self.p.tasks), self.device]
        return Schedule(
            device=self.device, start=start, finish=finish,
            sent_payload=sent[0], sent_to=sent[1], sent_start=sent[2], sent_finish=sent[3],
        )  # fmt: skip


def assert_same(a: Schedule, b: Schedule) -> None:
    assert a.start.tolist() == b.start.tolist()
    assert a.finish.tolist() == b.finish.tolist()
    rows = [
        sorted(zip(s.sent_payload, s.sent_to, s.sent_start, s.sent_finish, strict=True)) for s in (a, b)
    ]  # fmt: skip
    assert rows[0] == rows[1]


def assert_valid(p: Problem, s: Schedule) -> None:
    """Random devices respect neither memory nor groups; nothing else may be wrong."""
    assert not [v for v in check(p, s) if v.kind not in ("memory", "group")]


@given(seeds)
def test_list_mode_is_what_its_contract_says_under_both_policies(seed):
    """The compiled loop and the plain rounds agree on every start and transfer; the checker finds nothing."""
    p, device, _, rank, send_rank = random_case(seed)
    for policy in (None, send_rank):
        s = replay(p, device, rank, strict=False, send_rank=policy)
        assert_same(s, Plain(p, device, rank, policy).run())
        assert_valid(p, s)


@given(seeds)
def test_first_in_first_out_is_what_its_contract_says_under_both_policies(seed):
    """As above, for devices that serve what became ready first."""
    p, device, _, _, send_rank = random_case(seed)
    for policy in (None, send_rank):
        s = fifo(p, device, send_rank=policy)
        assert_same(s, Plain(p, device, np.arange(p.tasks), policy).run(first_come=True))
        assert_valid(p, s)


@given(seeds)
def test_strict_runs_with_scheduled_links_are_valid_and_never_hold_a_transfer_back(seed):
    """Between request and start of a transfer some link of its path is always held; the checker finds nothing."""
    p, device, rank, _, send_rank = random_case(seed)
    s = replay(p, device, rank, send_rank=send_rank)
    assert_valid(p, s)
    at = p.location[device]
    source = at[p.producer[s.sent_payload]]
    held = [{k for k in p.path_links[a, b].tolist() if k >= 0} for a, b in zip(source, s.sent_to, strict=True)]
    for k, begin in enumerate(s.sent_start.tolist()):
        for tick in range(int(s.finish[p.producer[s.sent_payload[k]]]), begin):
            busy = np.flatnonzero((s.sent_start <= tick) & (tick < s.sent_finish)).tolist()
            assert any(held[k] & held[other] for other in busy)


def test_the_urgent_payload_goes_first():
    """Of two requests at the same tick, the one of less send rank starts first, whatever the order of the payloads."""
    # Task 0 ends at 1 and sends 5 ticks each to tasks 1 and 2 on devices 1 and 2, over one bus: 1..6 and 6..11.
    p = bus([[1] * 3, [1] * 3, [9] * 3], [(0, 1, 0), (0, 2, 1)], [5, 5])
    device = np.arange(3)
    # First come, first served, payload 0 goes first, so task 2 runs 11..20; with payload 1 first it runs 6..15.
    assert replay(p, device, device).makespan == 20
    assert replay(p, device, device, send_rank=np.array([1, 0])).makespan == 15
    # Equal ranks: by payload.
    assert replay(p, device, device, send_rank=np.array([0, 0])).makespan == 20


def test_an_urgent_request_that_comes_later_passes_what_waits_but_not_what_runs():
    """Transfers are not interrupted; the next one to start is the most urgent of those that wait by then."""
    # Payloads 0, 1 (task 0, at 1) and 2 (task 1, at 2): 0 holds the bus 1..6, then 2 (6..11) passes 1 (11..16).
    p = bus([[1] * 3, [2] * 3, [1] * 3, [1] * 3, [1] * 3], [(0, 2, 0), (0, 3, 1), (1, 4, 2)], [5, 5, 5])
    s = replay(p, np.array([0, 1, 2, 2, 2]), np.array([0, 1, 2, 4, 3]), send_rank=np.array([1, 2, 0]))
    assert s.sent_payload.tolist() == [0, 2, 1]
    assert s.sent_start.tolist() == [1, 6, 11]


def test_a_transfer_of_no_ticks_leaves_its_link_free_and_waits_while_it_is_held():
    """At 1 payload 0, of no ticks, and then payload 1 start on one link; payload 2, of no ticks, waits until 6."""
    p = bus([[1] * 2, [1] * 2, [1] * 2, [1] * 2], [(0, 1, 0), (0, 2, 1), (0, 3, 2)], [0, 5, 0])
    s = replay(p, np.array([0, 1, 1, 1]), np.arange(4), send_rank=np.array([0, 1, 2]))
    assert (s.sent_start.tolist(), s.sent_finish.tolist()) == ([1, 1, 6], [1, 6, 6])


def test_first_in_first_out_serves_who_came_first_and_an_order_does_better():
    """Task 0 (9 ticks) and task 1 (1 tick, then 9 elsewhere) are ready at once: by index the long one runs first."""
    p = bus([[9] * 2, [1] * 2, [9] * 2], [(1, 2, 0)], [0])
    # 0..9 and 9..10 on device 0, then task 2 on device 1 10..19; with task 1 first 0..1, then 1..10 on both.
    device = np.array([0, 0, 1])
    assert fifo(p, device).makespan == 19
    assert replay(p, device, np.array([1, 0, 2])).makespan == 10


def test_bad_arguments_and_deadlocks_are_refused_under_scheduled_links():
    """A send rank of a wrong length, and an order against the precedence, which names the task."""
    p = bus([[1] * 2, [1] * 2], [(0, 1, 0)], [3])
    with pytest.raises(ValueError, match="one entry for each of 1 payloads"):
        replay(p, np.array([0, 1]), np.arange(2), send_rank=np.arange(2))
    with pytest.raises(ValueError, match="device 0 must run task 1 next, which waits for task 0"):
        replay(p, np.array([0, 0]), np.array([1, 0]), send_rank=np.arange(1))


def test_one_state_serves_many_runs_and_threads_do_not_disturb_each_other():
    """Makespans with a state kept between runs, also after a deadlock and in four threads, are those of fresh ones."""
    cases = [random_case(seed) for seed in range(40)]

    def agree(found):
        for p, device, rank, any_rank, _ in cases:
            g = prepare(p)
            state = state_for(g, device)
            for order in (np.argsort(any_rank, kind="stable"), np.argsort(rank), np.argsort(rank)):
                found.append(makespan(g, device, order, state=state) == makespan(g, device, order))

    found: list[bool] = []
    threads = [threading.Thread(target=agree, args=(found,)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 4 * 3 * len(cases)
    assert all(found)
