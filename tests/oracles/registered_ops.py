"""Calls of every op that TensorFlow registers, with inputs of closed shapes that its shape function takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from tensorflow.core.framework import op_def_pb2  # noqa: E402
from tensorflow.python.client import pywrap_tf_session  # noqa: E402

from tests.oracles.registered_op_calls import CALLS, Shape, attr_value, stand_in  # noqa: E402  # after the quiet load

FLOAT, INT32, STRING, INT64, RESOURCE, VARIANT = 1, 3, 7, 9, 20, 21
LIMIT = 4
"""The most that whole numbers, and the extents of most inputs, are."""
_SHAPES = (
    (), (4,), (4, 4), (4, 4, 4, 4), (2,), (1,), (4, 4, 4), (4, 4, 4, 4, 4), (4, 2), (3,), (4, 3), (4, 4, 4, 3), (2, 2),
    (6,), (1, 1, 1, 1),
)  # fmt: skip
_ATTEMPTS = 400
"""Copies of one op that are made at most."""
_CALLS = 3
"""Choices of shapes that one op is tried with, before it counts as closed."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One op with a closed shape for each of its inputs."""

    op: str
    dtypes: tuple[int, ...]
    """Of inputs."""
    made: tuple[int, ...]
    """Data types of outputs."""
    attrs: dict[str, Any] = field(repr=False)
    shapes: tuple[Shape, ...]


def registered() -> list[Any]:
    """Definitions of the ops that a program can have: those of tf.raw_ops that are not deprecated."""
    found = op_def_pb2.OpList()
    found.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    public = set(dir(tf.raw_ops))
    return sorted(
        (op for op in found.op if op.name in public and not op.HasField("deprecation")), key=lambda op: op.name
    )


def attributes(op: Any) -> dict[str, Any] | None:
    """A value for every attribute: its default, else a small one; None where one is a function."""
    found = {}
    for attr in op.attr:
        value, least = tf.compat.v1.AttrValue(), attr.minimum if attr.has_minimum else 0
        allowed = attr.allowed_values.list
        if attr.type in ("func", "list(func)"):
            return None
        if attr.HasField("default_value") and (attr.type != "list(type)" or attr.default_value.list.type):
            value.CopyFrom(attr.default_value)
        elif attr.type == "type":
            value.type = next((t for t in (FLOAT, INT32, INT64) if t in allowed.type), [*allowed.type, FLOAT][0])
            if "shape" in attr.name:
                value.type = INT32
        elif attr.type == "list(type)":
            value.list.type.append([*allowed.type, FLOAT][0])
        elif attr.type in ("int", "float", "bool"):
            setattr(value, attr.type[0], max(2, least) if attr.type == "int" else 0)
        elif attr.type in ("list(int)", "list(float)", "list(bool)"):
            getattr(value.list, attr.type[5]).extend([1] * max(4, least))
        elif attr.type == "string":
            value.s = [*allowed.s, b"a"][0]
        elif attr.type == "list(string)":
            value.list.s.append(b"a")
        elif attr.type in ("shape", "list(shape)"):
            (value.shape if attr.type == "shape" else value.list.shape.add()).dim.add().size = LIMIT
        elif attr.type == "tensor":
            value.tensor.CopyFrom(tf.make_tensor_proto(0.0))
        found[attr.name] = value
    return found


def arguments(args: Sequence[Any], attrs: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """(data type, number of its argument) of each tensor."""
    for number, arg in enumerate(args):
        many = attrs[arg.number_attr].i if arg.number_attr else 1
        types = attrs[arg.type_list_attr].list.type if arg.type_list_attr else [arg.type or attrs[arg.type_attr].type]
        yield from ((t, number) for t in [*types] * many)


class Builder:
    """A graph in which ops are tried."""

    def __init__(self) -> None:
        self.graph = tf.Graph()
        self.inputs: dict[tuple[int, Shape | None], Any] = {}

    def outputs(self, call: Call, shapes: Sequence[Shape | None]) -> list[Any] | None:
        """The shapes of an op's outputs; None where TensorFlow refuses it."""
        with self.graph.as_default():
            given = [self._input(key) for key in zip(call.dtypes, shapes, strict=True)]
            try:
                op = self.graph.create_op(call.op, given, [tf.as_dtype(t) for t in call.made], attrs=call.attrs)
            except (ValueError, TypeError, tf.errors.OpError):
                return None
        return [tensor.shape for tensor in op.outputs]

    def _input(self, key: tuple[int, Shape | None]) -> Any:
        if key not in self.inputs:
            self.inputs[key] = stand_in(*key)
        return self.inputs[key]


def travelling(call: Call) -> list[int]:
    """Outputs that have bytes."""
    return [k for k, dtype in enumerate(call.made) if dtype not in (RESOURCE, VARIANT, STRING)]


def closed_call(builder: Builder, op: Any) -> Call | None:
    """The op with inputs of closed shapes that leave an output open, or else with others that it takes.

    None where it takes references or functions, or none of the shapes that are tried.
    """
    attrs = attributes(op)
    if attrs is None or any(arg.is_ref for arg in (*op.input_arg, *op.output_arg)):
        return None
    own, given_shapes = CALLS.get(op.name, ({}, ()))
    attrs |= {name: attr_value(value) for name, value in own.items()}
    inputs = list(arguments(op.input_arg, attrs))
    made = tuple(t for t, _ in arguments(op.output_arg, attrs))
    call = Call(op=op.name, dtypes=tuple(t for t, _ in inputs), made=made, attrs=attrs, shapes=tuple(given_shapes))
    if op.name in CALLS:
        return call if builder.outputs(call, call.shapes) is not None else None
    found, left = None, [_ATTEMPTS]

    def assigned(chosen: list[tuple[int, ...]]) -> Iterator[tuple[tuple[int, ...], ...]]:
        given = [chosen[at] if at < len(chosen) else None for _, at in inputs]
        left[0] -= 1
        if left[0] < 0 or builder.outputs(call, given) is None:
            return
        if len(chosen) == len(op.input_arg):
            yield tuple(shape for shape in given if shape is not None)
            return
        for shape in _SHAPES:
            yield from assigned([*chosen, shape])

    for number, shapes in enumerate(assigned([])):
        found = replace(call, shapes=shapes)
        if is_open(builder, found) or number == _CALLS:
            break
    return found


def is_open(builder: Builder, call: Call) -> bool:
    """Return True if an output that has bytes has an open size."""
    shapes = builder.outputs(call, call.shapes) or []
    return any(not shapes[k].is_fully_defined() for k in travelling(call))
