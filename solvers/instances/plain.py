"""Families on equal GPUs: chains, forks, layers, series-parallel graphs, training steps, and planted optima.

Each ordered pair of GPUs has a link. An LSTM grid is the training step of an unrolled recurrent network, one task a
cell and direction; a transformer that of an attention network, heads in parallel. Planted problems lie around a
schedule that is known to be optimal: every GPU works from the first tick to the last.
"""

from bisect import bisect_left
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from solvers.arrays import Bools, Ints
from solvers.problem import Problem


def on_equal_gpus(
    ticks: npt.ArrayLike,
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    *,
    gpus: int,
    transfer: Ints,
    carries: Bools | None = None,
) -> Problem:
    """Tasks of `ticks` [n] on equal GPUs without memory limits; each task that any edge leaves sends one payload.

    `transfer` [n]: ticks of each task's payload between any two GPUs. `carries` [e]: whether an edge carries its tail's
    payload (None: each does); the others are precedence alone.
    """
    ticks, src, dst = np.asarray(ticks), np.asarray(src, dtype=np.int64), np.asarray(dst, dtype=np.int64)
    n = len(ticks)
    off = ~np.eye(gpus, dtype=bool)
    links = np.full((gpus, gpus, 1), -1)
    links[off, 0] = np.arange(off.sum())
    payload = np.full(len(src), -1, dtype=np.int64)
    carried = np.ones(len(src), dtype=bool) if carries is None else carries
    producer, payload[carried] = np.unique(src[carried], return_inverse=True)
    return Problem(
        duration=np.repeat(ticks[:, None], gpus, axis=1),
        location=np.arange(gpus),
        memory=np.zeros(n, dtype=np.int64),
        capacity=np.zeros(gpus, dtype=np.int64),
        src=src,
        dst=dst,
        payload=payload,
        producer=producer,
        transfer=np.asarray(transfer)[producer][:, None],
        path_class=np.where(off, 0, -1),
        path_links=links,
        group=np.full(n, -1),
    )


def per_edge(problem: Problem) -> Problem:
    """Return the problem with a payload for each edge that carries one: the paper's transfer per edge (Pesto, 3.2.1).

    Payloads are numbered by edge; all else stays. Applied twice, it changes nothing.
    """
    carries = problem.payload >= 0
    shared = problem.payload[carries]
    payload = np.full(problem.edges, -1, dtype=np.int64)
    payload[carries] = np.arange(len(shared))
    return replace(problem, payload=payload, producer=problem.producer[shared], transfer=problem.transfer[shared])


def chain(tasks: int, *, gpus: int = 2, transfer: int = 1) -> Problem:
    """Return a chain of tasks of one tick on equal GPUs: the optimum is `tasks` ticks, on one GPU."""
    one = np.ones(tasks, dtype=np.int64)
    return on_equal_gpus(one, np.arange(tasks - 1), np.arange(1, tasks), gpus=gpus, transfer=transfer * one)


def fork(tasks: int, *, gpus: int = 2, transfer: int = 1) -> Problem:
    """Task 0, then `tasks` - 2 independent ones of one tick, then a join; ValueError below 2 tasks."""
    if tasks < 2:
        raise ValueError(f"a fork has at least 2 tasks, not {tasks}")
    one = np.ones(tasks, dtype=np.int64)
    middle = np.arange(1, tasks - 1)
    src = np.concatenate([np.zeros_like(middle), middle])
    dst = np.concatenate([middle, np.full_like(middle, tasks - 1)])
    return on_equal_gpus(one, src, dst, gpus=gpus, transfer=transfer * one)


def fork_optimum(tasks: int, gpus: int, transfer: int) -> int:
    """The least makespan of `fork` with these parameters, for 3 tasks or more; the same with a payload for each edge.

    Let k be the tasks between and t the transfer. Where the join is with task 0, that GPU has b of them done by 1 + b.
    Another starts its i-th no sooner than 1 + t + i - 1 and sends the results over a link of its own, so the last of
    b is there by max(2 + t + b t, 1 + 2 t + b), in either way of counting. The GPUs do not hinder each other: all is
    there by D iff the most that each can have there by D sum to k. The join takes one tick more.

    No other place of the join is better. Were it at a GPU with b of the tasks, and a with task 0, then
    D >= max(2 + a t, 1 + a + t, 1 + t + b). Let the two GPUs have a - 1 and b + 1 instead (a = 0: 0 and b), and the
    join be with task 0: that needs 2 + b <= 1 + t + b, 2 + a t and, where a > 1, 2 t + a <= 2 + a t, since
    (a - 2)(t - 1) >= 0; what the other GPUs need stays. (For t = 0 all places are alike.)
    """
    k = tasks - 2

    def meets(deadline: int) -> bool:
        last, waiting = deadline - 1 - 2 * transfer, deadline - 2 - transfer
        elsewhere = max(0, min(last, waiting // transfer if transfer else last))
        return deadline - 1 + (gpus - 1) * elsewhere >= k

    return 1 + bisect_left(range(1 + k), x=True, key=meets)


def layered(
    rng: np.random.Generator, layers: int, width: int, *, gpus: int = 2, transfer: int = 1, longest: int = 1
) -> Problem:
    """Return `layers` x `width` tasks of 1 to `longest` ticks; each reads two random tasks of the layer before."""
    dst = np.repeat(np.arange(width, layers * width), 2)
    src = (dst // width - 1) * width + rng.integers(0, max(width, 1), len(dst))
    ticks = rng.integers(1, longest + 1, layers * width)
    return on_equal_gpus(ticks, src, dst, gpus=gpus, transfer=np.full(layers * width, transfer))


def series_parallel(
    rng: np.random.Generator, tasks: int, *, gpus: int = 2, transfer: int = 3, longest: int = 9
) -> Problem:
    """Return a random two-terminal series-parallel graph, from task 0 to task 1, with 2 to 2 `tasks` - 3 edges.

    It grows from one edge: each further task is put on a random edge, in series, or beside it, in parallel, as a path
    of two edges (Valdes, Tarjan and Lawler 1982, in reverse). Tasks take 1 to `longest` ticks and
    payloads 1 to `transfer`. ValueError below 2 tasks.
    """
    if tasks < 2:
        raise ValueError(f"a series-parallel graph has at least 2 tasks, not {tasks}")
    src, dst = [0], [1]
    for task, (which, how) in enumerate(rng.random((tasks - 2, 2)).tolist(), start=2):
        edge = int(which * len(src))
        if how < 0.5:
            src.append(task)
            dst.append(dst[edge])
            dst[edge] = task
        else:
            src += [src[edge], task]
            dst += [task, dst[edge]]
    ticks = rng.integers(1, longest + 1, tasks)
    sent = rng.integers(min(1, transfer), transfer + 1, tasks)
    return on_equal_gpus(ticks, src, dst, gpus=gpus, transfer=sent)


def lstm_grid(layers: int, steps: int, *, gpus: int = 2, op: int = 3, transfer: int = 1, backward: int = 1) -> Problem:
    """Return `layers` x `steps` cells forward and backward, a loss for each step and an update for each layer.

    2 * layers * steps + steps + layers tasks, all of `op` ticks but the backward cells, which take `backward` times
    that. Cell (l, t) reads (l - 1, t) and (l, t - 1); loss t reads the top cell of its step; backward cell (l, t) reads
    (l + 1, t) or the loss, (l, t + 1), and its own forward cell; update l reads every backward cell of its layer.
    Tasks are numbered forward by step, losses, backward by step, updates. ValueError without a layer or a step.
    """
    if layers < 1 or steps < 1:
        raise ValueError(f"at least 1 layer and 1 step, not {layers} and {steps}")
    cells = layers * steps
    forward = np.arange(cells).reshape(steps, layers)
    loss = cells + np.arange(steps)
    back = cells + steps + forward
    update = 2 * cells + steps + np.arange(layers)
    edges = np.concatenate([
        _pairs(forward[:, :-1], forward[:, 1:]), _pairs(forward[:-1], forward[1:]), _pairs(forward[:, -1], loss),
        _pairs(loss, back[:, -1]), _pairs(back[:, 1:], back[:, :-1]), _pairs(back[1:], back[:-1]),
        _pairs(forward, back), _pairs(back, np.broadcast_to(update, back.shape)),
    ])  # fmt: skip
    ticks = np.full(2 * cells + steps + layers, op, dtype=np.int64)
    ticks[back] *= backward
    return on_equal_gpus(ticks, edges[:, 0], edges[:, 1], gpus=gpus, transfer=np.full(len(ticks), transfer))


def _pairs(tail: Ints, head: Ints) -> Ints:
    return np.stack([tail.ravel(), head.ravel()], axis=1)


_QKV, _ATTENTION, _OUT, _ADD, _WIDEN, _NARROW, _SUM, _ENDS = range(8)


def transformer(
    layers: int, heads: int = 4, *, gpus: int = 2, op: int = 1, transfer: int = 1, tied: int = 1
) -> Problem:
    """Return `layers` blocks forward and backward, an embedding before, a loss behind, and an update for each weight.

    Forward, a block is, for each head, a projection (query, key and value) and its attention; the output projection of
    all heads; a residual add; two feed-forward products; a residual add (Vaswani et al. 2017, post-norm, the norm in
    the add). Each forward task but the loss has a backward task, which takes twice as long, reads its forward task,
    and the backward tasks of (or the loss among) all that reads that one. Each weight (embedding, head, output,
    feed-forward, softmax) has an update of `op` ticks that reads its gradient. layers (5 heads + 13) + 5 tasks.

    Ticks are counted in the product of the width d by one head's share of d: a head's projection 3 `op`, its attention
    2, the output projection `heads`, each feed-forward product and the softmax 4 `heads`, an add and the embedding 1.
    A payload of width d takes `transfer`; of a head's projection 3 / `heads` of that and of its attention 1 / `heads`
    (rounded up), of the first feed-forward product 4 times that. A backward task sends the gradient of its inputs.
    `tied` = 1: an update is where its weight's forward task is (a group), as frameworks hold variables. Tasks are
    numbered forward, backward, updates. ValueError without a layer or a head.
    """
    if layers < 1 or heads < 1:
        raise ValueError(f"at least 1 layer and 1 head, not {layers} and {heads}")
    # The embedding is task 0, the loss the last.
    kinds = np.repeat([_QKV, _ATTENTION, _OUT, _ADD, _WIDEN, _NARROW, _SUM], [heads, heads, 1, 1, 1, 1, 1])
    before = np.arange(layers) * len(kinds)
    first = before + 1
    head = first[:, None] + np.arange(heads)
    out = first + 2 * heads
    add, widen, narrow, last = (out + k for k in range(1, 5))
    feeds = np.repeat(before[:, None], heads, axis=1)
    pairs = [
        (feeds, head), (head, head + heads), (head + heads, np.repeat(out[:, None], heads, axis=1)), (out, add),
        (before, add), (add, widen), (widen, narrow), (narrow, last), (add, last), (last[-1:], last[-1:] + 1),
    ]  # fmt: skip
    kind = np.concatenate([[_ENDS], np.tile(kinds, layers), [_ENDS]])
    tails = np.concatenate([tail.ravel() for tail, _ in pairs])
    readers = np.concatenate([reader.ravel() for _, reader in pairs])
    forward = len(kind)
    back = np.arange(forward - 1) + forward
    weight = np.flatnonzero(np.isin(kind, (_QKV, _OUT, _WIDEN, _NARROW, _ENDS)))
    update = 2 * forward - 1 + np.arange(len(weight))
    gradient = np.append(back, forward - 1)
    src = np.concatenate([tails, gradient[readers], np.arange(forward - 1), gradient[weight]])
    dst = np.concatenate([readers, back[tails], back, update])
    work = np.array([3, 2, heads, 1, 4 * heads, 4 * heads, 1, 1])[kind]
    work[-1] = 4 * heads
    ticks, wide, third, share = op * work, 4 * transfer, -(-3 * transfer // heads), -(-transfer // heads)
    sent = np.array([third, share, transfer, transfer, wide, transfer, transfer, transfer])[kind]
    returned = np.array([transfer, third, transfer, transfer, transfer, wide, transfer, transfer])[kind]
    problem = on_equal_gpus(
        np.concatenate([ticks, 2 * ticks[:-1], np.full(len(weight), op)]), src, dst, gpus=gpus,
        transfer=np.concatenate([sent, returned[:-1], np.zeros(len(weight), dtype=np.int64)]),
    )  # fmt: skip
    group = np.full(problem.tasks, -1)
    group[weight] = group[update] = np.arange(len(weight))
    return replace(problem, group=group) if tied else problem


def independent(rng: np.random.Generator, tasks: int, *, gpus: int = 2, makespan: int = 1000) -> Problem:
    """Independent tasks that some partition spreads evenly over equal GPUs: the optimum is `makespan`.

    The ticks of all tasks sum to `gpus` x `makespan`, so some GPU is busy for `makespan` or more in every schedule; in
    the hidden one each is, exactly. ValueError unless each GPU can have 1 to `makespan` of the tasks, all but evenly.
    """
    _, start, finish = _cut(rng, tasks, gpus, makespan)
    return on_equal_gpus(finish - start, [], [], gpus=gpus, transfer=np.zeros(tasks, dtype=np.int64))


def planted(
    rng: np.random.Generator, tasks: int, *, gpus: int = 2, makespan: int = 200, transfer: int = 5, edges: int = 2
) -> Problem:
    """Return tasks with precedence and transfers around a hidden schedule without idle time: the optimum is `makespan`.

    Lower bound: tasks take `gpus` x `makespan` ticks in all, on any GPUs, so one GPU is busy for at least `makespan`.
    Upper bound: in the hidden schedule each GPU is busy from 0 to `makespan`, and it is valid. For an edge leads only
    to a task that starts no sooner than its tail finishes; it carries the payload where both are on one GPU (which
    needs no transfer) or where the payload is placed in time on its link, after what the link carried before;
    otherwise it is precedence alone. (With a payload for each edge, `makespan` is only a lower bound.)

    `edges` times, each task is joined to one of the 4 x `gpus` tasks that start next after it, if there are so many;
    equal edges are one. All payloads take `transfer` ticks. ValueError as for `independent`.
    """
    device, start, finish = _cut(rng, tasks, gpus, makespan)
    order = np.argsort(start, kind="stable")
    tail = np.repeat(np.arange(tasks), edges)
    place = np.searchsorted(start[order], finish[tail]) + rng.integers(0, 4 * gpus, len(tail))
    there = place < tasks
    pairs = np.unique(np.stack([tail[there], order[place[there]]], axis=1), axis=0)
    src, dst = pairs[np.lexsort((start[pairs[:, 1]], finish[pairs[:, 0]]))].T
    carries = _in_time((src, dst), device, (start, finish), transfer)
    sizes = np.full(tasks, transfer)
    return on_equal_gpus(finish - start, src, dst, gpus=gpus, transfer=sizes, carries=carries)


def _cut(rng: np.random.Generator, tasks: int, gpus: int, makespan: int) -> tuple[Ints, Ints, Ints]:
    """Return GPU, start and finish of each task when 0..makespan is cut at random on each GPU, in a random order."""
    if not gpus <= tasks <= gpus * makespan:
        raise ValueError(
            f"{tasks} tasks do not fill {gpus} GPUs of {makespan} ticks each - "
            f"give {gpus} to {gpus * makespan} tasks, or another makespan"
        )
    count = [tasks // gpus + (gpu < tasks % gpus) for gpu in range(gpus)]
    ends = [np.sort(rng.choice(makespan - 1, k - 1, replace=False)) + 1 for k in count]
    start = np.concatenate([np.concatenate([[0], cuts]) for cuts in ends])
    finish = np.concatenate([np.concatenate([cuts, [makespan]]) for cuts in ends])
    order = rng.permutation(tasks)
    return np.repeat(np.arange(gpus), count)[order], start[order].astype(np.int64), finish[order].astype(np.int64)


def _in_time(edges: tuple[Ints, Ints], device: Ints, times: tuple[Ints, Ints], transfer: int) -> Bools:
    """Return [e] whether each edge's payload, served by its tail's finish, can be there when its head starts."""
    start, finish = (column.tolist() for column in times)
    at = device.tolist()
    free: dict[tuple[int, int], int] = {}
    sent: set[tuple[int, int]] = set()
    found = np.zeros(len(edges[0]), dtype=bool)
    for edge, (a, b) in enumerate(zip(*(ends.tolist() for ends in edges), strict=True)):
        link = (at[a], at[b])
        if at[a] == at[b] or (a, at[b]) in sent:
            # Where it was sent before, that was for a head that starts no later.
            found[edge] = True
        else:
            arrival = max(finish[a], free.get(link, 0)) + transfer
            if arrival <= start[b]:
                found[edge], free[link] = True, arrival
                sent.add((a, at[b]))
    return found
