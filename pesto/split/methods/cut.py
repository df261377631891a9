"""A cut as a task: its labelling problem, its solution by a solver, within memory, or from labels that a rule chose."""

from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from pesto.core.errors import InfeasibleError, InputError, NothingFoundError, SolverError
from pesto.core.files.json import shown
from pesto.core.quantities import size
from pesto.split.division import Division, item_bytes
from pesto.split.geometry import Layouts, Shape, part_shape
from pesto.split.program import CutProgram, Rules, build_program
from pesto.split.typed_graph import TypedGraph
from solvers import Limit, Status
from solvers.arrays import Ints, ints
from solvers.labels.label_methods import LabelResult, solve
from solvers.labels.labelling import Labelling, pinned
from solvers.labels.limited import LimitedResult, limited


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CutTask:
    """Task of a cut method: a step, the cuts made so far, and the cuts to make."""

    shaped: TypedGraph
    before: Division | None
    """Division by the cuts before it; None before the first."""
    more: Shape
    """Factors of the cuts to make: one, unless a method makes all cuts at once."""
    rules: Rules
    """Rules that the division must keep."""
    seconds: float
    """Limit of seconds."""
    deterministic: bool = False
    """True if the seconds stand for work (`solvers.labels.label_methods.solve`)."""

    def program(self, *, each: bool = False) -> CutProgram:
        """Return its labelling problem, in which with `each` every reader is charged its own fetch."""
        return build_program(self.shaped, self.before, self.more, self.rules, each=each)


class CutChoice(NamedTuple):
    """Result of a cut method."""

    program: CutProgram
    answer: LabelResult


def solve_labelling(problem: Labelling, method: str, seconds: float, *, deterministic: bool = False) -> LabelResult:
    """Solve a problem by a method of `solvers.labels`; raise SolverError if its process fails."""
    try:
        return solve(problem, method, seconds=max(0.1, seconds), deterministic=deterministic)
    except RuntimeError as error:
        raise SolverError.build(f"{error}", remedy="use the greedy method, and see pesto doctor") from error


def solve_pinned(problem: Labelling, labels: Ints, seconds: float, *, deterministic: bool = False) -> LabelResult:
    """Solve a problem exactly whose first variables have labels, -1 where one is open; errors of `solve_labelling`."""
    rest = pinned(problem, labels)
    result = solve_labelling(rest.problem, "exact", seconds, deterministic=deterministic)
    return result if result.labels is None else replace(result, labels=np.asarray(rest.widened(result.labels)))


def by_solver(cut: CutTask, method: str) -> CutChoice:
    """Choose labels by a method of `solvers.labels` for the whole problem."""
    program = cut.program()
    return CutChoice(program, solve_labelling(program.problem, method, cut.seconds, deterministic=cut.deterministic))


def complete_labels(cut: CutTask, labels: Ints | None, method: str) -> CutChoice:
    """Return a rule's labels of ties, tensors and ops as an answer without a bound; the rest is chosen to send least.

    A label of -1 leaves the choice open; None means that the rule's choices forbid all that is left for another.
    """
    program = cut.program()
    if labels is not None:
        result = solve_pinned(program.problem, labels, cut.seconds, deterministic=cut.deterministic)
        if result.labels is not None:
            answer = replace(result, status=Status.FEASIBLE, method=method, bound=0, limit=Limit.OTHER)
            return CutChoice(program, answer)
    nothing = LabelResult(
        status=Status.UNKNOWN, method=method, labels=None, value=None, bound=0, limit=Limit.OTHER,
        detail="what it chose first forbids all that is left for another",
    )  # fmt: skip
    return CutChoice(program, nothing)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensors:
    """Ties, tensors and ops among the first variables of a problem."""

    count: int
    """Number of ties, tensors and ops."""
    layouts: dict[int, tuple[Layouts, ...]]
    """Variable -> the layouts of a tie or a tensor."""
    size: Ints
    """[count] bytes of ties and tensors; 0 of ops."""
    ops: dict[int, int]
    """Variable -> op."""


def tensors_of(shaped: TypedGraph, program: CutProgram) -> Tensors:
    """Return the ties, tensors and ops among the variables of a problem."""
    layouts: dict[int, tuple[Layouts, ...]] = dict(zip(program.tie, program.tied, strict=True))
    sizes: dict[int, int] = {}
    ties, tensors = set(program.tie), []
    for op, at, v in shaped.uses:
        operand = shaped.signature(op).inputs[at]
        tensors.append((program.tie[v], operand.shape, operand.dtype))
    for op in range(shaped.ops):
        for output, at in enumerate(program.tensor[op]):
            if at >= 0 and at not in ties:
                layouts[at] = program.layouts[op][output]
                tensors.append((at, *shaped.signature(op).outputs[output]))
    for at, shape, dtype in tensors:
        sizes[at] = max(sizes.get(at, 0), prod(shape) * item_bytes(dtype) if shape is not None else 0)
    ops = {at: op for op, at in enumerate(program.op) if at >= 0}
    count = 1 + max([*layouts, *ops], default=-1)
    size = np.array([sizes.get(v, 0) for v in range(count)], dtype=np.int64)
    return Tensors(count=count, layouts=layouts, size=size, ops=ops)


def cut_within_memory(cut: CutTask, memory_bytes: int) -> CutChoice:
    """Return the cut that sends least under the limit of memory, with the bound of the Lagrangian relaxation.

    Raise InfeasibleError if a worker holds more after every way to make the first cut, NothingFoundError for a later
    cut.
    """
    program = cut.program()
    result = solve_limited_cut(cut.shaped, program, memory_bytes, seconds=cut.seconds)
    if result.answer.status is Status.INFEASIBLE and result.least is not None:
        error = NothingFoundError if cut.before else InfeasibleError
        raise error.build(
            f"{'after the cuts before it, ' if cut.before else ''}cut in {cut.more[-1]} a "
            f"worker holds {size(result.least)} of variables with slots at least, {size(result.least - memory_bytes)} "
            f"more than the {size(memory_bytes)} that it may at this cut",
            where=shown(cut.shaped.source),
            remedy="give more workers, or more memory",
        )
    return CutChoice(program, result.answer)


def solve_limited_cut(shaped: TypedGraph, program: CutProgram, memory_bytes: int, *, seconds: float) -> LimitedResult:
    """Solve the problem of a cut under a limit of memory; raise SolverError if a solver's process fails."""
    try:
        return limited(program.problem, held_bytes(shaped, program), memory_bytes, seconds=seconds)
    except RuntimeError as error:
        raise SolverError.build(f"{error}", remedy="leave the limit of memory out, and see pesto doctor") from error
    except ValueError as error:
        raise InputError.build(
            f"{error}", where=shown(shaped.source), remedy="leave the limit of memory out"
        ) from error


def held_bytes(shaped: TypedGraph, program: CutProgram) -> Ints:
    """Return [labels] bytes that a worker holds of the variables of a tie, for each label that it can have."""
    result = np.zeros(len(program.problem.unary), dtype=np.int64)
    known = {}
    for op, at, v in shaped.uses:
        operand = shaped.signature(op).inputs[at]
        if operand.shape is not None:
            known[v] = operand.shape, item_bytes(operand.dtype)
    for v, (shape, item) in known.items():
        first = int(program.problem.first[program.tie[v]])
        for label, layouts in enumerate(program.tied[v]):
            part = part_shape(shape, layouts, program.factors)
            result[first + label] += item * int(np.prod(part, dtype=np.int64))
    return ints(result)
