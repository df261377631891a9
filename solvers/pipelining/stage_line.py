"""The operations of one batch on the stages of an allocation and the links between them."""

from dataclasses import dataclass

import numpy as np

from solvers.arrays import Ints, ints, offsets
from solvers.pipelining.chain import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    SEND_BACKWARD,
    SEND_FORWARD,
    WEIGHT_GRADIENT,
    Allocation,
    Chain,
    Pattern,
    pattern_from_starts,
)

Work = tuple[int, int, int]
"""A kind, a stage (of a send: the one before the cut) and a batch."""


@dataclass(frozen=True, slots=True)
class BatchLine:
    """Operations (kind, stage) and sends of one batch, each after what it waits for."""

    stages: Ints
    """[s, 3] first layer, last layer and device of each stage."""
    ticks: dict[tuple[int, int], int]
    resource: dict[tuple[int, int], int]
    after: dict[tuple[int, int], tuple[tuple[int, int], ...]]
    """Operations that each operation makes ready."""
    gradient: int
    """The kind that the stage before waits for."""
    release: int
    """The kind that ends last of a stage."""


def line_of(chain: Chain, allocation: Allocation, stages: Ints, *, split: bool) -> BatchLine:
    """Return the line through stages, [s, 3], as of `Allocation.stages` or finer; `split`: backward halves in two."""
    sent = set(allocation.sent(chain).tolist())
    gradient, last = INPUT_GRADIENT if split else BACKWARD, len(stages) - 1
    line = BatchLine(stages, {}, {}, {}, gradient, WEIGHT_GRADIENT if split else BACKWARD)
    for stage, (first, end, device) in enumerate(stages.tolist()):
        layers = np.arange(first, end + 1)
        _add(line, (FORWARD, stage), int(chain.ticks(np.full(len(layers), FORWARD), layers).sum()), device)
        line.after[FORWARD, stage] = ((gradient, stage) if stage == last else (FORWARD, stage + 1),)
        if end in sent:
            _add_send(line, chain, allocation, SEND_FORWARD, stage)
            line.after[SEND_FORWARD, stage] = line.after[FORWARD, stage]
            line.after[FORWARD, stage] = ((SEND_FORWARD, stage),)
    for stage, (first, end, device) in reversed(list(enumerate(stages.tolist()))):
        layers = np.arange(first, end + 1)
        if end in sent:
            _add_send(line, chain, allocation, SEND_BACKWARD, stage)
            line.after[SEND_BACKWARD, stage] = ((gradient, stage),)
        back = (SEND_BACKWARD if first - 1 in sent else gradient, stage - 1)
        _add(line, (gradient, stage), int(chain.ticks(np.full(len(layers), gradient), layers).sum()), device)
        line.after[gradient, stage] = (back,) if stage else ()
        if split:
            _add(line, (WEIGHT_GRADIENT, stage), int(chain.weight_gradient[layers].sum()), device)
            line.after[gradient, stage] += ((WEIGHT_GRADIENT, stage),)
            line.after[WEIGHT_GRADIENT, stage] = ()
    return line


def pattern_of_line(
    chain: Chain, allocation: Allocation, line: BatchLine, batches: int, starts: list[tuple[int, int, int, int]]
) -> Pattern:
    """Return the flushed pattern whose batches have these starts, (kind, stage, batch, tick), from tick 0 on.

    As long as its step; a tick longer where what takes no time is last, which would else be in the next period.
    """
    rows = rows_of_layers(chain, line.stages, starts)
    makespan = int((rows[:, 3] + chain.ticks(rows[:, 0], rows[:, 1])).max())
    return pattern_from_starts(allocation, batches, max(makespan, int(rows[:, 3].max()) + 1), rows)


def rows_of_layers(chain: Chain, stages: Ints, starts: Ints | list[tuple[int, int, int, int]]) -> Ints:
    """Return [r, 4] kind, layer, batch and start: stages taken apart into layers that follow each other at once.

    stages: [s, 3] as of `Allocation.stages`. starts: [n, 4] kind, stage, batch and start of each half or send.
    """
    kind, stage, batch, begin = np.asarray(starts, dtype=np.int64).reshape(-1, 4).T
    first, last = stages[stage, 0], stages[stage, 1]
    is_send = (kind == SEND_FORWARD) | (kind == SEND_BACKWARD)
    row = offsets(ints(np.where(is_send, 1, last - first + 1)))
    at = np.repeat(np.arange(len(kind)), np.diff(row))
    place = np.arange(len(at)) - row[at]
    layer = np.where(kind[at] == FORWARD, first[at] + place, last[at] - place)
    ticks = chain.ticks(kind[at], layer)
    before = np.cumsum(ticks) - ticks
    return ints(np.column_stack([kind[at], layer, batch[at], begin[at] + before - before[row[at]]]))


def rows_of_batch(chain: Chain, allocation: Allocation, ahead: Ints, back: Ints) -> Ints:
    """Return [r, 4] rows as of `rows_of_layers` of batch 0, there and then back.

    ahead, back: [n] starts of the halves of each stage and of each cut that takes a link any time, in the order in
    which a batch meets them.
    """
    sent = np.isin(allocation.stages[:, 1], allocation.sent(chain))
    stage = np.repeat(np.arange(len(sent)), 1 + sent)
    is_send, batch = np.diff(stage, prepend=-1) == 0, np.zeros_like(stage)
    there = np.column_stack([np.where(is_send, SEND_FORWARD, FORWARD), stage, batch, ahead])
    returned = np.column_stack([np.where(is_send, SEND_BACKWARD, BACKWARD), stage, batch, back])
    return rows_of_layers(chain, allocation.stages, ints(np.concatenate([there, returned[::-1]])))


def _add(line: BatchLine, what: tuple[int, int], ticks: int, resource: int) -> None:
    line.ticks[what], line.resource[what] = ticks, resource


def _add_send(line: BatchLine, chain: Chain, allocation: Allocation, kind: int, stage: int) -> None:
    cut = line.stages[stage, 1:2]
    _add(line, (kind, stage), int(chain.ticks(np.array([kind]), cut)[0]), int(allocation.link(cut)[0]))
