"""One op on TensorFlow, whole and by parts: a strategy is right where both give the same."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.split.geometry import PARTIAL, WHOLE, Layout, Rims, worker_boxes
from pesto.split.ops.op_types import REPEATS, SHAPE_OPERAND, part_attributes, repeats
from pesto.split.ops.window_kernels import kernel_overrides
from pesto.split.regions import Strategy
from pesto.split.typed_graph import Signature
from pesto.tf.private import op_def

REDUCED = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}


def operands(signature: Signature, seed: int) -> list[np.ndarray]:
    """Numbers for every input: constants as they are, indices within range, others at random."""
    rng = np.random.default_rng(seed)
    found = []
    for number, operand in enumerate(signature.inputs):
        dtype = np.dtype(tf.as_dtype(operand.dtype.removeprefix("resource:")).as_numpy_dtype)
        if operand.value is not None:
            found.append(np.asarray(operand.value, dtype=dtype))
        elif dtype == np.bool_:
            found.append(rng.integers(0, 2, operand.shape).astype(bool))
        elif dtype.kind in "iu":
            found.append(rng.integers(0, _below(signature, number), operand.shape).astype(dtype))
        else:
            found.append(rng.uniform(0.1, 1.0, operand.shape).astype(dtype))
    return found


def _below(signature: Signature, number: int) -> int:
    """Indices are less than this."""
    first = signature.inputs[0].shape or (1,)
    if signature.type in ("ResourceGather", "ResourceScatterAdd", "GatherV2"):
        return first[0]
    if signature.type == "SparseSoftmaxCrossEntropyWithLogits":
        return first[-1]
    if signature.type == "UnsortedSegmentSum":
        return signature.inputs[-1].value
    return min(first) + 1 if signature.type == "ReverseSequence" else 3


RENAMED = {
    "ExpandDims": {"dim": "axis"}, "Squeeze": {"squeeze_dims": "axis"}, "Split": {"split_dim": "axis"},
    "SplitV": {"split_dim": "axis"},
    "Select": {"t": "x", "e": "y"}, "Concat": {"concat_dim": "axis"},
}  # fmt: skip
"""What `tf.raw_ops` calls arguments in place of the names that ops are defined with."""


def run(signature: Signature, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the op returns, and after it the values of the variables that it was given."""
    definition = op_def(signature.type)
    handles = [
        tf.Variable(value) if operand.dtype.startswith("resource:") else None
        for operand, value in zip(signature.inputs, inputs, strict=True)
    ]
    given = [
        tf.constant(value) if handle is None else handle.handle for handle, value in zip(handles, inputs, strict=True)
    ]
    words: dict[str, Any] = {}
    attributes = dict(signature.attributes)
    inferred = set()
    for argument in definition.input_arg:
        count = argument.number_attr and int(attributes[argument.number_attr])
        inferred |= {argument.number_attr, argument.type_attr, argument.type_list_attr}
        words[argument.name] = given[:count] if count else given[0]
        given = given[count or 1 :]
    for attribute in definition.attr:
        if attribute.name not in inferred and attribute.name in attributes:
            words[attribute.name] = _attribute(attribute.type, attributes[attribute.name])
    renamed = {"reduction_indices": "axis"} | RENAMED.get(signature.type, {})
    with tf.device("/CPU:0"):
        made = getattr(tf.raw_ops, signature.type)(**{renamed.get(name, name): v for name, v in words.items()})
    flat = [] if made is None or isinstance(made, tf.Operation) else tf.nest.flatten(made)
    return [t.numpy() for t in flat] + [h.numpy() for h in handles if h is not None]


def _attribute(kind: str, value: Any) -> Any:
    if kind == "type":
        return tf.as_dtype(value)
    return list(value) if kind.startswith("list") else value


def cut(value: np.ndarray, layout: Layout, k: int, rims: Rims = ()) -> list[np.ndarray]:
    """The parts of the k workers."""
    if rims:
        found = worker_boxes(value.shape, (layout,), (k,), rims)
        return [value[tuple(slice(a, a + n) for a, n in zip(*box, strict=True))] for box in found]
    return [value] * k if layout == WHOLE else np.split(value, k, axis=layout)


def by_parts(signature: Signature, strategy: Strategy, k: int, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same, from k runs on parts of the inputs."""
    rims = strategy.rims or ((),) * len(inputs)
    parts = [cut(value, layout, k, rim) for value, layout, rim in zip(inputs, strategy.needs, rims, strict=True)]
    whole = signature.outputs[0][0] if signature.outputs else None
    shaped = SHAPE_OPERAND.get(signature.type)
    if shaped is not None and strategy.gives[0] >= 0:
        shape = list(whole)
        shape[strategy.gives[0]] //= k
        parts[shaped] = [np.asarray(shape, dtype=inputs[shaped].dtype)] * k
    repeated = REPEATS.get(signature.type)
    if repeated is not None and strategy.gives[0] >= 0:
        shape = list(whole)
        shape[strategy.gives[0]] //= k
        times = repeats(signature.inputs[repeated].value, signature.inputs[0].shape, shape)
        parts[repeated] = [np.asarray(times, dtype=inputs[repeated].dtype)] * k
    own = replace(
        signature, attributes=tuple(sorted((dict(signature.attributes) | part_attributes(signature)).items()))
    )
    made = [run(*_told(own, strategy, k, worker, each)) for worker, each in enumerate(zip(*parts, strict=True))]
    handles = [
        layout for o, layout in zip(signature.inputs, strategy.needs, strict=True) if o.dtype.startswith("resource:")
    ]
    layouts = [*strategy.gives, *handles]
    return [_together([m[j] for m in made], layout, strategy, k) for j, layout in enumerate(layouts)]


def _told(
    signature: Signature, strategy: Strategy, k: int, worker: int, inputs: Sequence[np.ndarray]
) -> tuple[Signature, Sequence[np.ndarray]]:
    """The op of one worker, and its inputs: with windows it is told what to pad and where to begin."""
    if not strategy.rims:
        return signature, inputs
    rows = zip(signature.inputs, strategy.needs, strategy.rims, strict=True)
    given = [worker_boxes(operand.shape, (layout,), (k,), rims)[worker] for operand, layout, rims in rows]
    gives = [
        worker_boxes(s, (max(at, -1),), (k,))[worker]
        for (s, _), at in zip(signature.outputs, strategy.gives, strict=True)
    ]
    found = kernel_overrides(signature, given, gives, [rim.dimension for rim in strategy.rims[0]])
    attributes = dict(signature.attributes)
    if found.padding:
        attributes |= {"padding": "EXPLICIT", "explicit_paddings": found.padding}
    operands = [np.asarray(found.operands.get(at, value), dtype=value.dtype) for at, value in enumerate(inputs)]
    return replace(signature, attributes=tuple(sorted(attributes.items()))), operands


def _together(parts: list[np.ndarray], layout: Layout, strategy: Strategy, k: int) -> np.ndarray:
    if layout == PARTIAL:
        return REDUCED[strategy.reducer](parts, axis=0) / (k if strategy.scaled else 1)
    return parts[0] if layout == WHOLE else np.concatenate(parts, axis=layout)
