"""What a worker's part of an op costs: as much as an op of the part's shapes, and half the work about half the time."""

from dataclasses import replace

import by_parts
import numpy as np
import pytest

from pesto.core.costs.analytical import roofline_s
from pesto.core.costs.kernel_times import gpu_op_times
from pesto.core.costs.presets import preset
from pesto.core.graph import PASSES
from pesto.split import geometry
from pesto.split.geometry import Need
from pesto.split.op_strategy import WHOLE_WAY, admissible_strategies, uncut_strategy
from pesto.split.ops.op_types import REPEATS, SHAPE_OPERAND, repeats
from pesto.split.typed_graph import Operand, Signature
from pesto.split.worker_parts import work_share
from pesto.tf.private import op_def
from pesto.tf.sources import sources
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

MOST = 0.75
"""Share of the whole op's seconds that a half may take."""
CONV = {"data_format": "NHWC", "dilations": (1,) * 4, "padding": "SAME", "strides": (1,) * 4}
CONV_3D = {"data_format": "NDHWC", "dilations": (1,) * 5, "padding": "SAME", "strides": (1,) * 5}
APART_3D = {**CONV_3D, "padding": "VALID", "strides": (1, 2, 2, 2, 1)}
POOL = {"data_format": "NHWC", "ksize": (1, 2, 2, 1), "padding": "VALID", "strides": (1, 2, 2, 1)}
NORM = {"data_format": "NHWC", "epsilon": 0.001, "is_training": True}
KEEP = {"keep_dims": False}
ROWS, IDS = (8192, 4096), Operand((65536,), "int32")
IMAGE, HALF, VOLUME = (64, 64, 64, 256), (64, 32, 32, 256), (8, 16, 32, 32, 256)


def constant(value, dtype="int32"):
    return Operand(np.shape(value), dtype, value)


def variable(*shape):
    return Operand(shape, "resource:float32")


def op(op_type, attributes, inputs, *outputs):
    """A signature; shapes alone are of float32."""
    operands = tuple(each if isinstance(each, Operand) else Operand(each, "float32") for each in inputs)
    return Signature(op_type, tuple(sorted(attributes.items())), operands, tuple((each, "float32") for each in outputs))


def einsum(equation, *shapes):
    *inputs, output = shapes
    return op("Einsum", {"N": len(inputs), "equation": equation}, inputs, output)


OPS = [
    op("MatMul", {}, [(4096, 2048), (2048, 8192)], (4096, 8192)),
    op("MatMul", {"transpose_a": True}, [(4096, 2048), (4096, 8192)], (2048, 8192)),
    op("MatMul", {"transpose_b": True}, [(4096, 2048), (8192, 2048)], (4096, 8192)),
    op("BatchMatMulV2", {}, [(8, 16, 512, 256), (8, 16, 256, 512)], (8, 16, 512, 512)),
    op("BatchMatMulV2", {"adj_y": True}, [(64, 512, 256), (512, 256)], (64, 512, 512)),
    op("BatchMatMulV2", {"adj_x": True}, [(8, 1, 512, 256), (8, 16, 512, 512)], (8, 16, 256, 512)),
    einsum("abc,cd->abd", (64, 256, 1024), (1024, 1024), (64, 256, 1024)),
    einsum("abd,cd->abc", (64, 256, 1024), (1024, 1024), (64, 256, 1024)),
    einsum("abd,abc->cd", (64, 256, 1024), (64, 256, 1024), (1024, 1024)),
    einsum("bkm,bmn->bkn", (64, 256, 512), (64, 512, 1024), (64, 256, 1024)),
    einsum("mnk,kd->mnd", (64, 256, 512), (512, 1024), (64, 256, 1024)),
    einsum("bqhd,bkhd->bhqk", (16, 512, 16, 256), (16, 512, 16, 256), (16, 16, 512, 512)),
    einsum("bij->bi", (256, 512, 1024), (256, 512)),
    op("BiasAdd", {"data_format": "NHWC"}, [IMAGE, (256,)], IMAGE),
    op("Conv2D", CONV, [IMAGE, (3, 3, 256, 256)], IMAGE),
    op("Conv2D", {**CONV, "strides": (1, 2, 2, 1), "padding": "VALID"}, [IMAGE, (2, 2, 256, 512)], (64, 32, 32, 512)),
    op("Conv2DBackpropInput", CONV, [constant(IMAGE), (3, 3, 256, 256), IMAGE], IMAGE),
    op("Conv2DBackpropFilter", CONV, [IMAGE, constant((3, 3, 256, 256)), IMAGE], (3, 3, 256, 256)),
    op("Conv3D", CONV_3D, [VOLUME, (3, 3, 3, 256, 256)], VOLUME),
    op("Conv3D", APART_3D, [VOLUME, (2, 2, 2, 256, 512)], (8, 8, 16, 16, 512)),
    op("Conv3DBackpropInputV2", CONV_3D, [constant(VOLUME), (3, 3, 3, 256, 256), VOLUME], VOLUME),
    op("Conv3DBackpropFilterV2", CONV_3D, [VOLUME, constant((3, 3, 3, 256, 256)), VOLUME], (3, 3, 3, 256, 256)),
    op("DepthwiseConv2dNative", CONV, [IMAGE, (3, 3, 256, 2)], (64, 64, 64, 512)),
    op("DepthwiseConv2dNativeBackpropInput", CONV, [constant(IMAGE), (3, 3, 256, 1), IMAGE], IMAGE),
    op("DepthwiseConv2dNativeBackpropFilter", CONV, [IMAGE, constant((3, 3, 256, 1)), IMAGE], (3, 3, 256, 1)),
    op("MaxPool", POOL, [IMAGE], HALF),
    op("MaxPoolGrad", POOL, [IMAGE, HALF, HALF], IMAGE),
    op("AvgPool", POOL, [IMAGE], HALF),
    op("AvgPoolGrad", POOL, [constant(IMAGE), HALF], IMAGE),
    op("Softmax", {}, [ROWS], ROWS),
    op("LogSoftmax", {}, [ROWS], ROWS),
    op("SoftmaxCrossEntropyWithLogits", {}, [ROWS, ROWS], (8192,), ROWS),
    op("SparseSoftmaxCrossEntropyWithLogits", {}, [ROWS, Operand((8192,), "int32")], (8192,), ROWS),
    op("FusedBatchNormV3", {**NORM, "exponential_avg_factor": 1.0}, [IMAGE, *[(256,)] * 4], IMAGE, *[(256,)] * 4, (0,)),
    op("FusedBatchNormGradV3", NORM, [IMAGE, IMAGE, *[(256,)] * 4], IMAGE, (256,), (256,), (0,), (0,)),
    op("L2Loss", {}, [ROWS], ()),
    op("AddV2", {}, [ROWS, ROWS], ROWS),
    op("Mul", {}, [ROWS, (4096,)], ROWS),
    op("Tanh", {}, [ROWS], ROWS),
    op("SelectV2", {}, [Operand(ROWS, "bool"), ROWS, ROWS], ROWS),
    op("AddN", {"N": 2}, [ROWS, ROWS], ROWS),
    op("Sum", KEEP, [ROWS, constant((0,))], (4096,)),
    op("Mean", KEEP, [ROWS, constant((1,))], (8192,)),
    op("Max", {"keep_dims": True}, [ROWS, constant((1,))], (8192, 1)),
    op("GatherV2", {"batch_dims": 0}, [(65536, 1024), IDS, constant(0)], (65536, 1024)),
    op("ResourceGather", {"batch_dims": 0, "dtype": "float32"}, [variable(65536, 1024), IDS], (65536, 1024)),
    op("ResourceScatterAdd", {}, [variable(65536, 1024), IDS, (65536, 1024)]),
    op("UnsortedSegmentSum", {}, [(65536, 1024), IDS, constant(1024)], (1024, 1024)),
    op("ResourceApplyAdam", {}, [*[variable(*ROWS)] * 3, *[()] * 6, ROWS]),
    op("ResourceApplyMomentum", {}, [*[variable(*ROWS)] * 2, (), ROWS, ()]),
    op("ResourceApplyGradientDescent", {}, [variable(*ROWS), (), ROWS]),
    op("ResourceApplyAdagradV2", {}, [*[variable(*ROWS)] * 2, (), (), ROWS]),
    op("ResourceApplyRMSProp", {}, [*[variable(*ROWS)] * 3, *[()] * 4, ROWS]),
    op("AssignAddVariableOp", {}, [variable(*ROWS), ROWS]),
    op("Transpose", {}, [ROWS, constant((1, 0))], (4096, 8192)),
    op("ConcatV2", {"N": 2}, [ROWS, ROWS, constant(1)], (8192, 8192)),
    op("Split", {"num_split": 2}, [constant(1), (8192, 8192)], ROWS, ROWS),
    op("Pad", {}, [ROWS, constant(((0, 0), (1, 1)))], (8192, 4098)),
    op("Slice", {}, [ROWS, constant((0, 0)), constant((8192, 2048))], (8192, 2048)),
    op("Tile", {}, [(8192, 1), constant((1, 4096))], ROWS),
    op("Cumsum", {}, [ROWS, constant(0)], ROWS),
]


def imported(signature):
    """The graph of such an op alone, and its index there."""
    with tf.Graph().as_default() as graph:
        given = [_given(number, operand) for number, operand in enumerate(signature.inputs)]
        definition, attributes, words, inferred = op_def(signature.type), dict(signature.attributes), {}, set()
        for argument in definition.input_arg:
            many = argument.number_attr and attributes[argument.number_attr]
            inferred |= {argument.number_attr, argument.type_attr}
            words[argument.name] = given[:many] if many else given[0]
            given = given[many or 1 :]
        renamed = {"reduction_indices": "axis"} | by_parts.RENAMED.get(signature.type, {})
        for attribute in definition.attr:
            if attribute.name in attributes and attribute.name not in inferred:
                words[attribute.name] = by_parts._attribute(attribute.type, attributes[attribute.name])
        made = getattr(tf.raw_ops, signature.type)(**{renamed.get(name, name): each for name, each in words.items()})
        name = made.name if isinstance(made, tf.Operation) else tf.nest.flatten(made)[0].op.name
    found = sources.from_v1(graph, [name])
    return found, found.names.index(name)


def _given(number, operand):
    if operand.dtype.startswith("resource:"):
        dtype = operand.dtype.removeprefix("resource:")
        return v1.get_variable(f"v{number}", operand.shape, dtype, use_resource=True).handle
    if operand.value is not None:
        return tf.constant(operand.value, operand.dtype)
    return v1.placeholder(operand.dtype, operand.shape)


def part(signature, way, k):
    """The op of the first worker."""
    inputs = [
        replace(operand, shape=tuple(geometry.largest_extents(operand.shape, way.need(at), (k,))))
        for at, operand in enumerate(signature.inputs)
    ]
    outputs = tuple(
        (tuple(geometry.largest_extents(shape, Need(gives), (k,))), dtype)
        for (shape, dtype), gives in zip(signature.outputs, way.gives, strict=True)
    )
    told = SHAPE_OPERAND.get(signature.type), REPEATS.get(signature.type)
    if told[0] is not None and way.gives[0][0] >= 0:
        inputs[told[0]] = replace(inputs[told[0]], value=outputs[0][0])
    if told[1] is not None and way.gives[0][0] >= 0:
        times = repeats(signature.inputs[told[1]].value, signature.inputs[0].shape, list(outputs[0][0]))
        inputs[told[1]] = replace(inputs[told[1]], value=tuple(times))
    return replace(signature, inputs=tuple(inputs), outputs=outputs)


def column(values, at, value):
    """A copy with one row set."""
    found = values.copy()
    found[at] = value
    return found


def clone(graph, at, signature, way, k):
    """The graph with a worker's part in place of the op, by the shares that splits count."""
    row = graph.kernels[at]
    cuts, share, divisors = work_share(signature, way, int(row[0]), (k,))
    kernel = -(-row // np.array(divisors))
    if row[0] == PASSES:
        kernel[2] = int(row[2] * share)
    moved = int(np.ceil(graph.moved_bytes[at] * share))
    return replace(
        graph, flops=column(graph.flops, at, graph.flops[at] / cuts), kernels=column(graph.kernels, at, kernel),
        moved_bytes=column(graph.moved_bytes, at, moved),
    )  # fmt: skip


def seconds(graph, at):
    """On two GPUs and on a core."""
    found = [gpu_op_times(graph, preset(name)).seconds[at] for name in ("V100", "A100")]
    return np.array([*found, roofline_s(graph, preset("xeon-core"))[at]])


def _name(signature):
    return f"{signature.type}-{signature.attribute('equation', '')}"


@pytest.mark.parametrize("signature", OPS, ids=_name)
def test_a_part_costs_what_an_op_of_its_shapes_costs(signature):
    """Along every index variable: work, bytes and kernel as imported, and a half takes less than MOST of the whole."""
    graph, at = imported(signature)
    found = [
        way
        for way in admissible_strategies(signature, uncut_strategy(signature), (2,), whole=False, once=False)
        if way.names != (WHOLE_WAY,)
    ]
    assert found
    for way in found:
        half = clone(graph, at, signature, way, 2)
        assert (seconds(half, at) <= MOST * seconds(graph, at)).all(), way.names
        own, there = imported(part(signature, way, 2))
        assert half.flops[at] == pytest.approx(own.flops[there], rel=0.01), way.names
        assert half.moved_bytes[at] == pytest.approx(own.moved_bytes[there], rel=0.01), way.names
        np.testing.assert_allclose(half.kernels[at], own.kernels[there], rtol=1e-5, err_msg=str(way.names))
