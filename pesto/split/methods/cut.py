"""Interface of the cut methods: a task of one or more cuts, and the labels chosen for it."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pesto.core.errors import SolverError
from pesto.split.division import Division
from pesto.split.geometry import Shape
from pesto.split.program import CutProgram, Rules, build_joint_program
from pesto.split.typed_graph import TypedGraph
from solvers import Limit, Status
from solvers.arrays import Ints
from solvers.labels.label_methods import LabelResult, solve
from solvers.labels.labelling import Labelling, pinned


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CutTask:
    """Task of a cut method: a step, the cuts made so far, and the cuts to make."""

    shaped: TypedGraph
    made: Division | None
    """The cuts before it."""
    more: Shape
    """Its factors: one, but where a method makes all cuts at once."""
    rules: Rules
    seconds: float
    """Rules that the division must keep."""
    deterministic: bool = False
    """True if the seconds stand for work (`solvers.labels.label_methods.solve`)."""

    def program(self, *, each: bool = False) -> CutProgram:
        """Its problem."""
        return build_joint_program(self.shaped, self.made, self.more, self.rules, each=each)


class CutChoice(NamedTuple):
    """Result of a cut method."""

    program: CutProgram
    answer: LabelResult


def solve_labelling(problem: Labelling, method: str, seconds: float, *, deterministic: bool = False) -> LabelResult:
    """By a method of `solvers.labels`; SolverError where its process fails."""
    try:
        return solve(problem, method, seconds=max(0.1, seconds), deterministic=deterministic)
    except RuntimeError as error:
        raise SolverError.build(f"{error}", remedy="use the greedy method, and see pesto doctor") from error


def by_solver(cut: CutTask, method: str) -> CutChoice:
    """A method of `solvers.labels`, asked for the whole problem."""
    made = cut.program()
    return CutChoice(made, solve_labelling(made.problem, method, cut.seconds, deterministic=cut.deterministic))


def complete_labels(cut: CutTask, labels: Ints | None, method: str) -> CutChoice:
    """A rule's choice for ties, tensors and ops as an answer, which no bound goes with; what is fetched follows.

    -1 where the rule leaves the choice open: the rest is chosen to send least.
    """
    made = cut.program()
    if labels is None:
        return CutChoice(made, _nothing(method))
    some = pinned(made.problem, labels)
    result = solve_labelling(some.problem, "exact", cut.seconds, deterministic=cut.deterministic)
    if result.labels is None:
        return CutChoice(made, _nothing(method))
    whole = np.asarray(some.widened(result.labels))
    answer = replace(result, status=Status.FEASIBLE, method=method, labels=whole, bound=0, limit=Limit.OTHER)
    return CutChoice(made, answer)


def _nothing(method: str) -> LabelResult:
    return LabelResult(
        status=Status.UNKNOWN, method=method, labels=None, value=None, bound=0, limit=Limit.OTHER,
        detail="what it chose first forbids all that is left for another",
    )  # fmt: skip
