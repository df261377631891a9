"""Shared builders of families: equal GPUs with a link for each ordered pair, one payload per task or per edge."""

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
    """The same problem with a payload for each edge that carries one: the paper's transfer per edge (Pesto, 3.2.1).

    Payloads are numbered by edge; all else stays. Applied twice, it changes nothing.
    """
    carries = problem.payload >= 0
    shared = problem.payload[carries]
    payload = np.full(problem.edges, -1, dtype=np.int64)
    payload[carries] = np.arange(len(shared))
    return replace(problem, payload=payload, producer=problem.producer[shared], transfer=problem.transfer[shared])
