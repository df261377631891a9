"""Tofu's own search (section 4): CriticalDP on the coarse graph, cut after cut."""

import time

from pesto.split.methods.coarse_graph import CoarseGraphOptions, coarsen_labelling
from pesto.split.methods.cut import CutChoice, CutTask, complete_labels, solve_labelling
from solvers.arrays import Ints
from solvers.labels.critical import by_paths
from solvers.labels.labelling import Labelling

_PAPER = CoarseGraphOptions()


def tofu(cut: CutTask, *, settings: CoarseGraphOptions = _PAPER, paths: bool = True, name: str = "tofu") -> CutChoice:
    """Groups path by path, the longest first; or in the order of the step.

    As in the paper every reader is charged its own fetch, and variables are cut. What the time does not suffice for
    is chosen greedily; in a deterministic cut each group has an equal share of it, as work.
    """
    ends = time.monotonic() + 0.8 * cut.seconds
    made = cut.program(each=True)
    result = coarsen_labelling(cut.shaped, made, settings)
    share = 0.8 * cut.seconds / (1 + int(result.group.max(initial=0)))

    def best(part: Labelling) -> Ints | None:
        left = share if cut.deterministic else ends - time.monotonic()
        labels = solve_labelling(part, "exact", left, deterministic=cut.deterministic).labels if left > 0 else None
        return solve_labelling(part, "greedy", 1.0).labels if labels is None else labels

    labels = by_paths(result.problem, result.group, result.length, best, order=paths)
    return complete_labels(cut, None if labels is None else result.widened(labels), name)
