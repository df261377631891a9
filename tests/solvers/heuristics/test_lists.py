"""HEFT, CPOP, ETF and DLS: the worked example of their literature, cases by hand, and plain transcriptions."""

import bisect
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.compiled.dag import topological_order
from solvers.heuristics.eft_pass import guided
from solvers.heuristics.lists import dls, heft
from solvers.heuristics.lists.heft import find, gaps_of, take
from solvers.heuristics.lists.list_schedule import downward, mean_weights, upward
from solvers.heuristics.methods import PLACERS
from solvers.instances.plain import layered
from solvers.instances.random import Features, generate
from solvers.problem import FORBIDDEN, Problem
from solvers.result import Options
from solvers.structure.units import units_of
from solvers.timing.replay import prepare, replay

METHODS = ("heft", "cpop", "etf", "dls")
SEEDS = st.integers(0, 2**32 - 1)


def small(ticks, edges):
    """Tasks on devices at a location each, links never busy; edges are (tail, head, ticks), a payload each."""
    n, m = np.shape(ticks)
    return Problem(
        duration=ticks,
        location=range(m),
        memory=[0] * n,
        capacity=[0] * m,
        src=[e[0] for e in edges],
        dst=[e[1] for e in edges],
        payload=range(len(edges)),
        producer=[e[0] for e in edges],
        transfer=np.array([e[2] for e in edges], dtype=np.int64).reshape(-1, 1),
        path_class=np.where(np.eye(m, dtype=bool), -1, 0),
        path_links=np.full((m, m, 1), -1),
        group=[-1] * n,
    )


def timed(problem, name):
    """The schedule that a method's devices and order give where links are never busy: the method's own."""
    free = replace(problem, path_links=np.full_like(problem.path_links, -1))
    placement = PLACERS[name].load()(problem, Options())
    return placement, replay(free, placement.device, placement.rank)


def slots(schedule):
    """(device, start, finish) of each task."""
    return list(zip(schedule.device.tolist(), schedule.start.tolist(), schedule.finish.tolist(), strict=True))


@pytest.fixture(scope="module")
def sample():
    """Topcuoglu, Hariri, Wu 2002, Fig. 2: the graph and the table of computation costs; n1 is task 0, P1 device 0."""
    ticks = [(14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
             (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16)]  # fmt: skip
    edges = [(1, 2, 18), (1, 3, 12), (1, 4, 9), (1, 5, 11), (1, 6, 14), (2, 8, 19), (2, 9, 16), (3, 7, 23),
             (4, 8, 27), (4, 9, 23), (5, 9, 13), (6, 8, 15), (7, 10, 17), (8, 10, 11), (9, 10, 13)]  # fmt: skip
    return small(ticks, [(a - 1, b - 1, c) for a, b, c in edges])


def test_ranks_are_the_published_ones(sample):
    """Topcuoglu et al. 2002, the table of upward ranks, and the priorities of CPOP's example."""
    weights = mean_weights(sample)
    up, down = (rank(sample, weights) / weights.scale for rank in (upward, downward))
    assert np.round(up, 3).tolist() == [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert np.round(up + down, 3).tolist() == [108, 108, 105, 102, 93, 90.333, 105, 102.333, 108, 108]


def test_heft_makes_the_published_schedule(sample):
    """Topcuoglu et al. 2002, Fig. 3(a): every slot, by its ranks and costs; 80 in all."""
    _, schedule = timed(sample, "heft")
    assert slots(schedule) == [(2, 0, 9), (0, 27, 40), (2, 9, 28), (1, 18, 26), (2, 28, 38),
                               (1, 26, 42), (2, 38, 49), (0, 57, 62), (1, 56, 68), (1, 73, 80)]  # fmt: skip
    assert schedule.makespan == 80


def test_cpop_makes_a_schedule_of_the_published_length(sample):
    """Topcuoglu et al. 2002, Fig. 3(b): the path n1 n2 n9 n10 on P2, which takes it 54; 86 in all."""
    weights = mean_weights(sample)
    path = heft.critical_path(sample, upward(sample, weights) + downward(sample, weights))
    assert np.flatnonzero(path).tolist() == [0, 1, 8, 9]
    assert heft.path_device(sample, path) == 1
    assert sample.duration[path].sum(axis=0).tolist() == [66, 54, 63]
    placement, schedule = timed(sample, "cpop")
    assert set(placement.device[path].tolist()) == {1}
    assert schedule.makespan == 86


def test_dls_makes_a_schedule_of_the_published_length(sample):
    """Topcuoglu et al. 2002: DLS needs 91 for the example."""
    assert timed(sample, "dls")[1].makespan == 91


def test_insertion_uses_an_earlier_idle_interval():
    """One device beside a host that only task 0 runs on: task 1 waits for it until 1 + 4 = 5, and 2 has 5 ticks before.

    Ranks: task 0 has 1 + 4 + 9 = 14, task 1 has 9, task 2 has 5. In this order 1 takes [5, 14], and 2 goes before it.
    """
    problem = small([(1, FORBIDDEN), (FORBIDDEN, 9), (FORBIDDEN, 5)], [(0, 1, 4)])
    for name in ("heft", "cpop"):
        assert slots(timed(problem, name)[1]) == [(0, 0, 1), (1, 5, 14), (1, 0, 5)], name


def test_etf_takes_the_earliest_start_and_dls_the_highest_dynamic_level():
    """Task 0 on the host sends 2 ticks to task 1; task 2 is ready at once on the same GPU as task 1.

    After task 0, [0, 1], task 2 can start at 0 and task 1 at 3: ETF takes 2, [0, 4], then 1, [4, 13]. DLS compares
    9 - 3 = 6 with 4 - 0: it takes 1, [3, 12], and appends 2, [12, 16].
    """
    problem = small([(1, FORBIDDEN), (FORBIDDEN, 9), (FORBIDDEN, 4)], [(0, 1, 2)])
    assert slots(timed(problem, "etf")[1]) == [(0, 0, 1), (1, 4, 13), (1, 0, 4)]
    assert slots(timed(problem, "dls")[1]) == [(0, 0, 1), (1, 3, 12), (1, 12, 16)]


def test_etf_fills_the_idle_device_and_dls_weighs_its_slowness():
    """Two tasks without edges, (9, 3) and (8, 2) ticks on two devices.

    ETF: both could start at 0; the higher mean level is task 0, 6 against 5, and it takes the faster device, [0, 3];
    task 1 starts earliest on the other one, [0, 8]. DLS: lower medians 3 and 2; task 0 on device 1 has 3 - 0 + 0, the
    most; then task 1 has 2 - 3 + 0 = -1 there and 2 - 0 + 2 - 8 = -4 on the idle device: [3, 5].
    """
    problem = small([(9, 3), (8, 2)], [])
    assert slots(timed(problem, "etf")[1]) == [(1, 0, 3), (0, 0, 8)]
    assert slots(timed(problem, "dls")[1]) == [(1, 0, 3), (1, 3, 5)]


def test_etf_and_dls_on_equal_processors():
    """Levels 6, 5, 4, 1 on two equal devices: task 0 first, [0, 2], and task 1 beside it, [0, 5].

    Task 2 starts at 2 where its input is (level 4 - 2 against 4 - 5 elsewhere), [2, 6]; task 3 then at 6 there, or at
    5 on the other device, as its payload arrives at 2 + 3 = 5: [5, 6].
    """
    problem = small([(2, 2), (5, 5), (4, 4), (1, 1)], [(0, 2, 3), (0, 3, 3)])
    for name in ("etf", "dls"):
        assert slots(timed(problem, name)[1]) == [(0, 0, 2), (1, 0, 5), (0, 2, 6), (1, 5, 6)], name


def test_adjusted_median():
    """Devices that cannot run a task count as slowest; where they are the median, the slowest that can is taken."""
    none = FORBIDDEN
    assert dls.adjusted_median(small([(4, 9, 2), (none, 3, 5), (none, 7, none)], [])).tolist() == [4, 5, 7]
    assert dls.adjusted_median(small([(4, 9, 2, 5), (none, 3, 5, 4)], [])).tolist() == [4, 4]


@pytest.mark.parametrize("name", METHODS)
def test_a_variable_is_placed_with_its_reader(name):
    """Task 0 runs on device 1 alone and takes 5; task 2 reads it, 50 ticks away, and the variable 1, 40 ticks away.

    Whatever the method, 2 is best off at device 1, at 5 + 0; the variable goes there though device 0 is idle.
    """
    problem = small([(FORBIDDEN, 5), (0, 0), (3, 3)], [(0, 2, 50), (1, 2, 40)])
    placement, schedule = timed(problem, name)
    assert placement.device.tolist() == [1, 1, 1]
    assert schedule.makespan == 8


# Plain transcriptions: whatever is decided, all tasks, devices and intervals are looked at.


class Plain:
    """A schedule that grows, with every quantity found anew from the problem."""

    def __init__(self, problem, level):
        self.p, units = problem, units_of(problem)
        self.unit, self.allowed = units.unit, units.allowed
        place = np.argsort(topological_order(problem.tasks, problem.src, problem.dst))
        order = np.array(sorted(range(problem.tasks), key=lambda i: (-level[i], place[i])), dtype=np.int64)
        self.turn = np.argsort(order)
        self.order, self.guide = guided(prepare(problem), self.unit, order)
        self.place = np.argsort(self.order)
        self.edges = list(zip(problem.src.tolist(), problem.dst.tolist(), problem.payload.tolist(), strict=True))
        self.slot = {}

    def ready_at(self, task, there):
        """When the inputs of a task that are placed are at a location."""
        known = [0]
        for a, b, payload in self.edges:
            if b == task and a in self.slot:
                d, _, finish = self.slot[a]
                here = self.p.location[d]
                crosses = payload >= 0 and here != there
                known.append(finish + int(self.p.transfer[payload, self.p.path_class[here, there]] if crosses else 0))
        return max(known)

    def ready(self):
        """Tasks that come next in their chain, when all that enters it has been placed."""
        found = []
        for task in set(range(self.p.tasks)) - set(self.slot):
            chain = [i for i in self.order.tolist() if self.guide[i] == self.guide[task]]
            if next(i for i in chain if i not in self.slot) != task:
                continue
            if all(a in self.slot for a, b, _ in self.edges if b in chain and a not in chain):
                found.append(task)
        return found

    def devices(self, task):
        """Devices that can run a task where its unit is, or can be."""
        mates = [self.p.location[self.slot[i][0]] for i in self.slot if self.unit[i] == self.unit[task]]
        ok = [mates[0]] if mates else np.flatnonzero(self.allowed[self.unit[task]])
        return [d for d in range(self.p.devices) if self.p.allowed[task, d] and self.p.location[d] in ok]

    def free(self, d):
        """When a device has finished all that it runs."""
        return max((finish for on, _, finish in self.slot.values() if on == d), default=0)

    def inserted(self, task, d, stead):
        """The start of the first interval between two neighbours on a device that holds a task."""
        ready, ticks, end = self.ready_at(stead, self.p.location[d]), int(self.p.duration[task, d]), 0
        for _, start, finish in sorted(s for s in self.slot.values() if s[0] == d):
            if max(end, ready) + ticks <= start:
                break
            end = finish
        return max(end, ready)

    def put(self, task, d, start):
        """Place a task."""
        self.slot[task] = (d, start, start + int(self.p.duration[task, d]))

    def put_inserted(self, task, devices):
        """Place a task where it finishes first, as its guide would, with insertion."""
        took, guide = self.p.duration[task], self.guide[task]
        d = min(devices, key=lambda d: (self.inserted(task, d, guide) + took[d], d))
        self.put(task, d, self.inserted(task, d, task))

    def put_appended(self, task, d):
        """Place a task after all that its device runs."""
        self.put(task, d, max(self.ready_at(task, self.p.location[d]), self.free(d)))


def plain_rank(p, mean_transfers=True, weight=None, up=True):
    """[n] the rank, as fractions, by the recursion of its definition."""
    pairs = [(a, b) for a in range(p.locations) for b in range(p.locations) if a != b]
    mean = weight or [Fraction(sum(row[row >= 0].tolist()), int((row >= 0).sum())) for row in p.duration]
    rank = {}
    order = topological_order(p.tasks, p.src, p.dst).tolist()
    for task in reversed(order) if up else order:
        most = Fraction(0)
        for a, b, payload in zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True):
            if (a if up else b) == task:
                sent = Fraction(0)
                if payload >= 0 and pairs and mean_transfers:
                    sent = Fraction(sum(int(p.transfer[payload, p.path_class[x]]) for x in pairs), len(pairs))
                most = max(most, sent + (rank[b] if up else rank[a] + mean[a]))
        rank[task] = most + (mean[task] if up else 0)
    return [rank[i] for i in range(p.tasks)]


def plain_heft(p):
    """Topcuoglu et al. 2002, HEFT."""
    s = Plain(p, plain_rank(p))
    for task in s.order.tolist():
        s.put_inserted(task, s.devices(task))
    return s


def plain_cpop(p):
    """Topcuoglu et al. 2002, CPOP."""
    rank = plain_rank(p)
    s, priority = Plain(p, rank), [a + b for a, b in zip(rank, plain_rank(p, up=False), strict=True)]
    entries = set(range(p.tasks)) - set(p.dst.tolist())
    path = [max(sorted(entries), key=lambda i: priority[i])]
    while on := [b for a, b, _ in s.edges if a == path[-1] and priority[b] == priority[path[0]]]:
        path.append(on[0])
    runs = p.allowed[path].sum(axis=0)
    took = np.where(p.allowed, p.duration, 0)[path].sum(axis=0)
    home = min(range(p.devices), key=lambda d: (-runs[d], took[d], d))
    while len(s.slot) < p.tasks:
        task = min(s.ready(), key=lambda i: (-priority[s.guide[i]], s.place[i]))
        devices = s.devices(task)
        s.put_inserted(task, [home] if task in path and home in devices else devices)
    return s


def plain_etf(p):
    """Hwang et al. 1989: all pairs, the earliest start."""
    s = Plain(p, plain_rank(p, mean_transfers=False))

    def start(task, d):
        return max(s.ready_at(s.guide[task], p.location[d]), s.free(d))

    while len(s.slot) < p.tasks:
        pairs = [(i, d) for i in s.ready() for d in s.devices(i)]
        s.put_appended(*min(pairs, key=lambda x: (start(*x), s.turn[x[0]], p.duration[x], x[1])))
    return s


def plain_dls(p):
    """Sih and Lee 1993: all pairs, the highest dynamic level."""
    median = []
    for row in p.duration.tolist():
        middle = sorted(t if t != FORBIDDEN else 10**9 for t in row)[(len(row) - 1) // 2]
        median.append(middle if middle < 10**9 else max(row))
    level = plain_rank(p, mean_transfers=False, weight=[Fraction(t) for t in median])
    s = Plain(p, level)

    def dynamic(task, d):
        start = max(s.ready_at(s.guide[task], p.location[d]), s.free(d))
        return level[task] - start + median[task] - int(p.duration[task, d])

    while len(s.slot) < p.tasks:
        pairs = [(i, d) for i in s.ready() for d in s.devices(i)]
        s.put_appended(*min(pairs, key=lambda x: (-dynamic(*x), s.turn[x[0]], x[1])))
    return s


PLAIN = {"heft": plain_heft, "cpop": plain_cpop, "etf": plain_etf, "dls": plain_dls}


def assert_equal(problem, name):
    """A method makes the schedule of its transcription: devices, starts, and an order by start."""
    plain = PLAIN[name](problem)
    placement, schedule = timed(problem, name)
    assert slots(schedule) == [plain.slot[i] for i in range(problem.tasks)]
    inverse = np.argsort(placement.rank)
    assert (np.diff(schedule.start[inverse]) >= 0).all()


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=settings.default.max_examples // 4)
@given(seed=SEEDS)
def test_the_schedule_is_that_of_a_plain_transcription(name, seed):
    """With groups, kinds, kernel lanes, cores, shared payloads, several classes of paths and tasks of no ticks."""
    rng = np.random.default_rng(seed)
    assert_equal(generate(rng, tasks=int(rng.integers(1, 22)), gpus=int(rng.integers(1, 5))), name)


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=settings.default.max_examples // 8)
@given(seed=SEEDS)
def test_the_schedule_is_that_of_a_plain_transcription_without_zeros(name, seed):
    """Where no task takes no ticks, idle intervals that are too short are left out; unlike devices, no host."""
    rng = np.random.default_rng(seed)
    plain = Features(host=False, lanes=False, groups=bool(seed % 2), holes=False, zeros=False)
    assert_equal(generate(rng, tasks=int(rng.integers(10, 30)), gpus=int(rng.integers(2, 4)), features=plain), name)
    assert_equal(layered(rng, 6, 4, gpus=3, transfer=4, longest=6), name)


@given(seed=SEEDS)
def test_intervals_are_found_as_by_a_scan(seed):
    """400 tasks of 0, 1 or 2 and more ticks, at random times on one device: each start is that of a scan of the list.

    `taken` is sorted by (start, finish); the scan takes the first place between neighbours.
    """
    rng = np.random.default_rng(seed)
    ticks = rng.integers(int(rng.integers(0, 3)), 9, 400)
    gaps, taken = gaps_of(small([(int(t),) for t in ticks], [])), []
    for took, ready in zip(ticks.tolist(), rng.integers(0, 1500, 400).tolist(), strict=True):
        end = 0
        for start, finish in taken:
            if max(end, ready) + took <= start:
                break
            end = finish
        gap, start = find(gaps.nodes, gaps.root[0], ready, took)
        assert start == max(end, ready)
        take(gaps, 0, gap, (start, took))
        bisect.insort(taken, (start, start + took))


@pytest.mark.parametrize("name", METHODS)
def test_no_tasks(name):
    """A problem of no task has a placement of none."""
    placement = PLACERS[name].load()(small(np.zeros((0, 2), dtype=np.int64), []), Options())
    assert placement.device.shape == (0,)
