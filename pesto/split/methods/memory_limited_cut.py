"""One more cut of which a worker holds at most so many bytes of variables: whole where that pays most, else cut."""

import numpy as np

from pesto.core.errors import InfeasibleError, InputError, NothingFoundError, SolverError
from pesto.core.files.json import shown
from pesto.core.quantities import size
from pesto.split import geometry
from pesto.split.division import item_bytes
from pesto.split.geometry import Shape
from pesto.split.methods.cut import CutChoice, CutTask
from pesto.split.program import CutProgram
from pesto.split.typed_graph import TypedGraph
from solvers import Status
from solvers.arrays import Ints, ints
from solvers.labels.limited import LimitedResult, limited


def cut_within_memory(cut: CutTask, memory_bytes: int) -> CutChoice:
    """The cut that sends least under the limit, with the bound of the Lagrangian relaxation.

    InfeasibleError where it is the first cut and every way to make it holds more, NothingFoundError where others after
    those before it do.
    """
    made = cut.program()
    result = solve_limited_cut(cut.shaped, made, memory_bytes, seconds=cut.seconds)
    if result.answer.status is Status.INFEASIBLE and result.least is not None:
        error = NothingFoundError if cut.made else InfeasibleError
        raise error(
            f"{shown(cut.shaped.source)}: {'after the cuts before it, ' if cut.made else ''}cut in {cut.more[-1]} a "
            f"worker holds {size(result.least)} of variables with slots at least, {size(result.least - memory_bytes)} "
            f"more than the {size(memory_bytes)} that it may at this cut - give more workers, or more memory"
        )
    return CutChoice(made, result.answer)


def solve_limited_cut(shaped: TypedGraph, program: CutProgram, memory_bytes: int, *, seconds: float) -> LimitedResult:
    """The problem of a cut solved under the limit; SolverError where a solver's process fails."""
    try:
        return limited(program.problem, held_bytes(shaped, program), memory_bytes, seconds=seconds)
    except RuntimeError as error:
        raise SolverError.build(f"{error}", remedy="leave the limit of memory out, and see pesto doctor") from error
    except ValueError as error:
        raise InputError.build(
            f"{error}", where=shown(shaped.source), remedy="leave the limit of memory out"
        ) from error


def held_bytes(shaped: TypedGraph, program: CutProgram) -> Ints:
    """[labels] bytes that a worker holds of the variables of a tie, for each label that it can have."""
    result = np.zeros(len(program.problem.unary), dtype=np.int64)
    for v, (shape, item) in _variables(shaped).items():
        first = int(program.problem.first[program.tie[v]])
        for label, layouts in enumerate(program.tied[v]):
            part = geometry.part_shape(shape, layouts, program.factors)
            result[first + label] += item * int(np.prod(part, dtype=np.int64))
    return ints(result)


def _variables(shaped: TypedGraph) -> dict[int, tuple[Shape, int]]:
    """Variable -> its shape and the bytes of an element, where they are known."""
    result = {}
    for op, at, v in zip(shaped.use_op.tolist(), shaped.use_input.tolist(), shaped.use_variable.tolist(), strict=True):
        operand = shaped.signature(op).inputs[at]
        if operand.shape is not None:
            result[v] = operand.shape, item_bytes(operand.dtype)
    return result
