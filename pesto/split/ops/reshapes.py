"""The same elements in another shape: dimensions that stay, and the first of those that merge or part, can be cut."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import NamedTuple

from pesto.split.tdl import Description, Index, InputTensor, Lambda, NotDescribedError, OpOperands, Value, opaque


class DimensionRun(NamedTuple):
    """Dimensions of the input and of the output with the same product; the least such."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def runs(before: Sequence[int], after: Sequence[int]) -> list[DimensionRun]:
    """Which dimensions became which, of as many elements, above 0; those of extent 1 belong to no run."""
    left = [d for d, extent in enumerate(before) if extent != 1]
    made = [d for d, extent in enumerate(after) if extent != 1]
    result, i, j = [], 0, 0
    while i < len(left) and j < len(made):
        a, b = i + 1, j + 1
        while (sizes := (_product(before, left[i:a]), _product(after, made[j:b])))[0] != sizes[1]:
            a, b = (a + 1, b) if sizes[0] < sizes[1] else (a, b + 1)
        result.append(DimensionRun(tuple(left[i:a]), tuple(made[j:b])))
        i, j = a, b
    return result


def _product(shape: Sequence[int], dimensions: Sequence[int]) -> int:
    return prod(shape[d] for d in dimensions)


def describe(op: OpOperands) -> list[Lambda]:
    """Reshape, ExpandDims."""
    tensor, out = op[0], op.out()
    if prod(tensor.shape) != prod(out):
        raise NotDescribedError(f"{prod(tensor.shape)} elements cannot become {prod(out)}")
    # NotDescribedError where extents that depend on the data hide which dimensions became which.
    before = tensor.shape
    given, made = op.operand(0).bounded, op.signature.bounded_output(0)
    if given or made:
        one = len(given) == len(made) == 1
        if not one or not any(given[0] in run.inputs and made[0] in run.outputs for run in runs(before, out)):
            raise NotDescribedError("extents depend on the data, and which dimensions they become")
    return [Lambda(tuple(f"i{d}" for d in range(len(out))), lambda *i: _element(tensor, out, i))]


def squeeze(op: OpOperands) -> list[Lambda]:
    """Squeeze; one without axes that finds nothing to remove might find something in its parts."""
    if not op.attribute("squeeze_dims") and 1 not in op[0].shape:
        raise NotDescribedError("it removes nothing, and has no axes to say so for parts of extent 1")
    return describe(op)


def _element(tensor: InputTensor, out: tuple[int, ...], i: tuple[Index, ...]) -> Value:
    if 0 in out:
        return opaque(tensor[(slice(None),) * tensor.rank])[i]
    at: dict[int, Index] = {}
    merged = [i[d] for d, extent in enumerate(out) if extent == 1]
    for run in runs(tensor.shape, out):
        first, *rest = run.outputs
        alone = len(run.inputs) == len(run.outputs) == 1
        times = Fraction(_product(out, rest), _product(tensor.shape, run.inputs[1:]))
        at[run.inputs[0]] = i[first] if alone else i[first] * times
        merged += [i[d] for d in rest]
    read = tensor[tuple(at.get(d, slice(None)) for d in range(tensor.rank))]
    return opaque(read)[tuple(merged)] if merged else read


ROWS: Mapping[str, Description] = {"Reshape": describe, "ExpandDims": describe, "Squeeze": squeeze}
