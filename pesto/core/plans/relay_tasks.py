"""A problem in which what some tasks send leaves through tasks of no time, which can have a place in an order.

Such a task is the `Identity` that enforcement puts into a chain (`pesto.tf.apply_placement.relays`).
"""

from dataclasses import replace

import numpy as np

from solvers import Problem
from solvers.arrays import Bools, Ints, bools, ints


def relay_edges(problem: Problem, device: Ints, free: Bools, passable: Bools) -> Bools:
    """[e] edges whose payload a relay sends: to another location, where a task that is not `free` reads it.

    device, free, passable: [n] of each task; a relay can stand for what the passable send. What is free at that
    location and reads the same gets it then, too.
    """
    src, dst, at = problem.src, problem.dst, problem.location[device]
    sent = (problem.payload >= 0) & passable[src] & (at[src] != at[dst])
    key = problem.payload * problem.locations + at[dst]
    return bools(sent & np.isin(key, key[sent & ~free[dst]]))


def add_relays(problem: Problem, relayed: Bools) -> tuple[Problem, Ints]:
    """`problem` with relays behind its n tasks, which send what the edges of `relayed` [e] carry; [k] whose they are.

    Each waits for its task. It needs no memory, and is of no group.
    """
    task, of_edge = np.unique(problem.src[relayed], return_inverse=True)
    passed, what = np.unique(problem.payload[relayed], return_inverse=True)
    n, k = problem.tasks, len(task)
    src, payload = problem.src.copy(), problem.payload.copy()
    src[relayed], payload[relayed] = n + of_edge, problem.payloads + what
    none = np.zeros(k, dtype=np.int64)
    found = replace(
        problem,
        duration=np.concatenate([problem.duration, np.zeros((k, problem.devices), dtype=np.int64)]),
        memory=np.concatenate([problem.memory, none]),
        src=np.concatenate([src, task]),
        dst=np.concatenate([problem.dst, n + np.arange(k)]),
        payload=np.concatenate([payload, none - 1]),
        producer=np.concatenate([problem.producer, n + np.searchsorted(task, problem.producer[passed])]),
        transfer=np.concatenate([problem.transfer, problem.transfer[passed]]),
        group=np.concatenate([problem.group, none - 1]),
    )
    return found, ints(task)
