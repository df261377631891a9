"""Convolutions, pools, their gradients, slices and padding on windows: by parts they give what the whole op gives."""

import random

import by_parts
import numpy as np
import pytest

from pesto.split.ops.op_types import strategies
from pesto.split.typed_graph import Operand, Signature

BATCH, CHANNELS = 2, 2


def made(extent, reach, stride, padding, sides):
    """The extent of what a window moves over."""
    if padding == "SAME":
        return -(-extent // stride)
    return (extent + (sum(sides) if padding == "EXPLICIT" else 0) - reach) // stride + 1


def picture(draw, kind):
    """Sizes of pictures, windows and strides, with any padding, for which there is an output."""
    while True:
        extents, sizes = [draw.randint(1, 14) for _ in "hw"], [draw.randint(1, 4) for _ in "hw"]
        strides = [draw.randint(1, 3)] * 2 if kind.startswith("Depth") else [draw.randint(1, 3) for _ in "hw"]
        wide = draw.choice([1, 1, 2]) if kind == "Conv2D" and strides == [1, 1] else 1
        padding = draw.choice(["VALID", "SAME", *(["EXPLICIT"] if kind != "AvgPool" else [])])
        sides = [(draw.randint(0, n - 1), draw.randint(0, n - 1)) for n in sizes]
        rows = zip(extents, sizes, strides, sides, strict=True)
        out = [made(e, (n - 1) * wide + 1, s, padding, around) for e, n, s, around in rows]
        if min(out) >= 1:
            break
    attributes = {"data_format": "NHWC", "padding": padding, "strides": (1, *strides, 1)}
    if padding == "EXPLICIT":
        attributes["explicit_paddings"] = (0, 0, *sides[0], *sides[1], 0, 0)
    return extents, sizes, out, attributes, wide


def family(draw):
    """An op on pictures, and its gradients."""
    kind = draw.choice(["Conv2D", "DepthwiseConv2dNative", "MaxPool", "AvgPool"])
    extents, sizes, out, attributes, wide = picture(draw, kind)
    data, shape = tensor(BATCH, *extents, CHANNELS), (BATCH, *extents, CHANNELS)
    if kind.endswith("Pool"):
        attributes["ksize"] = (1, *sizes, 1)
        result = tensor(BATCH, *out, CHANNELS)
        before = [data, result] if kind == "MaxPool" else [constant(shape)]
        return [op(kind, attributes, [data], result), op(f"{kind}Grad", attributes, [*before, result], data)]
    attributes["dilations"] = (1, wide, wide, 1)
    last = 4 if kind == "Conv2D" else draw.choice([1, 2])
    filters = tensor(*sizes, CHANNELS, last)
    result = tensor(BATCH, *out, last if kind == "Conv2D" else CHANNELS * last)
    found = [op(kind, attributes, [data, filters], result)]
    if wide == 1:  # TensorFlow's processors have no gradients of others
        found += [
            op(f"{kind}BackpropInput", attributes, [constant(shape), filters, result], data),
            op(f"{kind}BackpropFilter", attributes, [data, constant(filters.shape), result], filters),
        ]
    return found


def tensor(*shape):
    return Operand(shape, "float32")


def constant(value):
    return Operand(np.shape(value), "int32", value)


def op(kind, attributes, inputs, output):
    return Signature(kind, tuple(sorted(attributes.items())), tuple(inputs), ((output.shape, "float32"),))


def given(signature, seed):
    """Numbers for its inputs; to the gradient of a maximum, the maxima."""
    found = by_parts.operands(signature, seed)
    if signature.type == "MaxPoolGrad":
        pool = Signature(
            "MaxPool", signature.attributes, signature.inputs[:1], ((signature.inputs[1].shape, "float32"),)
        )
        (found[1],) = by_parts.run(pool, found[:1])
    return found


def checked(signature, seed):
    """How many strategies with windows there are for 2, 3 and 4 parts, all of which, with any others, are right."""
    windows = 0
    for k in (2, 3, 4):
        found, plain = strategies(signature, k, halo=True).admitted, strategies(signature, k).admitted
        less = {(s.needs, s.gives) for s in plain} - {(s.needs, s.gives) for s in found if not s.rims}
        assert not less, (signature, k)
        more = [s for s in found if (s.needs, s.gives, s.rims) not in {(p.needs, p.gives, p.rims) for p in plain}]
        if more:
            inputs = given(signature, seed)
            whole = by_parts.run(signature, inputs)
        for strategy in more:
            parts = by_parts.by_parts(signature, strategy, k, inputs)
            for one, other in zip(whole, parts, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=f"{signature} {k} {strategy}")
        windows += sum(1 for s in more if s.rims)
    return windows


def test_windows_of_pictures(seeds) -> None:
    """Of random extents, windows, strides and padding."""
    draw, windows = random.Random(0), 0  # noqa: S311
    for number in seeds(100):
        windows += sum(checked(signature, number) for signature in family(draw))
    assert windows > len(seeds(100))


@pytest.mark.parametrize(
    ("kind", "inputs", "output"),
    [
        ("Slice", [tensor(4, 10), constant((0, 2)), constant((4, 8))], tensor(4, 8)),
        ("Slice", [tensor(9, 10), constant((1, 2)), constant((8, 4))], tensor(8, 4)),
        ("Pad", [tensor(4, 10), constant(((0, 0), (1, 1)))], tensor(4, 12)),
        ("Pad", [tensor(10, 9), constant(((2, 0), (1, 2)))], tensor(12, 12)),
        ("PadV2", [tensor(10, 9), constant(((1, 1), (2, 1))), Operand((), "float32", 0.5)], tensor(12, 12)),
    ],
)
def test_what_is_cut_out_and_what_is_padded(kind, inputs, output) -> None:
    """Parts begin elsewhere than the whole, and only those at the border are padded."""
    assert checked(op(kind, {}, inputs, output), 0) > 1


POOL = {"data_format": "NHWC", "strides": (1, 2, 2, 1), "ksize": (1, 3, 3, 1)}
APART = {**POOL, "ksize": (1, 2, 2, 1), "padding": "VALID"}
CONV = {"data_format": "NHWC", "strides": (1, 1, 1, 1), "dilations": (1, 1, 1, 1)}
CUBES = {"data_format": "NDHWC", "strides": (1,) * 5, "dilations": (1,) * 5}


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        (op("AvgPool", {**POOL, "padding": "SAME"}, [tensor(1, 8, 8, 2)], tensor(1, 4, 4, 2)), "told to pad"),
        (
            op("MaxPoolGrad", {**POOL, "padding": "VALID"}, [tensor(1, 9, 9, 2), *[tensor(1, 4, 4, 2)] * 2],
               tensor(1, 9, 9, 2)),
            "divide",
        ),
        (
            op("MaxPoolGrad", {**POOL, "padding": "SAME"}, [tensor(1, 8, 8, 2), *[tensor(1, 4, 4, 2)] * 2],
               tensor(1, 8, 8, 2)),
            "opaque",
        ),
        (
            op("Conv3D", {**CUBES, "padding": "SAME"}, [tensor(1, 8, 8, 8, 2), tensor(3, 3, 3, 2, 2)],
               tensor(1, 8, 8, 8, 2)),
            "told to pad",
        ),
        (
            op("Conv3DBackpropInputV2", {**CUBES, "padding": "SAME"},
               [constant((1, 8, 8, 8, 2)), tensor(3, 3, 3, 2, 2), tensor(1, 8, 8, 8, 2)], tensor(1, 8, 8, 8, 2)),
            "opaque",
        ),
        (
            op("MirrorPad", {"mode": "REFLECT"}, [tensor(4, 10), constant(((0, 0), (1, 1)))], tensor(4, 12)),
            "opaque",
        ),
        (
            op("Conv2D", {**CONV, "padding": "SAME"}, [tensor(1, 4, 8, 2), tensor(9, 1, 2, 2)], tensor(1, 4, 8, 2)),
            "share most",
        ),
    ],
)  # fmt: skip
def test_windows_that_stay_refused(signature, why) -> None:
    """Means at a border, maxima that two windows share, what cannot be told to pad, windows wider than two parts."""
    found = strategies(signature, 2, halo=True)
    assert not any(s.rims for s in found.admitted if s.name in ("x0", "i1"))
    assert why in next(r.reason for r in found.refused if r.variable in ("x0", "i1"))


def test_gradients_of_pools_whose_windows_do_not_overlap() -> None:
    """Parts begin with a window, and need no rim."""
    inputs = [tensor(1, 8, 8, 2), tensor(1, 4, 4, 2), tensor(1, 4, 4, 2)]
    signature = op("MaxPoolGrad", APART, inputs, tensor(1, 8, 8, 2))
    found = {s.name: s for s in strategies(signature, 4, halo=True).admitted}
    assert found["x0"].needs == (1, 1, 1) and not found["x0"].rims
    assert "x0" not in {s.name for s in strategies(signature, 3, halo=True).admitted}
    assert checked(signature, 0) == 0


def test_a_wrong_window_is_noticed() -> None:
    """Halves without their rim, each padded at both sides, are not what the whole op gives."""
    signature = op("Conv2D", {**CONV, "padding": "SAME"}, [tensor(1, 8, 8, 2), tensor(3, 3, 2, 2)], tensor(1, 8, 8, 2))
    (cut,) = [s for s in strategies(signature, 2, halo=True).admitted if s.name == "x0"]
    inputs = by_parts.operands(signature, 0)
    (whole,), (parts,) = by_parts.run(signature, inputs), by_parts.by_parts(signature, cut, 2, inputs)
    assert np.allclose(whole, parts, atol=1e-5)
    plain = [by_parts.run(signature, [part, inputs[1]])[0] for part in np.split(inputs[0], 2, axis=1)]
    assert not np.allclose(whole, np.concatenate(plain, axis=1), atol=1e-5)
