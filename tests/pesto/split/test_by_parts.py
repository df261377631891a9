"""Every strategy of every op of the built-in models, on TensorFlow: by parts it gives what the whole op gives."""

from dataclasses import replace

import by_parts
import numpy as np
import pytest

from pesto.core.source import Source
from pesto.split.geometry import WHOLE
from pesto.split.ops.arithmetic_ops import ELEMENTWISE_TYPES
from pesto.split.ops.op_types import coverage, strategies
from pesto.split.typed_graph import Operand, Signature
from pesto.tf import models, named_sources
from pesto.tf.private import op_def

BOOL = 10
"""DT_BOOL."""
FAMILIES = [family.name for family in models.FAMILIES]


def wrong(signature, k, seed, *, halo=False):
    """Names of the strategies whose parts do not come to the whole."""
    found = strategies(signature, k, halo=halo).admitted
    if not found:
        return []
    inputs = by_parts.operands(signature, seed)
    whole = by_parts.run(signature, inputs)
    return [
        strategy.name
        for strategy in found
        if not all(
            np.allclose(a, b, rtol=1e-4, atol=1e-5)
            for a, b in zip(whole, by_parts.by_parts(signature, strategy, k, inputs), strict=True)
        )
    ]


def _all_right(family, *, halo=False):
    _, shaped = named_sources.load_typed(Source(model=family, variant="tiny"))
    checked = 0
    for seed, signature in enumerate(shaped.signatures):
        for k in (2, 3):
            assert wrong(signature, k, seed, halo=halo) == [], (signature, k)
            checked += len(strategies(signature, k).admitted)
    assert checked > 100
    assert [row for row in coverage(s.type for s in shaped.signatures) if not row.kind] == []


def test_strategies_of_a_recurrent_network() -> None:
    """Every kind of op of NMT, and every op type of it has a description."""
    _all_right("nmt")


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "nmt"])
def test_strategies_of_every_family(family: str) -> None:
    """The same of all others."""
    _all_right(family)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["wrn", "nasnet", "tofu-wrn", "e3d"])
def test_strategies_with_a_halo(family: str) -> None:
    """The same of windows, of families that have some."""
    _all_right(family, halo=True)


_INTS = ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "Invert", "LeftShift", "RightShift")
_UNLIKE = {"BiasAddV1": "its second input is a vector", "ReadVariableOp": "it reads a variable", "AddN": "any number"}
"""Not of the inputs that are given here; the models have ops of these types, or of their kind."""


@pytest.mark.parametrize("op_type", sorted(set(ELEMENTWISE_TYPES) - set(_UNLIKE)))
def test_strategies_of_elementwise_ops(op_type) -> None:
    """Also of types that no built-in model has: cut along either dimension."""
    definition = op_def(op_type)
    dtype = "bool" if op_type.startswith("Logical") else "int32" if op_type in _INTS else "float32"
    of = [Operand((6, 4), "bool" if argument.type == BOOL else dtype) for argument in definition.input_arg]
    attributes = {"Cast": (("DstT", "int32"),), "CheckNumerics": (("message", ""),)}.get(op_type, ())
    made = "bool" if definition.output_arg[0].type == BOOL else dict(attributes).get("DstT", dtype)
    kind = Signature(op_type, attributes, tuple(of), (((6, 4), made),))
    assert {strategy.name for strategy in strategies(kind, 2).admitted} == {"i0", "i1"}
    assert wrong(kind, 2, 0) == []


def test_a_wrong_strategy_is_noticed() -> None:
    """Means that are not divided, and a Select whose vector goes with the last dimension."""
    mean = Signature(
        "Mean",
        (("keep_dims", False),),
        (Operand((4, 6), "float32"), Operand((1,), "int32", (0,))),
        (((6,), "float32"),),
    )
    (cut,) = [s for s in strategies(mean, 2).admitted if s.name == "r0"]
    inputs = by_parts.operands(mean, 0)
    assert cut.scaled and np.allclose(by_parts.by_parts(mean, cut, 2, inputs)[0], by_parts.run(mean, inputs)[0])
    assert not np.allclose(
        by_parts.by_parts(mean, replace(cut, scaled=False), 2, inputs)[0], by_parts.run(mean, inputs)[0]
    )
    select = Signature(
        "Select", (), (Operand((4,), "bool"), Operand((4, 4), "float32"), Operand((4, 4), "float32")),
        (((4, 4), "float32"),),
    )  # fmt: skip
    assert {s.name: s.needs for s in strategies(select, 2).admitted} == {"i0": (0, 0, 0), "i1": (WHOLE, 1, 1)}
    inputs = by_parts.operands(select, 3)
    last = replace(strategies(select, 2).admitted[1], needs=(0, 1, 1))
    with pytest.raises(Exception, match="must match size"):
        by_parts.by_parts(select, last, 2, inputs)


@pytest.mark.parametrize(
    ("op_type", "attributes", "inputs", "output", "found"),
    [
        ("Einsum", {"N": 2, "equation": "bi,ij->bj"}, [((4, 6), None), ((6, 8), None)], (4, 8), {"b", "j", "i"}),
        (
            "Einsum",
            {"N": 2, "equation": "bqd,bkd->bqk"},
            [((2, 4, 6), None), ((2, 8, 6), None)],
            (2, 4, 8),
            set("bqkd"),
        ),
        ("Einsum", {"N": 1, "equation": "bij->bi"}, [((4, 6, 2), None)], (4, 6), {"b", "i", "j"}),
        ("Einsum", {"N": 1, "equation": "ii->i"}, [((4, 4), None)], (4,), set()),
        ("Einsum", {"N": 1, "equation": "...i->..."}, [((4, 4), None)], (4,), set()),
        ("Cumsum", {}, [((4, 6), None), ((), 1)], (4, 6), {"i0"}),
        ("AddV2", {}, [((0,), None), ((0,), None)], (0,), set()),  # without elements there is nothing to cut
        ("AddV2", {}, [((0, 4), None), ((4,), None)], (0, 4), set()),
        ("Sum", {"keep_dims": False}, [((0, 4), None), ((1,), (0,))], (4,), {"i1"}),
    ],
)
def test_ops_that_no_built_in_model_has(op_type, attributes, inputs, output, found) -> None:
    """Equations and sums up to an element, found and right."""
    operands = tuple(Operand(shape, "float32" if value is None else "int32", value) for shape, value in inputs)
    signature = Signature(op_type, tuple(sorted(attributes.items())), operands, ((output, "float32"),))
    assert {s.name for s in strategies(signature, 2).admitted} == found and wrong(signature, 2, 1) == []


@pytest.mark.parametrize(
    ("given", "made", "found"),
    [
        (((4, 6), "int32"), ((4, 6), "uint32"), {"i0", "i1"}),
        (((4, 6), "int64"), ((4, 6, 2), "int32"), {"i0", "i1"}),
        (((4, 6, 4), "uint8"), ((4, 6), "int32"), {"i0", "i1"}),
    ],
)
def test_bits_as_another_type(given, made, found) -> None:
    """Bitcast: all dimensions can be cut but one that is the bytes of an element."""
    attributes = (("T", given[1]), ("type", made[1]))
    signature = Signature("Bitcast", attributes, (Operand(*given),), (made,))
    assert {s.name for s in strategies(signature, 2).admitted} == found and wrong(signature, 2, 1) == []


STRIDES = {"data_format": "NHWC", "dilations": (1, 1, 1, 1), "padding": "VALID", "strides": (1, 2, 2, 1)}
PICTURE, FILTERS, MADE = (4, 9, 9, 4), (3, 3, 4, 8), (4, 4, 4, 8)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize(
    ("op_type", "attributes", "inputs", "outputs", "found"),
    [
        ("Conv2D", STRIDES, [(PICTURE, None), (FILTERS, None)], [MADE], {"b", "co", "ci"}),
        (
            "Conv2DBackpropFilter", STRIDES, [(PICTURE, None), ((4,), FILTERS), (MADE, None)], [FILTERS],
            {"b", "co", "ci"},
        ),
        (
            "Conv2DBackpropInput", STRIDES, [((4,), PICTURE), (FILTERS, None), (MADE, None)], [PICTURE],
            {"b", "co", "ci"},
        ),
        ("Tile", {}, [((4, 1, 2), None), ((3,), (1, 8, 3))], [(4, 8, 6)], {"i0", "i1"}),
        ("Fill", {}, [((5,), (4, 4, 8, 4, 4)), ((), None)], [(4, 4, 8, 4, 4)], {"i0", "i1", "i2", "i3", "i4"}),
        ("SplitV", {"num_split": 2}, [((8, 6), None), ((2,), (2, 4)), ((), 1)], [(8, 2), (8, 4)], {"i0"}),
        ("SplitV", {"num_split": 2}, [((6, 8), None), ((2,), (2, 4)), ((), 0)], [(2, 8), (4, 8)], {"i1"}),
    ],
)  # fmt: skip
def test_ops_that_only_large_models_have(op_type, attributes, inputs, outputs, found, k) -> None:
    """Strategies of full variants that the tiny ones do not have: strides without padding, fills, uneven parts."""
    operands = tuple(Operand(shape, "float32" if value is None else "int32", value) for shape, value in inputs)
    made = tuple((shape, "float32") for shape in outputs)
    signature = Signature(op_type, tuple(sorted(attributes.items())), operands, made)
    assert {s.name for s in strategies(signature, k).admitted} == found and wrong(signature, k, 1) == []


ROW = [((1,), (2,)), ((1,), (3,)), ((1,), (1,))]
"""The third row: begin, end and stride."""
SLICES = [
    ({}, (4, 6), [(0, 4, 1), (1, 3, 1)], (4, 2), {"i0": 0}),
    ({"ellipsis_mask": 1}, (4, 6, 8), [(0, 0, 1), (0, 4, 1)], (4, 6, 4), {"i0": 0, "i1": 1}),
    ({"begin_mask": 1, "end_mask": 1, "new_axis_mask": 2}, (4, 6), [(2, 3, 1), (0, 0, 1), (1, 3, 1)], (4, 1, 2),
     {"i0": 0}),
    ({"ellipsis_mask": 2, "shrink_axis_mask": 4}, (4, 6, 8, 2), [(1, 3, 1), (0, 0, 1), (1, 2, 1)], (2, 6, 8),
     {"i1": 1, "i2": 2}),
    ({"shrink_axis_mask": 1}, (4, 6, 8), [(3, 4, 1), (0, 9, 1)], (6, 8), {"i0": 1, "i1": 2}),
    ({}, (6, 8), [(0, 4, 1), (0, 8, 2)], (4, 4), {}),
    ({"begin_mask": 3, "end_mask": 3}, (4, 6), [(0, 0, -1), (0, 0, 1)], (4, 6), {"i1": 1}),
]  # fmt: skip
"""Masks, a shape, begin, end and stride of each number given, the shape taken out, and which dimension is which."""


@pytest.mark.parametrize(
    ("op_type", "attributes", "inputs", "output", "found"),
    [
        ("Reshape", {}, [((4, 6), None), ((1,), (24,))], (24,), {"i0": (0, WHOLE)}),
        ("Reshape", {}, [((24,), None), ((2,), (4, 6))], (4, 6), {"i0": (0, WHOLE)}),
        ("Reshape", {}, [((4, 6, 2), None), ((2,), (4, 12))], (4, 12), {"i0": (0, WHOLE), "i1": (1, WHOLE)}),
        ("Transpose", {}, [((4, 6), None), ((2,), (1, 0))], (6, 4), {"i0": (1, WHOLE), "i1": (0, WHOLE)}),
        ("StridedSlice", {"shrink_axis_mask": 1}, [((4, 6), None), *ROW], (6,), {"i0": (1, WHOLE, WHOLE, WHOLE)}),
        ("Pad", {}, [((4, 6), None), ((2, 2), ((0, 0), (1, 1)))], (4, 8), {"i0": (0, WHOLE)}),
        *((
            "StridedSlice", masks, [(shape, None), *(((len(row),), row) for row in zip(*spec, strict=True))], output,
            {name: (d, WHOLE, WHOLE, WHOLE) for name, d in found.items()},
        ) for masks, shape, spec, output, found in SLICES),
        *((
            "StridedSliceGrad", masks,
            [((len(shape),), shape), *(((len(row),), row) for row in zip(*spec, strict=True)), (part, None)], shape,
            {f"i{d}": (WHOLE, WHOLE, WHOLE, WHOLE, int(name[1:])) for name, d in found.items()},
        ) for masks, shape, spec, part, found in SLICES),
    ],
)  # fmt: skip
def test_shapes_that_change(op_type, attributes, inputs, output, found) -> None:
    """Which dimensions of an input go with which of the output."""
    operands = tuple(Operand(shape, "float32" if value is None else "int32", value) for shape, value in inputs)
    signature = Signature(op_type, tuple(sorted(attributes.items())), operands, ((output, "float32"),))
    assert {s.name: s.needs for s in strategies(signature, 2).admitted} == found
