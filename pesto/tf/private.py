"""Every private name of TensorFlow that the project uses, with a self-test: one file to mend for a new release."""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session, session
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function, function_context, transform
from tensorflow.python.framework import kernels, op_def_registry
from tensorflow.python.ops import control_flow_util

from pesto.errors import InputError


def op_def(name: str) -> Any:
    """The OpDef of a registered op type, or None."""
    return op_def_registry.get(name)


def registered_kernels() -> list[Any]:
    """The KernelDef of every kernel in this build, GPU kernels included where the build has them."""
    return list(kernels.get_all_registered_kernels().kernel)


def handle_shape(handle: Any) -> tuple[int, Any] | None:
    """Dtype number and TensorShapeProto of the variable behind an eager resource handle; None for other resources."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    return data.shape_and_type[0].dtype, data.shape_and_type[0].shape


def set_device(op: Any, device: str) -> None:
    """Ask for a device for an op of a live graph."""
    op._set_device_from_string(device)


def add_controls(op: Any, earlier: Sequence[Any]) -> None:
    """Make an op of a live graph wait for others."""
    for other in earlier:
        op._add_control_input(other)


def set_controls(op: Any, earlier: Sequence[Any]) -> None:
    """Make an op of a live graph wait for exactly these others, beyond its data."""
    op._remove_all_control_inputs()
    add_controls(op, earlier)


def clear_attr(op: Any, name: str) -> None:
    """Take an attribute from an op of a live graph."""
    op._clear_attr(name)


def set_attr(op: Any, name: str, value: Any) -> None:
    """Give an op of a live graph an attribute, an AttrValue."""
    op._set_attr(name, value)


@contextlib.contextmanager
def watch_traces(on_graph: Callable[[Any], None], on_function: Callable[[Any], None]) -> Iterator[None]:
    """Show every FuncGraph that is traced before it is compiled, and the ConcreteFunction that it becomes."""
    transform.FUNC_GRAPH_TRANSFORMS.append(on_graph)
    transform.CONCRETE_FUNCTION_CALLBACKS.append(on_function)
    try:
        yield
    finally:
        transform.FUNC_GRAPH_TRANSFORMS.remove(on_graph)
        transform.CONCRETE_FUNCTION_CALLBACKS.remove(on_function)


@contextlib.contextmanager
def traced_apart(token: str) -> Iterator[None]:
    """Keep what tf.functions trace meanwhile apart from their other traces; the same token finds it again."""
    original = function_context.make_function_context

    def marked(scope_type: Any = None) -> Any:
        return original((token, scope_type))

    function_context.make_function_context = marked
    try:
        yield
    finally:
        function_context.make_function_context = original


@contextlib.contextmanager
def around_calls(called: Callable[[Any, Callable[[], Any]], Any]) -> Iterator[None]:
    """Run `called(function, call)` in place of every `call()` of a ConcreteFunction from eager code."""
    original = concrete_function.ConcreteFunction._call_flat

    def watched(self: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
        if not context.executing_eagerly():
            return original(self, tensor_inputs, captured_inputs)
        return called(self, lambda: original(self, tensor_inputs, captured_inputs))

    concrete_function.ConcreteFunction._call_flat = watched
    try:
        yield
    finally:
        concrete_function.ConcreteFunction._call_flat = original


def compiled_by_xla(graph: Any) -> bool:
    """Whether a FuncGraph is traced for XLA."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def must_compile(function: Any) -> bool:
    """Whether a ConcreteFunction is one kernel of XLA's."""
    attrs = function.function_def.attr
    return "_XlaMustCompile" in attrs and bool(attrs["_XlaMustCompile"].b)


def autograph_of(function: Any) -> bool:
    """Whether a tf.function converts its Python control flow; True for a plain function."""
    return bool(getattr(function, "_autograph", True))


def name_of(function: Any) -> str:
    """A ConcreteFunction's name in TensorFlow's library."""
    return tf.compat.as_str(function.name)


@contextlib.contextmanager
def collected_graphs() -> Iterator[list[Any]]:
    """Partition graphs of the functions that are run for the first time meanwhile: filled in at the end."""
    found: list[Any] = []
    here = context.context()
    here.enable_graph_collection()
    try:
        yield found
        found += [list(function.partition_graphs) for function in here.export_run_metadata().function_graphs]
    finally:
        here.disable_graph_collection()


def move_variable(variable: Any, value: Any) -> None:
    """Give an eager variable the handle of `value`, another one that holds the same elsewhere.

    Every live function that has captured the old handle gets the new one.
    """
    old, new = variable.handle, value.handle
    variable._handle = new
    for function in [o for o in gc.get_objects() if type(o) is concrete_function.ConcreteFunction]:
        captured = function._captured_inputs
        if any(c is old for c in captured):
            function.set_external_captures([new if c is old else c for c in captured])


def replace_capture(graph: Any, old: Any, new: Any) -> None:
    """Let a FuncGraph that is being traced capture `new` where it captured `old`."""
    pairs = [(new if outer is old else outer, inner) for outer, inner in graph.captures]
    graph.function_captures.reset_captures(*zip(*pairs, strict=True))


@contextlib.contextmanager
def around_sessions(opened: Callable[..., Any], ran: Callable[..., Any], called: Callable[..., Any]) -> Iterator[None]:
    """Run the callables in place of v1 sessions' constructor, run and make_callable; each gets the original first."""
    kind = session.BaseSession
    originals = {name: getattr(kind, name) for name in ("__init__", "_do_run", "_make_callable_from_options")}
    for (name, original), wrapper in zip(originals.items(), (opened, ran, called), strict=True):
        setattr(kind, name, _wrapped(original, wrapper))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(kind, name, original)


def _wrapped(original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    return method


def read_buffer(buffer: Any, proto: Any) -> Any:
    """`proto` filled from a buffer that session.run hands on; as it is when there is none."""
    if buffer is not None:
        proto.ParseFromString(tf.compat.as_bytes(pywrap_tf_session.TF_GetBuffer(buffer)))
    return proto


@contextlib.contextmanager
def buffer_of(proto: Any) -> Iterator[Any]:
    """A buffer of a message, as session.run hands it on."""
    buffer = pywrap_tf_session.TF_NewBufferFromString(proto.SerializeToString())
    try:
        yield buffer
    finally:
        pywrap_tf_session.TF_DeleteBuffer(buffer)


@contextlib.contextmanager
def empty_buffer() -> Iterator[Any]:
    """A buffer into which session.run writes."""
    buffer = pywrap_tf_session.TF_NewBuffer()
    try:
        yield buffer
    finally:
        pywrap_tf_session.TF_DeleteBuffer(buffer)


def session_graph(opened: Any) -> Any:
    """The graph of a session, also when it is closed."""
    return opened._graph


def self_test() -> None:
    """Check that the private names still mean what we think; InputError naming the first that does not."""
    known = handle_shape(tf.Variable([1.0, 2.0]).handle)
    two = tf.compat.v1.GraphDef(node=[{"name": name, "op": "NoOp"} for name in ("a", "b")])
    checks = {
        "op_def_registry.get": getattr(op_def("MatMul"), "name", "") == "MatMul" and op_def("NoSuchOp") is None,
        "kernels.get_all_registered_kernels": any(k.op == "MatMul" for k in registered_kernels()),
        "EagerTensor._handle_data": known is not None
        and known[0] == tf.float32.as_datatype_enum
        and [d.size for d in known[1].dim] == [2],
        "tf_optimizer.OptimizeGraph": [n.name for n in grappler(two, ["pruning"], ["a"]).node] == ["a"],
    }
    for name, works in checks.items():
        if not works:
            raise InputError(f"tensorflow {tf.__version__}: {name} changed - install tensorflow>=2.21,<2.22")


def grappler(graph_def: Any, passes: Sequence[str], keep: Sequence[str]) -> Any:
    """`graph_def` after Grappler's named passes, run twice over; the nodes named in `keep` stay."""
    from tensorflow.python.grappler import tf_optimizer

    config = tf.compat.v1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.min_graph_nodes = -1
    rewrites.meta_optimizer_iterations = type(rewrites).TWO
    rewrites.fail_on_optimizer_errors = True
    rewrites.optimizers.extend(passes)
    meta = tf.compat.v1.MetaGraphDef(graph_def=graph_def)
    meta.collection_def["train_op"].node_list.value.extend(keep)  # where Grappler looks for what is fetched
    return tf_optimizer.OptimizeGraph(config, meta, verbose=False)
