"""Check of a typed graph's edges against the inputs of its ops; files can be wrong here, the importer cannot."""

import numpy as np

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.split.signature import Signature
from pesto.split.typed_graph import TypedGraph
from solvers.arrays import offsets

_HANDLE = "resource"
_DAMAGED = "the file is damaged; write it anew"


def check_fed(shaped: TypedGraph) -> None:
    """InputError, naming the first offender, for what no step that was imported has.

    An input without just one edge, an edge whose ends differ in shape or data type, a control edge that goes back, an
    op that makes handles or nothing at all with data to read, one that runs once and takes a variable itself.
    """
    _each_once(shaped)
    _alike(shaped)
    _bare(shaped)
    back = np.flatnonzero(shaped.control_src >= shaped.control_dst)
    if len(back):
        raise InputError(f"$.controls: edge {back[0]} goes back to {_op(shaped, int(shaped.control_dst[back[0]]))}")
    once = np.flatnonzero(shaped.once[shaped.use_op])
    if len(once):
        op = _op(shaped, int(shaped.use_op[once[0]]))
        raise InputError(f"{op}: it runs once and reads a variable itself - read the variable before it")


def _each_once(shaped: TypedGraph) -> None:
    many = np.array([len(s.inputs) for s in shaped.signatures], dtype=np.int64)[shaped.signature_of]
    first = offsets(many)
    fed = np.bincount(first[shaped.dst] + shaped.input, minlength=int(first[-1]))
    wrong = np.flatnonzero(fed != 1)
    if len(wrong):
        op = int(np.searchsorted(first, wrong[0], side="right")) - 1
        at = wrong[0] - first[op]
        raise InputError(f"$.edges: {fed[wrong[0]]} edges to input {at} of {_op(shaped, op)} - {_DAMAGED}")


def _alike(shaped: TypedGraph) -> None:
    kind = shaped.signature_of
    rows = np.stack([kind[shaped.src], shaped.output, kind[shaped.dst], shaped.input])
    distinct, where = np.unique(rows, axis=1, return_index=True)
    for (tail, output, head, at), edge in zip(distinct.T.tolist(), where.tolist(), strict=True):
        operand = shaped.signatures[head].inputs[at]
        made = shaped.signatures[tail].outputs[output]
        bounded = shaped.signatures[tail].bounded_output(output)
        same = made == (operand.shape, operand.dtype) and bounded == operand.bounded
        if not operand.dtype.startswith(_HANDLE) and not same:
            one, other = _op(shaped, int(shaped.src[edge])), _op(shaped, int(shaped.dst[edge]))
            raise InputError(f"$.edges: output {output} of {one} is not what input {at} of {other} is - {_DAMAGED}")


def _bare(shaped: TypedGraph) -> None:
    for k, signature in enumerate(shaped.signatures):
        if not _is_bare(signature):
            raise InputError(f"$.kinds[{k}]: {signature.type} with data - {_DAMAGED}")


def _is_bare(signature: Signature) -> bool:
    """Return True if an op that only makes a handle, or only waits, has no data."""
    if signature.type not in ("NoOp", "VarHandleOp"):
        return True
    handles = signature.type == "VarHandleOp" and all(dtype.startswith(_HANDLE) for _, dtype in signature.outputs)
    return not signature.inputs and (handles or not signature.outputs)


def _op(shaped: TypedGraph, op: int) -> str:
    return f"op '{shown(shaped.names[op])}'"
