"""A pipeline for other runtimes: what each rank does, in order, as PyTorch's schedules are written."""

import csv
import io
from collections.abc import Sequence

import numpy as np

from pesto.pipelining.unrolled import Unrolled
from solvers.arrays import Ints
from solvers.pipelining.chain import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT

_LETTERS = {FORWARD: "F", BACKWARD: "B", INPUT_GRADIENT: "I", WEIGHT_GRADIENT: "W"}


def rank_actions(stages: Ints, ranks: Sequence[int], run: Unrolled) -> str:
    """CSV: a row a rank, with an action for each half of a stage that it does, by start: stage, F, B, I or W, batch.

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
