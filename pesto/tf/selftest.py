"""Tests that TensorFlow's private names mean what Pesto takes them for; `pesto doctor` and every `apply` run them."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError
from pesto.tf import private
from pesto.tf.variables.handles import find_dataset_capture, find_holders

v1 = tf.compat.v1

_CHECKS: list[tuple[str, Callable[[], bool]]] = []
"""The name that each check tests, and the check."""
_REMEDY = "install tensorflow>=2.21,<2.22"
_FUNCTIONS = "tf.function (transform, function_context, ConcreteFunction, resource handles)"


@functools.cache
def self_test() -> None:
    """Run each check once a process. Raise InputError with the first name that is missing or changed."""
    for what, works in _CHECKS:
        changed = f"tensorflow {tf.__version__}: {what} changed"
        try:
            well = works()
        except InputError:
            raise
        except Exception as error:  # whatever a changed name raises
            raise InputError.build(f"{changed} ({type(error).__name__}: {error})", remedy=_REMEDY) from error
        if not well:
            raise InputError.build(changed, remedy=_REMEDY)


def _check(what: str) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    """Register a check; checks run in the order of this file."""

    def register(check: Callable[[], bool]) -> Callable[[], bool]:
        _CHECKS.append((what, check))
        return check

    return register


def _check_functions(check: Callable[[], bool]) -> Callable[[], bool]:
    """Register a check of functions, which a v1 program that has turned eager execution off does not have."""

    @_check(_FUNCTIONS)
    def in_init_scope() -> bool:
        with tf.init_scope():
            return not tf.executing_eagerly() or check()

    return in_init_scope


@_check("op_def_registry.get")
def _op_definitions() -> bool:
    return getattr(private.op_def("MatMul"), "name", "") == "MatMul" and private.op_def("NoSuchOp") is None


@_check("kernels.get_all_registered_kernels")
def _kernels() -> bool:
    return any(k.op == "MatMul" for k in private.registered_kernels())


@_check("tensor_util.try_evaluate_constant")
def _constants() -> bool:
    """Tensors made of constants are evaluated, and tensors made of a feed are not."""
    with tf.Graph().as_default():
        values = tf.math.floormod(tf.constant([7, 8]), 4), tf.math.floormod(v1.placeholder(tf.int32, [2]), 4)
        constant, fed = (private.constant_value(value) for value in values)
    return fed is None and constant is not None and constant.tolist() == [3, 0]


@_check("trace types (members of tuples and dicts)")
def _argument_types() -> bool:
    """The type of a dict in a tuple is taken apart and put together, and a function is traced with what is made."""

    @tf.function(autograph=False)
    def double(batch: Any) -> Any:
        return batch[0]["x"] * 2.0

    kind = double.get_concrete_function(({"x": tf.TensorSpec([2])},)).function_type.parameters["batch"].type_constraint
    label, inner = (private.members(kind) or [])[0]
    key, _ = (private.members(inner) or [])[0]
    open_ = private.with_members(kind, [private.with_members(inner, [tf.TensorSpec([None])])])
    return (label, key) == ("[0]", "['x']") and kind.is_subtype_of(open_) and not open_.is_subtype_of(kind)


@_check("tf_optimizer.OptimizeGraph")
def _optimizer() -> bool:
    return callable(private.grappler_function())  # not run here: it writes to the log


@_check("editing a live graph (Operation._set_device_from_string and the like)")
def _edits() -> bool:
    """Devices, inputs, control inputs and attributes of a live graph change, and change back."""
    graph = tf.Graph()
    with graph.as_default():
        a, b = (tf.no_op(name=name) for name in "ab")
        x, y = (tf.constant(value) for value in (1.0, 2.0))
        reader = tf.negative(x).op
    private.set_input(reader, 0, y)
    private.set_device(b, "/device:CPU:0")
    private.add_controls(b, [a])
    private.set_attr(b, "_class", v1.AttrValue(s=b"x"))
    done = b.device == "/device:CPU:0" and b.control_inputs == [a] and "_class" in b.node_def.attr
    done &= reader.inputs[0] is y and list(private.control_readers(a)) == [b]
    private.set_controls(b, [])
    private.clear_attr(b, "_class")
    return done and not b.control_inputs and "_class" not in b.node_def.attr


@_check("BaseSession (its constructor and _do_run)")
def _sessions() -> bool:
    """A session's constructor and runs are seen, and write down their partition graphs."""
    events: list[object] = []

    def opened(original: Callable[..., None], *args: object, **kwargs: object) -> None:
        events.append("opened")
        original(*args, **kwargs)

    def ran(original: Callable[..., object], session: object, *args: object) -> object:
        handle, ops, tensors, feeds, _, _ = args
        with (
            private.buffer_of(v1.RunOptions(output_partition_graphs=True)) as options_buffer,
            private.empty_buffer() as buffer,
        ):
            result = original(session, handle, ops, tensors, feeds, options_buffer, buffer)
            events.append(
                [n.name for p in private.read_buffer(buffer, v1.RunMetadata()).partition_graphs for n in p.node]
            )
        return result

    graph = tf.Graph()
    with graph.as_default():
        tf.no_op(name="a")
    with private.intercept_sessions(opened, ran, ran), v1.Session(graph=graph) as session:
        session.run("a")
        same = private.session_graph(session) is graph
    return same and events[0] == "opened" and events[1] == ["a"]


@_check_functions
def _functions() -> bool:
    """A function's trace, compilation and calls are seen; its variable moves with all that captured it."""
    # A variable moves with the graph being traced, the function around it, and the result of an assignment.
    first = tf.Variable([1.0, 2.0])
    second = private.new_variable(first)
    second.assign([3.0, 4.0])
    shape = private.handle_shape(first.handle)
    result = first.assign([1.0, 2.0])
    old, new = first.handle, second.handle
    reads = tf.function(lambda: first + 0.0)
    before = reads().numpy().tolist()
    inner = tf.function(lambda: first * 2.0)
    outer = tf.function(lambda: (first + 0.0, inner()))

    def on_graph(_: object) -> None:
        if first.handle is old:
            find_holders().move([(first, second)])

    with private.watch_traces(on_graph, lambda _: None):
        after = [t.numpy().tolist() for t in outer()]
    shaped = shape is not None and shape[0] == tf.float32.as_datatype_enum and [d.size for d in shape[1].dim] == [2]
    is_moved = result.handle is new and private.is_assignment_result(result) and not private.is_assignment_result(first)
    moved = before == [1.0, 2.0] and after == [[3.0, 4.0], [6.0, 8.0]] and reads().numpy().tolist() == [3.0, 4.0]
    return shaped and is_moved and moved


@_check_functions
def _pipeline_is_seen() -> bool:
    """A tf.data pipeline that captured a variable is told from other functions that did."""
    variable = tf.Variable(1.0)
    reads = tf.function(lambda: variable + 0.0)
    reads()
    alone = find_dataset_capture(find_holders().functions, [variable.handle])
    pipeline = tf.data.Dataset.range(1).map(lambda _: variable + 0.0)
    capture = find_dataset_capture(find_holders().functions, [variable.handle])
    return alone is None and capture is not None and capture[1] is variable.handle and pipeline is not None


@_check_functions
def _options_are_seen() -> bool:
    """Variables of a strategy and functions with autograph are recognised."""
    with tf.distribute.OneDeviceStrategy("/device:CPU:0").scope():
        theirs = tf.Variable(1.0)
    is_recognised = private.is_distributed(theirs) and not private.is_distributed(tf.Variable(1.0))
    with_autograph, without = (private.autograph_of(tf.function(abs, autograph=how)) for how in (True, False))
    return is_recognised and with_autograph and not without and private.autograph_of(abs)


@_check_functions
def _trace_is_seen() -> bool:
    events = []

    def on_graph(graph: object) -> None:
        events.append(("graph", private.is_traced_for_xla(graph) or private.is_body(graph)))

    def on_function(function: Any) -> None:
        events.append(("function", private.must_compile(function.function_def.attr)))

    def called(function: object, call: Callable[[], object]) -> object:
        events.append(("call", private.name_of(function).startswith("__inference_")))
        return call()

    twice = tf.function(lambda x: x + x)
    one = tf.constant(1.0)
    with (
        private.watch_traces(on_graph, on_function),
        private.intercept_calls(called),
        private.collect_partition_graphs() as graphs,
    ):
        for token in ("one", "other", "one"):
            with private.separate_traces(token):
                twice(one)
    traced = [what for what, _ in events]
    expected = ["graph", "function", "call", "graph", "function", "call", "call"]
    return traced == expected and ("call", True) in events and ("graph", False) in events and len(graphs) == 2


@_check_functions
def _trace_is_chosen() -> bool:
    """A tf.function is traced with other types of arguments than it is called with."""
    sizes: list[list[int | None]] = []

    def traced(tracing: private.TraceRequest) -> object:
        (x,) = tracing.signature.parameters.values()
        other = type(tracing.signature)([type(x)(x.name, x.kind, x.optional, tf.TensorSpec([None]))])
        sizes.extend(graph.inputs[0].shape.as_list() for graph in (tracing.graph(other), tracing.create(other).graph))
        return tracing.create(other)

    with private.intercept_traces(traced):
        doubled = tf.function(lambda x: x + x)(tf.constant([1.0]))
    return sizes == [[None], [None]] and doubled.numpy().tolist() == [2.0]


@_check_functions
def _ops_are_chosen() -> bool:
    """A function is made of some of the ops that were traced, and its graph keeps them all."""

    def step(x: Any) -> Any:
        tf.negative(x, name="unread")
        return tf.abs(x, name="read")

    with private.compile_only(lambda graph: [op for op in graph.get_operations() if op.name != "unread"]):
        compiled = tf.function(step).get_concrete_function(tf.TensorSpec([]))
    inside = {node.name for node in compiled.function_def.node_def}
    return (
        "read" in inside and "unread" not in inside and "unread" in {op.name for op in compiled.graph.get_operations()}
    )


@_check("GradientTape (_recording, record_operation)")
def _tapes() -> bool:
    """An open gradient tape follows a variable that moves."""
    if not tf.executing_eagerly():
        return True
    variable = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        loss = variable * variable
        find_holders().move([(variable, private.new_variable(variable))])
        loss += variable
    gradient = tape.gradient(loss, variable)
    return gradient is not None and bool(gradient.numpy() == 7.0)
