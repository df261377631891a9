"""Transformer blocks: the training step of an attention network, heads in parallel."""

from dataclasses import dataclass, replace

import numpy as np

from solvers.arrays import Ints
from solvers.instances.machines import on_equal_gpus
from solvers.problem import Problem

_QKV, _ATTENTION, _OUT, _ADD, _WIDEN, _NARROW, _SUM, _ENDS = range(8)


def transformer(
    layers: int, heads: int = 4, *, gpus: int = 2, op: int = 1, transfer: int = 1, tied: int = 1
) -> Problem:
    """`layers` blocks forward and backward, an embedding before, a loss behind, and an update for each weight.

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
    net = _ForwardPass(
        kind=np.concatenate([[_ENDS], np.tile(kinds, layers), [_ENDS]]),
        src=np.concatenate([tail.ravel() for tail, _ in pairs]),
        dst=np.concatenate([reader.ravel() for _, reader in pairs]),
    )
    forward = len(net.kind)
    back = np.arange(forward - 1) + forward
    weight = np.flatnonzero(np.isin(net.kind, (_QKV, _OUT, _WIDEN, _NARROW, _ENDS)))
    update = 2 * forward - 1 + np.arange(len(weight))
    gradient = np.append(back, forward - 1)
    src = np.concatenate([net.src, gradient[net.dst], np.arange(forward - 1), gradient[weight]])
    dst = np.concatenate([net.dst, back[net.src], back, update])
    ticks, sent, returned = _sizes(net.kind, heads, op, transfer)
    problem = on_equal_gpus(
        np.concatenate([ticks, 2 * ticks[:-1], np.full(len(weight), op)]), src, dst, gpus=gpus,
        transfer=np.concatenate([sent, returned[:-1], np.zeros(len(weight), dtype=np.int64)]),
    )  # fmt: skip
    group = np.full(problem.tasks, -1)
    group[weight] = group[update] = np.arange(len(weight))
    return replace(problem, group=group) if tied else problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ForwardPass:
    """The forward pass: the kind of each task, and who reads whom."""

    kind: Ints
    src: Ints
    dst: Ints


def _sizes(kind: Ints, heads: int, op: int, transfer: int) -> tuple[Ints, Ints, Ints]:
    """(ticks, ticks of the output's payload, of the gradient's) of each forward task."""
    work = np.array([3, 2, heads, 1, 4 * heads, 4 * heads, 1, 1])[kind]
    work[-1] = 4 * heads
    wide, third, share = 4 * transfer, -(-3 * transfer // heads), -(-transfer // heads)
    sent = np.array([third, share, transfer, transfer, wide, transfer, transfer, transfer])[kind]
    returned = np.array([transfer, third, transfer, transfer, transfer, wide, transfer, transfer])[kind]
    return op * work, sent, returned
