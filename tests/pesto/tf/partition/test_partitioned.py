"""The partitioned graph: what crosses workers is what was planned, and what it computes is the whole step's."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from partition_bytes import moved

from pesto.core.errors import InputError, UsageError
from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.split.worker_parts import CLONE, REDUCE
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf import models  # noqa: E402
from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.partition import partition_run  # noqa: E402
from pesto.tf.partition.part_variables import split_values  # noqa: E402
from pesto.tf.partition.partition_run import TOLERANCE, run_parts  # noqa: E402
from pesto.tf.partition.partitioned import partition  # noqa: E402
from pesto.tf.run.runnable import make_runnable  # noqa: E402
from pesto.tf.shaping.shaping import shape  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

FACTORS = [(2,), (3,), (4,), (2, 2)]
MODELS = ["rnnlm", "nmt", "transformer", "nasnet", "wrn"]
SOME = [("rnnlm", (2, 2)), ("nmt", (3,)), ("transformer", (4,)), ("nasnet", (2,)), ("wrn", (2, 2))]
OTHERS = [pytest.param(*pair, marks=pytest.mark.night) for pair in product(MODELS, FACTORS) if pair not in SOME]
BATCH, WIDTH = 12, 24


def model(name):
    """The captured step of a built-in model, what its ops are, and the step."""
    step = models.build(name, "tiny", None)
    captured = sources.capture_v1(step.graph, step.fetches, source=name)
    return captured, shape(captured)[1], step


def captured_step(graph, fetches):
    """Of a graph made here."""
    captured = sources.capture_v1(graph, fetches, source="a step")
    return captured, shape(captured)[1], make_runnable(captured, resolve_shapes(captured, None))


def divided(shaped, factors, *, replicate=False, method="exact"):
    return divide(shaped, factors, method, Rules(replicate=replicate), seconds=60)


def built(captured, shaped, division):
    """Its graph on logical CPUs; the host is CPU 0."""
    devices = [f"/device:CPU:{k + 1}" for k in range(division.workers)]
    return partition(captured.graph_def, shaped, division, captured.fetches, devices=devices)


def check(captured, shaped, step, factors, method="exact"):
    """Bytes, losses and what workers hold, of one division."""
    split = divided(shaped, factors, method=method)
    made = built(captured, shaped, split.division)
    assert moved(made.graph_def) == split.moved_bytes == made.parts.moved_bytes()
    ran = run_parts(captured, shaped, split.division, step, steps=4)
    assert ran.as_whole, ran
    assert ran.finite and not ran.moves
    assert ran.losses and ran.variables == len(made.variables)
    return ran


def test_a_model_runs_in_parts():
    """Built bytes are the planned ones, losses and variables those of the whole step, and each holds its share."""
    ran = check(*model("rnnlm"), (2,))
    assert ran.variables_distance <= TOLERANCE
    assert ran.held <= 0.52


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("rnnlm", (2,)),
        *(pytest.param(*pair, marks=pytest.mark.slow)
          for pair in (("rnnlm", (2, 2)), ("nmt", (4,)), ("transformer", (2,)), ("nasnet", (2,)), ("wrn", (2, 2)))),
    ],
)  # fmt: skip
def test_replicas_train_as_the_whole_step(name, factors):
    """Data parallelism, with gradients kept as summands: the bytes as counted, losses and variables as of the whole."""
    ran = check(*model(name), factors, method="data-parallel")
    assert ran.held == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "factors"), [*SOME, *OTHERS])
def test_all_models_run_in_parts(name, factors):
    """Ditto for every model and factor; what no factor of its shapes divides stays whole.

    A variable that is nearly zero is further from the whole step's, in terms of itself; where a processor's kernels
    have batch normalisation carry roundings far, the whole step is as far from itself.
    """
    ran = check(*model(name), factors)
    assert ran.variables_distance <= max(5 * TOLERANCE, ran.nudged_distance or 0.0)
    assert factors == (3,) or ran.held <= 1 / np.prod(factors) + 0.02


@pytest.mark.parametrize("turns", [1, 12])
def test_a_step_that_carries_roundings_far_is_told_from_a_wrong_one(turns, monkeypatch):
    """A logistic map doubles them at every turn: the whole step's own distance says so."""
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(5)
        x = v1.placeholder(tf.float32, [BATCH, WIDTH], name="x")
        weight = v1.get_variable("weight", [WIDTH, WIDTH], use_resource=True)
        squares = tf.reduce_mean((tf.math.l2_normalize(x, 1) @ weight) ** 2)
        value = squares / (0.05 + squares)
        for _ in range(turns):
            value = 3.99 * value * (1 - value)
        tf.identity(value, name="value")
        v1.train.GradientDescentOptimizer(1e-3).minimize(squares)
    captured, shaped, step = captured_step(graph, ["value", "GradientDescent"])
    division = divided(shaped, (4,)).division
    ran = run_parts(captured, shaped, division, step, steps=3)
    assert ran.as_whole and (ran.losses_distance > TOLERANCE) == (turns > 1) == (ran.nudged_distance is not None)
    if turns == 1:
        monkeypatch.setattr(
            partition_run, "split_values", lambda *given: {k: v * 1.01 for k, v in split_values(*given).items()}
        )
        wrong = run_parts(captured, shaped, division, step, steps=3)
        assert not wrong.as_whole and 10 * wrong.nudged_distance < wrong.variables_distance


def trapped():
    """A step of all that is easily divided wrongly."""
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(5)
        x = v1.placeholder(tf.float32, [BATCH, WIDTH, WIDTH, 3], name="x")
        lengths = v1.placeholder(tf.int32, [BATCH], name="lengths")
        kernel, dense = (
            v1.get_variable(name, size, use_resource=True)
            for name, size in (("kernel", [3, 3, 3, WIDTH]), ("dense", [WIDTH * 16, WIDTH]))
        )
        with tf.name_scope("pooled"):
            pooled = tf.nn.avg_pool2d(tf.nn.relu(tf.nn.conv2d(x, kernel, 2, "SAME")), 3, 3, "SAME")
        turned = tf.reverse_sequence(tf.reshape(pooled, [BATCH, 16, WIDTH]), lengths, 1, 0)
        hidden = tf.nn.dropout(tf.reshape(turned, [BATCH, -1]), rate=0.3) @ dense
        chosen = tf.raw_ops.Select(condition=lengths > 0, x=hidden, y=tf.fill([BATCH, WIDTH], 0.5) * hidden)
        loss = tf.reduce_mean(chosen**2, name="loss")
        steps = v1.get_variable("steps", [], tf.int64, use_resource=True, trainable=False)
        update = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        with tf.control_dependencies([update]):
            one = tf.constant(1, tf.int64, name="one")
            count = tf.raw_ops.AssignAddVariableOp(resource=steps.handle, value=one)
        with tf.control_dependencies([count]):
            tf.raw_ops.ReadVariableOp(resource=steps.handle, dtype=tf.int64, name="counted")
    return graph


@pytest.fixture(scope="module")
def trap():
    return captured_step(trapped(), ["loss", "counted"])


def types_cut(shaped, division):
    """Types of ops that are cut."""
    return {
        shaped.signature(op).type for op, way in enumerate(division.strategies) if set(way.names) - {"whole", "once"}
    }


@pytest.fixture(scope="module", params=[((2, 2), False), ((3,), True)], ids=str)
def traps(trap, request):
    factors, replicate = request.param
    captured, shaped, step = trap
    division = divided(shaped, factors, replicate=replicate).division
    return captured, shaped, division, run_parts(captured, shaped, division, step, steps=3), replicate


def test_traps_compute_the_same(traps):
    """Operands that hold shapes, means of parts, Select by rows, lengths, random numbers, slots: as in the whole."""
    _, shaped, division, ran, replicate = traps
    assert ran.as_whole and ran.variables_distance <= TOLERANCE, ran
    cut = types_cut(shaped, division)
    assert {"Conv2DBackpropFilter", "Reshape", "MatMul", "ResourceApplyMomentum"} - cut <= (
        {"ResourceApplyMomentum"} if replicate else set()
    )
    if replicate:
        assert cut >= {"AvgPoolGrad", "Select", "ReverseSequence"}


def test_what_runs_once_and_what_all_do(traps):
    """Random numbers are drawn by one; a counter is counted by every worker that holds it, behind all its updates."""
    captured, shaped, division, ran, _ = traps
    made = built(captured, shaped, division)
    nodes = {node.name: node for node in made.graph_def.node}
    random = [n.name for n in made.graph_def.node if n.op == "RandomUniform"]
    assert len(random) == 1 and random[0].startswith("w0/")
    counters = [n for n in made.graph_def.node if n.op == "AssignAddVariableOp"]
    assert len(counters) == division.workers
    # Its constant is known without its op, so what that waits for is waited for by who adds it.
    for node in counters:
        worker = node.name.split("/")[0]
        assert f"^{worker}/Momentum" in [text for text in node.input if text[0] == "^"]
        handle = nodes[node.input[0]]
        assert handle.op == "VarHandleOp" and handle.device == node.device
    shared = [n.attr["shared_name"].s for n in made.graph_def.node if n.op == "VarHandleOp"]
    assert len(set(shared)) == len(shared)
    assert "counted:0" in ran.losses
    update = next(n for n in made.graph_def.node if n.name == "w0/Momentum")
    assert update.op == "NoOp" and {text.split("/")[0] for text in update.input} == {"^w0"}


def test_variables_and_slots_lie_alike(traps):
    """A slot has the parts of its variable, on the same workers."""
    captured, shaped, division, _, _ = traps
    made = {v.name: v for v in built(captured, shaped, division).variables}
    assert len(made) == 5
    for name in ("kernel", "dense"):
        assert made[name].boxes == made[f"{name}/Momentum"].boxes


def test_means_of_parts_are_divided(traps):
    """The mean of a batch in parts is the sum of their means over their number."""
    captured, shaped, division, _, _ = traps
    made = built(captured, shaped, division)
    scaled = [part for part in made.parts.parts if part.kind == REDUCE and part.scale > 1]
    assert {part.scale for part in scaled} == {division.workers}
    sums = [node.input for node in made.graph_def.node if node.op == "RealDiv" and "/reduced" in node.name]
    constants = {
        node.name: tf.make_ndarray(node.attr["value"].tensor) for node in made.graph_def.node if node.op == "Const"
    }
    assert sums and all(constants[number] == division.workers for _, number in sums)


def test_loops_stay_one_op_with_their_functions():
    """A loop is one op of the first worker, and the function library is kept."""
    graph = tf.Graph()
    with graph.as_default():
        v1.enable_control_flow_v2()
        x = v1.placeholder(tf.float32, [BATCH, WIDTH], name="x")
        w = v1.get_variable("w", [WIDTH, WIDTH], use_resource=True)
        hidden = tf.tanh(x @ w)
        _, found = tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a * 0.5), (0, hidden))
        tf.reduce_sum(found, name="loss")
    captured, shaped, step = captured_step(graph, ["loss"])
    division = divided(shaped, (2,)).division
    made = built(captured, shaped, division)
    loops = [node.name for node in made.graph_def.node if node.op in ("While", "StatelessWhile")]
    assert len(loops) == 1 and loops[0].startswith("w0/")
    assert len(made.graph_def.library.function) == len(captured.graph_def.library.function) > 0
    assert run_parts(captured, shaped, division, step, steps=1).as_whole


def test_constants_are_cut_as_they_are_needed():
    """A small constant beside a tensor that is cut is its part on each worker."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [WIDTH * 64, WIDTH], name="x")
        w = v1.get_variable("w", [WIDTH, WIDTH], use_resource=True)
        factor = tf.constant(np.linspace(0, 1, WIDTH, dtype=np.float32))
        tf.reduce_max(tf.tanh(x @ w) * factor, name="loss")
    captured, shaped, step = captured_step(graph, ["loss"])
    division = divided(shaped, (2,)).division
    ran = run_parts(captured, shaped, division, step, steps=1)
    assert ran.as_whole and "MatMul" in types_cut(shaped, division)


def test_keras_step_from_its_live_variables():
    """A Keras model's step, with dropout and Adam, starts from what its variables hold."""
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    net = tf.keras.Sequential(
        [tf.keras.Input((16,)), layers.Dense(32, activation="relu"), layers.Dropout(0.3), layers.Dense(4)]
    )
    net.compile(optimizer="adam", loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    captured = sources.capture_keras(net, BATCH)
    shaped = shape(captured, batch=BATCH)[1]
    step = make_runnable(captured, resolve_shapes(captured, BATCH))
    ran = run_parts(captured, shaped, divided(shaped, (2,)).division, step, steps=3)
    assert ran.as_whole and ran.held < 0.52
    kernel = captured.values[next(name for name in captured.values if "Cast/ReadVariableOp" in name)]
    assert kernel.dtype == tf.resource


def test_keras_step_with_gradients_of_nothing_but_rounding():
    """A bias before batch normalisation has no gradient: its noise is not taken for a wrong step."""
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    net = tf.keras.Sequential(
        [tf.keras.Input((8, 8, 4)), layers.Conv2D(8, 3), layers.BatchNormalization(), layers.Activation("gelu"),
         layers.GlobalAveragePooling2D(), layers.Dense(4)]
    )  # fmt: skip
    net.compile(optimizer=tf.keras.optimizers.SGD(0.1, momentum=0.9), loss="mae")
    captured = sources.capture_keras(net, BATCH)
    shaped = shape(captured, batch=BATCH)[1]
    step = make_runnable(captured, resolve_shapes(captured, BATCH))
    ran = run_parts(captured, shaped, divided(shaped, (2,)).division, step, steps=3)
    assert ran.as_whole and ran.variables_distance <= TOLERANCE, ran


def test_a_wrong_division_is_found():
    """Means of parts that are added up and not divided: the loss is twice the whole step's."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [BATCH, WIDTH], name="x")
        tf.reduce_mean(tf.tanh(x), name="loss")
    captured, shaped, step = captured_step(graph, ["loss"])
    whole = divided(shaped, (2,)).division
    wrong = replace(whole, strategies=tuple(replace(way, scaled=False) for way in whole.strategies))
    assert wrong != whole
    ran = run_parts(captured, shaped, wrong, step, steps=1)
    assert not ran.as_whole and ran.losses_distance == pytest.approx(0.5, rel=1e-3)


def test_nan_where_the_whole_step_has_nan_is_equal():
    """A step that is not finite on the drawn feeds, 0 / 0 or the like, is no wrong division."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [BATCH, WIDTH], name="x")
        tf.reduce_mean(tf.sqrt(-1.0 - tf.abs(x)), name="loss")
    captured, shaped, step = captured_step(graph, ["loss"])
    ran = run_parts(captured, shaped, divided(shaped, (2,)).division, step, steps=1)
    assert ran.as_whole and not ran.finite and ran.losses_distance == 0


def test_a_branch_that_updates_a_variable_is_refused_with_what_users_of_keras_can_do():
    """Keras writes such branches itself, so that its users cannot read the variable before them."""
    graph = tf.Graph()
    with graph.as_default():
        v1.enable_control_flow_v2()
        x = v1.placeholder(tf.float32, [BATCH, WIDTH], name="x")
        w = v1.get_variable("w", [WIDTH], use_resource=True)
        mean = tf.reduce_mean(x, 0)
        tf.cond(mean[0] > 0, lambda: w.assign_sub(mean) * w, lambda: mean, name="loss")
        (end,) = [op.name for op in graph.get_operations() if op.type == "If"]
    remedy = "gradient_accumulation_steps, leave that option out, or place the step whole by pesto.solve"
    with pytest.raises(InputError, match=rf"op {end}: .* read the variable before it, .*{remedy}"):
        captured_step(graph, [end])


def test_names_and_devices():
    """Names that look like a worker's are not taken twice; wrong devices and graphs are refused."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [BATCH, WIDTH], name="w0/x")
        tf.reduce_sum(tf.tanh(x), name="w0/loss")
    captured, shaped, step = captured_step(graph, ["w0/loss"])
    division = divided(shaped, (2,)).division
    made = built(captured, shaped, division)
    names = [node.name for node in made.graph_def.node]
    assert len(set(names)) == len(names) and any(name.startswith("w_0/") for name in names)
    assert run_parts(captured, shaped, division, step, steps=1).as_whole
    with pytest.raises(UsageError, match="1 devices for 2 workers"):
        partition(captured.graph_def, shaped, division, captured.fetches, devices=["/device:CPU:0"])
    with pytest.raises(InputError, match="is not in the graph"):
        partition(tf.Graph().as_graph_def(), shaped, division, captured.fetches)
    default = partition(captured.graph_def, shaped, division, captured.fetches)
    assert default.devices == ("/device:GPU:0", "/device:GPU:1")
    assert {part.kind for part in default.parts.parts} >= {CLONE, REDUCE}
