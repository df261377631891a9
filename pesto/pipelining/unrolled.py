"""M batches of a pattern, from the first operation to the last: when each runs, and the actions of each rank.

Ranks' actions are written as PyTorch's pipeline schedules are.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solvers.arrays import Ints, ints
from solvers.pipelining.chain import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Chain, Pattern


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unrolled:
    """The operations of batches 0..M - 1, by start; the first starts at tick 0."""

    batches: int
    """How many, M."""
    kind: Ints
    """[o] what each does, as `Pattern.kind`."""
    layer: Ints
    """[o] its layer; of a send, the layer before the cut."""
    batch: Ints
    """[o] 0..M - 1."""
    resource: Ints
    """[o] its device or link, as `Pattern.resource`."""
    start: Ints
    """[o] its first tick."""
    finish: Ints
    """[o] the tick after its last."""

    @property
    def step(self) -> int:
        """Ticks from an empty pipeline to an empty one."""
        return int(self.finish.max(initial=0))


def unroll(chain: Chain, pattern: Pattern, batches: int) -> Unrolled:
    """Return the pattern's operations for its first batches with their ticks; ValueError without a batch."""
    if batches < 1:
        raise ValueError(f"{batches} batches - give 1 or more")
    row = np.repeat(np.arange(len(pattern.kind)), -(-batches // pattern.k))
    # A row does every k-th batch, from the first that its shift leads to.
    first = pattern.shift[row] % pattern.k
    batch = first + pattern.k * np.tile(np.arange(-(-batches // pattern.k)), len(pattern.kind))
    row, batch = row[batch < batches], batch[batch < batches]
    start = pattern.t[row] + pattern.T * ((batch - pattern.shift[row]) // pattern.k)
    start -= start.min()
    finish = start + chain.ticks(pattern.kind[row], pattern.layer[row])
    order = np.lexsort((pattern.kind[row], pattern.resource[row], start))
    return Unrolled(
        batches=batches, kind=pattern.kind[row][order], layer=pattern.layer[row][order], batch=ints(batch[order]),
        resource=pattern.resource[row][order], start=ints(start[order]), finish=ints(finish[order]),
    )  # fmt: skip


_LETTERS = {FORWARD: "F", BACKWARD: "B", INPUT_GRADIENT: "I", WEIGHT_GRADIENT: "W"}


def rank_actions(stages: Ints, ranks: Sequence[int], run: Unrolled) -> str:
    """Return CSV, a row a rank, with an action for each half of a stage by start: stage, F, B, I or W, batch.

    stages: [r, 3] first layer, last layer and device; devices that share a stage have a row each, of one number.
    ranks: the device of each row.

    2F0 is stage 2's forward half of micro-batch 0, B its backward half, I and W its two parts where they are apart
    (torch.distributed.pipelining, compute-only schedules).
    """
    first = np.unique(stages[:, 0])
    stage = np.searchsorted(first, run.layer, side="right") - 1
    row = {device: rank for rank, device in enumerate(ranks)}
    rows: list[dict[str, None]] = [{} for _ in ranks]
    for kind, at, batch, device in zip(
        run.kind.tolist(), stage.tolist(), run.batch.tolist(), run.resource.tolist(), strict=True
    ):
        if kind in _LETTERS:
            rows[row[device]].setdefault(f"{at}{_LETTERS[kind]}{batch}")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
