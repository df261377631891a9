"""Every description of an op type, held against TensorFlow's kernels on random shapes, attributes and data types."""

import zlib
from dataclasses import replace
from itertools import compress

import by_parts
import numpy as np
import op_cases
import pytest

from pesto.split.ops.op_types import CLASSES, description, strategies
from pesto.split.typed_graph import Operand, Signature
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

STRATEGIES = {"elementwise": 70}
"""Strategies of an op type that are run, by its class; of all others as below."""
OTHERS = 180
CASES = 1500
"""Most cases that these are looked for in."""
UNREAD = {"FusedBatchNormV3": 5, "FusedBatchNormGrad": 3, "FusedBatchNormGradV2": 3, "FusedBatchNormGradV3": 3}
"""Op type -> the first of its last outputs, which only kernels of gradients read, if any."""
TYPES = [(kind, op_type) for kind, found in CLASSES.items() for op_type in sorted(found)]


def quota(kind):
    """Strategies that are run of each op type of a class."""
    return STRATEGIES.get(kind, OTHERS)


def signature_of(op_type, case):
    """What the op is to one who divides it; its outputs are as TensorFlow makes them."""
    inputs = [given.value for given in case.inputs]
    operands = tuple(
        Operand(
            given.value.shape,
            f"{'resource:' * given.variable}{given.value.dtype.name}",
            nested(given.value.tolist()) if given.known else None,
        )
        for given in case.inputs
    )
    bare = Signature(op_type, tuple(sorted(case.attributes.items())), operands, ())
    made = by_parts.run(bare, inputs)
    outputs = made[: len(made) - sum(given.variable for given in case.inputs)]
    shapes = [np.shape(value) for value in outputs]
    first = UNREAD.get(op_type, len(shapes))
    shapes[first:] = [(0,) for _ in shapes[first:]]  # scalars or nothing, by the kernel
    return replace(bare, outputs=tuple(zip(shapes, (v.dtype.name for v in outputs), strict=True))), inputs, made


def nested(value):
    """A constant as signatures have it."""
    return tuple(map(nested, value)) if isinstance(value, list) else value


def differences(signature, inputs, whole, k):
    """Of each strategy, how its parts differ from the whole: empty where they do not."""
    for strategy in strategies(signature, k).admitted:
        try:
            parts = by_parts.by_parts(signature, strategy, k, inputs)
        except Exception as error:  # what TensorFlow raises for a part is the fault that is looked for
            yield f"{strategy.name}: {str(error)[:200]}"
            continue
        read = [0 not in shape for shape, _ in signature.outputs] + [True] * (len(whole) - len(signature.outputs))
        if signature.attribute("is_training") is False:
            read[1:] = [False for _ in read[1:]]  # of inference only the picture is written
        same = len(parts) == len(whole) and all(map(alike, compress(parts, read), compress(whole, read)))
        yield "" if same else f"{strategy.name}: other numbers"


def alike(one, other):
    """Integers are equal, reals but for rounding."""
    if one.shape != other.shape:
        return False
    if other.dtype.kind in "iub":
        return bool((one.astype(other.dtype) == other).all())
    return np.allclose(one, other, rtol=2e-4, atol=2e-5, equal_nan=True)


def faults(op_type, many):
    """(strategies that were run, what was wrong of some)."""
    ran, found = 0, []
    for seed in range(CASES):
        rng = np.random.default_rng([zlib.crc32(op_type.encode()), seed])
        k = int(rng.choice([2, 2, 3, 4]))
        case = op_cases.MAKERS[op_type](op_cases.Lot(rng, k))
        try:
            signature, inputs, whole = signature_of(op_type, case)
        except (tf.errors.OpError, ValueError):
            continue  # no such op on this processor
        for fault in differences(signature, inputs, whole, k):
            ran += 1
            if fault:
                found.append(f"{k} parts, seed {seed}, {fault}: {signature}")
        if ran >= many:
            break
    return ran, found


@pytest.mark.property
@pytest.mark.parametrize(("kind", "op_type"), TYPES)
def test_parts_come_to_the_whole(kind, op_type):
    """Of every op type as many strategies as its class has to show, none of which is wrong."""
    ran, found = faults(op_type, quota(kind))
    assert not found, found[:3]
    assert ran >= quota(kind), f"{ran} strategies in {CASES} cases"


def test_descriptions_with_attributes_and_integers():
    """The few op types whose parts can mean something else than the whole: a quick look at each."""
    for op_type in ("Squeeze", "Mean", "Reshape", "Slice"):
        ran, found = faults(op_type, 25)
        assert ran >= 25 and not found, found[:3]


def test_all_types_have_cases():
    """And the descriptions are held against 20 000 strategies or more."""
    assert {op_type for _, op_type in TYPES} == set(op_cases.MAKERS)
    assert sum(quota(kind) for kind, _ in TYPES) >= 20_000


def test_a_mean_of_integers_is_not_made_of_means():
    """TensorFlow rounds it down once, and has no kernel that divides sums of integers by a number of parts."""
    axes = Operand((1,), "int32", (0,))
    for dtype, cut in (("int32", {"i1"}), ("float32", {"i1", "r0"})):
        mean = Signature("Mean", (("keep_dims", False),), (Operand((4, 6), dtype), axes), (((6,), dtype),))
        assert {s.name for s in strategies(mean, 2).admitted} == cut


def test_shape_operands_of_parts_are_known():
    """A reshape to a shape that is computed cannot be told another for each part."""
    for value, cut in ((None, set()), ((6, 4), {"i0"})):
        operands = (Operand((24,), "float32"), Operand((2,), "int32", value))
        signature = Signature("Reshape", (), operands, (((6, 4), "float32"),))
        assert {s.name for s in strategies(signature, 2).admitted} == cut and description("Reshape")
