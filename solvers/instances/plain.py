"""Chains, forks, random layers and random series-parallel graphs on equal GPUs."""

from bisect import bisect_left

import numpy as np

from solvers.arrays import Ints
from solvers.instances.machines import on_equal_gpus
from solvers.problem import Problem


def chain(tasks: int, *, gpus: int = 2, transfer: int = 1) -> Problem:
    """A chain of tasks of one tick on equal GPUs: the optimum is `tasks` ticks, on one GPU."""
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
    """`layers` x `width` tasks of 1 to `longest` ticks; each reads two random tasks of the layer before."""
    dst = np.repeat(np.arange(width, layers * width), 2)
    src = (dst // width - 1) * width + rng.integers(0, max(width, 1), len(dst))
    ticks = rng.integers(1, longest + 1, layers * width)
    return on_equal_gpus(ticks, src, dst, gpus=gpus, transfer=np.full(layers * width, transfer))


def series_parallel(
    rng: np.random.Generator, tasks: int, *, gpus: int = 2, transfer: int = 3, longest: int = 9
) -> Problem:
    """A random two-terminal series-parallel graph, from task 0 to task 1, with 2 to 2 `tasks` - 3 edges.

    It grows from one edge: each further task is put on a random edge, in series, or beside it, in parallel, as a path
    of two edges (Valdes, Tarjan and Lawler 1982, in reverse). Tasks take 1 to `longest` ticks and
    payloads 1 to `transfer`. ValueError below 2 tasks.
    """
    if tasks < 2:
        raise ValueError(f"a series-parallel graph has at least 2 tasks, not {tasks}")
    src, dst = _grown(rng, tasks)
    ticks = rng.integers(1, longest + 1, tasks)
    sent = rng.integers(min(1, transfer), transfer + 1, tasks)
    return on_equal_gpus(ticks, src, dst, gpus=gpus, transfer=sent)


def _grown(rng: np.random.Generator, tasks: int) -> tuple[Ints, Ints]:
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
    return np.array(src, dtype=np.int64), np.array(dst, dtype=np.int64)
