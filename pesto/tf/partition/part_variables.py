"""Variables of a step, whole and in the parts that workers hold, and checkpoints of the whole step by parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.split.geometry import Box, Layouts, Shape, worker_boxes

Array = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PartVariable:
    """A variable, and the one on each worker that holds a part of it."""

    name: str
    """Name of the op that makes its handle in the whole step."""
    parts: tuple[str, ...]
    """[K] names of the ops that make the handles of its parts; one where a single worker holds it."""
    dtype: str
    shape: Shape
    layouts: Layouts
    factors: Shape
    places: tuple[int, ...]
    """The device of each part."""

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The box of the variable that each part is."""
        all_boxes = worker_boxes(self.shape, self.layouts, self.factors)
        return tuple(box for box in all_boxes[: len(self.parts)] if box is not None)

    def cut(self, value: Array) -> dict[str, Array]:
        """Cut a value into that of each part."""
        return {name: value[_index(box)] for name, box in zip(self.parts, self.boxes, strict=True)}

    def joined(self, parts: Mapping[str, Array]) -> Array:
        """Join values of parts; of what several workers hold, the last one's counts."""
        value = np.empty(self.shape, dtype=np.asarray(parts[self.parts[0]]).dtype)
        for name, box in zip(self.parts, self.boxes, strict=True):
            value[_index(box)] = parts[name]
        return value

    @property
    def part_elements(self) -> int:
        """Number of elements that each worker holds."""
        return prod(self.boxes[0][1])


def split_values(variables: Sequence[PartVariable], values: Mapping[str, Array]) -> dict[str, Array]:
    """Convert values of whole variables to values of their parts, by name: a checkpoint for the partitioned graph."""
    return {name: part for v in variables if v.name in values for name, part in v.cut(values[v.name]).items()}


def join_values(variables: Sequence[PartVariable], values: Mapping[str, Array]) -> dict[str, Array]:
    """Convert values of parts to values of whole variables, by name: a checkpoint for the original step."""
    return {v.name: v.joined(values) for v in variables if all(name in values for name in v.parts)}


def _index(box: Box) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip(*box, strict=True))


@dataclass(frozen=True, slots=True)
class CheckpointNodes:
    """Names of what restores and saves variables, as v1 savers call them; both ask for a checkpoint's prefix."""

    prefix: str
    """The placeholder of a checkpoint's prefix."""
    restore: str
    save: str


@dataclass(frozen=True, slots=True)
class _VariableSlice:
    """A part of a variable, and who holds it."""

    variable: PartVariable
    handle: str
    device: str
    box: Box

    @property
    def spec(self) -> str:
        """Slice specification of TensorFlow's savers: the extents of the whole, then start,length of each dimension."""
        if not self.variable.shape:
            return ""
        part = ":".join(f"{begin},{size}" for begin, size in zip(*self.box, strict=True))
        return f"{' '.join(map(str, self.variable.shape))} {part}"

    @property
    def dtype(self) -> int:
        """Data type number."""
        return int(tf.as_dtype(self.variable.dtype).as_datatype_enum)


def add_checkpoints(
    graph_def: Any, variables: Sequence[PartVariable], devices: Sequence[str], host: str
) -> CheckpointNodes:
    """Add nodes that restore all parts of a checkpoint of the whole step, and save one, on the host.

    Each worker's parts are restored by one op of their own; a slice that several workers hold is saved once.
    """
    base, taken = "pesto", {node.name.partition("/")[0] for node in graph_def.node}
    while base in taken:
        base += "_"
    named = CheckpointNodes(f"{base}/checkpoint", f"{base}/restore", f"{base}/save")
    node = graph_def.node.add(name=named.prefix, op="Placeholder", device=host)
    node.attr["dtype"].type = tf.string.as_datatype_enum
    node.attr["shape"].shape.SetInParent()
    slices = [
        [
            _VariableSlice(v, name, device, box)
            for v in variables
            for name, box, place in zip(v.parts, v.boxes, v.places, strict=True)
            if place == k
        ]
        for k, device in enumerate(devices)
    ]
    restored = []
    for own in filter(None, slices):
        read = f"{named.restore}/{own[0].handle.partition('/')[0]}"
        keys = _add_keys(graph_def, read, own, host)
        node = graph_def.node.add(name=read, op="RestoreV2", device=host, input=[named.prefix, *keys])
        node.attr["dtypes"].list.type.extend(one.dtype for one in own)
        for index, one in enumerate(own):
            restored.append(f"{named.restore}/{one.handle}")
            inputs = [one.handle, f"{read}:{index}"]
            node = graph_def.node.add(name=restored[-1], op="AssignVariableOp", device=one.device, input=inputs)
            node.attr["dtype"].type = one.dtype
    once = list({(one.variable.name, one.box): one for own in reversed(slices) for one in reversed(own)}.values())
    values = []
    for one in once:
        values.append(f"{named.save}/{one.handle}")
        node = graph_def.node.add(name=values[-1], op="ReadVariableOp", device=one.device, input=[one.handle])
        node.attr["dtype"].type = one.dtype
    if once:
        keys = _add_keys(graph_def, named.save, once, host)
        node = graph_def.node.add(name=named.save, op="SaveV2", device=host, input=[named.prefix, *keys, *values])
        node.attr["dtypes"].list.type.extend(one.dtype for one in once)
    else:
        graph_def.node.add(name=named.save, op="NoOp", device=host)
    node = graph_def.node.add(name=named.restore, op="NoOp", device=host)
    node.input.extend(f"^{name}" for name in restored)
    return named


def _add_keys(graph_def: Any, name: str, slices: Sequence[_VariableSlice], host: str) -> list[str]:
    """Add constants with the names of whole variables and the slices of them."""
    names = []
    for what, texts in (("names", [s.variable.name for s in slices]), ("slices", [s.spec for s in slices])):
        node = graph_def.node.add(name=f"{name}/{what}", op="Const", device=host)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.array(texts, dtype=object), dtype=tf.string))
        node.attr["dtype"].type = tf.string.as_datatype_enum
        names.append(node.name)
    return names
