"""An order that frees early: what releases more bytes than it makes runs as soon as it can."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, rank_of
from solvers.compiled.dag import adjacency
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import routine, subroutine
from solvers.footprint import Footprint
from solvers.memory.usage import roots
from solvers.problem import Problem
from solvers.timing.replay import bottom_levels


class _PileReads(NamedTuple):
    """Reads by task of piles: the bytes of a buffer (under all its names) at one location."""

    task: tuple[Ints, Ints]
    """(offset [n + 1], pile of each read)"""
    size: Ints
    """[piles] bytes of each pile."""


class _OrderingQueue(NamedTuple):
    """The state of one ordering; tasks are queued by their place, those that do not free behind all that do."""

    place: Ints
    """[n] place of each task by falling bottom level."""
    made: Ints
    """[n] bytes that each task makes."""
    waiting: Ints
    """[n] edges that enter each task from tasks that are not done."""
    left: Ints
    """[piles] reads of each pile that are not done."""
    rest: Ints
    """[piles] sum of the tasks of these reads: the task itself where one is left."""
    freed: Ints
    """[n] bytes of the piles of which each task's read is the last one left."""
    early: Bools
    """[n] whether a task is queued as one that frees."""
    done: Bools
    key: Ints
    """[2 n] a heap: each task enters when it is ready, and perhaps again when it begins to free."""
    item: Ints
    length: Ints
    """[1] number of entries of the heap."""


def frugal_order(problem: Problem, footprint: Footprint, device: Ints) -> Ints:
    """Return [n] tasks in a topological order that keeps little alive on this placement. O((n + e + r) log n).

    Of the tasks that are ready, those that free at least what they make come first; within each kind, by falling
    bottom level. A training step's weight gradients have low levels: listed by level alone they wait, and the
    activations that they read wait with them.
    """
    n = problem.tasks
    place = rank_of(np.argsort(-bottom_levels(problem, device=device), kind="stable"))
    made, own = np.zeros(n, dtype=np.int64), footprint.passes < 0
    np.add.at(made, footprint.maker[own], footprint.size[own])
    offset, edge = adjacency(n, problem.src)
    parent, passed = np.arange(len(footprint.size)), np.flatnonzero(footprint.passes >= 0)
    parent[passed] = footprint.read_buffer[footprint.passes[passed]]
    root = roots(parent)[footprint.read_buffer]
    piles, pile = np.unique(root * problem.locations + problem.location[device][footprint.read_by], return_inverse=True)
    by_task, reads = adjacency(problem.tasks, footprint.read_by)
    uses = _PileReads((by_task, pile[reads]), footprint.size[piles // problem.locations])
    left, rest = np.bincount(uses.task[1], minlength=len(uses.size)), np.zeros(len(uses.size), dtype=np.int64)
    np.add.at(rest, uses.task[1], np.repeat(np.arange(n), np.diff(uses.task[0])))
    freed, single = np.zeros(n, dtype=np.int64), left == 1
    np.add.at(freed, rest[single], uses.size[single])
    queue = _OrderingQueue(
        place=place, made=made, waiting=np.bincount(problem.dst, minlength=n).astype(np.int64), left=left, rest=rest,
        freed=freed, early=np.zeros(n, dtype=np.bool_), done=np.zeros(n, dtype=np.bool_),
        key=np.empty(2 * n, dtype=np.int64), item=np.empty(2 * n, dtype=np.int64), length=np.zeros(1, dtype=np.int64),
    )  # fmt: skip
    return _order(offset, problem.dst[edge], uses, queue)


@routine
def _order(offset: Ints, head: Ints, uses: _PileReads, q: _OrderingQueue) -> Ints:
    n = len(q.place)
    # Arrays are taken out of their tuples before the loop: each look into a tuple counts a reference.
    (first, piles), size, left, rest, freed = uses.task, uses.size, q.left, q.rest, q.freed
    place, waiting, done, early = q.place, q.waiting, q.done, q.early
    task_at = np.empty(n, dtype=np.int64)
    task_at[place] = np.arange(n)
    order = np.empty(n, dtype=np.int64)
    count = 0
    for task in range(n):
        if waiting[task] == 0:
            _enter(q, task)
    while q.length[0] > 0:
        task = task_at[q.item[0]]
        q.length[0] = drop(q.key, q.item, q.length[0])
        if done[task]:
            continue
        done[task] = True
        order[count] = task
        count += 1
        for k in range(first[task], first[task + 1]):
            # The last read that is left of a pile, if one is, then frees it.
            pile = piles[k]
            left[pile] -= 1
            rest[pile] -= task
            if left[pile] == 1:
                freed[rest[pile]] += size[pile]
        for k in range(offset[task], offset[task + 1]):
            waiting[head[k]] -= 1
            if waiting[head[k]] == 0:
                _enter(q, head[k])
        for k in range(first[task], first[task + 1]):
            # A task that is ready is queued again once it has become one that frees.
            last = rest[piles[k]]
            ready = left[piles[k]] == 1 and waiting[last] == 0 and not done[last]
            if ready and not early[last] and freed[last] >= q.made[last]:
                early[last] = True
                q.length[0] = push(q.key, q.item, q.length[0], (place[last], place[last]))
    return order


@subroutine
def _enter(q: _OrderingQueue, task: int) -> None:
    """Queue a task that is ready: as one that frees, if it is the last to read at least as many bytes as it makes."""
    q.early[task] = q.freed[task] >= q.made[task]
    key = q.place[task] if q.early[task] else q.place[task] + len(q.place)
    q.length[0] = push(q.key, q.item, q.length[0], (key, q.place[task]))
