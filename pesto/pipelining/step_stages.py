"""A step's stages for other runtimes: which of its ops and variables is in which, and on which devices."""

import csv
import io

import numpy as np

from pesto.core.micro_batches.step_parts import AFTER, BACKWARD, BEFORE, FORWARD
from pesto.pipelining.step_pipeline import StepPipeline

_PARTS = {BEFORE: "once", FORWARD: "forward", BACKWARD: "backward", AFTER: "update"}


def step_stages(pipeline: StepPipeline) -> str:
    """CSV: a row an op of the step as it was given, in its order: op, part, layer, stage, devices.

    part: forward and backward are done for each micro-batch, once before and update after all of them. Stages are
    numbered as in the rank actions; an op that is in the group of a variable is in the stage where that is. devices,
    with a space between: of forward and backward ops all that do some of the batches, else the variable's.
    """
    rows, chain, parts = pipeline.chosen.schedule.rows, pipeline.staged.chain, pipeline.staged.parts.part
    first = np.unique(rows[:, 0])
    stage = np.searchsorted(first, chain.home, side="right") - 1
    shared = pipeline.chosen.schedule.shared
    takers = [" ".join(pipeline.accelerators[row[2]] for row in rows.tolist() if row[0] == begin) for begin in first]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("op", "part", "layer", "stage", "devices"))
    for op, name in enumerate(pipeline.staged.names):
        part, at = int(parts[op]), int(stage[op])
        once = shared is not None and part in (BEFORE, AFTER)
        home = pipeline.accelerators[int(shared.homes[chain.home[op]])] if once and shared is not None else takers[at]
        table.writerow((name, _PARTS[part], int(chain.home[op]), at, home))
    return text.getvalue()
