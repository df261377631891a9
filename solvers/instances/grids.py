"""LSTM grids: the training step of an unrolled recurrent network, one task a cell and direction."""

import numpy as np

from solvers.arrays import Ints
from solvers.instances.machines import on_equal_gpus
from solvers.problem import Problem


def lstm_grid(layers: int, steps: int, *, gpus: int = 2, op: int = 3, transfer: int = 1, backward: int = 1) -> Problem:
    """`layers` x `steps` cells forward and backward, a loss for each step and an update for each layer.

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
