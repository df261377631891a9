"""Problems around a schedule that is known to be optimal: every GPU works from the first tick to the last."""

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.instances.machines import on_equal_gpus
from solvers.problem import Problem


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
    """Tasks with precedence and transfers around a hidden schedule without idle time: the optimum is `makespan`.

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
    """GPU, start and finish of each task when 0..makespan is cut at random on each GPU, in a random order of tasks."""
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
    """[e] whether each edge's payload, served by its tail's finish, can be there when its head starts."""
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
