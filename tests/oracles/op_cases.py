"""Random ops of every type that is described: shapes about the number of workers, attributes and data types by lot."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pesto.split.ops.arithmetic_ops import ELEMENTWISE_TYPES
from pesto.split.ops.op_types import CLASSES
from pesto.tf.private import op_def

FLOATS, INTS = ("float32", "float64"), ("int32", "int64", "int8", "uint8")
NUMBERS = (*FLOATS, *INTS)


@dataclass
class Given:
    """An input: its elements, and whether a divided step knows them, or whether it is a variable."""

    value: np.ndarray
    known: bool = False
    variable: bool = False


@dataclass
class Case:
    """One op: inputs in their order, and attributes that are not inferred from these."""

    inputs: list[Given]
    attributes: dict[str, Any] = field(default_factory=dict)


class Lot:
    """What is drawn for one op of k workers."""

    def __init__(self, rng: np.random.Generator, k: int) -> None:
        self.rng, self.k = rng, k

    def one(self, options: Sequence[Any]) -> Any:
        """One of several."""
        return options[int(self.rng.integers(len(options)))]

    def extent(self) -> int:
        """As many as the workers, one more, a multiple, none of these, or 1."""
        k = self.k
        return int(self.one([k, k, k + 1, 2 * k, 2 * k - 1, 3 * k, 1, 5, 7]))

    def shape(self, low: int, high: int) -> tuple[int, ...]:
        """Of a rank from low to high."""
        return tuple(self.extent() for _ in range(int(self.rng.integers(low, high + 1))))

    def array(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        """Numbers that every kernel takes: none is 0, integers are small."""
        if dtype == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if np.dtype(dtype).kind in "iu":
            return self.rng.integers(1, 5, shape).astype(dtype)
        return self.rng.uniform(0.1, 0.9, shape).astype(dtype)

    def given(self, shape: Sequence[int], dtype: str = "float32") -> Given:
        """A tensor."""
        return Given(self.array(shape, dtype))

    def variable(self, shape: Sequence[int], dtype: str = "float32") -> Given:
        """A variable's handle."""
        return Given(self.array(shape, dtype), variable=True)

    def known(self, value: Any, dtype: str = "int32") -> Given:
        """A constant that is known, for the most part."""
        return Given(np.asarray(value, dtype=dtype), known=bool(self.rng.random() < 0.95))

    def sometimes(self) -> bool:
        """One time in two."""
        return bool(self.rng.integers(2))

    def axis(self, rank: int) -> int:
        """One of a tensor's axes, from either end."""
        return int(self.rng.integers(-rank, rank))

    def axes(self, rank: int) -> list[int]:
        """Some of them, from either end, in any order."""
        found = [d for d in self.rng.permutation(rank).tolist() if self.sometimes()]
        return [d - rank if self.sometimes() else d for d in found]


Maker = Callable[[Lot], Case]


def _types(op_type: str) -> list[str]:
    """Data types of the first input that this op type takes."""
    names = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 6: "int8", 9: "int64", 10: "bool"}
    argument, definition = op_def(op_type).input_arg[0], op_def(op_type)
    if not argument.type_attr:
        return [names.get(argument.type, "float32")]
    (attribute,) = [a for a in definition.attr if a.name == argument.type_attr]
    allowed = list(attribute.allowed_values.list.type) or list(names)
    return [names[t] for t in allowed if t in names]


_ALIKE = ("Grad", "ClipByValue", "AddN")
"""Element-wise ops whose inputs do not broadcast."""


def _elementwise(op_type: str) -> Maker:
    def make(lot: Lot) -> Case:
        dtype, shape = lot.one(_types(op_type)), lot.shape(0, 3)
        count = int(lot.rng.integers(1, 4)) if op_type == "AddN" else len(op_def(op_type).input_arg)
        shapes = [shape] * count
        if count > 1 and not op_type.endswith(_ALIKE) and lot.sometimes():
            shapes[lot.rng.integers(count)] = tuple(1 if lot.sometimes() else n for n in shape)[
                int(lot.rng.integers(len(shape) + 1)) :
            ]
        inputs = [lot.given(s, dtype) for s in shapes]
        if op_type == "SelectV2":
            inputs[0] = lot.given(shapes[0], "bool")
        if op_type == "ClipByValue" and lot.sometimes():
            inputs[1:] = [lot.given((), dtype), lot.given((), dtype)]
        if op_type == "BiasAddV1":
            shape = lot.shape(2, 4)
            inputs = [lot.given(shape, dtype), lot.given(shape[-1:], dtype)]
        if op_type == "ReadVariableOp":
            inputs = [lot.variable(shape, lot.one(NUMBERS))]
        more = {"AddN": {"N": count}, "Cast": {"DstT": lot.one(NUMBERS)}, "CheckNumerics": {"message": ""}}
        more["ReadVariableOp"] = {"dtype": inputs[0].value.dtype.name}
        return Case(inputs, more.get(op_type, {}))

    return make


def _select(lot: Lot) -> Case:
    shape, dtype = lot.shape(1, 3), lot.one(NUMBERS)
    condition = lot.one([shape, shape[:1], ()])
    return Case([lot.given(condition, "bool"), lot.given(shape, dtype), lot.given(shape, dtype)])


def _bitcast(lot: Lot) -> Case:
    before, after = lot.one(NUMBERS), lot.one(NUMBERS)
    many = np.dtype(after).itemsize // np.dtype(before).itemsize
    return Case([lot.given((*lot.shape(0, 2), *([many] if many > 1 else [])), before)], {"type": after})


_SCALARS = {
    "ResourceApplyAdaMax": (2, "ssssss g"), "ResourceApplyAdadelta": (2, "sss g"), "ResourceApplyAdagrad": (1, "s g"),
    "ResourceApplyAdagradV2": (1, "ss g"), "ResourceApplyAdam": (2, "ssssss g"),
    "ResourceApplyAdamWithAmsgrad": (3, "ssssss g"), "ResourceApplyAddSign": (1, "ssss g"),
    "ResourceApplyCenteredRMSProp": (3, "ssss g"), "ResourceApplyFtrl": (2, "g ssss"),
    "ResourceApplyFtrlV2": (2, "g sssss"), "ResourceApplyGradientDescent": (0, "s g"),
    "ResourceApplyKerasMomentum": (1, "s g s"), "ResourceApplyMomentum": (1, "s g s"),
    "ResourceApplyPowerSign": (1, "ssss g"), "ResourceApplyProximalAdagrad": (1, "sss g"),
    "ResourceApplyProximalGradientDescent": (0, "sss g"), "ResourceApplyRMSProp": (2, "ssss g"),
}  # fmt: skip
"""Update -> its slots, and behind them scalars (s) and the gradient (g)."""


def _update(op_type: str) -> Maker:
    def make(lot: Lot) -> Case:
        shape = lot.shape(0, 3)
        dtype = "float32" if op_type in _SCALARS else lot.one(NUMBERS)
        slots, rest = _SCALARS.get(op_type, (0, "g"))
        inputs = [lot.variable(shape, dtype) for _ in range(slots + 1)]
        if op_type == "ResourceApplyAdam":
            rest = "ssssss g"
        if op_type == "ResourceApplyAdaMax":
            rest = "sssss g"
        inputs += [lot.given(() if each == "s" else shape, dtype) for each in rest.replace(" ", "")]
        flags = [a.name for a in op_def(op_type).attr if a.type == "bool" and a.name.startswith("use_nest")]
        more: dict[str, Any] = {name: lot.sometimes() for name in flags}
        return Case(inputs, more | ({"dtype": dtype} if op_type.startswith("Assign") else {}))

    return make


def _scatter(lot: Lot) -> Case:
    shape, dtype = lot.shape(1, 3), lot.one(NUMBERS)
    rows = lot.shape(0, 2)
    indices = lot.rng.permutation(shape[0]).astype("int32") if lot.sometimes() else None
    if indices is None:
        indices = lot.rng.integers(0, shape[0], rows).astype("int32")
        if indices.size and len(np.unique(indices)) < indices.size:
            indices = indices.reshape(-1)[:1]  # rows that come twice are updated in no order
    updates = () if lot.rng.random() < 0.2 else (*indices.shape, *shape[1:])
    return Case([lot.variable(shape, dtype), Given(indices), lot.given(updates, dtype)], {"dtype": dtype})


def _reduction(lot: Lot) -> Case:
    shape, dtype = lot.shape(0, 3), lot.one(NUMBERS)
    axes: Any = lot.axes(len(shape))
    if shape and lot.rng.random() < 0.2:
        axes = lot.axis(len(shape))
    return Case([lot.given(shape, dtype), lot.known(axes)], {"keep_dims": lot.sometimes()})


def _l2(lot: Lot) -> Case:
    return Case([lot.given(lot.shape(0, 3), lot.one(FLOATS))])


def _bias(lot: Lot) -> Case:
    shape, dtype = lot.shape(2, 4), lot.one(FLOATS)
    return Case([lot.given(shape, dtype), lot.given(shape[-1:], dtype)], {"data_format": "NHWC"})


def _bias_gradient(lot: Lot) -> Case:
    return Case([lot.given(lot.shape(2, 4), lot.one(FLOATS))], {"data_format": "NHWC"})


def _matmul(lot: Lot) -> Case:
    m, k, n = lot.extent(), lot.extent(), lot.extent()
    ta, tb, dtype = lot.sometimes(), lot.sometimes(), lot.one(("float32", "float64", "int32"))
    sides = [lot.given((k, m) if ta else (m, k), dtype), lot.given((n, k) if tb else (k, n), dtype)]
    return Case(sides, {"transpose_a": ta, "transpose_b": tb})


def _batches(*, broadcast: bool, typed: bool = False) -> Maker:
    def make(lot: Lot) -> Case:
        batch, (m, k, n) = lot.shape(0, 2), (lot.extent(), lot.extent(), lot.extent())
        x, y, dtype = lot.sometimes(), lot.sometimes(), lot.one(("float32", "float64"))
        other = tuple(1 if lot.sometimes() else e for e in batch)[int(lot.rng.integers(len(batch) + 1)) :]
        a, b = (batch, other) if broadcast and lot.sometimes() else (batch, batch)
        sides = [lot.given((*a, *((k, m) if x else (m, k))), dtype), lot.given((*b, *((n, k) if y else (k, n))), dtype)]
        return Case(sides, {"adj_x": x, "adj_y": y} | ({"Tout": dtype} if typed else {}))

    return make


def _einsum(lot: Lot) -> Case:
    equation = lot.one(["bi,ij->bj", "bqd,bkd->bqk", "bij->bi", "ij->ji", "bi,bi->b", "i,j->ij", "abc,cd->dab", "ij->"])
    size = {letter: lot.extent() for letter in "abcdijkq"}
    given = equation.partition("->")[0].split(",")
    return Case([lot.given([size[c] for c in own]) for own in given], {"N": len(given), "equation": equation})


def _out(extent: int, window: int, stride: int, dilation: int, padding: str) -> int:
    reach = (window - 1) * dilation + 1
    return -(-extent // stride) if padding == "SAME" else (extent - reach) // stride + 1


def _convolution(lot: Lot, planes: int, *, depthwise: bool = False) -> tuple[Any, ...]:
    """Picture, filters, output, attributes."""
    batch, ci, co = lot.extent(), lot.extent(), lot.one([1, 1, 2]) if depthwise else lot.extent()
    padding, stride = lot.one(["SAME", "VALID"]), int(lot.one([1, 1, 2]))
    dilation = int(lot.one([1, 2])) if stride == 1 and planes == 2 else 1
    window = [int(lot.one([1, 2, 3])) for _ in range(planes)]
    picture = [max(lot.extent(), (w - 1) * dilation + 1) for w in window]
    made = [_out(e, w, stride, dilation, padding) for e, w in zip(picture, window, strict=True)]
    steps = {"strides": (1, *[stride] * planes, 1), "dilations": (1, *[dilation] * planes, 1), "padding": padding}
    out = ci * co if depthwise else co
    return (batch, *picture, ci), (*window, ci, co), (batch, *made, out), steps


def _conv(planes: int, *, depthwise: bool = False) -> Maker:
    def make(lot: Lot) -> Case:
        data, filters, _, steps = _convolution(lot, planes, depthwise=depthwise)
        return Case([lot.given(data), lot.given(filters)], steps)

    return make


def _conv_input(planes: int, *, depthwise: bool = False) -> Maker:
    def make(lot: Lot) -> Case:
        data, filters, made, steps = _convolution(lot, planes, depthwise=depthwise)
        return Case([lot.known(data), lot.given(filters), lot.given(made)], steps)

    return make


def _conv_filter(planes: int, *, depthwise: bool = False) -> Maker:
    def make(lot: Lot) -> Case:
        data, filters, made, steps = _convolution(lot, planes, depthwise=depthwise)
        return Case([lot.given(data), lot.known(filters), lot.given(made)], steps)

    return make


def _pooling(lot: Lot, planes: int) -> tuple[Any, ...]:
    data, filters, _, steps = _convolution(lot, planes)
    window, stride = filters[:planes], steps["strides"][1]
    picture = [max(e, w) for e, w in zip(data[1:-1], window, strict=True)]
    out = [_out(e, w, stride, 1, steps["padding"]) for e, w in zip(picture, window, strict=True)]
    attributes = {"ksize": (1, *window, 1), "strides": steps["strides"], "padding": steps["padding"]}
    return (data[0], *picture, data[-1]), (data[0], *out, data[-1]), attributes


def _pool(planes: int) -> Maker:
    def make(lot: Lot) -> Case:
        data, _, attributes = _pooling(lot, planes)
        return Case([lot.given(data)], attributes)

    return make


def _pool_gradient(planes: int, kind: str) -> Maker:
    def make(lot: Lot) -> Case:
        data, made, attributes = _pooling(lot, planes)
        if kind == "avg":
            return Case([lot.known(data), lot.given(made)], attributes)
        original = lot.given(data)
        pooled = _run_pool(original.value, attributes, planes)
        return Case([original, Given(pooled), lot.given(data if kind == "second" else made)], attributes)

    return make


def _run_pool(data: np.ndarray, attributes: dict[str, Any], planes: int) -> np.ndarray:
    import tensorflow as tf

    pool = tf.raw_ops.MaxPool if planes == 2 else tf.raw_ops.MaxPool3D
    return pool(input=data, **{name: list(v) if isinstance(v, tuple) else v for name, v in attributes.items()}).numpy()


def _softmax(lot: Lot) -> Case:
    return Case([lot.given(lot.shape(1, 3), lot.one(FLOATS))])


def _dense(lot: Lot) -> Case:
    shape, dtype = lot.shape(2, 2), lot.one(FLOATS)
    labels = lot.one([shape, shape, (1, shape[1])])
    return Case([lot.given(shape, dtype), lot.given(labels, dtype)])


def _sparse(lot: Lot) -> Case:
    shape, dtype = lot.shape(2, 2), lot.one(FLOATS)
    labels = lot.rng.integers(0, shape[1], shape[:1]).astype(lot.one(("int32", "int64")))
    return Case([lot.given(shape, dtype), Given(labels)])


def _norm(op_type: str) -> Maker:
    def make(lot: Lot) -> Case:
        shape, trained = lot.shape(4, 4), lot.sometimes()
        vector, empty = shape[-1:], (0,)
        more = {"data_format": "NHWC", "is_training": trained, "epsilon": 0.001}
        if "Grad" in op_type:
            spare = [lot.given((0,))] if op_type.endswith("V3") else []
            pictures = [lot.given(shape), lot.given(shape)]
            return Case([*pictures, *(lot.given(vector) for _ in range(3)), *spare], more)
        kept = empty if trained else vector
        return Case([lot.given(shape), *(lot.given(s) for s in (vector, vector, kept, kept))], more)

    return make


def _reshape(lot: Lot) -> Case:
    shape, dtype = lot.shape(0, 3), lot.one(NUMBERS)
    left, made = int(np.prod(shape, dtype=int)), list[int]()
    for _ in range(int(lot.rng.integers(0, 4))):
        made.append(int(lot.one([n for n in range(1, left + 1) if left % n == 0])))
        left //= made[-1]
    made.insert(int(lot.rng.integers(len(made) + 1)), left)
    if lot.sometimes():
        made[int(lot.rng.integers(len(made)))] = -1
    return Case([lot.given(shape, dtype), lot.known(made)])


def _expand(lot: Lot) -> Case:
    shape = lot.shape(0, 3)
    return Case([lot.given(shape, lot.one(NUMBERS)), lot.known(lot.axis(len(shape) + 1))])


def _squeeze(lot: Lot) -> Case:
    shape = tuple(1 if lot.rng.random() < 0.4 else n for n in lot.shape(0, 4))
    ones = [d - len(shape) if lot.sometimes() else d for d, n in enumerate(shape) if n == 1 and lot.sometimes()]
    return Case([lot.given(shape, lot.one(NUMBERS))], {"squeeze_dims": tuple(ones if lot.sometimes() else [])})


def _concat(lot: Lot) -> Case:
    shape, dtype, count = list(lot.shape(1, 3)), lot.one(NUMBERS), int(lot.rng.integers(2, 4))
    axis, parts = lot.axis(len(shape)), []
    for _ in range(count):
        shape[axis] = int(lot.one([lot.extent(), 0])) if lot.rng.random() < 0.2 else lot.extent()
        parts.append(lot.given(tuple(shape), dtype))
    return Case([*parts, lot.known(axis)], {"N": count})


def _split(lot: Lot) -> Case:
    shape, many = list(lot.shape(1, 3)), int(lot.one([1, 2, 3]))
    axis = lot.axis(len(shape))
    shape[axis] *= many
    return Case([lot.known(axis), lot.given(shape, lot.one(NUMBERS))], {"num_split": many})


def _split_sizes(lot: Lot) -> Case:
    shape, sizes = list(lot.shape(1, 3)), [lot.extent() for _ in range(int(lot.one([1, 2, 3])))]
    axis = lot.axis(len(shape))
    shape[axis] = sum(sizes)
    more = {"num_split": len(sizes)}
    return Case([lot.given(shape, lot.one(NUMBERS)), lot.known(sizes), lot.known(axis)], more)


def _pack(lot: Lot) -> Case:
    shape, dtype, count = lot.shape(0, 2), lot.one(NUMBERS), lot.extent()
    return Case([lot.given(shape, dtype) for _ in range(count)], {"N": count, "axis": lot.axis(len(shape) + 1)})


def _unpack(lot: Lot) -> Case:
    shape = lot.shape(1, 3)
    axis = lot.axis(len(shape))
    return Case([lot.given(shape, lot.one(NUMBERS))], {"num": shape[axis], "axis": axis})


def _slice(lot: Lot) -> Case:
    shape = lot.shape(1, 3)
    begin = [int(lot.rng.integers(n)) if lot.rng.random() < 0.4 else 0 for n in shape]
    size = [
        -1 if lot.sometimes() else n - b if lot.sometimes() else int(lot.rng.integers(n - b + 1))
        for n, b in zip(shape, begin, strict=True)
    ]
    return Case([lot.given(shape, lot.one(NUMBERS)), lot.known(begin), lot.known(size)])


def _pad(op_type: str) -> Maker:
    def make(lot: Lot) -> Case:
        shape, dtype = lot.shape(1, 3), lot.one(NUMBERS)
        sides = [[int(lot.one([0, 0, 1, 2])) if n > 3 else 0 for _ in range(2)] for n in shape]
        inputs, more = [lot.given(shape, dtype), lot.known(sides)], {}
        if op_type == "PadV2":
            inputs.append(lot.given((), dtype))
        if op_type == "MirrorPad":
            more = {"mode": lot.one(["REFLECT", "SYMMETRIC"])}
        return Case(inputs, more)

    return make


def _tile(lot: Lot) -> Case:
    shape = lot.shape(1, 3)
    return Case([lot.given(shape, lot.one(NUMBERS)), lot.known([int(lot.one([1, 1, lot.k, 3])) for _ in shape])])


def _reverse_sequence(lot: Lot) -> Case:
    shape = lot.shape(2, 3)
    along, batch = lot.rng.permutation(len(shape))[:2].tolist()
    lengths = lot.rng.integers(1, shape[along] + 1, shape[batch]).astype("int64")
    return Case([lot.given(shape), Given(lengths)], {"seq_dim": along, "batch_dim": batch})


def _reverse(lot: Lot) -> Case:
    shape = lot.shape(1, 3)
    return Case([lot.given(shape, lot.one(NUMBERS)), lot.known(lot.axes(len(shape)))])


def _cumulate(lot: Lot) -> Case:
    shape = lot.shape(1, 3)
    more = {"exclusive": lot.sometimes(), "reverse": lot.sometimes()}
    return Case([lot.given(shape, lot.one(NUMBERS)), lot.known(lot.axis(len(shape)))], more)


def _transpose(lot: Lot) -> Case:
    shape = lot.shape(0, 4)
    order = [d - len(shape) if lot.rng.random() < 0.2 else d for d in lot.rng.permutation(len(shape))]
    return Case([lot.given(shape, lot.one(NUMBERS)), lot.known(order)])


def _one_hot(lot: Lot) -> Case:
    shape = lot.shape(0, 2)
    indices = lot.given(shape, lot.one(("int32", "int64", "uint8")))
    scalars = [lot.known(lot.extent()), lot.given(()), lot.given(())]
    return Case([indices, *scalars], {"axis": lot.one([-1, *range(len(shape) + 1)])})


def _fill(lot: Lot) -> Case:
    return Case([lot.known(lot.shape(0, 3)), lot.given((), lot.one(NUMBERS))])


def _broadcast(lot: Lot) -> Case:
    made = lot.shape(0, 3)
    shape = tuple(1 if lot.sometimes() else n for n in made)[int(lot.rng.integers(len(made) + 1)) :]
    return Case([lot.given(shape, lot.one(NUMBERS)), lot.known(made)])


def _spec(lot: Lot, shape: Sequence[int]) -> tuple[list[list[int]], dict[str, int]]:
    """Begin, end and stride of some of the dimensions, and masks."""
    spec, masks, axis = [[], [], []], dict.fromkeys(("begin", "end", "ellipsis", "new_axis", "shrink_axis"), 0), 0
    named = int(lot.rng.integers(1, len(shape) + 1))
    hidden = lot.one([None, None, int(lot.rng.integers(named))])
    for at in range(named):
        n, masked = shape[axis], {}
        begin, end, stride = (
            int(lot.one([0, 0, 0, n // 2, -n])),
            int(lot.one([n, n, n + 3, -1])),
            int(lot.one([1, 1, 2])),
        )
        if at == hidden:
            masked = {"ellipsis": 1}
            axis += len(shape) - named
        elif lot.rng.random() < 0.15:
            masked = {"shrink_axis": 1}
            begin, end, stride = min(begin, n - 1), begin + 1, 1
        else:
            masked = {name: 1 for name in ("begin", "end") if lot.rng.random() < 0.3}
        axis += 1
        for column, value in zip(spec, (begin, end, stride), strict=True):
            column.append(value)
        for name in masked:
            masks[name] |= 1 << at
    if lot.rng.random() < 0.2:
        masks["new_axis"] = 1 << len(spec[0])
        for column, value in zip(spec, (0, 1, 1), strict=True):
            column.append(value)
    return spec, {f"{name}_mask": value for name, value in masks.items()}


def _strided(lot: Lot) -> Case:
    shape = lot.shape(1, 3)
    spec, masks = _spec(lot, shape)
    return Case([lot.given(shape, lot.one(NUMBERS)), *(lot.known(column) for column in spec)], masks)


def _strided_gradient(lot: Lot) -> Case:
    import tensorflow as tf

    shape = lot.shape(1, 3)
    spec, masks = _spec(lot, shape)
    begin, end, strides = spec
    part = tf.raw_ops.StridedSlice(input=np.zeros(shape, "f4"), begin=begin, end=end, strides=strides, **masks).shape
    return Case([lot.known(shape), *(lot.known(column) for column in spec), lot.given(tuple(part))], masks)


def _gather(lot: Lot) -> Case:
    shape, dtype, picked = lot.shape(1, 3), lot.one(NUMBERS), lot.shape(0, 2)
    axis, batch = lot.axis(len(shape)), 0
    if lot.rng.random() < 0.1 and axis % len(shape):
        batch, picked = 1, (shape[0], *picked[1:])
    indices = Given(lot.rng.integers(0, shape[axis], picked).astype("int32"))
    return Case([lot.given(shape, dtype), indices, lot.known(axis)], {"batch_dims": batch})


def _resource_gather(lot: Lot) -> Case:
    shape, dtype = lot.shape(1, 3), lot.one(NUMBERS)
    indices = Given(lot.rng.integers(0, shape[0], lot.shape(0, 2)).astype("int32"))
    return Case([lot.variable(shape, dtype), indices], {"dtype": dtype, "batch_dims": 0})


def _segments(lot: Lot) -> Case:
    shape, many = lot.shape(1, 3), lot.extent()
    rank = int(lot.rng.integers(1, len(shape) + 1))
    numbers = lot.rng.integers(-1, many, shape[:rank]).astype("int32")
    return Case([lot.given(shape, lot.one(NUMBERS)), Given(numbers), lot.known(many)])


MAKERS: dict[str, Maker] = (
    {name: _elementwise(name) for name in ELEMENTWISE_TYPES}
    | {name: _update(name) for name in CLASSES["update"] if not name.startswith("ResourceScatter")}
    | {name: _scatter for name in CLASSES["update"] if name.startswith("ResourceScatter")}
    | dict.fromkeys(("Sum", "Mean", "Max", "Min", "Prod"), _reduction)
    | {name: _norm(name) for name in CLASSES["normalisation"]}
    | {
        "Bitcast": _bitcast,
        "Select": _select, "L2Loss": _l2, "BiasAdd": _bias, "BiasAddGrad": _bias_gradient, "MatMul": _matmul,
        "BatchMatMul": _batches(broadcast=False), "BatchMatMulV2": _batches(broadcast=True),
        "BatchMatMulV3": _batches(broadcast=True, typed=True), "Einsum": _einsum,
        "Conv2D": _conv(2), "Conv3D": _conv(3), "DepthwiseConv2dNative": _conv(2, depthwise=True),
        "Conv2DBackpropInput": _conv_input(2), "Conv3DBackpropInputV2": _conv_input(3),
        "DepthwiseConv2dNativeBackpropInput": _conv_input(2, depthwise=True),
        "Conv2DBackpropFilter": _conv_filter(2), "Conv3DBackpropFilterV2": _conv_filter(3),
        "DepthwiseConv2dNativeBackpropFilter": _conv_filter(2, depthwise=True),
        "MaxPool": _pool(2), "AvgPool": _pool(2), "MaxPool3D": _pool(3), "AvgPool3D": _pool(3),
        "MaxPoolGrad": _pool_gradient(2, "max"), "AvgPoolGrad": _pool_gradient(2, "avg"),
        "MaxPool3DGrad": _pool_gradient(3, "max"), "AvgPool3DGrad": _pool_gradient(3, "avg"),
        "MaxPoolGradGrad": _pool_gradient(2, "second"),
        "Softmax": _softmax, "LogSoftmax": _softmax, "SoftmaxCrossEntropyWithLogits": _dense,
        "SparseSoftmaxCrossEntropyWithLogits": _sparse,
        "Reshape": _reshape, "ExpandDims": _expand, "Squeeze": _squeeze,
        "ConcatV2": _concat, "Split": _split, "SplitV": _split_sizes, "Pack": _pack, "Unpack": _unpack,
        "Slice": _slice, "Pad": _pad("Pad"), "PadV2": _pad("PadV2"), "MirrorPad": _pad("MirrorPad"), "Tile": _tile,
        "ReverseSequence": _reverse_sequence, "ReverseV2": _reverse, "Cumsum": _cumulate, "Cumprod": _cumulate,
        "Transpose": _transpose, "OneHot": _one_hot, "Fill": _fill, "BroadcastTo": _broadcast,
        "StridedSlice": _strided, "StridedSliceGrad": _strided_gradient,
        "GatherV2": _gather, "ResourceGather": _resource_gather, "UnsortedSegmentSum": _segments,
    }
)  # fmt: skip
"""Op type -> what makes a case of it."""
