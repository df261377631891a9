"""Matching of a traced step to its plan: with an open batch where a plan needs that, else with the one cause named.

The cause is found by tracing the step with other types of arguments. A batch larger than planned is refused by a check
in the step's own graph, before the step changes anything.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError, MismatchError, PestoError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.graph_differences import differences
from pesto.core.plans.plan import Plan
from pesto.tf import private
from pesto.tf.apply_placement.placement import StepTrace, trace_step
from pesto.tf.importer.importer import build_graph
from pesto.tf.nodes.captured import use_planned_shapes
from pesto.tf.nodes.needed_nodes import RESOURCE, VARIANT
from pesto.tf.nodes.shape_inference import has_open_batch
from pesto.tf.placement_refusals import nested_function_error
from pesto.tf.private import TraceRequest
from pesto.tf.sources.sources import capture_func_graph
from pesto.tf.variables.variables import READS

Change = Callable[[str, Any], Any]
"""Function from an argument's name and TensorSpec to another TensorSpec."""
FIT = "one_step_on_data"
"""The function of Keras that runs one step of `fit`."""
_FIT_ARGUMENTS = {FIT: "data", "train_function": "iterator"}
"""Functions of Keras 3 and of Keras 2 that run a step of `fit` -> the argument that has or gives its batch."""
_SIZE = 32
"""Batch size that stands for any: the structure of a graph does not depend on it."""
_SIZES = (1, 2, 4, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 512)
"""Common batch sizes, tried where a plan of a fixed one is for another."""
_QUICK = 3000
"""Ops up to which a step is traced for each of these sizes."""
_SINGLES = 4
"""Tensors of one dtype that are tried one by one."""
_NEAR = 0.25
"""Share of a plan's ops up to which a step's may be more or fewer for its arguments to be the cause."""
_OTHERS = {
    tf.int64: (tf.int32,), tf.int32: (tf.int64,), tf.float64: (tf.float32,), tf.float32: (tf.float64, tf.float16),
    tf.float16: (tf.float32,), tf.uint8: (tf.float32, tf.int32), tf.bool: (tf.float32, tf.int32),
}  # fmt: skip
"""dtype -> dtypes that a tensor may have been planned with."""
_OPEN = (
    "its batch is open, as of arrays whose last batch is smaller, the plan's is of one fixed size",
    "plan it open, which is for both: from_keras(model, batch=32) without static=True, or pesto.record(batch=32) of "
    "such a fit; or train on whole batches (drop_remainder=True)",
)
"""Message and remedy for each cause."""
_MORE = (
    "it has an input more than the plan, {}: weights of the examples, from sample_weight or class_weight of fit",
    "leave them out, or plan with them: from_keras(model, batch, data=(x, y, sample_weight)), or pesto.record",
)
_FEWER = (
    "the plan has an input more, {}: weights of the examples",
    "give fit sample_weight or class_weight as planned, or plan without them",
)
_SIZED = (
    "its ops are the plan's, of other sizes: its batch is {0}, that of the plan may be fixed at another",
    "train with batches as planned, or plan up to {0}, of a tf.function whose input_signature leaves the first "
    "dimension open (None), with batch={0}",
)
_TOO_LARGE = "pesto: a batch larger than planned"
_SIZES_IN_ERROR = re.compile(re.escape(_TOO_LARGE) + r"\D*(\d+)\D+(\d+)")
_HOST = "/device:CPU:0"


class UnmatchedStepError(MismatchError):
    """A training function as it was traced is of no plan; it may match when traced otherwise."""

    def __init__(self, message: str, graph: Graph, remedy: str) -> None:
        """Take the message and remedy for an unknown cause, and the graph of the trace."""
        super().__init__(message)
        self.graph, self.remedy = graph, remedy


def match_step(graph: Any, label: str, plans: Sequence[Plan]) -> tuple[StepTrace, Plan]:
    """Return the step of a training FuncGraph and its plan; raise UnmatchedStepError when there is none."""
    captured = capture_func_graph(graph, label)
    why: PestoError | None = None
    # Building the graph is the expensive part and depends only on the batch and the feed shapes, so plans with equal
    # ones share it.
    kinds = {(plan.provenance.graph_batch, plan.feed_shapes): plan for plan in plans}
    for (batch, _), like in kinds.items():
        # An open batch gets a stand-in size, to tell the step from a plan of one fixed size.
        stand_in = _SIZE if has_open_batch(captured.graph_def) else None
        try:
            traced = trace_step(use_planned_shapes(captured, like), batch or stand_in)
        except InputError as error:
            why = error
            continue
        for plan in plans:
            if plan.provenance.graph_fingerprint == traced.graph.fingerprint():
                return traced, plan
        why = unmatched_step_error(traced.graph, plans, label, graph.structured_input_signature)
    raise why or MismatchError(f"{label}: no plan is given for it")


def unmatched_step_error(graph: Graph, plans: Sequence[Plan], label: str, inputs: Any) -> UnmatchedStepError:
    """Return the error for a training function of no plan, compared with the plan of about as many ops.

    inputs: the function's structured input signature.
    """
    plan = min(plans, key=lambda p: abs(len(p.names) - graph.ops))
    provenance, options = plan.provenance, []
    for spec in tf.nest.flatten(inputs):
        if isinstance(spec, tf.TensorSpec):
            rank = spec.shape.rank
            shape = "?" if rank is None else ", ".join("?" if d is None else str(d) for d in spec.shape)
            options.append(f"{spec.dtype.name} [{shape}]")
    cut = provenance.graph_origin.cut_function
    return UnmatchedStepError(
        f"{label} trains variables and is of no plan: {differences(plan.names, provenance.graph_batch, graph)} (this "
        f"step has {graph.ops} ops and as inputs {', '.join(options) or 'none'}, the plan of "
        f"{shown(provenance.graph_source)} has {len(plan.names)} ops)",
        graph,
        f"{'' if cut is None else 'call pesto.pipeline(step, plan) in its place, '}plan this step (pesto.record takes "
        "it from the program itself), or run it outside pesto.apply",
    )


def trace_for_plan(tracing: TraceRequest, plans: Sequence[Plan]) -> Any:
    """Return the ConcreteFunction of a trace, with its batch left open where only then a plan is for it.

    Raise MismatchError where no plan is, naming the one cause: a larger batch, an open or fixed one, weights of
    examples, a dtype, else the ops that are more or fewer.
    """
    try:
        return tracing.create(tracing.signature)
    except UnmatchedStepError as error:
        unfit = error
    base = tracing.signature
    largest = max((p.provenance.graph_batch or 0 for p in plans), default=0)
    opened = open_batch(base)
    if largest and opened is not None:
        size, base = opened
        # A larger batch would run, since the step is traced open, but the plan's peaks of memory do not hold for it.
        graph = _build_variant(tracing, base, largest) if size > largest else None
        if graph is not None and graph.fingerprint() in [p.provenance.graph_fingerprint for p in plans]:
            raise larger_batch_error(size, largest)
        try:
            return tracing.create(base)
        except UnmatchedStepError as error:
            unfit = error
        except PestoError:
            raise
        except Exception:  # a step that needs to know its batch is traced as it was
            base = tracing.signature
    # Tracing with other argument types is expensive and runs user code again, so causes are searched only after no plan
    # was found, the likely ones first.
    raise _diagnose(tracing, base, plans, unfit) from None


def larger_batch_error(size: object, planned: object, where: str = "") -> MismatchError:
    """Return the error for a batch larger than planned, for which the plan's peaks of memory do not hold."""
    return MismatchError.build(
        f"a batch of {size} is larger than the {planned} that were planned, for which its peaks of memory hold",
        where=where,
        remedy=f"plan with batch={size}, or train with batches of at most {planned} (smaller ones run by the same "
        "plan)",
    )


def _diagnose(tracing: TraceRequest, base: Any, plans: Sequence[Plan], unfit: UnmatchedStepError) -> MismatchError:
    # Argument types change few ops. A plan of a very different size is for another step, and retracing for it would
    # only cost time.
    near = [p for p in plans if abs(len(p.names) - unfit.graph.ops) <= _NEAR * len(p.names)]
    traced = unfit.graph.layout()
    for plan in near:
        planned = plan.provenance
        for signature, message, remedy in _iter_variants(tracing, base, plan, unfit):
            graph = _build_variant(tracing, signature, planned.graph_batch)
            # Equal layouts explain a mismatch only where the layout of the trace itself differed.
            if graph is not None and (
                planned.graph_fingerprint == graph.fingerprint() or traced != planned.graph_layout == graph.layout()
            ):
                return MismatchError.build(message, where=tracing.label, remedy=remedy)
    opened = open_batch(base)
    if opened is not None and any(
        plan.provenance.graph_batch is None and plan.provenance.graph_layout == traced for plan in near
    ):
        message, remedy = (text.format(opened[0]) for text in _SIZED)
        return MismatchError.build(message, where=tracing.label, remedy=remedy)
    # Keras' own functions call the step in `fit`; where one of the user's does, its ops cannot be placed.
    if tracing.around is not None and tracing.function != FIT:
        return MismatchError.of(nested_function_error(f"function {tracing.around}", tracing.function))
    return MismatchError.of(unfit)


def _iter_variants(
    tracing: TraceRequest, base: Any, plan: Plan, unfit: UnmatchedStepError
) -> Iterator[tuple[Any, str, str]]:
    """Yield other argument types (a FunctionType), and message and remedy if the plan is for the step with those."""
    batch = plan.provenance.graph_batch
    closed = fix_batch(base, _SIZE) if batch is None else None
    if closed is not None:
        yield closed, *_OPEN
    for name, given, signature in toggle_weights(base):
        message, remedy = _MORE if given else _FEWER
        yield signature, message.format(f"{name}[2]"), remedy
    yield from _iter_dtype_variants(base, tracing.function, batch or _SIZE)
    cut = plan.provenance.graph_origin.cut_function
    sizes: Sequence[int] = ()
    if cut is not None and cut.batch:
        sizes = (cut.batch,)
    elif batch is None and unfit.graph.ops <= _QUICK:
        sizes = _SIZES
    opened = open_batch(base)
    if opened is not None:
        own, types = opened
        for size in sizes:
            message = f"its batch is {own}, the plan's is fixed at {size}"
            yield fix_batch(types, size), message, f"train with batches of {size}, or plan batch={own}"


def _iter_dtype_variants(base: Any, function: str, batch: int) -> Iterator[tuple[Any, str, str]]:
    """Yield as `_iter_variants`: all tensors of a dtype with another, then one after the other."""
    kinds: dict[Any, list[str]] = {}
    for name, spec in tensor_specs(base).items():
        kinds.setdefault(spec.dtype, []).append(name)
    for dtype, names in kinds.items():
        for other in _OTHERS.get(dtype, ()):
            for some in dict.fromkeys((tuple(names), *((name,) for name in names[:_SINGLES]))):
                listed = " and ".join(shown(describe_argument(name, function)) for name in some)
                yield (
                    change_dtype(base, some, other),
                    f"{listed} {'is' if len(some) == 1 else 'are'} {dtype.name}, planned as {other.name}",
                    f"give {other.name}, or plan with the types that it trains on: from_keras(model, batch={batch}, "
                    f"data=(x, y)), or pesto.record(batch={batch})",
                )


def _build_variant(tracing: TraceRequest, signature: Any, batch: int | None) -> Graph | None:
    """Return the graph of the step with arguments of these types; None when it has none."""
    try:
        return build_graph(capture_func_graph(tracing.graph(signature), tracing.label), batch=batch)
    except Exception:  # the user's code may raise anything for arguments that it was not written for
        return None


# Argument types of a tf.function, with each tensor under the name that a reader of the program knows.


def tensor_specs(signature: Any) -> dict[str, Any]:
    """Return the TensorSpec of each tensor among the arguments of a FunctionType: by x, data[1], batch['ids']."""
    specs: dict[str, Any] = {}

    def keep(name: str, spec: Any) -> Any:
        specs[name] = spec
        return spec

    map_specs(signature, keep)
    return specs


def describe_argument(name: str, function: str) -> str:
    """Return an argument's name, with its role in `fit` where Keras' own `function` runs the step."""
    data = _FIT_ARGUMENTS.get(function)
    roles = {f"{data}[{k}]": part for k, part in enumerate(("x", "y", "sample_weight"))} if data else {}
    return f"{name} ({roles[name]} of fit)" if name in roles else name


def map_specs(signature: Any, change: Change) -> Any:
    """Return a FunctionType with changed TensorSpecs."""
    parameters = signature.parameters.values()
    return _replace_types(signature, {p.name: _change_structure(p.name, p.type_constraint, change) for p in parameters})


def _replace_types(signature: Any, kinds: Mapping[str, Any]) -> Any:
    old_parameters = signature.parameters.values()
    parameters = [type(p)(p.name, p.kind, p.optional, kinds.get(p.name, p.type_constraint)) for p in old_parameters]
    return type(signature)(parameters, signature.captures, return_annotation=signature.return_annotation)


def _change_structure(name: str, kind: Any, change: Change) -> Any:
    if isinstance(kind, tf.TensorSpec):
        return change(name, kind)
    if isinstance(kind, tf.data.IteratorSpec):
        return tf.data.IteratorSpec(_change_element(name, private.element_spec(kind), change))
    parts = private.members(kind)
    if parts is None:
        return kind
    return private.with_members(kind, [_change_structure(f"{name}{label}", part, change) for label, part in parts])


def _change_element(name: str, spec: Any, change: Change) -> Any:
    """Return the changed specs of an iterator's element; (x, y) is named as the argument of Keras' own step is."""
    if isinstance(spec, tf.TensorSpec):
        return change(name, spec)
    if isinstance(spec, tuple):
        parts = [_change_element(f"{name}[{k}]", part, change) for k, part in enumerate(spec)]
        return type(spec)(*parts) if hasattr(spec, "_fields") else tuple(parts)
    if isinstance(spec, dict):
        return type(spec)({k: _change_element(f"{name}[{k!r}]", part, change) for k, part in spec.items()})
    return spec


def open_batch(signature: Any) -> tuple[int, Any] | None:
    """Return the batch size of the first tensor and the FunctionType with that dimension open; None without one."""
    sizes = [spec.shape[0] for spec in tensor_specs(signature).values() if spec.shape.rank]
    if not sizes or sizes[0] is None:
        return None

    # Only dimensions equal to the first tensor's are opened: weights or lookup tables among the arguments have other
    # first sizes.
    def open_(_name: str, spec: Any) -> Any:
        return _set_first_dimension(spec, None) if spec.shape.rank and spec.shape[0] == sizes[0] else spec

    return sizes[0], map_specs(signature, open_)


def fix_batch(signature: Any, batch: int) -> Any:
    """Return a FunctionType in which the open first dimensions have a size; None when there are none."""
    if not any(_is_open(spec) for spec in tensor_specs(signature).values()):
        return None
    return map_specs(signature, lambda _, spec: _set_first_dimension(spec, batch) if _is_open(spec) else spec)


def _is_open(spec: Any) -> bool:
    return bool(spec.shape.rank) and spec.shape[0] is None


def _set_first_dimension(spec: Any, first: int | None) -> Any:
    return tf.TensorSpec([first, *spec.shape[1:]], spec.dtype, spec.name)


def change_dtype(signature: Any, names: Collection[str], dtype: Any) -> Any:
    """Return a FunctionType in which the tensors `names` have another dtype."""
    return map_specs(
        signature, lambda name, spec: tf.TensorSpec(spec.shape, dtype, spec.name) if name in names else spec
    )


def toggle_weights(signature: Any) -> Iterator[tuple[str, bool, Any]]:
    """Yield (argument, given, FunctionType): (x, y, sample_weight) without its weights, (x, y) with some.

    given: True if the argument has weights as it is.
    """
    for parameter in signature.parameters.values():
        kind = parameter.type_constraint
        iterated = isinstance(kind, tf.data.IteratorSpec)
        parts = None
        if iterated:
            parts = private.element_spec(kind)
        elif type(kind).__name__ == "List":
            parts = kind.components_tuple.components
        elif type(kind).__name__ == "Tuple":
            parts = kind.components
        if not isinstance(parts, tuple) or len(parts) not in (2, 3):
            continue
        if len(parts) == 2 and not isinstance(parts[1], tf.TensorSpec):
            continue
        weights = () if len(parts) == 3 else (tf.TensorSpec(parts[1].shape[:1], tf.float32),)
        others = (*parts[:2], *weights)
        changed_kind = tf.data.IteratorSpec(others) if iterated else type(kind)(*others)
        yield parameter.name, len(parts) == 3, _replace_types(signature, {parameter.name: changed_kind})


# Checks in the graph of a step that is traced with an open batch.


def add_batch_checks(graph: Any, batch: int) -> None:
    """Make every state change of a FuncGraph wait for checks that its open first dimensions are within `batch`."""
    captured = {inner.name for _, inner in graph.captures}
    input_tensors = [t for t in graph.inputs if t.name not in captured]
    input_tensors += [t for op in graph.get_operations() if op.type.startswith("IteratorGetNext") for t in op.outputs]
    sized = (t for t in input_tensors if t.dtype.as_datatype_enum not in (RESOURCE, VARIANT))
    fed = [t for t in sized if t.shape.rank and t.shape[0] is None]
    if not fed:
        return
    # Ops that produce the batch, such as IteratorGetNext, cannot wait for a check of what they produce.
    before, stack = set[str](), [t.op for t in fed]
    while stack:
        op = stack.pop()
        if op.name not in before:
            before.add(op.name)
            stack += [t.op for t in op.inputs] + list(op.control_inputs)
    waiting = [
        op
        for op in graph.get_operations()
        if op.op_def.is_stateful and op.type not in READS and op.type != "Placeholder" and op.name not in before
    ]
    checks = []
    with graph.as_default(), tf.control_dependencies(None), tf.name_scope("pesto_batch"):
        for tensor in fed:
            size = tf.raw_ops.Shape(input=tensor)  # without a device it runs where the tensor is, which stays there
            with tf.device(_HOST):
                first = tf.strided_slice(size, [0], [1], shrink_axis_mask=1)
                data = [tf.constant(_TOO_LARGE), first, tf.constant(batch)]
                # The check is a node of the graph, since a tf.function called with a tensor or iterator does not know
                # the size in Python.
                fits = tf.raw_ops.LessEqual(x=first, y=batch)
                checks.append(tf.raw_ops.Assert(condition=fits, data=data))
    for op in waiting:
        private.add_controls(op, checks)


def batch_error(error: Any) -> MismatchError | None:
    """Return the error of a failed batch check; None when another op failed."""
    match = _SIZES_IN_ERROR.search(str(error))
    return larger_batch_error(*match.groups()) if match else None
