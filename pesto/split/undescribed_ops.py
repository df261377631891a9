"""Op types without a description whose tensors matter: each worker would be sent all that they read."""

from collections import Counter
from math import prod

from pesto.core.errors import UsageError
from pesto.core.quantities import percent
from pesto.split.division import item_bytes
from pesto.split.geometry import Shape
from pesto.split.ops.op_types import coverage
from pesto.split.typed_graph import TypedGraph

MATTERS = 0.01
"""Share of the bytes of all outputs of a step. What is done whole is read whole by every worker, so with 8 of them a
hundredth is sent as 8 hundredths at most; less is lost among tensors that are small anyway."""


def undescribed_shares(shaped: TypedGraph) -> dict[str, float]:
    """Op type without a description -> share of the step's tensor bytes that its ops read and make, largest first.

    Ops that must run once are not meant.
    """
    missing = {row.type for row in coverage({s.type for s in shaped.signatures}) if not row.kind}
    touched, total = Counter[str](), 0
    for op in range(shaped.ops):
        signature = shaped.signature(op)
        made = sum(_bytes(*output) for output in signature.outputs)
        total += made
        if signature.type in missing and not shaped.once[op]:
            touched[signature.type] += made + sum(_bytes(o.shape, o.dtype) for o in signature.inputs)
    return {op_type: size / max(1, total) for op_type, size in touched.most_common()}


def refuse_undescribed(shaped: TypedGraph, remedy: str) -> None:
    """UsageError, naming the op type that weighs most, where one without a description matters."""
    for op_type, share in undescribed_shares(shaped).items():
        if share > MATTERS:
            raise UsageError.build(
                f"no description of {op_type}, whose ops read and make {percent(share)} of the bytes "
                "of all tensors: every worker would do them whole",
                where=shaped.source,
                remedy=f"describe it by pesto.split.ops.op_types.register, or {remedy}",
            )


def _bytes(shape: Shape | None, dtype: str) -> int:
    return 0 if shape is None else prod(shape) * item_bytes(dtype)
