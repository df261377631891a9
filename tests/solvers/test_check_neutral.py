"""The checker accepts what is valid, agrees with a plain reading of the rules, and never raises."""

from collections.abc import Callable
from dataclasses import fields, replace
from itertools import combinations

import numpy as np
import pytest

from solvers.checker import KINDS, LATEST, check
from solvers.instances.plain import chain, on_equal_gpus
from solvers.problem import Problem
from solvers.schedule import Schedule

TIMES = ("start", "finish", "sent_start", "sent_finish")
Edit = Callable[[np.random.Generator, Problem, Schedule], tuple[Problem, Schedule]]
NEUTRAL: dict[str, Edit] = {}


def neutral(edit: Edit) -> Edit:
    return NEUTRAL.setdefault(edit.__name__, edit)


@neutral
def nothing(rng, p, s):
    return p, s


@neutral
def everything_later(rng, p, s):
    return p, replace(s, **{name: getattr(s, name) + 7 for name in TIMES})


@neutral
def as_late_as_times_go(rng, p, s):
    later = LATEST - 1 - max(s.makespan, int(s.sent_finish.max(initial=0)))
    return p, replace(s, **{name: getattr(s, name) + later for name in TIMES})


@neutral
def all_ticks_times_three(rng, p, s):
    duration = np.where(p.allowed, 3 * p.duration, p.duration)
    problem = replace(p, duration=duration, transfer=3 * p.transfer)
    return problem, replace(s, **{name: 3 * getattr(s, name) for name in TIMES})


@neutral
def a_pause(rng, p, s):
    """What starts at or after a moment starts a pause later, and ends later by as much."""
    moment, pause = rng.integers(0, s.makespan + 1), rng.integers(1, 9)
    task, sent = pause * (s.start >= moment), pause * (s.sent_start >= moment)
    times = {"start": s.start + task, "finish": s.finish + task}
    return p, replace(s, **times, sent_start=s.sent_start + sent, sent_finish=s.sent_finish + sent)


@neutral
def transfers_in_another_order(rng, p, s):
    order = rng.permutation(len(s.sent_to))
    columns = ("sent_payload", "sent_to", "sent_start", "sent_finish")
    return p, replace(s, **{name: getattr(s, name)[order] for name in columns})


@neutral
def tasks_under_other_numbers(rng, p, s):
    new = rng.permutation(p.tasks)
    old = np.argsort(new)
    rows = {name: getattr(p, name)[old] for name in ("duration", "memory", "group")}
    ends = {name: new[getattr(p, name)] for name in ("src", "dst", "producer")}
    return replace(p, **rows, **ends), replace(s, device=s.device[old], start=s.start[old], finish=s.finish[old])


@neutral
def edges_twice_and_in_another_order(rng, p, s):
    order = rng.permutation(np.repeat(np.arange(p.edges), 2))
    return replace(p, src=p.src[order], dst=p.dst[order], payload=p.payload[order]), s


@neutral
def memory_just_enough(rng, p, s):
    memory = p.memory * int(rng.choice([1, 2**33 + 2**31 + 1]))
    used = [memory[p.location[s.device] == place].sum() for place in range(p.locations)]
    return replace(p, memory=memory, capacity=used), s


@neutral
def equal_devices_exchanged(rng, p, s):
    """Two devices of one location trade their tasks and durations."""
    new = np.arange(p.devices)
    one, two = rng.choice(np.flatnonzero(p.location == rng.choice(p.location)), 2)
    new[[one, two]] = new[[two, one]]
    return replace(p, duration=p.duration[:, new]), replace(s, device=new[s.device])


@neutral
def a_path_names_its_links_twice(rng, p, s):
    return replace(p, path_links=np.concatenate([p.path_links, p.path_links], axis=2)), s


@neutral
def a_path_names_each_of_its_links_twice_in_a_row(rng, p, s):
    return replace(p, path_links=np.repeat(p.path_links, 2, axis=2)), s


@neutral
def a_task_of_no_ticks_on_the_boundary_of_another(rng, p, s):
    """A new task of no ticks starts when another starts or finishes, on its device."""
    task = rng.integers(p.tasks)
    rows = {"memory": np.append(p.memory, 0), "group": np.append(p.group, -1)}
    duration = np.vstack([p.duration, np.zeros((1, p.devices), dtype=np.int64)])
    when = rng.choice([s.start[task], s.finish[task]])
    times = {"start": np.append(s.start, when), "finish": np.append(s.finish, when)}
    return replace(p, duration=duration, **rows), replace(s, device=np.append(s.device, s.device[task]), **times)


@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_edits_are_accepted(name, cases, seeds):
    """No edit that keeps a schedule valid is refused."""
    rng = np.random.default_rng(list(name.encode()))
    for _ in seeds(100):
        assert check(*NEUTRAL[name](rng, *cases[rng.integers(len(cases))])) == ()


def crossings(p: Problem, s: Schedule) -> set[tuple[int, int]]:
    at = p.location[s.device].tolist()
    edges = zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True)
    return {(payload, at[dst]) for src, dst, payload in edges if payload >= 0 and at[src] != at[dst]}


def apart(one: tuple[int, int], two: tuple[int, int]) -> bool:
    return one[1] <= two[0] or two[1] <= one[0]


def placed(p: Problem, s: Schedule) -> bool:
    """Devices, durations, groups, memory and the tasks of one device, rule by rule."""
    at = p.location[s.device].tolist()
    spans = list(zip(s.start.tolist(), s.finish.tolist(), strict=True))
    for task, (start, finish) in enumerate(spans):
        ticks = int(p.duration[task, s.device[task]])
        if start < 0 or ticks < 0 or finish != start + ticks:
            return False
    for place in range(p.locations):
        if sum(int(p.memory[task]) for task in range(p.tasks) if at[task] == place) > p.capacity[place]:
            return False
    for one, two in combinations(range(p.tasks), 2):
        if p.group[one] == p.group[two] >= 0 and at[one] != at[two]:
            return False
        if s.device[one] == s.device[two] and not apart(spans[one], spans[two]):
            return False
    return True


def sent(p: Problem, s: Schedule) -> bool:
    """Transfers, links and arrivals, rule by rule."""
    at = p.location[s.device].tolist()
    keys = list(zip(s.sent_payload.tolist(), s.sent_to.tolist(), strict=True))
    if sorted(keys) != sorted(crossings(p, s)):
        return False
    spans = list(zip(s.sent_start.tolist(), s.sent_finish.tolist(), strict=True))
    links = []
    for (payload, to), (start, finish) in zip(keys, spans, strict=True):
        tail = p.producer[payload]
        if start < s.finish[tail] or finish - start != p.transfer[payload, p.path_class[at[tail], to]]:
            return False
        links.append(set(p.path_links[at[tail], to].tolist()) - {-1})
    if any(links[i] & links[j] and not apart(spans[i], spans[j]) for i, j in combinations(range(len(keys)), 2)):
        return False
    for src, dst, payload in zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True):
        crosses = payload >= 0 and at[src] != at[dst]
        if s.start[dst] < (spans[keys.index((payload, at[dst]))][1] if crosses else s.finish[src]):
            return False
    return True


def test_agrees_with_a_plain_reading_of_the_rules(cases, seeds):
    """On schedules disturbed at random, the checker says what loops over the rules as written say.

    Disjoint there means that one interval ends by the start of the other; for intervals of no ticks this is the same
    as "not strictly inside": at a boundary one of the two inequalities holds, inside neither does.
    """
    rng = np.random.default_rng(5)
    verdicts = []
    for _ in seeds(1000):
        p, s = cases[rng.integers(len(cases))]
        columns = {f.name: getattr(s, f.name).copy() for f in fields(s)}
        for _ in range(int(rng.integers(0, 3))):
            one, two = rng.choice([("start", "finish"), ("sent_start", "sent_finish"), ("device", "device")])
            if len(columns[one]):
                index, step = rng.integers(len(columns[one])), rng.integers(-2, 3)
                columns[one][index] += step
                columns[two][index] += step if two != one else 0
        columns["device"] %= p.devices
        disturbed = Schedule(**columns)
        verdicts.append(placed(p, disturbed) and sent(p, disturbed))
        assert (check(p, disturbed) == ()) == verdicts[-1]
    # Both verdicts are common, so the test can fail either way.
    assert len(verdicts) / 10 < sum(verdicts) < len(verdicts) * 9 / 10


def test_arrays_of_any_content_never_raise(cases, seeds):
    """Whatever integers a schedule holds, in range or out of it, the checker answers with violations or none."""
    rng = np.random.default_rng(6)
    odd = np.array([0, 1, -1, 2, 2**31, LATEST - 1, LATEST, 2**63 - 1, -(2**63)])
    for _ in seeds(300):
        p, _ = cases[rng.integers(len(cases))]
        tasks, transfers = p.tasks + int(rng.random() < 0.1), int(rng.integers(0, 5)) * bool(p.payloads)
        sizes = [tasks] * 3 + [transfers] * 4
        columns = {f.name: rng.choice(odd, size) for f, size in zip(fields(Schedule), sizes, strict=True)}
        if rng.random() < 0.8:
            limits = {"device": p.devices, "sent_payload": max(p.payloads, 1), "sent_to": p.locations}
            columns = {name: column % limits.get(name, LATEST) for name, column in columns.items()}
        assert {violation.kind for violation in check(p, Schedule(**columns))} <= set(KINDS)


@pytest.mark.parametrize("column", [np.zeros((2, 2), dtype=np.int64), np.int64(0)])
def test_arrays_of_other_dimensions_are_no_schedule(column):
    """A column that is a table or a number is refused by the schedule itself."""
    with pytest.raises(ValueError, match="one dimension"):
        Schedule(**dict.fromkeys([f.name for f in fields(Schedule)], column))


def test_nothing_to_do_is_valid():
    """A problem without tasks has a valid schedule of nothing."""
    empty = np.zeros(0, dtype=np.int64)
    assert check(chain(0), Schedule(**{f.name: empty for f in fields(Schedule)})) == ()


def test_text_names_payloads_and_locations():
    """Task 0 on GPU 1 sends payload 0 to task 1 on GPU 2; nothing crosses, or what crosses goes to GPU 0."""
    p = on_equal_gpus([1, 1], [0], [1], gpus=3, transfer=np.ones(2, dtype=np.int64))
    times = {"device": [1, 2], "start": [0, 9], "finish": [1, 10]}
    nothing = Schedule(**times, sent_payload=[], sent_to=[], sent_start=[], sent_finish=[])
    assert [v.text for v in check(p, nothing)] == [
        "payload 0 to location 2 does not cross, though a task there reads it"
    ]
    astray = Schedule(**times, sent_payload=[0], sent_to=[0], sent_start=[1], sent_finish=[2])
    assert "transfer 0 of payload 0 to location 0 has no reader there" in [v.text for v in check(p, astray)]


def test_text_names_tasks_and_ticks():
    """The chain of two tasks of 1 tick on one GPU, both at 0: the second starts before the first finishes at 1."""
    s = Schedule(device=[0, 0], start=[0, 0], finish=[1, 1], sent_payload=[], sent_to=[], sent_start=[], sent_finish=[])
    assert [(v.kind, v.text) for v in check(chain(2), s)] == [
        ("precedence", "task 1 starts at 0, before task 0 finishes at 1"),
        ("overlap", "device 0: task 1 starts at 0, before task 0 finishes at 1"),
    ]
