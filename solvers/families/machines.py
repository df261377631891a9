"""What every family shares: equal GPUs with a link for each ordered pair, and one payload a task."""

import numpy as np
import numpy.typing as npt

from solvers.arrays import Ints
from solvers.problem import Problem


def on_equal_gpus(
    ticks: npt.ArrayLike, src: npt.ArrayLike, dst: npt.ArrayLike, *, gpus: int, transfer: Ints
) -> Problem:
    """Tasks of `ticks` [n] on equal GPUs without memory limits; each task that any edge leaves sends one payload.

    `transfer` [n]: ticks of each task's payload between any two GPUs.
    """
    ticks, src, dst = np.asarray(ticks), np.asarray(src), np.asarray(dst)
    n = len(ticks)
    off = ~np.eye(gpus, dtype=bool)
    links = np.full((gpus, gpus, 1), -1)
    links[off, 0] = np.arange(off.sum())
    producer, payload = np.unique(src, return_inverse=True)
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
