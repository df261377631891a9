"""The checker refuses every class of invalid edit, and for the right reason."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from solvers.arrays import Bools, Ints
from solvers.checker import KINDS, LATEST, SHOWN, check
from solvers.problem import Problem
from solvers.schedule import Schedule

Case = tuple[Problem, Schedule]
Edit = Callable[[np.random.Generator, Problem, Schedule], Case]
MUTANTS: dict[str, tuple[str, Edit]] = {}


def mutant(kind: str) -> Callable[[Edit], Edit]:
    return lambda edit: MUTANTS.setdefault(edit.__name__, (kind, edit))[1]


def pick(rng: np.random.Generator, possible: Bools) -> list[int]:
    """A random index where `possible` holds; LookupError when there is none: the edit does not apply."""
    found = np.argwhere(possible)
    if not len(found):
        raise LookupError
    return [int(i) for i in found[rng.integers(len(found))]]


def put(array: Ints, index: int, value: int) -> Ints:
    return np.concatenate([array[:index], [value], array[index + 1 :]]).astype(np.int64)


def move(s: Schedule, task: int, start: int) -> Schedule:
    ticks = int(s.finish[task] - s.start[task])
    return replace(s, start=put(s.start, task, start), finish=put(s.finish, task, start + ticks))


def move_sent(s: Schedule, sent: int, start: int) -> Schedule:
    ticks = int(s.sent_finish[sent] - s.sent_start[sent])
    finish = put(s.sent_finish, sent, start + ticks)
    return replace(s, sent_start=put(s.sent_start, sent, start), sent_finish=finish)


def send(s: Schedule, payload: int, to: int, start: int, ticks: int) -> Schedule:
    return replace(
        s,
        sent_payload=np.append(s.sent_payload, payload),
        sent_to=np.append(s.sent_to, to),
        sent_start=np.append(s.sent_start, start),
        sent_finish=np.append(s.sent_finish, start + ticks),
    )


def keep(s: Schedule, rows: Ints) -> Schedule:
    columns = ("sent_payload", "sent_to", "sent_start", "sent_finish")
    return replace(s, **{name: getattr(s, name)[rows] for name in columns})


def used(p: Problem, s: Schedule) -> Ints:
    return (p.memory[:, None] * (p.location[s.device][:, None] == np.arange(p.locations))).sum(axis=0)


def held(p: Problem, s: Schedule, sent: int) -> set[int]:
    return set(p.path_links[p.location[s.device[p.producer[s.sent_payload[sent]]]], s.sent_to[sent]].tolist()) - {-1}


def arrival(s: Schedule, payload: int, to: int) -> int:
    return int(s.sent_finish[(s.sent_payload == payload) & (s.sent_to == to)][0])


def cut(p: Problem, s: Schedule) -> Bools:
    at = p.location[s.device]
    return (p.payload >= 0) & (at[p.src] != at[p.dst])


@mutant("overlap")
def two_tasks_overlap_by_a_tick(rng, p, s):
    long = s.finish > s.start
    one, two = pick(rng, (s.device[:, None] == s.device) & long[:, None] & long & ~np.eye(p.tasks, dtype=bool))
    return p, move(s, two, int(s.finish[one]) - 1)


@mutant("overlap")
def a_task_of_no_ticks_lies_inside_another(rng, p, s):
    ticks = s.finish - s.start
    one, two = pick(rng, (s.device[:, None] == s.device) & (ticks[:, None] > 1) & (ticks == 0))
    return p, move(s, two, int(rng.integers(s.start[one] + 1, s.finish[one])))


@mutant("contention")
def two_transfers_overlap_by_a_tick(rng, p, s):
    count, long = len(s.sent_to), s.sent_finish > s.sent_start
    links = [held(p, s, sent) for sent in range(count)]
    meet = np.array([[bool(a & b) for b in links] for a in links], dtype=bool).reshape(count, count)
    one, two = pick(rng, meet & long[:, None] & long & ~np.eye(count, dtype=bool))
    return p, move_sent(s, two, int(s.sent_finish[one]) - 1)


@mutant("missing")
def a_transfer_is_dropped(rng, p, s):
    return p, keep(s, np.delete(np.arange(len(s.sent_to)), pick(rng, s.sent_to >= 0)[0]))


@mutant("missing")
def a_transfer_goes_elsewhere(rng, p, s):
    sent, to = pick(rng, s.sent_to[:, None] != np.arange(p.locations))
    return p, replace(s, sent_to=put(s.sent_to, sent, to))


@mutant("duplicate")
def a_transfer_happens_twice(rng, p, s):
    sent = pick(rng, s.sent_to >= 0)[0]
    late = int(max(s.makespan, s.sent_finish.max()))
    ticks = int(s.sent_finish[sent] - s.sent_start[sent])
    return p, send(s, int(s.sent_payload[sent]), int(s.sent_to[sent]), late, ticks)


@mutant("spurious")
def a_payload_goes_where_nothing_reads_it(rng, p, s):
    read = np.zeros((p.payloads, p.locations), dtype=bool)
    read[p.payload[cut(p, s)], p.location[s.device[p.dst[cut(p, s)]]]] = True
    payload, to = pick(rng, ~read)
    origin = p.location[s.device[p.producer[payload]]]
    ticks = 0 if origin == to else int(p.transfer[payload, p.path_class[origin, to]])
    return p, send(s, payload, to, int(max(s.makespan, s.sent_finish.max(initial=0))), ticks)


@mutant("missing")
def a_reader_moves_away(rng, p, s):
    at = p.location[s.device]
    local = np.flatnonzero((p.payload >= 0) & ~cut(p, s))
    away = p.allowed[p.dst[local]] & (p.location != at[p.dst[local]][:, None])
    for row, edge in enumerate(local):
        away[row] &= ~np.isin(p.location, s.sent_to[s.sent_payload == p.payload[edge]])
    row, device = pick(rng, away)
    return p, replace(s, device=put(s.device, int(p.dst[local[row]]), device))


@mutant("spurious")
def a_lone_reader_moves_to_its_producer(rng, p, s):
    at, crossing = p.location[s.device], cut(p, s)
    alone = np.zeros((p.edges, p.devices), dtype=bool)
    for edge in np.flatnonzero(crossing):
        readers = set(p.dst[crossing & (p.payload == p.payload[edge]) & (at[p.dst] == at[p.dst[edge]])].tolist())
        alone[edge] = (len(readers) == 1) & p.allowed[p.dst[edge]] & (p.location == at[p.src[edge]])
    edge, device = pick(rng, alone)
    return p, replace(s, device=put(s.device, int(p.dst[edge]), device))


@mutant("memory")
def a_location_has_a_byte_too_few(rng, p, s):
    large = replace(p, memory=p.memory * int(rng.choice([1, 2**33 + 2**31 + 1])))
    full = pick(rng, used(large, s) > 0)[0]
    return replace(large, capacity=used(large, s) - (np.arange(p.locations) == full)), s


@mutant("memory")
def a_task_occupies_a_byte_too_many(rng, p, s):
    task = pick(rng, s.device >= 0)[0]
    more = int((p.capacity - used(p, s))[p.location[s.device[task]]]) + 1
    return replace(p, memory=put(p.memory, task, int(p.memory[task]) + more)), s


@mutant("memory")
def memory_of_exabytes_sums_over_the_capacity(rng, p, s):
    one, two = pick(rng, np.triu(p.location[s.device][:, None] == p.location[s.device], 1))
    memory = put(put(p.memory, one, 2**60), two, 2**60)
    return replace(p, memory=memory, capacity=np.full(p.locations, 2**61 - 1)), s


@mutant("arrival")
def a_task_starts_a_tick_before_arrival(rng, p, s):
    edge = pick(rng, cut(p, s))[0]
    start = arrival(s, p.payload[edge], p.location[s.device[p.dst[edge]]]) - 1
    pick(rng, np.array([start >= 0]))
    return p, move(s, p.dst[edge], start)


@mutant("precedence")
def a_task_starts_a_tick_before_its_predecessor_finishes(rng, p, s):
    edge = pick(rng, ~cut(p, s) & (s.finish[p.src] > 0))[0]
    return p, move(s, p.dst[edge], int(s.finish[p.src[edge]]) - 1)


@mutant("group")
def a_group_is_split(rng, p, s):
    alone = np.array([(p.group == g).sum() < 2 or g < 0 for g in p.group])
    task, device = pick(rng, ~alone[:, None] & (p.location != p.location[s.device][:, None]))
    return p, replace(s, device=put(s.device, task, device))


@mutant("forbidden")
def a_task_is_on_a_forbidden_device(rng, p, s):
    task, device = pick(rng, ~p.allowed)
    return p, replace(s, device=put(s.device, task, device))


@mutant("duration")
def a_task_moves_to_a_slower_or_faster_device(rng, p, s):
    own = p.duration[np.arange(p.tasks), s.device]
    task, device = pick(rng, p.allowed & (p.duration != own[:, None]))
    return p, replace(s, device=put(s.device, task, device))


@mutant("duration")
def a_task_finishes_a_tick_late(rng, p, s):
    task = pick(rng, s.device >= 0)[0]
    return p, replace(s, finish=put(s.finish, task, int(s.finish[task]) + 1))


@mutant("duration")
def a_task_finishes_a_tick_soon(rng, p, s):
    task = pick(rng, s.finish > 0)[0]
    return p, replace(s, finish=put(s.finish, task, int(s.finish[task]) - 1))


@mutant("length")
def a_transfer_is_a_tick_short(rng, p, s):
    sent = pick(rng, s.sent_finish > 0)[0]
    return p, replace(s, sent_finish=put(s.sent_finish, sent, int(s.sent_finish[sent]) - 1))


@mutant("length")
def a_transfer_is_a_tick_long(rng, p, s):
    sent = pick(rng, s.sent_start >= 0)[0]
    return p, replace(s, sent_finish=put(s.sent_finish, sent, int(s.sent_finish[sent]) + 1))


@mutant("early")
def a_transfer_starts_a_tick_before_its_producer_finishes(rng, p, s):
    ready = s.finish[p.producer[s.sent_payload]]
    sent = pick(rng, ready > 0)[0]
    return p, move_sent(s, sent, int(ready[sent]) - 1)


@mutant("time")
def a_task_starts_before_time_begins(rng, p, s):
    return p, move(s, pick(rng, s.device >= 0)[0], -1 - int(rng.integers(0, 100)))


@mutant("time")
def a_time_is_absurd(rng, p, s):
    name = rng.choice(["start", "finish", "sent_start", "sent_finish"])
    index = pick(rng, getattr(s, name) >= 0)[0]
    absurd = rng.choice([LATEST, 2**63 - 1, -(2**63), -1])
    return p, replace(s, **{name: put(getattr(s, name), index, absurd)})


@mutant("device")
def a_device_does_not_exist(rng, p, s):
    device = rng.choice([p.devices, -1, -p.devices - 1, 2**63 - 1, -(2**63)])
    return p, replace(s, device=put(s.device, pick(rng, s.device >= 0)[0], device))


@mutant("payload")
def a_payload_does_not_exist(rng, p, s):
    payload = rng.choice([p.payloads, -1, 2**63 - 1, -(2**63)])
    return p, replace(s, sent_payload=put(s.sent_payload, pick(rng, s.sent_to >= 0)[0], payload))


@mutant("location")
def a_location_does_not_exist(rng, p, s):
    to = rng.choice([p.locations, -1, 2**63 - 1, -(2**63)])
    return p, replace(s, sent_to=put(s.sent_to, pick(rng, s.sent_to >= 0)[0], to))


@mutant("shape")
def tasks_are_cut_off_or_added(rng, p, s):
    rows = np.resize(np.arange(p.tasks), rng.choice([0, p.tasks - 1, p.tasks + 1, 2 * p.tasks]))
    return p, replace(s, device=s.device[rows], start=s.start[rows], finish=s.finish[rows])


@mutant("missing")
def the_transfers_are_cut_off(rng, p, s):
    return p, keep(s, np.arange(pick(rng, s.sent_to >= 0)[0]))


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_refused_for_the_right_reason(name, cases, seeds):
    """Every class of edit that is invalid by construction is refused, and its kind is among the reasons."""
    (kind, edit), edits = MUTANTS[name], 0
    rng = np.random.default_rng(list(name.encode()))
    while edits < len(seeds(100)):
        try:
            problem, schedule = edit(rng, *cases[rng.integers(len(cases))])
        except LookupError:
            continue
        edits += 1
        kinds = [violation.kind for violation in check(problem, schedule)]
        assert kind in kinds
        assert max(map(kinds.count, kinds)) <= SHOWN


def test_every_kind_of_violation_has_a_mutant():
    """No reason that the checker can give goes untested; peaks are tested with problem files that have lives."""
    assert {kind for kind, _ in MUTANTS.values()} == set(KINDS) - {"peak"}
