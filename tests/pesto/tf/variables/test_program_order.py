"""Program order of what touches a variable: the edges that the importer adds, and what a step computes without."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pesto.core.graph import Graph
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1, raw = tf.compat.v1, tf.raw_ops

from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.nodes.needed_nodes import StepNodes  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load
from pesto.tf.variables.program_order import find_hazard_edges  # noqa: E402

UPDATE = "apply/update_w2/ApplyGradientDescent"
BACKWARD = "train/gradients/output_grad/MatMul"


def variable(name: str, shape: Sequence[int], *, resource: bool = False) -> Any:
    return v1.get_variable(name, shape, use_resource=resource, initializer=v1.ones_initializer())


def perceptron(
    optimizer: str = "GradientDescent", *, resource: bool = False, gate: int = 0, decay: bool = False
) -> tuple[Any, list[Any]]:
    """Two layers; the gradient of the first passes through w2, for which the update of w2 waits only with gate 1.

    That is `tf.gradients`' default, by which all gradients of one op wait for each other.
    """
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [4, 8], name="x")
        w1, w2 = variable("w1", [8, 6], resource=resource), variable("w2", [6, 3], resource=resource)
        y = tf.matmul(tf.tanh(tf.matmul(x, w1)), w2, name="output")
        loss = tf.reduce_mean(tf.square(y - 1.0)) + (raw.L2Loss(t=w2, name="decay") if decay else 0.0)
        loss = tf.identity(loss, name="loss")
        with tf.name_scope("train"):
            optimizer_ = getattr(v1.train, f"{optimizer}Optimizer")(0.5)
            pairs = optimizer_.compute_gradients(loss, [w1, w2], gate_gradients=gate)
        train = optimizer_.apply_gradients(pairs, name="apply")
    return graph, [train, loss]


def step_nodes(graph: Any, fetches: Sequence[Any]) -> StepNodes:
    return resolve_shapes(sources.capture_v1(graph, fetches), None)


def named(nodes: StepNodes) -> list[tuple[str, str]]:
    """The edges by name."""
    return [(nodes.defs[a].name, nodes.defs[b].name) for a, b in find_hazard_edges(nodes)]


def named_in(graph: Graph) -> set[tuple[str, str]]:
    pairs = zip(graph.control_src.tolist(), graph.control_dst.tolist(), strict=True)
    return {(graph.names[a], graph.names[b]) for a, b in pairs}


def topological(nodes: StepNodes, extra: Sequence[tuple[int, int]], key: Callable[[int], Any]) -> list[int]:
    """A topological order of the nodes and extra edges: always the ready node of the least key."""
    before = [{p for p, _ in nodes.inputs[i]} | set(nodes.controls[i]) for i in range(len(nodes.defs))]
    for a, b in extra:
        before[b].add(a)
    order: list[int] = []
    left = set(range(len(nodes.defs)))
    while left:
        order.append(min((i for i in left if not before[i] & left), key=key))
        left.remove(order[-1])
    return order


def session(graph: Any) -> Any:
    """A session on two logical CPUs that runs the graph as it stands: no Grappler, no other optimisation."""
    config = v1.ConfigProto(device_count={"CPU": 2})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    return v1.Session(graph=graph, config=config)


def losses(nodes: StepNodes, order: Sequence[int], seed: int, extra: Sequence[tuple[int, int]] = ()) -> list[float]:
    """Three steps with all ops chained in `order`, those without references on either CPU at random."""
    rng, graph_def, last = np.random.default_rng(seed), v1.GraphDef(), ""
    values = np.random.default_rng(5)
    for i in order:
        node = graph_def.node.add()
        node.CopyFrom(nodes.defs[i])
        node.attr.pop("_class", None)
        node.input.extend(f"^{nodes.defs[a].name}" for a, b in extra if b == i)
        touches = nodes.signatures.has_ref(node) or "Variable" in node.op or "Resource" in node.op
        node.device = "/cpu:0" if touches or "VarHandle" in node.op else f"/cpu:{rng.integers(2)}"
        if node.op not in ("VariableV2", "VarHandleOp", "Placeholder"):
            node.input.extend([f"^{last}"] if last else [])
            last = node.name
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
        init = []
        for node in nodes.defs:
            if node.op in ("VariableV2", "VarHandleOp"):
                shape = [d.size for d in node.attr["shape"].shape.dim]
                value = tf.constant(values.uniform(0.1, 1, shape).astype(np.float32))
                made = graph.get_tensor_by_name(f"{node.name}:0")
                ref = node.op == "VariableV2"
                init.append(
                    raw.Assign(ref=made, value=value) if ref else raw.AssignVariableOp(resource=made, value=value)
                )
        x = values.uniform(size=(4, 8))
        with session(graph) as run:
            run.run(init)
            return [float(run.run(["loss:0", "apply"], {"x:0": x})[0]) for _ in range(3)]


@pytest.fixture(scope="module")
def reference_step() -> StepNodes:
    return step_nodes(*perceptron())


def test_an_edge_from_an_update_to_the_backward_pass_changes_the_loss(reference_step: StepNodes) -> None:
    """By hand: dY @ w2' after the update of w2 reads the new w2 on either CPU. Only the edges forbid it."""
    nodes = reference_step
    at = {node.name: i for i, node in enumerate(nodes.defs)}
    assert nodes.defs[at[UPDATE]].op == "ApplyGradientDescent" and nodes.defs[at[BACKWARD]].op == "MatMul"
    wrong = [(at[UPDATE], at[BACKWARD])]
    right = losses(nodes, topological(nodes, find_hazard_edges(nodes), int), 0)
    assert right[0] > right[1]  # the step learns
    for seed in (1, 2, 3):
        found = losses(nodes, topological(nodes, wrong, int), seed, wrong)
        assert found[0] == right[0] and found[1] != right[1]
    assert (BACKWARD, UPDATE) in named(nodes)
    with pytest.raises(ValueError, match="min"):  # no ready node is left
        topological(nodes, [*find_hazard_edges(nodes), *wrong], int)


def test_every_order_of_the_edges_computes_the_same(reference_step: StepNodes) -> None:
    """Updates as early as the edges allow and random orders give program order's losses; without the edges not."""
    nodes = reference_step
    edges, right = find_hazard_edges(nodes), losses(nodes, range(len(nodes.defs)), 0)

    def eager(i: int) -> tuple[bool, int]:
        # Everything that an update needs first, then the update, then what else there is.
        return nodes.defs[i].name == BACKWARD, i

    assert losses(nodes, topological(nodes, edges, eager), 1) == right
    assert losses(nodes, topological(nodes, [], eager), 1) != right
    for seed in range(6):
        key = np.random.default_rng(seed).permutation(len(nodes.defs))
        assert losses(nodes, topological(nodes, edges, key.__getitem__), seed) == right


@pytest.mark.parametrize("optimizer", ["GradientDescent", "Adam"])
def test_resource_variables_need_no_edge_in_a_plain_step(optimizer: str) -> None:
    """What is read is a value, and every update waits for it through the loss: the graph orders all there is."""
    assert named(step_nodes(*perceptron(optimizer, resource=True))) == []


def test_gated_gradients_leave_only_what_no_gradient_waits_for() -> None:
    """By default TensorFlow orders the backward pass itself, but not the value of a weight decay."""
    assert named(step_nodes(*perceptron(gate=1))) == []
    assert named(step_nodes(*perceptron(gate=1, decay=True))) == [("decay", UPDATE)]


def test_the_edges_are_in_the_graph() -> None:
    """The importer adds them to the control edges."""
    assert (BACKWARD, UPDATE) in named_in(sources.from_v1(*perceptron()))


def later(read: Callable[[Any], Any], *, resource: bool, first: bool = False) -> list[tuple[str, str]]:
    """Edges of a read and an update `up` of w that nothing orders; the read is made second, or `first`."""
    graph = tf.Graph()
    with graph.as_default():
        w = variable("w", [4, 4], resource=resource)
        made = [tf.identity(read(w), name="out")] if first else []
        up = (w.assign_add(tf.ones([4, 4]), name="up") if resource else v1.assign_add(w, tf.ones([4, 4]), name="up")).op
        made = made or [tf.identity(read(w), name="out")]
    return named(step_nodes(graph, [up, *made]))


def test_program_order_decides_what_the_graph_leaves_open() -> None:
    """A resource's read follows the update that was made before it, and precedes one made after."""
    assert later(lambda w: raw.ReadVariableOp(resource=w.handle, dtype=tf.float32, name="read"), resource=True) == [
        ("up", "read")
    ]
    found = later(
        lambda w: raw.ReadVariableOp(resource=w.handle, dtype=tf.float32, name="read"), resource=True, first=True
    )
    assert found == [("read", "up")]


def test_a_view_is_read_where_it_was_taken() -> None:
    """`w/read` is made with the variable, so its users precede an update however late they are made."""
    assert later(lambda w: raw.Neg(x=w, name="use"), resource=False) == [("use", "up")]


def test_what_the_graph_orders_keeps_its_order() -> None:
    """A moving average after the update reads through a view taken before it: only taking the view comes first."""
    graph = tf.Graph()
    with graph.as_default():
        w = variable("w", [4])
        up = v1.assign_add(w, tf.ones([4]), name="up").op
        with tf.control_dependencies([up]):
            use = tf.identity(raw.Neg(x=w, name="use"), name="out")
    assert named(step_nodes(graph, [use])) == [("w/read", "up")]


def test_two_handles_of_one_name_are_one_variable() -> None:
    """TensorFlow finds a variable by its shared name: a read by one handle and an update by another meet."""
    graph = tf.Graph()
    with graph.as_default():
        a, b = (raw.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name=name) for name in "ab")
        read = raw.ReadVariableOp(resource=a, dtype=tf.float32, name="read")
        up = raw.AssignAddVariableOp(resource=b, value=[1.0, 1.0], name="up")
    assert named(step_nodes(graph, [read, up])) == [("read", "up")]


VIEWS: dict[str, Callable[[Any], Any]] = {
    "Identity": lambda x: raw.Identity(input=x),
    "Reshape": lambda x: raw.Reshape(tensor=x, shape=[-1]),
    "Bitcast": lambda x: raw.Bitcast(input=x, type=tf.int32),
    "Slice": lambda x: x[1:3],
    "Split": lambda x: raw.Split(axis=0, value=x, num_split=2)[1],
    "Unpack": lambda x: raw.Unpack(value=x, num=4, axis=0)[1],
    "Pack": lambda x: raw.Pack(values=[x]),
    "Cast": lambda x: raw.Cast(x=x, DstT=tf.float32),
    "Sum": lambda x: raw.Sum(input=x, axis=tf.zeros([0], tf.int32)),
    "TensorArray": lambda x: v1.TensorArray(tf.float32, 1).write(0, x).read(0),
    "TensorList": lambda x: raw.TensorListGetItem(
        input_handle=raw.TensorListPushBack(
            input_handle=raw.EmptyTensorList(element_shape=[4, 16, 16], max_num_elements=1, element_dtype=tf.float32),
            tensor=x,
        ),
        index=0, element_shape=[4, 16, 16], element_dtype=tf.float32,
    ),
    "loop": lambda x: tf.while_loop(lambda i, _: i < 1, lambda i, y: (i + 1, y), [0, x])[1],
}  # fmt: skip
COPIES: dict[str, Callable[[Any], Any]] = {
    "Relu": lambda x: raw.Relu(features=x),
    "Cast": lambda x: raw.Cast(x=x, DstT=tf.float64),
    "Sum": lambda x: raw.Sum(input=x, axis=[0]),
    "GatherV2": lambda x: raw.GatherV2(params=x, indices=[0], axis=0),
}


def viewed(view: Callable[[Any], Any]) -> tuple[bool, bool]:
    """Whether TensorFlow's view changes with the variable; whether its user must precede the update."""
    graph = tf.Graph()
    with graph.as_default():
        w = variable("w", [4, 16, 16])
        seen = view(w.value())
        use = raw.AddV2(x=seen, y=tf.ones([], seen.dtype), name="use")
        up = v1.assign_add(w, tf.ones([4, 16, 16]), name="up")
        nodes = step_nodes(graph, [use, up])
        with tf.control_dependencies([seen]):
            after = v1.assign_add(w, tf.ones([4, 16, 16]))
        with session(graph) as run:
            run.run(v1.global_variables_initializer())
            old, _ = run.run([tf.math.add(seen, 0 if seen.dtype.is_integer else 0.0), seen])
            new, _ = run.run([seen, after])
    return not np.array_equal(old, new), ("use", "up") in named(nodes)


@pytest.mark.parametrize("name", VIEWS)
def test_users_of_a_view_precede_the_update(name: str) -> None:
    """Seen by running it: the view of a reference variable changes when the variable does."""
    assert viewed(VIEWS[name]) == (True, True)


@pytest.mark.parametrize("name", COPIES)
def test_users_of_a_copy_may_follow_the_update(name: str) -> None:
    """What computes anew keeps its value, and its users stay free."""
    assert viewed(COPIES[name]) == (False, False)


def loop_and_update(*, resource: bool, new: bool, first: str, writes: bool = False) -> tuple[Any, list[Any]]:
    """y = y * w three times in a loop, and an update `up` of w outside, which nothing orders."""
    graph = tf.Graph()
    with graph.as_default():
        (v1.enable_control_flow_v2 if new else v1.disable_control_flow_v2)()
        w, y = variable("w", [4], resource=resource), v1.placeholder(tf.float32, [4], name="y")

        def body(i: Any, y: Any) -> Any:
            with tf.control_dependencies([w.assign_add(tf.ones([4]))] if writes else []):
                return i + 1, y * w

        def loop() -> Any:
            return tf.while_loop(lambda i, _: i < 3, body, [0, y], name="loop")[1]

        def up() -> Any:
            return (w.assign_add(tf.ones([4]), name="up") if resource else v1.assign_add(w, tf.ones([4]), name="up")).op

        made = {name: {"loop": loop, "up": up}[name]() for name in (first, "up" if first == "loop" else "loop")}
        out = tf.identity(made["loop"], name="out")
        v1.enable_control_flow_v2()
    return graph, [out, made["up"]]


@pytest.mark.parametrize("first", ["loop", "up"])
@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("writes", [True, False])
def test_a_loop_that_takes_a_handle_and_an_update_keep_program_order(new: bool, first: str, writes: bool) -> None:
    """One edge between the loop as a whole and the update, in the order in which they were made, and no cycle."""
    found = sources.from_v1(*loop_and_update(resource=True, new=new, first=first, writes=writes))
    loop = next(n for n, t in zip(found.names, found.type_of, strict=True) if "While" in found.types[t])
    pair = (loop, "up") if first == "loop" else ("up", loop)
    assert named_in(found) & {(loop, "up"), ("up", loop)} == {pair}


@pytest.mark.parametrize("first", ["loop", "up"])
def test_a_loop_that_reads_a_reference_variable_precedes_the_update(first: str) -> None:
    """The view enters the loop from `w/read`, which was made before either: one edge from the loop to the update."""
    found = sources.from_v1(*loop_and_update(resource=False, new=False, first=first))
    (pair,) = named_in(found)
    assert pair[1] == "up" and found.types[found.type_of[found.names.index(pair[0])]] == "WhileV1"


def test_a_loop_behind_the_update_makes_no_cycle() -> None:
    """The loop starts with what the update returns, and reads the variable: as one step it can only follow."""
    graph = tf.Graph()
    with graph.as_default():
        v1.disable_control_flow_v2()
        w = variable("w", [4])
        up = tf.identity(v1.assign_add(w, tf.ones([4]), name="up"))
        out = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * w), [0, up], name="loop")[1]
        v1.enable_control_flow_v2()
    assert named(step_nodes(graph, [out])) == [("w/read", "up")]
    assert sources.from_v1(graph, [out]).ops > 0


def test_loops_that_only_read_are_free_of_each_other() -> None:
    """Two While nodes that take one handle: an edge where one of them writes, none where both read."""
    for writes in (False, True):
        graph = tf.Graph()
        with graph.as_default():
            v1.enable_control_flow_v2()
            w = variable("w", [4], resource=True)

            def body(i: Any, y: Any, w: Any = w, writes: bool = writes) -> Any:
                with tf.control_dependencies([w.assign_add(y)] if writes else []):
                    return i + 1, y * w

            outs = [tf.while_loop(lambda i, _: i < 3, body, [0, tf.ones([4])])[1] for _ in range(2)]
            outs = [tf.identity(o) for o in outs]
        assert len(named(step_nodes(graph, outs))) == writes


def test_automatic_control_dependencies_leave_nothing_open() -> None:
    """A function's trace orders its variables itself: a read, an update, a read, and a whole Keras step."""
    import keras

    v = tf.Variable([1.0, 2.0])

    @tf.function
    def step(x: Any) -> Any:
        before = v * x
        v.assign_add(x)
        return before + v

    captured = [sources.capture_function(step, tf.TensorSpec([2]))]
    model = keras.Sequential([keras.Input((8,)), keras.layers.BatchNormalization(), keras.layers.Dense(3)])
    model.compile("adam", "mse", jit_compile=False)
    captured.append(sources.capture_keras(model, 4))
    assert [named(resolve_shapes(c, 4)) for c in captured] == [[], []]
