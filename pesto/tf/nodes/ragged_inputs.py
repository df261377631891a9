"""Ragged and sparse inputs: no type says how many values a batch holds, so they are refused by name."""

from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.core.source import origin_of

_RAGGED = (tf.RaggedTensor, tf.RaggedTensorSpec, tf.compat.v1.ragged.RaggedTensorValue)
_SPARSE = (tf.SparseTensor, tf.SparseTensorSpec, tf.compat.v1.SparseTensorValue)


def refuse_ragged_arguments(graph: Any, source: str) -> None:
    """InputError naming the first ragged or sparse argument of a FuncGraph."""
    place = 0
    for spec in tf.nest.flatten(graph.structured_input_signature or ()):
        if is_ragged_or_sparse(spec):
            raise ragged_input_error(spec, graph.inputs[place].op.name, source)
        place += sum(isinstance(part, tf.TypeSpec) for part in tf.nest.flatten(spec, expand_composites=True))


def refuse_ragged_feeds(graph_def: Any, needed: Collection[str], source: str) -> None:
    """InputError naming the first ragged or sparse placeholder of a v1 graph among the nodes `needed`."""
    open_ = {
        node.name: node.attr["shape"].shape
        for node in graph_def.node
        if node.op.startswith("Placeholder") and node.name in needed and _is_open(node.attr["shape"].shape)
    }
    for one, other, kind in (("values", "indices", _SPARSE[0]), ("flat_values", "row_splits_0", _RAGGED[0])):
        for name in sorted(open_):
            scope, _, last = name.rpartition("/")
            if scope and last == one and f"{scope}/{other}" in open_:
                parts = {part: open_[part] for part in (f"{scope}/{one}", f"{scope}/{other}")}
                raise _refusal(kind.__name__, scope, source, parts)


def is_ragged_or_sparse(value: object) -> bool:
    """Return True if a value, its type or Keras' stand-in for it is ragged or sparse."""
    return isinstance(value, (*_RAGGED, *_SPARSE)) or any(getattr(value, kind, False) for kind in ("sparse", "ragged"))


def ragged_input_error(value: object, name: str, source: str) -> InputError:
    """Return the error for a ragged or sparse value."""
    is_ragged = isinstance(value, _RAGGED) or bool(getattr(value, "ragged", False))
    return _refusal((_RAGGED if is_ragged else _SPARSE)[0].__name__, name, source)


def _refusal(kind: str, name: str, source: str, parts: Mapping[str, Any] | None = None) -> InputError:
    """Return the error for an input; parts: the feeds of a file that it consists of, with their shapes."""
    if origin_of(source).from_file:
        given = " and ".join(f"shape {shown(part)}={_sizes(shape)}" for part, shape in (parts or {}).items())
        remedy = f"give the shapes of both its feeds ({given})" if parts else "export a signature that takes it dense"
    elif kind == "RaggedTensor":
        remedy = "pad it before the step (x.to_tensor(shape=[None, longest])) and mask what was padded"
    else:
        remedy = "make it dense before the step (tf.sparse.to_dense(x))"
    return InputError.build(
        f"input {shown(name)} is a {kind}, and how many values a batch of it holds is open, so its bytes "
        "are "
        "unknown, whatever the batch size",
        where=source,
        remedy=remedy,
    )


def _sizes(shape: Any) -> str:
    """The sizes of a shape, with N for what is open."""
    return ",".join("N" if d.size < 0 else str(d.size) for d in shape.dim) or "N"


def _is_open(shape: Any) -> bool:
    return bool(shape.unknown_rank or (shape.dim and shape.dim[0].size == -1))
