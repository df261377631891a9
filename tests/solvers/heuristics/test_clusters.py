"""Linear clustering, METIS, PipeDream and MCMC: each against what its source says, written plainly."""

import ctypes
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.heuristics.clusters import linear_clustering, mcmc, metis, pipedream
from solvers.heuristics.clusters.linear_clustering import est_first, glb
from solvers.heuristics.clusters.pipedream import last_forward, order_of_layers
from solvers.heuristics.devices_of_location import devices_at, elements
from solvers.heuristics.lists.list_schedule import dag_of, edge_ticks
from solvers.heuristics.methods import PLACERS, NoRoomError, Placement
from solvers.instances.plain import on_equal_gpus
from solvers.instances.random import generate
from solvers.problem import Problem, mean_ticks, mean_transfers
from solvers.result import Options
from solvers.structure.units import units_of
from solvers.timing.loop import run_tasks
from solvers.timing.replay import bottom_levels, prepare

SEEDS = st.integers(0, 2**32 - 1)


def training_step(layers: int, *, gpus: int = 2, ticks: int = 10, memory: int = 0) -> Problem:
    """A chain of layers: variable v, forward f (reads v), backward b (reads v, f's input and output), update u.

    Tasks in order: v0..; f0..; b of the last layer first; u0..; the input. v and u of a layer are a group. b0 is the
    last of the chain, `memory` bytes are the variables'.
    """
    v, f, b, u = (np.arange(layers) + k * layers for k in range(4))
    b = b[::-1]
    edges = [(v[k], f[k]) for k in range(layers)] + [(f[k], f[k + 1]) for k in range(layers - 1)]
    edges += [(f[-1], b[-1])] + [(b[k + 1], b[k]) for k in range(layers - 1)]
    edges += [(f[k], b[k]) for k in range(layers - 1)] + [(v[k], b[k]) for k in range(layers)]
    edges += [(f[k - 1], b[k]) for k in range(1, layers)] + [(b[k], u[k]) for k in range(layers)]
    edges += [(4 * layers, f[0]), (4 * layers, b[0])]
    src, dst = np.array(edges).T
    cost = np.zeros(4 * layers + 1, dtype=np.int64)
    cost[f], cost[b] = ticks, 2 * ticks
    p = on_equal_gpus(cost, src, dst, gpus=gpus, transfer=np.ones(4 * layers + 1, dtype=np.int64))
    group = np.full(4 * layers + 1, -1)
    group[v], group[u] = np.arange(layers), np.arange(layers)
    held = np.zeros(4 * layers + 1, dtype=np.int64)
    held[v] = memory
    return replace(p, group=group, memory=held, capacity=np.full(gpus, 10**9))


def layer_of(layers: int) -> np.ndarray:
    """[4 layers + 1] the layer of each task of `training_step`."""
    k = np.arange(layers)
    return np.concatenate([k, k, k[::-1], k, [0]])


def test_glb_takes_the_least_loaded():
    """Loads 8 7 6 5 4 on two locations: 8 | 7, then 6 to the 7 (13), 5 to the 8 (13), 4 to the first of equals."""
    load, anywhere = np.array([4, 8, 6, 7, 5]), np.ones((5, 2), dtype=bool)
    assert glb(load, anywhere).tolist() == [0, 0, 1, 1, 0]
    # In the order given instead: 4 | 8, 6 to the 4 (10), 7 to the 8 (15), 5 to the 10.
    assert glb(load, anywhere, order=np.arange(5)).tolist() == [0, 1, 0, 1, 0]
    assert glb(load, anywhere, busy=np.array([100, 0])).tolist() == [1, 1, 1, 1, 1]


@given(seed=SEEDS)
def test_glb_is_its_definition(seed):
    """One cluster after the other (forced ones first, then by load), to the allowed location with the least load."""
    rng = np.random.default_rng(seed)
    load, allowed = rng.integers(0, 9, (12, 3)), rng.random((12, 3)) < 0.7
    allowed[np.arange(12), rng.integers(0, 3, 12)] = True
    most = np.where(allowed, load, 0).max(axis=1)
    loads, want = [0, 0, 0], [-1] * 12
    for c in sorted(range(12), key=lambda c: (allowed[c].sum() > 1, -most[c], c)):
        want[c] = min(np.flatnonzero(allowed[c]).tolist(), key=lambda there: (loads[there] + load[c, there], there))
        loads[want[c]] += load[c, want[c]]
    assert glb(load, allowed).tolist() == want


def literal_clusters(g) -> list[int]:
    """Kim and Browne's loop as it is written: all levels anew for each path."""
    n, path = len(g.took), 0
    cluster = [-1] * n
    while -1 in cluster:
        level, after = [0] * n, [-1] * n
        for at in range(n - 1, -1, -1):
            best = -1
            for k in range(g.offset[at], g.offset[at + 1]):
                if cluster[g.head[k]] < 0 and g.ticks[k] + level[g.head[k]] > best:
                    best, after[at] = g.ticks[k] + level[g.head[k]], g.head[k]
            level[at] = g.took[at] + max(best, 0)
        at = max((at for at in range(n) if cluster[at] < 0), key=lambda at: (level[at], -at))
        while at >= 0:
            cluster[at], at = path, after[at]
        path += 1
    return cluster


@given(seed=SEEDS, tasks=st.integers(0, 40))
def test_linear_clusters_are_the_literal_ones(seed, tasks):
    """Levels that are updated only where a removal changes them give the same paths in the same order."""
    p = generate(np.random.default_rng(seed), tasks=tasks, gpus=3)
    g = dag_of(p, mean_ticks(p), edge_ticks(p, mean_transfers(p, np.arange(p.locations))))
    assert linear_clustering.clusters_of_paths(g).tolist() == literal_clusters(g)


@pytest.mark.parametrize("seed", range(3))
def test_linear_clusters_of_a_hub_whose_readers_feed_a_longer_path(seed):
    """A chain of 9, 9, 9 into a sink, and a hub with 40 readers into the same sink: the chain takes the sink, which
    lowers all readers at once, unequally; then the hub goes with each longest reader that is left."""
    rng, readers = np.random.default_rng(seed), np.arange(5, 45)
    src = np.concatenate([[0, 1, 2], np.full(40, 4), readers])
    dst = np.concatenate([[1, 2, 3], readers, np.full(40, 3)])
    ticks = np.concatenate([[99, 99, 99, 1, 1], rng.integers(1, 8, 40)])
    p = on_equal_gpus(ticks, src, dst, gpus=3, transfer=rng.integers(0, 9, 45))
    g = dag_of(p, mean_ticks(p), edge_ticks(p, mean_transfers(p, np.arange(3))))
    found = linear_clustering.clusters_of_paths(g).tolist()
    assert found == literal_clusters(g)
    assert max(found) == 40


def test_linear_clusters_of_a_fork():
    """0 -> 1, 2, 3 -> 4 with 1, 9, 5, 2, 1 ticks and transfers of 1: longest 0 2? no: 0 1 4 (9), then 2 (5), then 3."""
    p = on_equal_gpus([1, 9, 5, 2, 1], [0, 0, 0, 1, 2, 3], [1, 2, 3, 4, 4, 4], gpus=2, transfer=np.ones(5, dtype=int))
    g = dag_of(p, mean_ticks(p), edge_ticks(p, mean_transfers(p, np.arange(2))))
    by_task = np.empty(5, dtype=int)
    by_task[g.order] = linear_clustering.clusters_of_paths(g)
    assert by_task.tolist() == [0, 0, 1, 2, 0]
    # Loads 11, 5 and 2 on two processors: the long path alone, both others on the second.
    assert linear_clustering.place(p, Options()).device.tolist() == [0, 0, 1, 1, 0]


def literal_est_first(p: Problem, device: np.ndarray) -> list[int]:
    """All free tasks looked at for each that is scheduled."""
    level, at = bottom_levels(p, device=device), p.location[device]
    free, finish, order = np.zeros(p.devices, dtype=int), {}, []
    while len(order) < p.tasks:
        best = None
        for task in range(p.tasks):
            edges = np.flatnonzero(p.dst == task)
            if task in finish or any(int(p.src[e]) not in finish for e in edges):
                continue
            ready = [int(free[device[task]])]
            for e in edges:
                a, b = at[p.src[e]], at[task]
                far = p.payload[e] >= 0 and a != b
                ready.append(finish[int(p.src[e])] + (int(p.transfer[p.payload[e], p.path_class[a, b]]) if far else 0))
            best = min(best or (2**62, 0, 0), (max(ready), -int(level[task]), task))
        start, _, task = best
        finish[task] = free[device[task]] = start + int(p.duration[task, device[task]])
        order.append(task)
    return order


@given(seed=SEEDS, tasks=st.integers(1, 25))
def test_est_first_is_its_definition(seed, tasks):
    """Two heaps a device find the task that a look at all free tasks finds: least start, then level, then index."""
    rng = np.random.default_rng(seed)
    p = generate(rng, tasks=tasks, gpus=3)
    device = np.where(p.allowed, rng.random(p.allowed.shape), -1.0).argmax(axis=1)
    assert est_first(p, device).tolist() == literal_est_first(p, device)


@given(seed=SEEDS, name=st.sampled_from(["linear", "metis", "pipedream", "mcmc"]), tasks=st.integers(0, 30))
def test_units_stay_together_where_they_can_be(seed, name, tasks):
    """Every method keeps units and kinds; its rank, where it has one, is a permutation that follows the precedence."""
    p = generate(np.random.default_rng(seed), tasks=tasks, gpus=3)
    if name == "metis":
        pytest.importorskip("pymetis")
    method = {"linear": linear_clustering, "metis": metis, "pipedream": pipedream, "mcmc": mcmc}[name]
    try:
        found: Placement = method.place(p, Options(seed=seed % 97, seconds=0.01))
    except NoRoomError:
        assert name == "pipedream"
        return
    assert p.allowed[np.arange(tasks), found.device].all()
    units, at = units_of(p), p.location[found.device]
    assert len(np.unique(np.stack([units.unit, at]), axis=1).T) == len(units.memory)
    if found.rank is not None:
        assert sorted(found.rank.tolist()) == list(range(tasks))
        assert (found.rank[p.src] < found.rank[p.dst]).all()
    if name == "pipedream":
        used = np.bincount(at, weights=p.memory, minlength=p.locations)
        assert (used <= p.capacity).all()


@pytest.mark.parametrize("layers", [5, 24])
def test_a_training_step_is_a_chain_of_layers(layers):
    """Layers stand in order, and each layer's forward, backward, variable and update together.

    Backward k reads the outputs of forward k - 1 and k, alike in size, of which the latest counts. A layer is three
    units, after the input that is a fourth of the first; where forward ends may be off by a level, so a last backward
    task may stand before or after its layer.
    """
    p = training_step(layers)
    units = units_of(p)
    place = np.empty(len(units.memory), dtype=int)
    place[order_of_layers(p, units)] = np.arange(len(place))
    at = place[units.unit]
    assert (np.diff(at[layers : 2 * layers]) > 0).all() and (np.diff(at[:layers]) > 0).all()
    apart = np.maximum(at - 1, 0) // 3 - layer_of(layers)
    assert np.abs(apart).max() <= 1 and np.count_nonzero(apart) <= 4


def test_only_what_is_last_in_first_out_is_folded():
    """Levels 1..6: tensors 1 -> 6, 2 -> 5, 3 -> 4 turn at 3; 1 -> 4, 2 -> 5, 3 -> 6, first in first out, never do."""
    level = np.arange(1, 7)
    assert last_forward(level, np.array([0, 1, 2]), np.array([5, 4, 3])) == 3
    assert last_forward(level, np.array([0, 1, 2]), np.array([3, 4, 5])) == 6
    assert last_forward(level, np.array([], dtype=int), np.array([], dtype=int)) == 6


def pipedream_program(chain: pipedream.StageItems, room: np.ndarray) -> float:
    """A(j, m) = min over i of max(A(i, m - 1), C_i, T(i .. j)), in every detail; infinite where memory allows none."""
    c, infinite = len(chain.ticks), float("inf")
    before = [0.0] + [infinite] * c
    for stage in range(len(room)):
        now = list(before)  # an empty stage
        for j in range(1, c + 1):
            for i in range(j):
                if chain.memory[i:j].sum() <= room[stage]:
                    cost = max(before[i], float(chain.cut[i]), float(chain.ticks[i:j].sum()))
                    now[j] = min(now[j], cost)
        before = now
    return before[c]


@given(seed=SEEDS, c=st.integers(0, 9), k=st.integers(1, 4))
def test_stages_are_as_good_as_the_dynamic_program(seed, c, k):
    """The binary search finds the bottleneck of the O(c^2 k) program, and no stages exactly where it finds none."""
    rng = np.random.default_rng(seed)
    cut = rng.integers(0, 12, c + 1)
    cut[[0, -1]] = 0
    chain = pipedream.StageItems(rng.integers(0, 9, c), rng.integers(0, 4, c), cut)
    room = rng.integers(0, 12, k)
    want = pipedream_program(chain, room)
    if want == float("inf"):
        with pytest.raises(NoRoomError, match="bytes"):
            pipedream.stages(chain, room)
        return
    stage = pipedream.stages(chain, room)
    assert (np.diff(stage) >= 0).all() and stage.max(initial=0) < k
    assert (np.bincount(stage, weights=chain.memory, minlength=k) <= room).all()
    crossed = cut[1:-1][np.diff(stage) > 0].max(initial=0) if c else 0
    assert max(np.bincount(stage, weights=chain.ticks, minlength=k).max(), crossed) == want


def test_pipedream_halves_a_training_step():
    """24 equal layers on two GPUs: 24 * 30 ticks halved; a layer stays whole but for one at the cut."""
    p = training_step(24)
    device = pipedream.place(p, Options()).device
    load = np.bincount(device, weights=p.duration[:, 0])
    assert abs(load[0] - load[1]) <= 30
    split = [len(np.unique(device[layer_of(24) == k])) > 1 for k in range(24)]
    assert sum(split) <= 2 and (np.diff(device[24:48]) >= 0).all()


def test_pipedream_fits_its_stages():
    """8 layers of 3 bytes with room for 9 and 15: at most 3 variables in the first stage, although half would be 4."""
    p = replace(training_step(8, memory=3), capacity=np.array([9, 15]))
    device = pipedream.place(p, Options()).device
    assert np.bincount(device, weights=p.memory).tolist() == [9, 15]
    with pytest.raises(NoRoomError, match="3 bytes"):
        pipedream.place(replace(p, capacity=np.array([9, 14])), Options())


@pytest.mark.parametrize("ticks", [[0] * 55, [9, 9, 9] + [0] * 52, [900, 400] + [3] * 40, [64, 27, 8] * 2 + [0] * 3])
def test_metis_has_nothing_to_say(ticks, capfd):
    """Fewer heavy tasks than parts: METIS alone would print that there are too many parts. Those have parts of their
    own, the rest is shared out among the other parts; standard output, that of C included, stays empty."""
    pytest.importorskip("pymetis")
    n = len(ticks)
    p = on_equal_gpus(ticks, [0] * (n - 1), np.arange(1, n), gpus=8, transfer=np.ones(n, dtype=int))
    device = metis.place(p, Options()).device
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == ""
    heavy = [device[k] for k in range(n) if ticks[k] * 8 > 2 * sum(ticks)]
    assert len(set(heavy)) == len(heavy)
    assert len(set(device.tolist())) > 3


def test_a_group_that_fits_nowhere_is_refused():
    """Task 0 runs on device 0 alone, task 1 on device 1, and they are a group: every method says so, also directly."""
    p = on_equal_gpus([1, 1, 1], [0], [2], gpus=2, transfer=np.ones(3, dtype=int))
    p = replace(p, duration=np.array([[1, -1], [-1, 1], [1, 1]]), group=np.array([0, 0, -1]))
    for row in PLACERS.values():
        if row.package is None:
            with pytest.raises(ValueError, match="no location can run task 0 and all of its group"):
                row.load()(p, Options(seconds=1.0))


def test_metis_cuts_the_light_edge():
    """Two rings of heavy transfers and one light transfer between them: each ring is a part, at one location."""
    pytest.importorskip("pymetis")
    n = 20
    ring = [(k, k + 1) for k in range(n - 1)] + [(n + k, n + k + 1) for k in range(n - 1)] + [(0, 2), (n, n + 2)]
    src, dst = np.array([*ring, (n - 1, n)]).T
    transfer = np.full(2 * n, 10**12)
    transfer[n - 1] = 1
    p = on_equal_gpus(np.full(2 * n, 10**14), src, dst, gpus=2, transfer=transfer)
    device = metis.place(p, Options()).device
    assert len(np.unique(device[:n])) == 1 and len(np.unique(device[n:])) == 1 and device[0] != device[n]
    assert (metis.place(p, Options()).device == device).all()


@given(seed=SEEDS)
def test_the_graph_for_metis_is_the_sum_of_payloads(seed):
    """Ticks of an edge: each payload between the two units once, either way; symmetric, without loops."""
    p = generate(np.random.default_rng(seed), tasks=20, gpus=3)
    units = units_of(p)
    free = np.flatnonzero(np.count_nonzero(units.allowed, axis=1) > 1)
    sent, want = mean_transfers(p, np.arange(p.locations)), {}
    crossings = {
        (int(k), int(units.unit[a]), int(units.unit[b]))
        for a, b, k in zip(p.src, p.dst, p.payload, strict=True)
        if k >= 0
    }
    for k, a, b in crossings:
        if a != b and a in free and b in free:
            for pair in ((a, b), (b, a)):
                want[pair] = want.get(pair, 0) + int(sent[k])
    offset, other, ticks = metis._undirected(p, units.unit, free)
    tail = np.repeat(np.arange(len(free)), np.diff(offset))
    assert dict(zip(zip(free[tail].tolist(), free[other].tolist(), strict=True), ticks.tolist(), strict=True)) == want


def test_mcmc_finds_the_best_of_a_small_problem():
    """Of all 3^6 placements of six tasks, one that list scheduling runs fastest."""
    p = generate(np.random.default_rng(5), tasks=6, gpus=3)
    units, pes, moves = units_of(p), elements(units_of(p)), mcmc._moves(p, units_of(p))
    every = itertools.product(*[np.flatnonzero(row).tolist() for row in units.allowed])
    best = min(
        int(mcmc.simulated(moves, devices_at(p, np.array(at)[units.unit])).finish.max())
        for at in every
        if all(a in pes or units.allowed[u].sum() == 1 for u, a in enumerate(at))
    )
    device = mcmc.place(p, Options(deterministic=True)).device
    assert int(run_tasks(prepare(p), device, moves.order, rule="listed")[0].finish.max()) == best


def test_mcmc_never_ends_worse_and_stops_when_nothing_helps():
    """A chain is at least as good as its start; independent tasks, balanced, end at half of the budget."""
    p = on_equal_gpus(np.full(4, 5), [], [], gpus=2, transfer=np.zeros(4, dtype=int))
    moves, budget = mcmc._moves(p, units_of(p)), mcmc.MarkovBudget(0.0, 40)
    device, cost = mcmc.chain(moves, np.array([0, 0, 1, 1]), np.random.default_rng(0), budget)
    assert cost == 10 and device.tolist() == [0, 0, 1, 1] and budget.taken == 21
    p = training_step(6)
    for at in mcmc._starts(p, units_of(p), 3):
        moves, start = mcmc._moves(p, units_of(p)), at[units_of(p).unit]
        _, end = mcmc.chain(moves, start, np.random.default_rng(1), mcmc.MarkovBudget(0.0, 60))
        assert end <= int(mcmc.simulated(moves, start).finish.max())
    first, again = (mcmc.place(p, Options(deterministic=True, seed=4)) for _ in range(2))
    assert (first.device == again.device).all() and (first.rank == again.rank).all()
