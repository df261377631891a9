"""The table of op types: which are described and which never divided, and the strategies that a description admits."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from pesto.core.errors import InputError
from pesto.split.geometry import PARTIAL
from pesto.split.ops import arithmetic_ops, data_movement, picture_ops
from pesto.split.ops.window_kernels import WINDOWED, kernel_fault
from pesto.split.regions import Refusal, Strategies, Strategy, analyse
from pesto.split.tdl import Description, MisdescribedError, NotDescribedError
from pesto.split.typed_graph import RANK, Attribute, Signature

CLASSES: dict[str, Mapping[str, Description]] = {
    "elementwise": arithmetic_ops.ELEMENTWISE, "update": arithmetic_ops.UPDATES,
    "reduction": arithmetic_ops.REDUCTIONS, "contraction": arithmetic_ops.CONTRACTIONS,
    "convolution": picture_ops.CONVOLUTIONS, "pool": picture_ops.POOLS, "row": arithmetic_ops.SOFTMAXES,
    "normalisation": picture_ops.NORMALISATIONS, "reshape": data_movement.RESHAPES, "move": data_movement.MOVES,
    "gather": data_movement.GATHERS,
}  # fmt: skip
"""Class -> op type -> description."""
FED = frozenset(("Placeholder", "PlaceholderV2", "PlaceholderWithDefault"))
"""Op types whose values the host feeds, to every worker that reads them."""
ONCE = "it must run once: its parts would draw other numbers, or have effects twice"
NEVER_DIVIDED = (
    dict.fromkeys(
        ("Const", "VarHandleOp", "Placeholder", "PlaceholderWithDefault", "NoOp", "VariableV2"),
        "a source: it has no input to divide",
    )
    | dict.fromkeys(
        (
            "BroadcastGradientArgs", "ConcatOffset", "InvertPermutation", "LinSpace", "Range", "Rank", "Shape",
            "ShapeN", "Size",
        ),
        "a few whole numbers, made of shapes",
    )
    | dict.fromkeys(
        ("StatelessRandomGetKeyCounter", "StatelessRandomUniformV2", "StatelessRandomNormalV2"),
        "all workers draw the same numbers, from one key",
    )
    | {"DynamicStitch": "rows go where numbers say"}
    | dict.fromkeys(
        (
            "Assert", "Case", "If", "Multinomial", "ParameterizedTruncatedNormal", "Print", "PrintV2", "RandomGamma",
            "RandomShuffle", "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "StatelessIf",
            "StatelessWhile", "TruncatedNormal", "While",
        ),
        ONCE,
    )
)  # fmt: skip
"""Op type that is never divided -> the reason."""
SHAPE_OPERAND = {
    "Reshape": 1, "Fill": 0, "BroadcastTo": 1, "Slice": 2, "StridedSliceGrad": 0,
    "Conv2DBackpropInput": 0, "Conv2DBackpropFilter": 1, "Conv3DBackpropInputV2": 0, "Conv3DBackpropFilterV2": 1,
    "DepthwiseConv2dNativeBackpropInput": 0, "DepthwiseConv2dNativeBackpropFilter": 1,
    "AvgPoolGrad": 0, "AvgPool3DGrad": 0,
}  # fmt: skip
"""Op type -> the data input that holds a shape; of a part it is the part's."""
REPEATS = {"Tile": 1}
"""Op type -> the data input that says how often the first is repeated along each dimension."""
_REGISTERED: dict[str, Description] = {}
_CHANGES: list[int] = []
"""One entry for each registration and removal."""


class OpTypeRow(NamedTuple):
    """Class of one op type, and the reason if it has no description."""

    type: str
    kind: str
    """Its class; "whole" for types that are never divided, "own" for registered ones, empty without a description."""
    why: str
    """Reason why it is never divided; empty for all others."""


def register(op_type: str, description: Description) -> None:
    """Describe an op type, or replace its description: a function of `OpOperands` that returns a lambda an output."""
    _REGISTERED[op_type] = description
    _invalidate()


def unregister(op_type: str) -> None:
    """Forget a registered description."""
    _REGISTERED.pop(op_type, None)
    _invalidate()


def _invalidate() -> None:
    _CHANGES.append(len(_CHANGES))
    strategies.cache_clear()


def descriptions_version() -> int:
    """Return a number that grows with each change of descriptions, as a key for what is cached of them."""
    return len(_CHANGES)


def description(op_type: str) -> Description | None:
    """Return the description of an op type; None without one."""
    if op_type in _REGISTERED:
        return _REGISTERED[op_type]
    return next((rows[op_type] for rows in CLASSES.values() if op_type in rows), None)


def described_types() -> list[str]:
    """Return every op type that is known, sorted."""
    return sorted({*_REGISTERED, *NEVER_DIVIDED, *(op_type for rows in CLASSES.values() for op_type in rows)})


def coverage(types: Iterable[str]) -> list[OpTypeRow]:
    """Return the class of each of some op types, sorted by name."""
    result = []
    for op_type in sorted(set(types)):
        kind = next((kind for kind, rows in CLASSES.items() if op_type in rows), "")
        if op_type in _REGISTERED:
            result.append(OpTypeRow(op_type, "own", ""))
        elif op_type in NEVER_DIVIDED:
            result.append(OpTypeRow(op_type, "whole", NEVER_DIVIDED[op_type]))
        else:
            result.append(OpTypeRow(op_type, kind, ""))
    return result


@lru_cache(maxsize=1 << 16)
def strategies(signature: Signature, k: int, *, halo: bool = False) -> Strategies:
    """Return every way to divide an op in k parts, and why there are no others.

    With `halo` parts may read what their neighbours have, of op types whose kernels can run on windows. Raise
    InputError, which names the op type, if its description raises, reads elements that are not there, or is registered
    and not of the op's outputs.
    """
    describe = description(signature.type)
    if describe is None:
        why = NEVER_DIVIDED.get(signature.type, "its type has no description")
        return Strategies((), (Refusal("*", why),))
    try:
        if halo and reads_windows(signature.type):
            result = analyse(describe, signature, k, halo=True)
            result = _refuse(result, lambda strategy: kernel_fault(signature, strategy, k))
        else:
            result = analyse(describe, signature, k)
    except NotDescribedError as refused:
        if isinstance(refused, MisdescribedError) and signature.type in _REGISTERED:
            raise InputError.build(
                f"the description of {signature.type} is of another op: {refused}", remedy="mend it"
            ) from refused
        return Strategies((), (Refusal("*", str(refused)),))
    except Exception as error:
        raise InputError.build(f"the description of {signature.type} fails: {error!r}", remedy="mend it") from error
    return _refuse(
        result,
        lambda strategy: layouts_fault(
            signature, [(at,) for at in strategy.needs], [(at,) for at in strategy.gives], windows=any(strategy.rims)
        ),
    )


def reads_windows(op_type: str) -> bool:
    """Return True if parts of such an op may be windows with a halo: of some types, and of registered ones."""
    return op_type in WINDOWED or op_type in _REGISTERED


def _refuse(all_strategies: Strategies, fault: Callable[[Strategy], str]) -> Strategies:
    """Refuse the strategies that have a fault, which is the reason."""
    faults = [(strategy, fault(strategy)) for strategy in all_strategies.admitted]
    refused = (Refusal(strategy.name, why) for strategy, why in faults if why)
    kept = tuple(strategy for strategy, why in faults if not why)
    return Strategies(kept, (*all_strategies.refused, *refused))


def layouts_fault(
    signature: Signature, needs: Sequence[tuple[int, ...]], gives: Sequence[tuple[int, ...]], *, windows: bool
) -> str:
    """Return why the sizes of an op's tensors forbid the layouts of all cuts; empty if they allow them.

    An extent that depends on the data, or that no constant operand says, cannot be cut.
    """
    tensors = [
        *((f"input {at}", operand.bounded, needs[at]) for at, operand in enumerate(signature.inputs)),
        *((f"output {k}", signature.bounded_output(k), layouts) for k, layouts in enumerate(gives)),
    ]
    for name, bounded, layouts in tensors:
        if bounded and (windows or RANK in bounded or PARTIAL in layouts):
            return f"the {'rank' if RANK in bounded else 'size'} of {name} depends on the data"
        for d in bounded:
            if d in layouts:
                return f"{name}, dimension {d}: its extent depends on the data"
    if signature.outputs and all(0 in (shape or ()) for shape, _ in signature.outputs):
        return "it makes no elements"
    at = (SHAPE_OPERAND | REPEATS).get(signature.type)
    if at is not None and max(gives[0], default=RANK) >= 0:
        if signature.inputs[at].value is None:
            return f"input {at} is not a constant, and would be another for each part"
        if signature.bounded_output(0) and signature.inputs[at].shape != (len(signature.outputs[0][0] or ()),):
            return f"input {at} does not say all dimensions"
    return ""


def part_operand(value: Sequence[int], part: Sequence[int], bounded: Collection[int]) -> tuple[int, ...]:
    """Return the shape operand of a part: the part's extents; of bounded dimensions the whole op's entry (-1)."""
    return tuple(value[d] if d in bounded else extent for d, extent in enumerate(part))


def repeats(times: Sequence[int], shape: Sequence[int], part: Sequence[int]) -> tuple[int, ...]:
    """Return how often a part of the output repeats an input of `shape` that the whole op repeats `times`."""
    return tuple(extent if n == 1 else often for often, n, extent in zip(times, shape, part, strict=True))


def part_attributes(signature: Signature) -> Mapping[str, Attribute]:
    """Return the attributes that each part has in place of the whole op's.

    Squeeze without axes removes what has an extent of 1 in the whole tensor, not a part of that extent.
    """
    if signature.type == "Squeeze" and not signature.attribute("squeeze_dims") and not signature.inputs[0].bounded:
        return {"squeeze_dims": tuple(d for d, extent in enumerate(signature.inputs[0].shape or ()) if extent == 1)}
    return {}
