"""Names of columns that people can read: of the letters of the paper, and of what each stands for."""

import numpy as np

from solvers.arrays import Ints
from solvers.milp.paper.rows import PaperModel


def activities(model: PaperModel) -> list[str]:
    """[n + t] `op3` for a task, `data4_op3_op5` for the transfer of payload 4 of the edge from 3 to 5."""
    t = model.transfers
    ends = zip(*(part.tolist() for part in (t.payload, t.tail, t.head)), strict=True)
    return [*(f"op{i}" for i in range(model.problem.tasks)), *(f"data{k}_op{i}_op{j}" for k, i, j in ends)]


def columns(model: PaperModel) -> dict[int, str]:
    """Column -> name of all that every program of the model has.

    C_max, S_ and C_ of an activity, z_ of a transfer, and x_op3_bit0 of the location of task 3, or of the first of
    those that are together with it, and core_op3_bit0 of its device there.
    """
    codes, label = model.codes, activities(model)
    found = {int(model.makespan.column[0, 0]): "C_max"}
    for letter, part in (("S", model.start), ("C", model.finish)):
        found |= {c: f"{letter}_{name}" for c, name in zip(part.column[:, 0].tolist(), label, strict=True)}
    for k in np.flatnonzero(~model.transfers.always).tolist():
        found[int(model.crossing.column[k, 0])] = f"z_{label[model.problem.tasks + k]}"
    first = np.unique(codes.units.unit, return_index=True)[1].tolist()
    for letter, bits, owner in (("x", codes.bit, first), ("core", codes.core, range(model.problem.tasks))):
        for row, task in zip(bits.tolist(), owner, strict=True):
            found |= {c: f"{letter}_op{task}_bit{bit}" for bit, c in enumerate(row) if c >= 0}
    return found


def orders(model: PaperModel, pairs: tuple[Ints, Ints, Ints]) -> dict[int, str]:
    """Column -> `op3_before_op5`, of pairs of activities and their columns."""
    label = activities(model)
    return {c: f"{label[i]}_before_{label[j]}" for i, j, c in zip(*(part.tolist() for part in pairs), strict=True)}
