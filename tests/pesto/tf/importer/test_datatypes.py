"""Which data type every tensor has, and every op computes in: of mixed precision, loops and branches."""

from typing import Any

import numpy as np
import pytest

from pesto.core.files import graph_file
from pesto.core.graph import Graph
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

import keras  # noqa: E402  # after the quiet load
from keras import layers  # noqa: E402

from pesto.tf.importer.importer import build_graph  # noqa: E402
from pesto.tf.nodes.trip_counts import LOOPS  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402

HALF = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}


def in_types(graph: Graph, op_type: str) -> dict[str, int]:
    """How many ops of a type compute in each data type."""
    ops = np.flatnonzero(graph.type_of == graph.types.index(op_type))
    names = [graph.dtypes[k] if k >= 0 else "" for k in graph.dtype_of[ops].tolist()]
    return {name: names.count(name) for name in names}


def made(graph: Graph, op_type: str) -> set[str]:
    """The data types of what ops of a type return."""
    tensors = np.flatnonzero(graph.type_of[graph.tensor_op] == graph.types.index(op_type))
    return {graph.dtypes[k] for k in graph.tensor_dtype[tensors].tolist()}


def trained(policy: str, *middle: Any) -> Graph:
    """A model whose layers but the last compute by a policy."""
    parts = [layers.Dense(6, "relu", dtype=policy), *middle, layers.Dense(2, dtype="float32")]
    model = keras.Sequential([keras.Input((5, 4)), *parts])
    optimizer: Any = keras.optimizers.Adam()
    if policy == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "mse", jit_compile=False)
    return sources.from_keras(model, 8)


def test_products_of_integers_compute_in_what_they_multiply() -> None:
    """int8 times int8 added up in int32 is the work of int8 units; quantized ops say their types otherwise."""

    def step(x: Any) -> Any:
        scaled = tf.cast(tf.raw_ops.BatchMatMulV3(x=x, y=x, Tout=tf.int32, adj_y=True), tf.float32)
        small = tf.quantization.quantize(scaled, -1.0, 1.0, tf.quint8)
        other = tf.quantization.quantize(scaled, -1.0, 1.0, tf.qint8)
        ranges = {
            name: tf.constant(sign) for name, sign in (("min_a", -1.0), ("max_a", 1.0), ("min_b", -1.0), ("max_b", 1.0))
        }
        return tf.raw_ops.QuantizedMatMul(a=small[0], b=other[0], **ranges).out

    graph = sources.capture_function(step, tf.TensorSpec([8, 8], tf.int8))
    made = build_graph(graph)
    assert in_types(made, "BatchMatMulV3") == {"int8": 1} and in_types(made, "QuantizedMatMul") == {"quint8": 1}


@pytest.mark.parametrize("policy", HALF)
def test_mixed_precision_of_keras(policy: str) -> None:
    """The first layer's products, forward and of its weights, are in half precision, the last's three are not.

    Comparisons count by what they compare, casts by what they make, handles by the variable.
    """
    graph = trained(policy)
    assert in_types(graph, "Relu") == {HALF[policy]: 1}
    assert set(in_types(graph, "MatMul")) == {HALF[policy], "float32"}
    assert set(in_types(graph, "VarHandleOp")) <= {"float32", "int64", "int32"}
    assert made(graph, "VarHandleOp") == {"resource"} and HALF[policy] in made(graph, "Cast")
    again = graph_file.loads(graph_file.dumps(graph), "x")
    for own, read in ((graph.dtype_of, again.dtype_of), (graph.tensor_dtype, again.tensor_dtype)):
        assert [graph.dtypes[k] if k >= 0 else "" for k in own] == [again.dtypes[k] if k >= 0 else "" for k in read]
    assert again.fingerprint() == graph.fingerprint()


def test_the_optimizer_that_a_branch_holds_is_in_float32() -> None:
    """Loss scaling folds the updates into an If, which is divided: 4 weights, and the number of the step."""
    assert in_types(trained("mixed_float16"), "If") == {"float32": 4, "int64": 1}


def test_a_loop_computes_in_what_most_of_its_body_does() -> None:
    """An LSTM in half precision, forward and backward: counters are integers, and weights are cast outside."""
    cell = layers.LSTM(7, use_cudnn=False, dtype="mixed_bfloat16")
    graph = trained("mixed_bfloat16", cell)
    found = {op_type: in_types(graph, op_type) for op_type in LOOPS if op_type in graph.types}
    assert sum(sum(loops.values()) for loops in found.values()) == 2
    assert all(set(loops) == {"bfloat16"} for loops in found.values())


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_loop_of_tensorflow_1_computes_in_what_most_of_its_body_does(dtype: str) -> None:
    """Three products in half or double precision; the counter is an int32."""
    before = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        graph = tf.Graph()
        with graph.as_default():
            w = tf.constant(np.eye(4), dtype)
            _, out = v1.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x @ w), [0, w])
    finally:
        (v1.enable_control_flow_v2 if before else v1.disable_control_flow_v2)()
    found = sources.from_v1(graph, [out])
    assert in_types(found, "WhileV1") == {dtype: 1}
    assert "int32" in made(found, "WhileV1") and dtype in made(found, "WhileV1")
