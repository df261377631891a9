"""Waits and the critical path, held against a slow program that knows the orders of devices and links alone."""

from itertools import pairwise

import numpy as np
import pytest

from pesto.core.simulator import Timeline, simulate
from pesto.reporting.explaining.waits import BEGIN, DATA, DEVICE, KINDS, TRANSFER, Waits, critical_path, explain_waits
from solvers.arrays import rank_of
from solvers.instances.random import generate
from solvers.problem import Problem


def chain(**changes: object) -> Problem:
    """Tasks 0 and 1 each send a payload of 5 ticks to task 2; two GPUs, one link each way."""
    fields = {
        "duration": [[10, 10], [4, 4], [30, 30]], "location": [0, 1], "memory": [0] * 3, "capacity": [9, 9],
        "src": [0, 1], "dst": [2, 2], "payload": [0, 1], "producer": [0, 1], "transfer": [[5], [5]],
        "path_class": [[-1, 0], [0, -1]], "path_links": [[[-1], [0]], [[1], [-1]]], "group": [-1] * 3,
    }  # fmt: skip
    return Problem(**{k: np.array(v) for k, v in {**fields, **changes}.items()})


def random_step(seed: int) -> tuple[Timeline, np.ndarray]:
    """A random problem of every feature, placed at random, in a random order that precedence allows."""
    rng = np.random.default_rng(seed)
    p = generate(rng, tasks=int(rng.integers(1, 16)), gpus=int(rng.integers(1, 4)))
    device = np.array([rng.choice(np.flatnonzero(row)) for row in p.allowed])
    after = [set(p.src[p.dst == task].tolist()) for task in range(p.tasks)]
    order: list[int] = []
    while len(order) < p.tasks:
        ready = [t for t in range(p.tasks) if t not in order and after[t] <= set(order)]
        order.append(int(rng.choice(ready)))
    rank = rank_of(np.array(order, dtype=np.int64))
    return simulate(p, device, rank), rank


class Slow:
    """The step as a dictionary of who waits for whom: devices by rank, links in the order of their grants."""

    def __init__(self, timeline: Timeline, rank: np.ndarray) -> None:
        p, s = timeline.problem, timeline.schedule
        at = p.location[s.device].tolist()
        sent = list(zip(s.sent_payload.tolist(), s.sent_to.tolist(), strict=True))
        self.took = {task: int(s.finish[task] - s.start[task]) for task in range(p.tasks)}
        self.took |= {key: int(p.transfer[key[0], p.path_class[at[p.producer[key[0]]], key[1]]]) for key in sent}
        self.before: dict[object, list[object]] = {a: [] for a in self.took}
        for a, b, payload in zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True):
            self.before[b].append(a if payload < 0 or at[a] == at[b] else (payload, at[b]))
        held: dict[object, list[object]] = {}
        for task in np.argsort(rank).tolist():
            held.setdefault(f"device {s.device[task]}", []).append(task)
        for key in sent:
            sender = int(p.producer[key[0]])
            self.before[key].append(sender)
            for link in {k for k in p.holds[at[sender], key[1]].tolist() if k >= 0}:
                held.setdefault(link, []).append(key)
        for row in held.values():
            for one, other in pairwise(row):
                self.before[other].append(one)

    def ends(self, delayed: object = None, by: int = 0) -> dict[object, int]:
        """When each activity ends, where one of them takes so much longer."""
        found: dict[object, int] = {}

        def end(a: object) -> int:
            if a not in found:
                found[a] = max(map(end, self.before[a]), default=0) + self.took[a] + (by if a == delayed else 0)
            return found[a]

        for a in self.took:
            end(a)
        return found


def agree(timeline: Timeline, rank: np.ndarray) -> None:
    slow, found, s = Slow(timeline, rank), explain_waits(timeline, rank), timeline.schedule
    ends = slow.ends()
    assert max((ends[t] for t in range(timeline.problem.tasks)), default=0) == s.makespan
    assert [ends[t] for t in range(timeline.problem.tasks)] == s.finish.tolist()
    for task, slack in enumerate(found.slack.tolist()):
        assert max(slow.ends(task, slack).values()) == s.makespan
        assert max(slow.ends(task, slack + 1).values()) == s.makespan + 1
        _caused(timeline, slow, found, task)
    _path(timeline, found)


def _caused(timeline: Timeline, slow: Slow, found: Waits, task: int) -> None:
    """What an op waited for is one of those that it waits for, ends when the op begins, and is of the kind said."""
    s, p, cause, after = timeline.schedule, timeline.problem, int(found.cause[task]), int(found.after[task])
    if cause == BEGIN:
        assert (s.start[task], after, found.transfer[task]) == (0, -1, -1)
    elif cause == TRANSFER:
        sent = int(found.transfer[task])
        assert (int(s.sent_payload[sent]), int(s.sent_to[sent])) in slow.before[task]
        assert s.sent_finish[sent] == s.start[task]
        assert p.producer[s.sent_payload[sent]] == after
    else:
        assert s.finish[after] == s.start[task]
        assert after in slow.before[task]
        assert cause == (DATA if after in p.src[p.dst == task] else DEVICE)


def _path(timeline: Timeline, found: Waits) -> None:
    """Legs that begin where the last one ended, from 0 to the end, so that the kinds sum to the step."""
    s, legs = timeline.schedule, critical_path(timeline, found)
    at = 0
    for leg in legs:
        assert leg.kind in KINDS
        assert leg.begin == at <= leg.end
        at = leg.end
        if leg.kind == "compute":
            assert (leg.begin, leg.end) == (s.start[leg.op], s.finish[leg.op])
            assert found.slack[leg.op] == 0
        else:
            assert (leg.begin, leg.end) == (s.sent_start[leg.transfer], s.sent_finish[leg.transfer])
            assert leg.op == timeline.problem.producer[s.sent_payload[leg.transfer]]
    for leg, follows in pairwise(legs):
        waited = follows.kind == "compute" and leg.transfer == found.transfer[follows.op]
        assert (leg.kind == "transfer") == (leg.transfer >= 0 and waited)
        if leg.kind == "link wait":
            assert found.held_by[follows.transfer] == leg.transfer
            assert s.finish[follows.op] < follows.begin
    assert at == s.makespan
    assert sum(leg.end - leg.begin for leg in legs) == s.makespan


def test_path_and_slack_of_random_plans_are_those_of_the_slow_program(seeds) -> None:
    """An op may end later by its slack and by no tick more; the path has no hole; causes are real."""
    for seed in seeds(150):
        agree(*random_step(seed))


@pytest.mark.slow
def test_path_and_slack_of_two_thousand_random_plans() -> None:
    """The same, for the number of plans that docs/guides/explain.md speaks of."""
    for seed in range(2000):
        agree(*random_step(seed + 1_000_000))


def test_without_a_rank_the_path_is_as_long() -> None:
    """Who was first of ops of no time changes no path's length, as it changes no tick."""
    for seed in range(50):
        timeline, _ = random_step(seed)
        _path(timeline, explain_waits(timeline))


def test_a_busy_link_is_a_leg_of_its_own_and_says_who_held_it() -> None:
    """Two tensors cross one link: task 0's, asked for at 14, waits until task 1's has crossed from 4 to 23."""
    timeline = simulate(chain(transfer=[[5], [19]]), np.array([0, 0, 1]), np.array([1, 0, 2]))
    found = explain_waits(timeline)
    legs = [(leg.kind, leg.op, leg.begin, leg.end) for leg in critical_path(timeline, found)]
    assert legs == [("compute", 1, 0, 4), ("link wait", 1, 4, 23), ("transfer", 0, 23, 28), ("compute", 2, 28, 58)]
    assert found.held_by.tolist() == [-1, 0]
    assert found.cause.tolist() == [DEVICE, BEGIN, TRANSFER]
    assert found.after.tolist() == [1, -1, 0]
    assert found.slack.tolist() == [23 - 14, 0, 0]


def test_a_tensor_that_finds_its_link_free_waits_for_its_sender() -> None:
    """The same with a short first tensor: the path has both ops of the sending device, and one transfer."""
    timeline = simulate(chain(transfer=[[5], [9]]), np.array([0, 0, 1]), np.array([1, 0, 2]))
    legs = [(leg.kind, leg.op, leg.begin, leg.end) for leg in critical_path(timeline, explain_waits(timeline))]
    assert legs == [("compute", 1, 0, 4), ("compute", 0, 4, 14), ("transfer", 0, 14, 19), ("compute", 2, 19, 49)]


def test_a_step_without_ops_has_no_path() -> None:
    """Nothing to wait for, and nothing that fails."""
    none = generate(np.random.default_rng(0), tasks=0)
    timeline = simulate(none, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    assert critical_path(timeline, explain_waits(timeline)) == ()


def test_a_step_with_a_gap_or_an_overlap_is_refused() -> None:
    """What no simulation makes has no path: an op that starts later than all that it waits for, or on top of it."""
    timeline = simulate(chain(), np.array([0, 0, 0]), np.array([0, 1, 2]))
    for start in ([0, 10, 15], [0, 9, 14]):
        s = timeline.schedule
        finish = [at + took for at, took in zip(start, (10, 4, 30), strict=True)]
        moved = type(s)(
            device=s.device, start=start, finish=finish, sent_payload=s.sent_payload,
            sent_to=s.sent_to, sent_start=s.sent_start, sent_finish=s.sent_finish,
        )  # fmt: skip
        with pytest.raises(ValueError, match="what it waits for ends"):
            explain_waits(Timeline(problem=timeline.problem, schedule=moved))
