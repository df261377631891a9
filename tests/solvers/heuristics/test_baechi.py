"""Baechi's placers: graph optimisations, caps, ETF and SCT within memory, against hand-worked cases and plain code."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.api import solve
from solvers.arrays import Ints, rank_of
from solvers.checker import check
from solvers.compiled.dag import topological_order
from solvers.heuristics.baechi.graph import OperatorGraph, fused, graph_of, weights_of
from solvers.heuristics.baechi.placers import (
    favourites,
    greedy,
    ordered,
    place_by_m_etf,
    place_by_m_sct,
    place_by_m_topo,
    require_room,
    schedule,
    waiting_rules,
)
from solvers.heuristics.methods import NoRoomError
from solvers.instances.random import Features, generate
from solvers.problem import Problem
from solvers.result import ANSWERED, Options
from solvers.structure.units import units_of

AT_ONCE = Options(seconds=0.0)
"""No seconds for the linear program: the greedy favourite children, without the solver's library."""


def make(duration, edges, memory=None, capacity=None, group=None, gpus=2, forbidden=()) -> Problem:
    """`edges`: (src, dst, ticks), each a payload of its own; ticks -1 for precedence alone. Links are never busy."""
    n, carried = len(duration), [edge for edge in edges if edge[2] >= 0]
    ticks = np.repeat(np.array(duration)[:, None], gpus, axis=1)
    for task, device in forbidden:
        ticks[task, device] = -1
    return Problem(
        duration=ticks,
        location=np.arange(gpus),
        memory=np.zeros(n, dtype=int) if memory is None else memory,
        capacity=[10**6] * gpus if capacity is None else capacity,
        src=np.array([e[0] for e in edges], dtype=int),
        dst=np.array([e[1] for e in edges], dtype=int),
        payload=np.array([carried.index(e) if e[2] >= 0 else -1 for e in edges], dtype=int),
        producer=np.array([e[0] for e in carried], dtype=int),
        transfer=np.array([[e[2]] for e in carried], dtype=int).reshape(-1, 1),
        path_class=np.eye(gpus, dtype=int) * -1,
        path_links=np.zeros((gpus, gpus, 0), dtype=int),
        group=np.full(n, -1) if group is None else group,
    )


def whole(problem: Problem) -> OperatorGraph:
    """The graph with an operator for each task."""
    return graph_of(problem, np.arange(problem.tasks), units_of(problem))


def in_order(g: OperatorGraph) -> Ints:
    return rank_of(topological_order(len(g.unit), g.src, g.dst))


def without(g: OperatorGraph) -> Ints:
    return np.full(len(g.unit), -1)


def test_an_operator_and_its_only_reader_become_one() -> None:
    """The released code's example: 0 -> 1 -> 2 and 0 -> 3. Task 1 has the only reader 2; 0 has two readers."""
    f = fused(make([1, 2, 3, 4], [(0, 1, 5), (1, 2, 5), (0, 3, 5)]))
    assert f.node.tolist() == [0, 1, 1, 2]
    assert f.graph.duration[:, 0].tolist() == [1, 5, 4]
    assert sorted(zip(f.graph.src.tolist(), f.graph.dst.tolist(), strict=True)) == [(0, 1), (0, 2)]


def test_precedence_alone_and_other_kinds_are_not_co_placed() -> None:
    """0 and its only successor 1: with a payload they are one; with precedence alone or other devices they are not."""
    assert len(fused(make([1, 1], [(0, 1, 3)])).graph.unit) == 1
    assert len(fused(make([1, 1], [(0, 1, -1)])).graph.unit) == 2
    assert len(fused(make([1, 1], [(0, 1, 3)], forbidden=[(1, 0)])).graph.unit) == 2


def test_co_placed_operators_fit_a_location() -> None:
    """Of three tasks of 4 bytes in a chain, two fit a location of 8; the third stays alone."""
    f = fused(make([1, 1, 1], [(0, 1, 3), (1, 2, 3)], memory=[4, 4, 4], capacity=[8, 8]))
    assert sorted(f.graph.memory.tolist()) == [4, 8]


def test_fusion_makes_no_cycle() -> None:
    """0 -> 1 -> 2 and 0 -> 2 with 0 and 2 in a group: one operator of both would be before and after 1, which has two
    readers and is not in the group. The units are two, the operators four."""
    p = make([1, 1, 1, 1], [(0, 1, 2), (1, 2, 2), (0, 2, 2), (1, 3, 2)], group=[0, -1, 0, -1])
    f = fused(p)
    assert len(f.graph.duration) == 4
    assert f.graph.unit[f.node[0]] == f.graph.unit[f.node[2]] != f.graph.unit[f.node[1]]


def test_a_tensor_that_an_operator_reads_twice_crosses_once() -> None:
    """Task 0 sends payloads of 3 and 4 ticks; 1 reads both, 2 the first, and 1 and 2 are one operator: 7 ticks."""
    p = make([1, 1, 1, 1], [(0, 1, 3), (0, 1, 4), (0, 2, 3), (1, 2, 9), (0, 3, 4)])
    first = p.payload.copy()
    first[2], first[4] = p.payload[0], p.payload[1]
    p = replace(p, payload=first)
    f = fused(p)
    assert f.node[1] == f.node[2] != f.node[3]
    pair = (f.graph.src == f.node[0]) & (f.graph.dst == f.node[1])
    assert f.graph.comm[pair].tolist() == [[7]]


@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 4))
def test_fused_graphs_are_acyclic_and_keep_units_and_kinds(seed: int, tasks: int, gpus: int) -> None:
    """Over random problems: no cycle, one unit and one kind in an operator, groups within units, ticks kept."""
    p = generate(np.random.default_rng(seed), tasks=tasks, gpus=gpus)
    f = fused(p)
    k = len(f.graph.duration)
    assert len(topological_order(k, f.graph.src, f.graph.dst)) == k
    assert ((f.graph.duration >= 0)[f.node] == p.allowed).all()
    assert np.where(f.graph.duration >= 0, f.graph.duration, 0).sum() == np.where(p.allowed, p.duration, 0).sum()
    unit = f.graph.unit[f.node]
    for group in np.unique(p.group[p.group >= 0]):
        assert len(set(unit[p.group == group])) == 1
    fits = f.graph.allowed & (f.graph.memory[:, None] <= p.capacity)
    assert fits.any(axis=1).all()
    assert np.array_equal(np.bincount(unit, p.memory, len(f.graph.memory)), f.graph.memory)


def test_topo_fills_one_device_after_the_other() -> None:
    """Bytes 3, 3, 2, 2 on two devices: the cap is 10 / 2 + 3 = 8, which the first three fill; the fourth is next door.
    With room for 6 the cap does not count: two and two. With room for 5, the first device takes 3; the second 3 and 2;
    the last 2 go where most is left, which is back on the first."""
    bytes_ = [3, 3, 2, 2]
    for capacity, want in ((100, [0, 0, 0, 1]), (6, [0, 0, 1, 1]), (5, [0, 1, 1, 0])):
        p = make([1] * 4, [], memory=bytes_, capacity=[capacity] * 2)
        assert place_by_m_topo(p, Options()).device.tolist() == want
    with pytest.raises(NoRoomError, match="a unit of 2 bytes found 1 free at most: 1 short"):
        place_by_m_topo(make([1] * 4, [], memory=bytes_, capacity=[4, 4]), Options())


def test_etf_drops_pairs_without_memory() -> None:
    """Task 0 (4 ticks, 2 bytes) and 1 (3 ticks, 2 bytes) start at 0 on devices 0 and 1. Task 2 reads 0 (1 tick to
    cross) and could start on device 0 at 4, on 1 at 5. With 4 bytes a device it starts at 4; with 3 on device 0 it
    does not fit there and starts at 5 on device 1; with 3 on both it fits nowhere."""
    for capacity, device, start in (([4, 4], 0, 4), ([3, 4], 1, 5)):
        g = whole(make([4, 3, 2], [(0, 2, 1)], memory=[2, 2, 2], capacity=capacity))
        found = schedule(g, waiting_rules(g, in_order(g), without(g)))
        assert (found.device.tolist(), found.start.tolist()) == ([0, 1, device], [0, 0, start])
    g = whole(make([4, 3, 2], [(0, 2, 1)], memory=[2, 2, 2], capacity=[3, 3]))
    with pytest.raises(NoRoomError, match="a unit of 2 bytes found 1 free at most: 1 short"):
        require_room(g, schedule(g, waiting_rules(g, in_order(g), without(g))))


def test_a_device_is_kept_for_the_favourite_child() -> None:
    """Task 0 runs to 2 on device 0, task 1 to 3 on device 1; 2 reads 0 (5 ticks) and 1 (1 tick), 3 reads only 0 (1).

    Alone, device 0 takes 3 at 2 and ends it at 12; 2 starts at 7 on device 1 (0's data at 2 + 5). With 2 the favourite
    child of 0, the patient device 0 waits from 2 on, 1's data is there at 4, and 2 starts at 4; 3, which has been
    urgent since 3, is on device 1 from 3 on. The released code's device does not wait, as 1 has not finished at 2.
    """
    g = whole(make([2, 3, 4, 10], [(0, 2, 5), (1, 2, 1), (0, 3, 1)]))
    child = np.array([2, -1, -1, -1])
    alone = schedule(g, waiting_rules(g, in_order(g), without(g)))
    patient = schedule(g, waiting_rules(g, in_order(g), child, patient=True))
    released = schedule(g, waiting_rules(g, in_order(g), child))
    assert (alone.device.tolist(), alone.start.tolist()) == ([0, 1, 1, 0], [0, 0, 7, 2])
    assert (patient.device.tolist(), patient.start.tolist()) == ([0, 1, 0, 1], [0, 0, 4, 3])
    assert np.array_equal(released.start, alone.start)


class Plain:
    """m-ETF and m-SCT in plain Python: at each tick at which something happens, all pairs are looked at."""

    def __init__(self, g: OperatorGraph, place: Ints, child: Ints) -> None:
        self.g, self.place, self.child, self.now = g, place, child, 0
        self.k, self.m = g.duration.shape
        self.device, self.start, self.finish = [-1] * self.k, [0] * self.k, [0] * self.k
        self.last, self.busy = [-1] * self.m, [0] * self.m
        pinned = np.flatnonzero(g.allowed.sum(axis=1) == 1).tolist()
        self.at = {unit: int(g.allowed[unit].argmax()) for unit in pinned}
        self.room = [
            int(c) - sum(int(g.memory[u]) for u in pinned if self.at[u] == i) for i, c in enumerate(g.capacity)
        ]
        self.into = [np.flatnonzero(g.dst == i).tolist() for i in range(self.k)]

    def run(self) -> tuple[list[int], list[int]]:
        while True:
            while offers := [offer for d in range(self.m) if self.busy[d] <= self.now for offer in self.offers(d)]:
                self.begin(*min(offers)[1:])
            times = [self.arrival(i, d) for i in self.ready() for d in range(self.m) if self.possible(i, d)]
            times = [t for t in times + self.busy if t > self.now]
            if not times:
                return self.device, self.start
            self.now = min(times)

    def ready(self) -> list[int]:
        done = [self.device[i] >= 0 and self.finish[i] <= self.now for i in range(self.k)]
        return [i for i in range(self.k) if self.device[i] < 0 and all(done[self.g.src[e]] for e in self.into[i])]

    def offers(self, d: int) -> list[tuple[int, int, int]]:
        here = {i: max(self.now, self.arrival(i, d)) for i in self.ready() if self.possible(i, d)}
        chosen = [i for i in here if here[i] <= self.now]
        kept = int(self.child[self.last[d]]) if self.last[d] >= 0 else -1
        others = [o for o in range(self.m) if kept in here and self.possible(kept, o)]
        if kept in here and here[kept] <= min(max(self.now, self.busy[o], self.arrival(kept, o)) for o in others):
            chosen = [i for i in chosen if self.urgent(i)] or [i for i in chosen if i == kept]
        return [(int(self.place[i]), d, i) for i in chosen]

    def begin(self, d: int, i: int) -> None:
        unit = int(self.g.unit[i])
        if unit not in self.at:
            self.at[unit] = int(self.g.location[d])
            self.room[self.at[unit]] -= int(self.g.memory[unit])
        self.device[i], self.start[i], self.finish[i] = d, self.now, self.now + int(self.g.duration[i, d])
        self.busy[d], self.last[d] = self.finish[i], i

    def arrival(self, i: int, d: int) -> int:
        """When the inputs of i can be at d."""
        g, times = self.g, [0]
        for edge in self.into[i]:
            here, there = g.location[self.device[g.src[edge]]], g.location[d]
            ticks = int(g.comm[edge, g.path_class[here, there]]) if here != there else 0
            times.append(self.finish[g.src[edge]] + ticks)
        return max(times)

    def urgent(self, i: int) -> bool:
        unit, g = int(self.g.unit[i]), self.g
        where = [d for d in range(self.m) if self.at.get(unit, int(g.location[d])) == g.location[d]]
        where = [d for d in where if g.duration[i, d] >= 0 and g.allowed[unit, g.location[d]]]
        return all(self.arrival(i, d) <= self.now for d in where)

    def possible(self, i: int, d: int) -> bool:
        unit, there = int(self.g.unit[i]), int(self.g.location[d])
        if self.device[i] >= 0 or self.g.duration[i, d] < 0 or not self.g.allowed[unit, there]:
            return False
        return self.at[unit] == there if unit in self.at else int(self.g.memory[unit]) <= self.room[there]


@pytest.mark.parametrize("seed", range(60))
def test_the_compiled_scheduler_equals_plain_code(seed: int) -> None:
    """Devices and starts, with and without favourite children, memory and groups, on random problems."""
    rng = np.random.default_rng(seed)
    memory = bool(seed % 3)
    p = generate(rng, tasks=int(rng.integers(1, 26)), gpus=1 + seed % 4, features=Features(zeros=False, memory=memory))
    g = whole(p) if seed % 2 else ordered(fused(p).graph)[0]
    for child in (without(g), greedy(g, weights_of(g))):
        found = schedule(g, waiting_rules(g, in_order(g), child))
        assert (found.device.tolist(), found.start.tolist()) == Plain(g, in_order(g), child).run()


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 4))
def test_placements_keep_memory_and_groups(seed: int, tasks: int, gpus: int) -> None:
    """Each method places all, within capacities, groups and kinds, or says what is short."""
    p = generate(np.random.default_rng(seed), tasks=tasks, gpus=gpus)
    for method in (place_by_m_topo, place_by_m_etf, place_by_m_sct):
        try:
            device = method(p, AT_ONCE).device
        except NoRoomError as short:
            assert str(short).endswith(("short", "can only be there"))
            continue
        at = p.location[device]
        assert p.allowed[np.arange(tasks), device].all()
        assert (np.bincount(at, p.memory, p.locations) <= p.capacity).all()
        for group in np.unique(p.group[p.group >= 0]):
            assert len(set(at[p.group == group])) == 1


def test_greedy_favourites_take_the_largest_transfers() -> None:
    """Edges 0-2 of 5, 1-2 of 4, 1-3 of 3 and 0-3 of 2 ticks: 0-2 first, then 1-3. An edge within a group, 0-4 of 9
    ticks, costs nothing; no seconds mean greedy."""
    p = make([9] * 5, [(0, 2, 5), (1, 2, 4), (1, 3, 3), (0, 3, 2), (0, 4, 9)], group=[0, -1, -1, -1, 0])
    assert favourites(whole(p), AT_ONCE).tolist() == [2, 3, -1, -1, -1]


PROGRAM = """
import json, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_baechi import in_order, make, whole
from exhaustive import exhaustive
from solvers.heuristics.baechi.placers import favourites, rounded, waiting_rules
from solvers.heuristics.baechi.graph import weights_of
from solvers.heuristics.baechi.placers import schedule
from solvers.heuristics.baechi.linear_program import shares
from solvers.result import Options

def solved(p):
    g = whole(p)
    w = weights_of(g)
    return g, *shares(g, w, 20.0, deterministic=True)

rows = []
for seed in range(30):
    rng = np.random.default_rng(seed)
    n = 4 if seed < 20 else 40
    ticks = rng.integers(6, 13, n)
    pairs = [(a, b) for b in range(n) for a in range(b) if rng.random() < (0.6 if n == 4 else 0.08)]
    edges = [(a, b, int(rng.integers(1, ticks.min() + 1))) for a, b in pairs]
    g, share, least = solved(make(ticks, edges, gpus=n))
    optimum = exhaustive(make(ticks, edges, gpus=n)).makespan if n == 4 else 0
    longest = max((e[2] for e in edges), default=0) / int(ticks.min())
    ends = []
    for threshold in (0.5, 0.1):
        asked = waiting_rules(g, in_order(g), rounded(g, share, threshold), patient=True)
        ends.append(int(schedule(g, asked).finish.max()))
    rows.append((longest, least, optimum, *ends))
_, share, fork = solved(make([2, 2, 2], [(0, 1, 2), (0, 2, 2)]))
chain = favourites(whole(make([2, 2, 2], [(0, 1, 2), (1, 2, 2)])), Options()).tolist()
print(json.dumps({"rows": rows, "fork": fork, "share": share.sum(), "chain": chain}))
"""


@pytest.fixture(scope="module")
def program() -> dict:
    """What the linear program gives, from a process of its own: its library must not be loaded beside TensorFlow."""
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_the_program_on_a_fork_and_a_chain(program) -> None:
    """Two children of 2 ticks, 2 ticks away, of a root of 2: shares of 1/2 each, so w = 2 + 1 + 2 = 5, below the
    optimum of 6. In a chain each child is the favourite."""
    assert program["fork"] == pytest.approx(5)
    assert program["share"] == pytest.approx(1)
    assert program["chain"] == [1, 2, -1]


def test_the_guarantee_of_small_communication_times(program) -> None:
    """As many processors as tasks, communications of at most r times the shortest task, r <= 1, no memory: the program
    is a lower bound, and with the threshold h SCT ends within (1 + r) / (1 + h r) times it: for h = 1/2 the
    (2 + 2r) / (2 + r) of Hanen and Munier."""
    for longest, least, optimum, *ends in program["rows"]:
        assert longest <= 1
        assert optimum == 0 or least <= optimum + 1e-6
        for threshold, end in zip((0.5, 0.1), ends, strict=True):
            assert end <= least * (1 + longest) / (1 + threshold * longest) + 1e-6
            assert optimum == 0 or end >= optimum


def test_small_communication_times_end_to_end() -> None:
    """The method as a solver, in its own process: a valid schedule."""
    p = generate(np.random.default_rng(7), tasks=60, gpus=3, features=Features(memory=False))
    result = solve(p, "m-sct", Options(seconds=600.0))
    assert result.status in ANSWERED, result.detail
    assert result.schedule is not None
    assert not check(p, result.schedule)
