"""Cuts that sizes forbid: of dimensions whose extents depend on the data, or that no constant operand says."""

from collections.abc import Iterator

from pesto.split.layouts import PARTIAL, Strategy
from pesto.split.ops.shape_operands import REPEATS, SHAPE_OPERAND
from pesto.split.signature import RANK, Signature


def size_fault(signature: Signature, strategy: Strategy) -> str:
    """Why the sizes of an op's tensors forbid a strategy; empty where they allow it."""
    needs = tuple((layout,) for layout in strategy.needs)
    gives = tuple((layout,) for layout in strategy.gives)
    return next(_faults(signature, needs, gives, windows=any(strategy.rims)), "")


def layouts_fault(
    signature: Signature, needs: tuple[tuple[int, ...], ...], gives: tuple[tuple[int, ...], ...], *, windows: bool
) -> str:
    """The same of the layouts of all cuts."""
    return next(_faults(signature, needs, gives, windows=windows), "")


def _faults(
    signature: Signature, needs: tuple[tuple[int, ...], ...], gives: tuple[tuple[int, ...], ...], *, windows: bool
) -> Iterator[str]:
    tensors = [
        *((f"input {at}", operand.bounded, needs[at]) for at, operand in enumerate(signature.inputs)),
        *((f"output {k}", signature.bounded_output(k), layouts) for k, layouts in enumerate(gives)),
    ]
    for name, bounded, layouts in tensors:
        if RANK in bounded:
            yield f"the rank of {name} depends on the data"
        if bounded and (windows or PARTIAL in layouts):
            yield f"the size of {name} depends on the data"
        for d in bounded:
            if d in layouts and d != RANK:
                yield f"{name}, dimension {d}: its extent depends on the data"
    if signature.outputs and all(0 in (shape or ()) for shape, _ in signature.outputs):
        yield "it makes no elements"
    at = (SHAPE_OPERAND | REPEATS).get(signature.type)
    if at is not None and max(gives[0], default=RANK) >= 0:
        value = signature.inputs[at].value
        if value is None:
            yield f"input {at} is not a constant, and would be another for each part"
        elif signature.bounded_output(0) and signature.inputs[at].shape != (len(signature.outputs[0][0] or ()),):
            yield f"input {at} does not say all dimensions"
