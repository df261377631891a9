"""Scratch memory of TensorFlow 2.21's CPU kernels: what a kernel allocates beside its outputs and frees when it ends.

Only kernels whose scratch can outweigh their tensors are listed; it does not depend on the data, but on shapes and on
cache sizes that the kernels assume. On GPUs the kernels are cuDNN's, which chooses an algorithm, and with it the
scratch, when it first runs: nothing is known of them beforehand.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from pesto.core.graph import Graph
from pesto.tf.nodes.needed_nodes import Shape, StepNodes
from pesto.tf.variables.variables import size_of
from solvers.arrays import Ints

_L3 = 30 << 20
_L2 = 256 << 10
"""Bytes of cache that the convolutions' gradients assume (conv_grad_filter_ops.cc, conv_grad_input_ops.h)."""


def workspaces(graph: Graph, nodes: StepNodes) -> Ints:
    """[n] bytes that each op of `graph` allocates beside its outputs on a CPU with one thread an op.

    `nodes` are the step's nodes with known shapes, by the graph's names. Ops of loops' bodies are left out.
    """
    index = {name: i for i, name in enumerate(graph.names)}
    result = np.zeros(graph.ops, dtype=np.int64)
    for k, node in enumerate(nodes.defs):
        rule = _RULES.get(node.op)
        if rule is not None and node.name in index and nodes.dtypes[k]:
            shapes = [*nodes.input_shapes(k), *nodes.shapes[k]]
            if all(s is not None and -1 not in s for s in shapes):
                result[index[node.name]] = rule(shapes, size_of(nodes.dtypes[k][0]))
    return result


def _columns(image: int, patch: int, depth: int, element: int, batch: int | None) -> int:
    """Bytes of the im2col buffer of a convolution's gradient: as many images as fill the assumed L3 cache.

    image: pixels of an output; patch: values that one output value is made of; depth: output channels. The gradient of
    the input (`batch` given) takes one image at a time if there is but one, or one is work enough for a thread.
    """
    unit = image * patch + image * depth + patch * depth
    alone = batch is not None and (batch == 1 or unit >= _L2 // element)
    return (1 if alone else -(-(_L3 // element) // unit)) * image * patch * element


def _filter_gradient(shapes: list[Shape], element: int) -> int:
    """Conv2DBackpropFilter(input, filter_sizes, out_backprop) -> filter [rows, columns, in, out]."""
    (_, rows, columns, depth), kernel = _known(shapes[2]), _known(shapes[3])
    return _columns(rows * columns, math.prod(kernel[:3]), depth, element, None)


def _input_gradient(shapes: list[Shape], element: int) -> int:
    """Conv2DBackpropInput(input_sizes, filter, out_backprop)."""
    kernel, (batch, rows, columns, depth) = _known(shapes[1]), _known(shapes[2])
    return _columns(rows * columns, math.prod(kernel[:3]), depth, element, batch)


def _max_pool_gradient(shapes: list[Shape], element: int) -> int:  # noqa: ARG001
    """MaxPoolGrad(input, output, gradient): where each maximum was, as int64 (maxpooling_op.cc)."""
    return 8 * math.prod(_known(shapes[1]))


def _known(shape: Shape) -> tuple[int, ...]:
    return shape or ()


_RULES: Mapping[str, Callable[[list[Shape], int], int]] = {
    "Conv2DBackpropFilter": _filter_gradient,
    "Conv2DBackpropInput": _input_gradient,
    "MaxPoolGrad": _max_pool_gradient,
}
