"""The bound of full graphs: never above the optimum, attained where it should be, and proved by its own evidence."""

from dataclasses import replace

import numpy as np
import pytest
from exhaustive import exhaustive

from solvers.bounds import quick_bounds
from solvers.bounds.certificate import EvidenceError, follows
from solvers.bounds.evidence import ALL, ANCHORED, Evidence, FullBound
from solvers.bounds.full import anchor_bound, choose, full_bound, loads_of, net_of
from solvers.instances import table
from solvers.instances.plain import chain, fork, layered, lstm_grid, series_parallel
from solvers.instances.random import generate
from solvers.problem import FORBIDDEN, Problem
from solvers.structure.units import paths_of

F = FORBIDDEN
LONG = 1e9
"""Seconds that no clock ends."""


def confined(rng, ticks, edges):
    """Tasks of some ticks on 3 locations, each perhaps confined to one or two; two classes, groups, memory."""
    n, producers = len(ticks), sorted({src for src, _ in edges})
    duration = np.repeat(ticks[:, None], 3, axis=1) * (rng.integers(1, 3, 3) if rng.random() < 0.4 else 1)
    for task in np.flatnonzero(rng.random(n) < rng.choice([0.4, 0.9])):
        duration[task, rng.permutation(3)[: rng.integers(1, 3)]] = F
    group = np.full(n, -1)
    if rng.random() < 0.3:
        group[rng.integers(0, n, 2)] = 0
    far = int(rng.random() < 0.3)
    return Problem(
        duration=duration, location=[0, 1, 2], memory=np.ones(n, dtype=np.int64),
        capacity=np.full(3, n if rng.random() < 0.7 else n // 2 + 1),
        src=[src for src, _ in edges], dst=[dst for _, dst in edges],
        payload=[producers.index(src) for src, _ in edges], producer=producers,
        transfer=rng.integers(0, 4, (len(producers), 2)), path_class=[[-1, far, 0], [far, -1, 0], [0, 0, -1]],
        path_links=[[[-1], [0], [1]], [[2], [-1], [3]], [[4], [5], [-1]]], group=group,
    )  # fmt: skip


def small(seed):
    """A random problem that the oracle can solve: every feature, long transfers, or 3 locations that few tasks suit."""
    rng = np.random.default_rng(seed)
    gpus, transfer, kind = int(rng.integers(1, 4)), int(rng.integers(0, 9)), seed % 10
    if kind == 0:
        return layered(rng, int(rng.integers(2, 5)), 2, gpus=gpus, transfer=transfer, longest=6)
    if kind == 1:
        return series_parallel(rng, int(rng.integers(3, 8)), gpus=gpus, transfer=transfer, longest=6)
    if kind == 7:
        n = int(rng.integers(3, 5))
        return confined(rng, rng.integers(1, 5, n), [(k, k + 1) for k in range(n - 1)])
    if kind > 7:
        k = int(rng.integers(3, 6))
        ends = [(0, x) for x in range(1, k + 1)] + [(x, k + 1) for x in range(1, k + 1)]
        return confined(rng, rng.integers(1, 5, k + 2), ends)
    p = generate(rng, tasks=int(rng.integers(1, 7)), gpus=gpus)
    return replace(p, transfer=p.transfer * (kind - 1))


def everywhere(p):
    """The bound with each task an anchor."""
    paths = paths_of(p)
    net = net_of(p, paths)
    return anchor_bound(net, loads_of(p, paths, net), np.arange(p.tasks))


def cases(chosen):
    """Problems of these seeds that have a schedule, with the makespan of the best."""
    for seed in chosen:
        p = small(seed)
        if quick_bounds.best(p)[1] != "none" and (found := exhaustive(p)) is not None:
            yield seed, p, found.makespan


def diamond(middle, *, gpus=2, transfer=0, ticks=1):
    """A task of one tick, `middle` tasks of `ticks`, a task of one tick that reads them all."""
    p = fork(middle + 2, gpus=gpus, transfer=transfer)
    return replace(p, duration=np.repeat([[1], *[[ticks]] * middle, [1]], gpus, axis=1))


def test_no_bound_is_above_the_optimum_and_each_is_proved(seeds) -> None:
    """Random small problems: the bound is at most what enumeration finds, and what follows from its evidence."""
    better = proven = count = 0
    for seed, p, optimum in cases(seeds(80)):
        found = everywhere(p)
        assert found.ticks <= optimum, seed
        assert follows(p, found.evidence) == found.ticks, seed
        free = full_bound(p, seconds=LONG)
        assert quick_bounds.best(p)[0] <= free.ticks <= optimum, seed
        count, better, proven = (
            count + 1,
            better + (found.ticks > quick_bounds.best(p)[0]),
            proven + (found.ticks == optimum),
        )
    assert better > 0.12 * count
    assert proven > 0.55 * count


def tampered(rng, e):
    """Evidence with one to three numbers changed, claims added, anchors left out, or weights moved."""
    claims, anchors, weights = [list(c) for c in e.claims], list(e.anchors), [list(w) for w in e.weights]
    for what in rng.integers(0, 6, rng.integers(1, 4)):
        if what <= 2 and claims:
            claim, place = claims[rng.integers(len(claims))], rng.choice([3, 3, 3, 3, 0, 1, 2, 5, 6, 7])
            claim[place] = max(0, claim[place] + int(rng.choice([-2, -1, 1, 1, 2, 3])))
        elif what == 3 and anchors:
            anchors.pop(rng.integers(len(anchors)))
        elif what == 4 and weights:
            weights[rng.integers(len(weights))][rng.integers(len(weights[0]))] += 1
        else:
            first = int(rng.integers(len(anchors) + 1))
            last = int(rng.integers(first + 1, len(anchors) + 2))
            far = int(rng.integers(2)) if first > 0 and last <= len(anchors) else 0
            claims.append([first, last, far, int(rng.integers(1, 40)), 0, *rng.integers(0, (4, 6, 6)).tolist()])
    claims.sort(key=lambda claim: (claim[1], -claim[0]))
    return Evidence(anchors=tuple(anchors), weights=tuple(map(tuple, weights)), claims=tuple(map(tuple, claims)))


def test_no_evidence_proves_too_much(seeds) -> None:
    """Whatever is changed in it: what follows, if anything, is at most the optimum; most changes are refused."""
    accepted = refused = 0
    for seed, p, optimum in cases(seeds(30)):
        evidence, rng = everywhere(p).evidence, np.random.default_rng(seed)
        for _ in range(20):
            changed = tampered(rng, evidence)
            try:
                assert follows(p, changed) <= optimum, (seed, changed)
            except EvidenceError:
                refused += 1
            else:
                accepted += 1
    assert accepted > len(seeds(30))
    assert refused > 3 * accepted


@pytest.mark.parametrize(
    "change",
    [
        {"anchors": (9, 0)},
        {"anchors": (99,)},
        {"anchors": (-1,)},
        {"weights": ((1,),)},
        {"weights": ((0, 0),)},
        {"weights": ((2**60, 2**60),)},
        {"weights": ((-1, 2),)},
        {"claims": ((0, 1, 0, 2**70, 0, 0, 0, 0),)},
        {"claims": ((0, 1, 0),)},
        {"claims": ((1, 0, 0, 1, 0, 0, 0, 0),)},
        {"claims": ((0, 1, 1, 1, 0, 0, 0, 0),)},
        {"claims": ((0, 1, 0, 9, 0, 0, 0, 0),)},
        {"claims": ((0, 1, 0, 9, 3, 0, 0, 0),)},
    ],
)
def test_malformed_evidence_is_refused(change) -> None:
    """Numbers out of range, of the wrong count or order: a reason, not a crash."""
    right = Evidence(anchors=(), weights=((1, 1),), claims=())
    assert follows(fork(10, gpus=2), right) == quick_bounds.critical_path(fork(10, gpus=2))
    with pytest.raises(EvidenceError):
        follows(fork(10, gpus=2), replace(right, **change))


def test_a_third_location_counts_where_some_task_can_be_there() -> None:
    """Ends on GPUs 0 and 1 alone, 7 unit tasks between, transfers of 1, GPU 2 of a weight as the others'.

    Where the 7 can be on GPUs 0 and 1 alone, 2 (D - 1) >= 7, so D = 5, and 1 + 5 + 1 in all. On all three,
    2 (D - 1) + (D - 2) >= 7, so D = 4. With the second end on GPU 2, GPU 1 is the third, and 5 is the optimum again.
    """
    p = diamond(7, gpus=3, transfer=1)
    first, second, third = [1, F, F], [F, 1, F], [F, F, 1]
    for middle, last, distance in (([1, 1, F], second, 5), ([1, 1, 1], second, 4), ([1, 1, F], third, 5)):
        placed = replace(p, duration=[first, *[middle] * 7, last])
        evidence = Evidence(anchors=(0, 8), weights=((1, 1, 1),), claims=((1, 2, 1, distance, 0, ALL, 0, 0),))
        if last is second:
            assert follows(placed, evidence) == 1 + distance + 1
        with pytest.raises(EvidenceError):
            follows(placed, replace(evidence, claims=((1, 2, 1, distance + 1, 0, ALL, 0, 0),)))


def test_segments_at_a_barrier_add_up() -> None:
    """Diamonds of 3, 3 and 5 unit tasks on 2 GPUs: 1 + 2 + 1 + 2 + 1 + 3 + 1 ticks, each segment rounded up alone."""
    sizes, src, dst, end = (3, 3, 5), [], [], 0
    for size in sizes:
        middle = list(range(end + 1, end + 1 + size))
        src += [end] * size + middle
        end += 1 + size
        dst += [*middle, *[end] * size]
    edges = {"src": src, "dst": dst, "payload": np.minimum(src, end - 1), "producer": np.arange(end)}
    p = replace(chain(end + 1, transfer=0), **edges)
    assert everywhere(p).ticks == 11
    assert quick_bounds.best(p)[0] == 9


def test_what_has_no_time_to_cross_shares_a_device() -> None:
    """Two tasks of 3 ticks in a diamond, transfers of 2: one beside each end, 1 + 3 + 2 + 1; paths say 1 + 3 + 1."""
    p = diamond(2, ticks=3, transfer=2)
    assert everywhere(p).ticks == exhaustive(p).makespan == 7
    assert quick_bounds.best(p)[0] == 5


def test_other_devices_start_later_than_the_first() -> None:
    """16 unit tasks between source and sink on 4 GPUs, transfers of 1: D + 3 (D - 2) >= 16, so D = 6; 8 in all."""
    assert everywhere(diamond(16, gpus=4, transfer=1)).ticks == 8


def test_a_third_location_is_not_forgotten() -> None:
    """Ends confined to two GPUs, 6 unit tasks, transfers of 1.

    On 3 GPUs: the first has D - 1 ticks, the second as many, the third D - 2: 3 D - 4 >= 6, so D = 4; on 2 GPUs D = 4,
    too, for 2 (D - 1) >= 6; for 7 tasks on 3 GPUs still 4, and on 2 GPUs 5.
    """
    for middle, gpus, distance in ((6, 3, 4), (6, 2, 4), (7, 3, 4), (7, 2, 5)):
        p = diamond(middle, gpus=gpus, transfer=1)
        ticks = p.duration.copy()
        ticks[0, 1:], ticks[-1, [0, *range(2, gpus)]] = F, F
        assert everywhere(replace(p, duration=ticks)).ticks == 1 + distance + 1


def test_a_large_grid_has_a_better_bound_in_little_time() -> None:
    """30 layers of a Transformer on 2 GPUs, 1 000 tasks: better than the fast bounds, by evidence that checks."""
    p = table.make("transformer", 0, layers=30, heads=4, gpus=2, transfer=4)
    found = full_bound(p, seconds=LONG)
    assert found.ticks > quick_bounds.best(p)[0]
    assert found.name == ANCHORED
    assert follows(p, found.evidence) == found.ticks
    assert full_bound(p, seconds=LONG) == found
    assert full_bound(p, seconds=0.0) == FullBound(*quick_bounds.best(p))
    assert full_bound(p, upper=quick_bounds.best(p)[0]) == FullBound(*quick_bounds.best(p))


def test_anchors_are_few_and_in_order() -> None:
    """At most as many as asked for, by position, each once."""
    p = lstm_grid(4, 20, gpus=2)
    paths = paths_of(p)
    net = net_of(p, paths)
    found = choose(net, loads_of(p, paths, net), paths, 30)
    assert 10 < len(found) <= 30
    assert (np.diff(found) > 0).all()


def test_what_does_not_suit_has_the_fast_bounds() -> None:
    """No task, a group that can be nowhere, and ticks near 2^55."""
    assert full_bound(chain(0)).ticks == 0
    nowhere = replace(chain(2), duration=[[1, F], [F, 1]], group=[3, 3])
    assert full_bound(nowhere) == FullBound(0, "none")
    with pytest.raises(EvidenceError):
        follows(nowhere, Evidence(anchors=(), weights=(), claims=()))
    long = replace(chain(3), duration=np.full((3, 2), 2**55 + 1))
    assert full_bound(long).ticks == 3 * (2**55 + 1)
    with pytest.raises(EvidenceError):
        follows(long, Evidence(anchors=(), weights=(), claims=()))
