"""Nodes by which a partitioned graph reads and writes checkpoints of the whole step, each worker its own parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.split.pieces import Box
from pesto.tf.partition.part_variables import PartVariable


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


def add_checkpoints(
    graph_def: Any, variables: Sequence[PartVariable], devices: Sequence[str], host: str
) -> CheckpointNodes:
    """Add nodes that restore all parts of a checkpoint of the whole step, and save one, on the host."""
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
    restored = [name for own in slices if own for name in _restore(graph_def, named, own, host)]
    _save(graph_def, named, [one for own in slices for one in own], host)
    node = graph_def.node.add(name=named.restore, op="NoOp", device=host)
    node.input.extend(f"^{name}" for name in restored)
    return named


def _restore(graph_def: Any, named: CheckpointNodes, own: Sequence[_VariableSlice], host: str) -> list[str]:
    """Names of what assigns the parts of one worker, read by one op."""
    read = f"{named.restore}/{own[0].handle.partition('/')[0]}"
    keys = _keys(graph_def, read, own, host)
    node = graph_def.node.add(name=read, op="RestoreV2", device=host, input=[named.prefix, *keys])
    node.attr["dtypes"].list.type.extend(_type(one) for one in own)
    assigned = []
    for at, one in enumerate(own):
        assigned.append(f"{named.restore}/{one.handle}")
        node = graph_def.node.add(
            name=assigned[-1], op="AssignVariableOp", device=one.device, input=[one.handle, f"{read}:{at}"]
        )
        node.attr["dtype"].type = _type(one)
    return assigned


def _save(graph_def: Any, named: CheckpointNodes, slices: Sequence[_VariableSlice], host: str) -> None:
    """Add the nodes that save all slices; a slice that several workers hold is written once."""
    once = list({(one.variable.name, one.box): one for one in reversed(slices)}.values())
    values = []
    for one in once:
        values.append(f"{named.save}/{one.handle}")
        node = graph_def.node.add(name=values[-1], op="ReadVariableOp", device=one.device, input=[one.handle])
        node.attr["dtype"].type = _type(one)
    if not once:
        graph_def.node.add(name=named.save, op="NoOp", device=host)
        return
    keys = _keys(graph_def, named.save, once, host)
    node = graph_def.node.add(name=named.save, op="SaveV2", device=host, input=[named.prefix, *keys, *values])
    node.attr["dtypes"].list.type.extend(_type(one) for one in once)


def _keys(graph_def: Any, name: str, slices: Sequence[_VariableSlice], host: str) -> list[str]:
    """Constants with the names of whole variables and the slices of them."""
    names = []
    for what, texts in (("names", [s.variable.name for s in slices]), ("slices", [s.spec for s in slices])):
        node = graph_def.node.add(name=f"{name}/{what}", op="Const", device=host)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.array(texts, dtype=object), dtype=tf.string))
        node.attr["dtype"].type = tf.string.as_datatype_enum
        names.append(node.name)
    return names


def _type(one: _VariableSlice) -> int:
    return int(tf.as_dtype(one.variable.dtype).as_datatype_enum)
