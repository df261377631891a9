"""Private names of TensorFlow, with a self-test: what to mend for a new release. handles.py has those of handles."""

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError

_FUNCTION = "eager.polymorphic_function"
_KERAS_STEPS = ("one_step_on_data", "train_function")
"""Functions of Keras 3 and of Keras 2 that run a step of `fit` and of `train_on_batch`."""
_LABEL = "_pesto_label"
"""Attribute of a FuncGraph with the label of its step."""
LOWERED = "_lower_using_switch_merge"
"""Attribute by which a loop or branch is taken apart before it is placed: its pieces then go where their inputs are."""


@functools.cache
def _import_module(name: str) -> Any:
    """Return a module below tensorflow.python. Raise InputError naming it when this release has none."""
    try:
        return importlib.import_module(f"tensorflow.python.{name}")
    except ImportError as error:
        raise _make_missing_name_error(f"tensorflow.python.{name} is missing") from error


def _get_attribute(module: str, name: str) -> Any:
    """Return the attribute `name` of a module below tensorflow.python. Raise InputError when it is missing."""
    # Each private name is looked up here at the time of use, so that another release of TensorFlow fails with one line
    # that names what is missing instead of an AttributeError in the middle of a trace.
    attribute = getattr(_import_module(module), name, None)
    if attribute is None:
        raise _make_missing_name_error(f"tensorflow.python.{module}.{name} is missing")
    return attribute


def _make_missing_name_error(what: str) -> InputError:
    return InputError.build(f"tensorflow {tf.__version__}: {what}", remedy="install tensorflow>=2.21,<2.22")


def op_def(name: str) -> Any:
    """Return the OpDef of a registered op type, or None."""
    return _get_attribute("framework.op_def_registry", "get")(name)


def registered_kernels() -> list[Any]:
    """Return the KernelDef of every kernel in this build, GPU kernels included where the build has them."""
    return list(_get_attribute("framework.kernels", "get_all_registered_kernels")().kernel)


def constant_value(tensor: Any) -> Any:
    """Return the value of a graph's tensor that depends on constants alone, an array; None for any other."""
    return _get_attribute("framework.tensor_util", "try_evaluate_constant")(tensor)


def members(kind: Any) -> list[tuple[str, Any]] | None:
    """Return the members of the type of a tuple, list, dict, named tuple or attrs class, each behind its name.

    None for other types of a tf.function's arguments.
    """
    match type(kind).__name__:
        case "Tuple":
            return [(f"[{k}]", part) for k, part in enumerate(kind.components)]
        case "List":
            return members(kind.components_tuple)
        case "Dict":
            return [(f"[{key!r}]", part) for key, part in kind.mapping.items()]
        case "NamedTuple":
            names = zip(kind.attribute_names, kind.attributes.components, strict=True)
            return [(f".{name}", part) for name, part in names]
        case "Attrs":
            return members(kind.named_attributes)
    return None


def with_members(kind: Any, parts: Sequence[Any]) -> Any:
    """Make a type like `kind` with other members, in the order of `members`."""
    match type(kind).__name__:
        case "Dict":  # what a value of the type is made by is kept: without it no function is traced
            return type(kind)(dict(zip(kind.mapping, parts, strict=True)), kind._placeholder_type)
        case "NamedTuple":
            return type(kind)(kind.type_name, kind.attribute_names, tuple(parts), kind._placeholder_type)
        case "Attrs":
            named = kind.named_attributes
            return type(kind)(named.type_name, named.attribute_names, tuple(parts), kind._placeholder_type)
    return type(kind)(*parts)


def handle_shape(handle: Any) -> tuple[int, Any] | None:
    """Return dtype number and TensorShapeProto of the variable behind an eager handle; None for other resources."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    return data.shape_and_type[0].dtype, data.shape_and_type[0].shape


def set_device(op: Any, device: str) -> None:
    """Ask for a device for an op of a live graph."""
    # tf.device only affects ops created inside it; there is no public way to change the device of an op that exists.
    op._set_device_from_string(device)


def add_controls(op: Any, earlier: Sequence[Any]) -> None:
    """Make an op of a live graph wait for others."""
    for other in earlier:
        op._add_control_input(other)


def set_controls(op: Any, earlier: Sequence[Any]) -> None:
    """Make an op of a live graph wait for exactly these others, beyond its data."""
    # A single control input cannot be removed: TensorFlow only clears all of them, so the ones to keep are added again.
    op._remove_all_control_inputs()
    add_controls(op, earlier)


def control_readers(op: Any) -> Sequence[Any]:
    """Return the ops of a live graph that have an op among their control inputs."""
    readers: Sequence[Any] = op._control_outputs
    return readers


def set_input(op: Any, place: int, tensor: Any) -> None:
    """Replace an input of an op of a live graph."""
    # tf.contrib.graph_editor is gone; this is what remains of it. It updates the consumers of both tensors.
    op._update_input(place, tensor)


def add_identity(graph: Any, name: str, tensor: Any) -> Any:
    """Add an Identity of a tensor of a live graph, also of a finalized one, without control inputs."""
    return _add_operation(graph, "Identity", name, [tensor], tensor.dtype, None)


def add_nodes(graph: Any, ops: Mapping[str, Any], nodes: Sequence[Any], functions: Sequence[Any]) -> list[Any]:
    """Add NodeDefs to a live function, without control inputs, with the functions that they call.

    `ops` are the graph's ops by name, of which the nodes read.
    """
    graph_def = tf.compat.v1.GraphDef()
    own = {node.name for node in nodes}
    new_ops = {}
    for node in nodes:
        copy = graph_def.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [text for text in node.input if text[0] != "^"]
        for text in copy.input:
            name, _, k = text.partition(":")
            if name not in own:
                new_ops[text] = ops[name].outputs[int(k or 0)]
    context = _get_attribute("eager.context", "context")()
    for function in functions:
        graph_def.library.function.add().CopyFrom(function)
        # The functions of the parts must be in the eager context as well: from there a FuncGraph is instantiated.
        if not context.has_function(function.signature.name):
            context.add_function_def(function)
    with graph.as_default():
        return list(
            tf.graph_util.import_graph_def(
                graph_def, input_map=new_ops, return_elements=[node.name for node in nodes], name=""
            )
        )


def add_copy(graph: Any, name: str, constant: Any) -> Any:
    """Add a constant of a live graph once more, without control inputs."""
    attrs = {key: constant.node_def.attr[key] for key in ("dtype", "value")}
    return _add_operation(graph, "Const", name, [], constant.outputs[0].dtype, attrs)


def _add_operation(graph: Any, kind: str, name: str, inputs: list[Any], dtype: Any, attrs: Any) -> Any:
    final = graph.finalized
    if final:
        # A v1 session finalizes its graph. Adding ops that the session has not seen yet is safe as long as nothing runs
        # meanwhile.
        graph._unsafe_unfinalize()
    try:
        # The caller may be inside tf.control_dependencies of its own; added nodes get exactly the edges of the plan.
        with graph.as_default(), graph.control_dependencies(None):
            return graph.create_op(kind, inputs, [dtype], name=f"{name}/", attrs=attrs)
    finally:
        if final:
            graph.finalize()


def clear_attr(op: Any, name: str) -> None:
    """Take an attribute from an op of a live graph."""
    op._clear_attr(name)


def set_attr(op: Any, name: str, value: Any) -> None:
    """Give an op of a live graph an attribute, an AttrValue."""
    op._set_attr(name, value)


@contextlib.contextmanager
def watch_traces(on_graph: Callable[[Any], None], on_function: Callable[[Any], None]) -> Iterator[None]:
    """Show every FuncGraph that is traced before it is compiled, and the ConcreteFunction that it becomes."""
    graphs = _get_attribute(f"{_FUNCTION}.transform", "FUNC_GRAPH_TRANSFORMS")
    functions = _get_attribute(f"{_FUNCTION}.transform", "CONCRETE_FUNCTION_CALLBACKS")
    # Both lists are TensorFlow's own extension points: the first is called before a FuncGraph is compiled, the second
    # after.
    graphs.append(on_graph)
    functions.append(on_function)
    try:
        yield
    finally:
        graphs.remove(on_graph)
        functions.remove(on_function)


@contextlib.contextmanager
def compile_only(chosen: Callable[[Any], Sequence[Any]]) -> Iterator[None]:
    """Make a function of those ops of a FuncGraph alone that `chosen` gives, of every one that is traced meanwhile."""
    original = _get_attribute(f"{_FUNCTION}.atomic_function", "from_func_graph")

    def made(name: Any, graph: Any, *rest: Any, **more: Any) -> Any:
        # from_func_graph asks the graph for its operations to build the function. An instance attribute hides the
        # method for that one call.
        graph.get_operations = functools.partial(list, chosen(graph))  # over the method of its class
        try:
            return original(name, graph, *rest, **more)
        finally:
            del graph.get_operations

    with replace_attributes(_import_module(f"{_FUNCTION}.atomic_function"), {"from_func_graph": made}):
        yield


@contextlib.contextmanager
def separate_traces(token: str) -> Iterator[None]:
    """Keep what tf.functions trace meanwhile apart from their other traces; the same token finds it again."""
    module = _import_module(f"{_FUNCTION}.function_context")
    original = _get_attribute(f"{_FUNCTION}.function_context", "make_function_context")

    def marked(scope_type: Any = None) -> Any:
        # The scope is a part of the cache key of traces, and any hashable object may be one.
        return original((token, scope_type))

    with replace_attributes(module, {"make_function_context": marked}):
        yield


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """A tf.function that is about to be traced."""

    function: str
    """Name of the function."""
    label: str
    """`step_label` of it."""
    module: str
    """Name of the module that defines it."""
    signature: Any
    """FunctionType with the types of its arguments."""
    create: Callable[[Any], Any]
    """Makes the ConcreteFunction for a FunctionType, in the place of one for `signature`."""
    graph: Callable[[Any], Any]
    """Makes the FuncGraph alone for a FunctionType, which nothing runs."""
    around: str | None
    """Name of the tf.function whose trace calls it; None where eager code does."""


@contextlib.contextmanager
def intercept_traces(traced: Callable[[TraceRequest], Any]) -> Iterator[None]:
    """Run `traced` in place of every trace of a tf.function; it gives the ConcreteFunction."""
    module = _import_module(f"{_FUNCTION}.tracing_compilation")
    original = _get_attribute(f"{_FUNCTION}.tracing_compilation", "_create_concrete_function")

    def watched(signature: Any, context: Any, func_graph: Any, options: Any) -> Any:
        label = step_label(options.python_function, options.name)

        def create(other: Any) -> Any:
            # A FuncGraph can be traced into once, so every attempt with other argument types starts from a fresh one.
            graph = type(func_graph)(options.name)
            setattr(graph, _LABEL, label)
            return original(other, context, graph, options)

        def graph(other: Any) -> Any:
            # The same steps as TensorFlow's own tracing, without adding the result to the function cache: this graph is
            # only compared with plans.
            graph = type(func_graph)(options.name)
            mapping = _get_attribute(f"{_FUNCTION}.tracing_compilation", "trace_type").InternalPlaceholderContext
            with graph.as_default():
                bound = other.placeholder_arguments(mapping(graph, context.get_placeholder_mapping()))
            return _get_attribute("framework.func_graph", "func_graph_from_py_func")(
                options.name,
                options.python_function,
                bound.args,
                bound.kwargs,
                func_graph=graph,
                arg_names=_get_attribute(f"{_FUNCTION}.function_type_utils", "to_arg_names")(other),
                create_placeholders=False,
            )

        # Outside of a trace the default graph is an empty v1 graph, which would look like a caller.
        outer = tf.compat.v1.get_default_graph() if not tf.executing_eagerly() else None
        module = getattr(options.python_function, "__module__", None) or ""
        return traced(TraceRequest(options.name, label, module, signature, create, graph, getattr(outer, "name", None)))

    with replace_attributes(module, {"_create_concrete_function": watched}):
        yield


@contextlib.contextmanager
def intercept_calls(called: Callable[[Any, Callable[[], Any]], Any]) -> Iterator[None]:
    """Run `called(function, call)` in place of every `call()` of a ConcreteFunction from eager code."""
    kind = _get_attribute(f"{_FUNCTION}.concrete_function", "ConcreteFunction")
    original = kind._call_flat
    eagerly = _get_attribute("eager.context", "executing_eagerly")

    def watched(self: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
        # Calls inside another trace become ops of that graph; only calls from eager code run something.
        if not eagerly():
            return original(self, tensor_inputs, captured_inputs)
        return called(self, lambda: original(self, tensor_inputs, captured_inputs))

    with replace_attributes(kind, {"_call_flat": watched}):
        yield


@contextlib.contextmanager
def replace_attributes(holder: Any, names: Mapping[str, Any]) -> Iterator[None]:
    """Replace attributes of a module or class for a while."""
    originals = {name: getattr(holder, name) for name in names}
    for name, value in names.items():
        setattr(holder, name, value)
    try:
        yield
    finally:
        for name, value in originals.items():
            setattr(holder, name, value)


def is_traced_for_xla(graph: Any) -> bool:
    """Return True if a FuncGraph is traced for XLA."""
    return bool(_get_attribute("ops.control_flow_util", "GraphOrParentsInXlaContext")(graph))


def element_spec(spec: Any) -> Any:
    """Return the structure of TensorSpecs that an iterator of a tf.data.IteratorSpec gives."""
    if not hasattr(spec, "_element_spec"):
        raise _make_missing_name_error("IteratorSpec._element_spec is missing")
    return spec._element_spec


def is_body(graph: Any) -> bool:
    """Return True if a FuncGraph is a branch or the body of a loop, rather than a function."""
    kinds = ("WhileBodyFuncGraph", "WhileCondFuncGraph", "CondBranchFuncGraph")
    return isinstance(graph, tuple(_get_attribute("ops.control_flow_v2_func_graphs", kind) for kind in kinds))


def is_distributed(variable: Any) -> bool:
    """Return True if a tf.distribute strategy made a variable."""
    if not hasattr(variable, "_distribute_strategy"):
        raise _make_missing_name_error("Variable._distribute_strategy is missing")
    return variable._distribute_strategy is not None


def new_variable(like: Any) -> Any:
    """Make an eager variable with the value of another, whatever tf.function or variable_creator_scope is around."""
    variable = _get_attribute("ops.resource_variable_ops", "ResourceVariable")
    return variable(tf.identity(like.read_value()), trainable=False, shape=like.shape, dtype=like.dtype)


def must_compile(attrs: Any) -> bool:
    """Return True if the attributes of a FunctionDef or call require compilation by XLA."""
    return "_XlaMustCompile" in attrs and bool(attrs["_XlaMustCompile"].b)


def autograph_of(function: Any) -> bool:
    """Return True if a tf.function converts Python control flow; True for a plain function."""
    if hasattr(function, "python_function") and not hasattr(function, "_autograph"):
        raise _make_missing_name_error("Function._autograph is missing")
    return bool(getattr(function, "_autograph", True))


def name_of(function: Any) -> str:
    """Return a ConcreteFunction's name in TensorFlow's library."""
    return tf.compat.as_str(function.name)


@contextlib.contextmanager
def collect_partition_graphs() -> Iterator[list[Any]]:
    """Collect partition graphs of the functions that are run for the first time meanwhile: filled in at the end."""
    graphs: list[Any] = []
    context = _get_attribute("eager.context", "context")()
    context.enable_graph_collection()
    try:
        yield graphs
    except BaseException:
        tf.function(lambda: tf.constant(0))()  # or the next run would seem to have the graphs of the one that failed
        raise
    finally:
        graphs += [list(function.partition_graphs) for function in context.export_run_metadata().function_graphs]
        context.disable_graph_collection()


def get_holder_classes() -> tuple[type, type, type]:
    """Return the classes of eager variables, ConcreteFunctions and FuncGraphs, whose attributes handles.py uses."""
    return (
        _get_attribute("ops.resource_variable_ops", "BaseResourceVariable"),
        _get_attribute(f"{_FUNCTION}.concrete_function", "ConcreteFunction"),
        _get_attribute("framework.func_graph", "FuncGraph"),
    )


def is_assignment_result(variable: Any) -> bool:
    """Return True if an eager variable was returned by an assignment: another object with the same handle."""
    return isinstance(variable, _get_attribute("ops.resource_variable_ops", "_UnreadVariable"))


def handle_of(variable: Any) -> Any:
    """Return a variable's handle; None while it is being made."""
    # The garbage collector lists variables whose constructor has not finished; they have no handle yet.
    return getattr(variable, "_handle", None)


def set_handle(variable: Any, handle: Any) -> None:
    """Give an eager variable another handle, which goes by the variable's name."""
    # The name of a captured input in a trace comes from its handle, and checkpoints and plans go by that name.
    handle._name = variable.name
    variable._handle = handle


def variable_name(handle: Any) -> str:
    """Return the name of the variable behind an eager resource handle; empty where the handle has none."""
    return str(getattr(handle, "_name", "")).removesuffix(":0")


def get_captured_inputs(function: Any) -> Sequence[Any]:
    """Return the captured inputs of a ConcreteFunction; nothing while it is being made."""
    return getattr(function, "_captured_inputs", ())


def is_recording(tape: Any) -> bool:
    """Return True if a GradientTape is open."""
    return bool(tape._recording)


def record_identity(output: Any, source: Any) -> None:
    """Tell the open gradient tapes that one tensor is another."""
    _get_attribute("eager.record", "record_operation")("Identity", [output], [source], lambda gradient: [gradient])


@contextlib.contextmanager
def intercept_sessions(
    opened: Callable[..., Any], ran: Callable[..., Any], called: Callable[..., Any]
) -> Iterator[None]:
    """Run the callables in place of v1 sessions' constructor, run and make_callable; each gets the original first."""
    kind = _get_attribute("client.session", "BaseSession")
    wrappers = {"__init__": opened, "_do_run": ran, "_make_callable_from_options": called}

    def replaced(original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: wrapper(original, *args, **kwargs)

    methods = {name: replaced(getattr(kind, name), wrapper) for name, wrapper in wrappers.items()}
    with replace_attributes(kind, methods):
        yield


def read_buffer(buffer: Any, proto: Any) -> Any:
    """Fill `proto` from a buffer that session.run hands on and return it; as it is when there is none."""
    if buffer is not None:
        proto.ParseFromString(tf.compat.as_bytes(_import_module("client.pywrap_tf_session").TF_GetBuffer(buffer)))
    return proto


@contextlib.contextmanager
def buffer_of(proto: Any) -> Iterator[Any]:
    """Make a buffer of a message, as session.run hands it on."""
    buffer = _import_module("client.pywrap_tf_session").TF_NewBufferFromString(proto.SerializeToString())
    try:
        yield buffer
    finally:
        _import_module("client.pywrap_tf_session").TF_DeleteBuffer(buffer)


@contextlib.contextmanager
def empty_buffer() -> Iterator[Any]:
    """Make a buffer into which session.run writes."""
    buffer = _import_module("client.pywrap_tf_session").TF_NewBuffer()
    try:
        yield buffer
    finally:
        _import_module("client.pywrap_tf_session").TF_DeleteBuffer(buffer)


def session_graph(opened: Any) -> Any:
    """Return the graph of a session, also when it is closed."""
    return opened._graph


def grappler_function() -> Any:
    """Return the function that runs Grappler on a MetaGraphDef."""
    return _get_attribute("grappler.tf_optimizer", "OptimizeGraph")


def step_label(function: Any, name: str | None = None) -> str:
    """Return how plans and messages name the step of a function or tf.function: by its model or object, and its name.

    name: what TensorFlow calls the function, by default its own name.
    """
    called = name or getattr(function, "__name__", None) or getattr(function, "name", "step")
    # The owner is the object of which the function is a method. Keras' train functions are closures over the model;
    # their free variable `self` is the owner that users know.
    _, target = _get_attribute("util.tf_decorator", "unwrap")(getattr(function, "python_function", function))
    target = inspect.unwrap(target)
    owner = getattr(target, "__self__", None)
    if owner is None and inspect.isfunction(target):
        cells = dict(zip(target.__code__.co_freevars, target.__closure__ or (), strict=True))
        with contextlib.suppress(KeyError, ValueError):  # a cell may be empty
            owner = cells["self"].cell_contents
    if type(owner).__name__ == "TfMethodTarget":
        owner = getattr(owner, "target", owner)
    if owner is None or type(owner).__name__ == "StructuredFunctionWrapper":  # what a dataset runs has no other owner
        return f"function {called}"
    own = getattr(owner, "name", None)
    of = own if isinstance(own, str) else type(owner).__name__
    return f"keras {of}" if called in _KERAS_STEPS and hasattr(owner, "train_step") else f"function {of}.{called}"


def label_of(graph: Any) -> str:
    """Return `step_label` of the function that a FuncGraph is a trace of; its name alone where nothing watched."""
    return str(getattr(graph, _LABEL, f"function {graph.name}"))


def jit_of(function: Any) -> bool:
    """Return True if a tf.function asks XLA to compile it; False for a plain function."""
    return bool(getattr(function, "_jit_compile", None))


def runs_in_data(function: Any) -> bool:
    """Return True if a ConcreteFunction is part of a tf.data pipeline."""
    attrs = function.function_def.attr
    return "_tf_data_function" in attrs and bool(attrs["_tf_data_function"].b)
