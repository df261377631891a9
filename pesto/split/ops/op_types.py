"""The table of op types, and the ways in which an op can be divided."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from pesto.core.errors import InputError
from pesto.split.layouts import Refusal, Strategies, Strategy
from pesto.split.ops import (
    contractions,
    convolution_ops,
    data_movement,
    elementwise,
    gathers,
    normalisation,
    pooling,
    reductions,
    replicated_ops,
    reshapes,
    softmaxes,
    updates,
)
from pesto.split.ops.size_faults import size_fault
from pesto.split.ops.window_kernels import WINDOWED, kernel_fault
from pesto.split.regions import analyse
from pesto.split.signature import Signature
from pesto.split.tdl import Description, MisdescribedError, NotDescribedError

CLASSES: dict[str, Mapping[str, Description]] = {
    "elementwise": elementwise.ROWS, "update": updates.ROWS, "reduction": reductions.ROWS,
    "contraction": contractions.ROWS, "convolution": convolution_ops.ROWS, "pool": pooling.ROWS, "row": softmaxes.ROWS,
    "normalisation": normalisation.ROWS, "reshape": reshapes.ROWS, "move": data_movement.ROWS, "gather": gathers.ROWS,
}  # fmt: skip
"""Class -> op type -> description."""
_OWN: dict[str, Description] = {}
_EDITIONS: list[int] = []
"""One entry for each change of these."""


class OpTypeRow(NamedTuple):
    """Class of one op type, and the reason if it has no description."""

    type: str
    kind: str
    """Its class; "whole" for types that are never divided, "own" for registered ones, empty without a description."""
    why: str
    """Why it is never divided."""


def register(op_type: str, description: Description) -> None:
    """Describe an op type, or describe it anew: a function of an `Op` that returns a lambda an output."""
    _OWN[op_type] = description
    _changed()


def unregister(op_type: str) -> None:
    """Forget a description of one's own."""
    _OWN.pop(op_type, None)
    _changed()


def _changed() -> None:
    _EDITIONS.append(len(_EDITIONS))
    strategies.cache_clear()


def descriptions_version() -> int:
    """A number that is another after each change of descriptions; what is kept of them is kept for one of these."""
    return len(_EDITIONS)


def description(op_type: str) -> Description | None:
    """The description of an op type; None without one."""
    if op_type in _OWN:
        return _OWN[op_type]
    return next((result[op_type] for result in CLASSES.values() if op_type in result), None)


def described_types() -> list[str]:
    """Every op type that is known, in order."""
    return sorted({*_OWN, *replicated_ops.ROWS, *(op_type for result in CLASSES.values() for op_type in result)})


def coverage(types: Iterable[str]) -> list[OpTypeRow]:
    """Which types have a description, of which class, in order of their names."""
    return [_row(op_type) for op_type in sorted(set(types))]


def _row(op_type: str) -> OpTypeRow:
    if op_type in _OWN:
        return OpTypeRow(op_type, "own", "")
    if op_type in replicated_ops.ROWS:
        return OpTypeRow(op_type, "whole", replicated_ops.ROWS[op_type])
    return OpTypeRow(op_type, next((kind for kind, result in CLASSES.items() if op_type in result), ""), "")


@lru_cache(maxsize=1 << 16)
def strategies(signature: Signature, k: int, *, halo: bool = False) -> Strategies:
    """Every way to divide an op in k parts, and why there are no others.

    halo: whether parts may read what their neighbours have, of op types whose kernels can run on windows.
    InputError, one line that names the op type, where its description raises, or reads what is not there, or where one
    of one's own is not of the op's outputs.
    """
    result = description(signature.type)
    if result is None:
        why = replicated_ops.ROWS.get(signature.type, "its type has no description")
        return Strategies((), (Refusal("*", why),))
    try:
        if halo and reads_windows(signature.type):
            # Those whose parts the op's kernel can run on; what it cannot is refused.
            made = _without(
                analyse(result, signature, k, halo=True), lambda strategy: kernel_fault(signature, strategy, k)
            )
        else:
            made = analyse(result, signature, k)
    except NotDescribedError as refused:
        if isinstance(refused, MisdescribedError) and signature.type in _OWN:
            raise InputError.build(
                f"the description of {signature.type} is of another op: {refused}", remedy="mend it"
            ) from refused
        return Strategies((), (Refusal("*", str(refused)),))
    except Exception as error:
        raise InputError.build(f"the description of {signature.type} fails: {error!r}", remedy="mend it") from error
    return _without(made, lambda strategy: size_fault(signature, strategy))


def reads_windows(op_type: str) -> bool:
    """Return True if parts of such an op may be windows, where a halo is asked for: of some types, and of one's own."""
    return op_type in WINDOWED or op_type in _OWN


def _without(all_strategies: Strategies, fault: Callable[[Strategy], str]) -> Strategies:
    """The strategies without a fault; the others are refused for theirs."""
    kept, refused = list[Strategy](), list(all_strategies.refused)
    for strategy in all_strategies.found:
        why = fault(strategy)
        if why:
            refused.append(Refusal(strategy.name, why))
        else:
            kept.append(strategy)
    return Strategies(tuple(kept), tuple(refused))
