"""tf.functions under a plan: each training step that is traced is edited before it compiles, its first run examined.

A function that trains, itself or in functions that it calls, needs a plan.
"""

import contextlib
import copy
import functools
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError, PestoError, UsageError
from pesto.core.files.json import shown
from pesto.core.plans.plan import Plan
from pesto.core.source import SAVED_MODEL
from pesto.tf import placement_refusals, private
from pesto.tf.apply_placement.placement import StepTrace, place_with_relays, trace_step
from pesto.tf.apply_placement.targets import ApplyOptions, device_targets
from pesto.tf.enforce.edits import apply_edits, compute_function_edits
from pesto.tf.enforce.partitions import ExpectedPlacement, Findings, find_name_prefixes, verify_run
from pesto.tf.enforce.plan_matching import (
    add_batch_checks,
    batch_error,
    match_step,
    trace_for_plan,
)
from pesto.tf.enforce.relocate import VariableMoves
from pesto.tf.nodes.captured import use_planned_shapes
from pesto.tf.nodes.inline import CALLS, find_called_names, inline_keras_2
from pesto.tf.nodes.needed_nodes import Signatures
from pesto.tf.sources.sources import capture_func_graph
from pesto.tf.variables.handles import find_holders
from pesto.tf.variables.variables import FLOW, READS, FunctionEffects, plain_effect


@dataclass(frozen=True, slots=True, eq=False)
class FunctionEnforcement:
    """Hooks by which tf.functions run by plans, and what they learned while one application lasts."""

    plans: tuple[Plan, ...]
    options: ApplyOptions
    moves: VariableMoves = field(default_factory=VariableMoves)
    placed: dict[int, tuple[Any, ExpectedPlacement, StepTrace]] = field(default_factory=dict)
    """FuncGraph's id -> (the graph, kept alive so that its id stays unique, its expected placement, its step)."""
    names: dict[str, ExpectedPlacement] = field(default_factory=dict)
    """Expectations of each function, by its name in TensorFlow's library."""
    known: "weakref.WeakSet[Any]" = field(default_factory=weakref.WeakSet)
    """Functions that were traced within this application, or need no watch."""
    seen: set[str] = field(default_factory=set)
    """Names of the functions that were traced within this application."""
    verified: "weakref.WeakSet[Any]" = field(default_factory=weakref.WeakSet)
    """Functions that ran as planned, or are of no plan's concern."""
    planned: "weakref.WeakSet[Any]" = field(default_factory=weakref.WeakSet)
    """The functions seen that a plan is for."""
    findings: list[Findings] = field(default_factory=list)
    refused: list[PestoError] = field(default_factory=list)
    """Warnings of functions that no plan is for, as they were given first."""

    @contextlib.contextmanager
    def hooks(self, token: str, *, keep: bool) -> Iterator[None]:
        """Install the hooks and settings; on leaving, variables move back unless `keep`.

        token: key that separates traces made for these plans from all others.
        """
        with contextlib.ExitStack() as stack:
            # The settings come before any trace. Variables move back first on exit, while the hooks still hold.
            stack.enter_context(plan_settings())
            stack.enter_context(require_functions(remedy=", or train outside pesto.apply"))
            stack.enter_context(private.watch_traces(self.on_graph, self.on_function))
            stack.enter_context(private.compile_only(self.on_compile))
            # TensorFlow caches traces by signature and context. The token makes functions traced before the context
            # traced again inside, where they can be edited.
            stack.enter_context(private.separate_traces(token))
            stack.enter_context(private.intercept_traces(self.on_trace))
            stack.enter_context(private.intercept_calls(self.called))
            if not keep:
                stack.callback(self.moves.undo)
            yield

    def find_targets(self, plan: Plan) -> dict[str, str]:
        """Return TensorFlow's name for each device of a plan; raise what `device_targets` raises."""
        return device_targets(plan, self.options.devices, [d.name for d in tf.config.list_logical_devices()])

    def on_graph(self, graph: Any) -> None:
        """Place and order a FuncGraph that was traced and compiles next, if it trains; raise for one without a plan."""
        if private.is_body(graph):  # the function around it answers for it
            return
        # This runs after tracing and before compilation, the last moment at which a FuncGraph can be edited: a compiled
        # function keeps a copy of its nodes.
        label = private.label_of(graph)
        refuse_gradients_only(graph, label)
        if not trains(graph, self.seen):
            return
        placement_refusals.check_graph(graph, label)
        if self.options.trace:
            raise InputError.build(
                "trace=True compares times, which TensorFlow gives of v1 sessions only",
                where=label,
                remedy="leave it out; the first run is verified all the same",
            )
        traced, plan = match_step(graph, label, self.plans)
        # Parts of divided branches are made by the plan and lie in no function of the program.
        added_nodes = {node.name for division in traced.divisions.values() for node in division.nodes}
        if not added_nodes.union(op.name for op in graph.get_operations()).issuperset(traced.graph.names):
            inner = next(op.get_attr("f").name for op in graph.get_operations() if op.type in CALLS)
            raise placement_refusals.nested_function_error(label, inner)
        targets = self.find_targets(plan)
        # Captured variables and small constants enter as arguments: the plan places them, but they do not run in this
        # function, so the partition check must not look for them and no chain may contain them.
        arguments = {t.op.name for t in graph.inputs}
        mine = frozenset(name for name in traced.graph.names if name not in arguments)
        made_outside = np.array([name not in mine for name in traced.graph.names], dtype=np.bool_)
        placement = place_with_relays(plan, traced, targets, made_outside, order=self.options.order)
        # A function's iterators are kept on the first CPU; a reader of one cannot be moved elsewhere.
        index = {name: i for i, name in enumerate(placement.graph.names)}
        for op in graph.get_operations():
            if op.type.startswith("IteratorGetNext") and op.name in index:
                where = placement.device_of(index[op.name])
                device = tf.DeviceSpec.from_string(where)
                if (device.device_type, device.device_index or 0) != ("CPU", 0):
                    raise InputError.build(
                        f"the plan has {shown(op.name)}, which reads the step's batch, on {where}, and iterators "
                        "are on /device:CPU:0",
                        where=label,
                        remedy="map the plan's device of that op to it (devices={...}), or plan for a cluster "
                        "with one CPU",
                    )
        # Variables are moved before the graph is edited: a resource op runs where its handle is, so the placer of
        # TensorFlow would silently move ops of a graph that was placed first.
        self.moves.settle(graph, placement, plan.provenance.graph_source)
        apply_edits(graph, compute_function_edits(placement, traced, traced.nodes.defs))
        if traced.graph.batch is not None:
            add_batch_checks(graph, traced.graph.batch)
        ran = mine | {relay.name for relay in placement.relays}
        expected = ExpectedPlacement(placement=placement, loops=traced.loops, ran=ran)
        # The graph is stored along with its id; otherwise the id could be reused by another FuncGraph after garbage
        # collection.
        self.placed[id(graph)] = (graph, expected, traced)

    def on_compile(self, graph: Any) -> Sequence[Any]:
        """Return the ops of a function to compile: all, but of a planned one those that something needs.

        Nothing prunes a function while Grappler is off: an op that nobody needs, such as a bypassed barrier, would run
        where TensorFlow likes, and its inputs would be sent there.
        """
        every: Sequence[Any] = graph.get_operations()
        if id(graph) not in self.placed:
            return every
        # Everything that a returned tensor, a control output or a stateful op needs is kept, except the whole branch
        # ops that their parts replaced.
        divided = self.placed[id(graph)][2].divisions
        effects = [op for op in every if op.op_def.is_stateful and op.name not in divided]
        needed, stack = set[str](), [*(tensor.op for tensor in graph.outputs), *graph.control_outputs, *effects]
        while stack:
            op = stack.pop()
            if op.name not in needed:
                needed.add(op.name)
                stack += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
        return [op for op in every if op.name in needed]

    def on_trace(self, tracing: private.TraceRequest) -> Any:
        """Return the ConcreteFunction of a trace that a plan is for; raise the first error about it, unwrapped."""
        try:
            with inline_keras_2(tracing):
                return trace_for_plan(tracing, self.plans)
        except PestoError as error:
            # AutoGraph catches the error, wraps it in a traceback of the user's code and raises it again, once for each
            # enclosing function. The first copy has the plain one-line message.
            first = next((said for said in self.refused if str(said) in str(error)), None)
            if first is None:
                self.refused.append(copy.copy(error))  # the error itself holds on to all that its frames hold
                raise
            raise copy.copy(first) from None

    def on_function(self, function: Any) -> None:
        """Note a compiled function; raise InputError for a step that XLA or a tf.data pipeline would run."""
        self.known.add(function)
        self.seen.add(private.name_of(function))
        # A tf.data pipeline runs its functions in its own threads: its runs show no partition graphs that could be
        # checked.
        if private.runs_in_data(function) and find_called_steps(function, self.names):
            raise InputError.build(
                f"function {shown(function.graph.name)} runs the step inside a tf.data pipeline, where nothing "
                "verifies it",
                remedy="loop over the dataset in Python",
            )
        placed = self.placed.get(id(function.graph))
        if placed is not None:
            if private.must_compile(function.function_def.attr):
                raise placement_refusals.xla_error(f"function {function.graph.name}")
            self.names[private.name_of(function)] = placed[1]

    def called(self, function: Any, call: Callable[[], Any]) -> Any:
        """Run a function called from eager code; check the settings and, the first time, the partition graphs.

        Raise UsageError for a training function that was not traced here, MismatchError for a batch larger than
        planned, VerificationError for a run that differs from the plan.
        """
        if function in self.verified:
            # Verified functions take the short way: only the process settings can still invalidate a plan after the
            # first run.
            if function not in self.planned:
                return call()
            check_settings()
            return _call_within_batch(call)
        if function not in self.known:
            name = shown(function.graph.name)
            if trains_untraced(function):
                raise UsageError.build(
                    f"function {name} was traced before pesto.apply, or loaded, and would run unplaced",
                    remedy="call the tf.function itself inside the context, so that it is traced there",
                )
            for plan in self.plans:
                if _is_exported_signature(function.graph, plan):
                    raise UsageError.build(
                        f"function {name} is the signature that the plan of {shown(plan.provenance.graph_source)} is "
                        "for, was traced when it was exported, and would run unplaced",
                        remedy="run that plan by pesto run, or plan the program's own tf.function and call that",
                    )
        inside = find_called_steps(function, self.names)
        if not inside:
            self.verified.add(function)
            return call()
        check_settings()
        # TensorFlow partitions a function at its first run and keeps the result, so the graphs of this run hold for all
        # later ones.
        with private.collect_partition_graphs() as graphs:
            result = _call_within_batch(call)
        for name in sorted(inside):
            expected = self.names[name]
            runs = [(parts, prefix) for parts in graphs for prefix in find_name_prefixes(parts, expected.placement)]
            if not runs:
                raise UsageError.build(
                    f"function {name}: TensorFlow showed no graph of its run", remedy="call it first inside pesto.apply"
                )
            for parts, prefix in runs:
                self.findings.append(verify_run(parts, expected, prefix))
        self.verified.add(function)
        self.planned.add(function)
        return result


def _is_exported_signature(graph: Any, plan: Plan) -> bool:
    """Return True if a plan is for the signature of a SavedModel, and this is its graph."""
    origin = plan.provenance
    if origin.graph_origin.kind != SAVED_MODEL:
        return False
    try:
        traced = trace_step(
            use_planned_shapes(capture_func_graph(graph, origin.graph_source), plan), origin.graph_batch
        )
    except PestoError:  # no step can be made of it, so it is no planned one
        return False
    return traced.graph.fingerprint() == origin.graph_fingerprint


def _call_within_batch(call: Callable[[], Any]) -> Any:
    """Return the results of a planned function; MismatchError when its batch is larger than planned."""
    try:
        return call()
    except tf.errors.InvalidArgumentError as error:
        why = batch_error(error)
        if why is None:
            raise
    raise why


# Settings of the process while plans are applied.


@contextlib.contextmanager
def plan_settings() -> Iterator[None]:
    """Turn Grappler and soft placement of tf.functions off inside. Raise InputError when XLA clusters ops."""
    placement_refusals.check_clustering()
    off = _disable_grappler()
    soft = tf.config.get_soft_device_placement()
    # Grappler rewrites, merges and removes ops after tracing, and soft placement moves ops whose kernel is missing:
    # either would make the run differ from the plan without an error.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    tf.config.set_soft_device_placement(False)
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": off})
        tf.config.set_soft_device_placement(soft)


def check_settings() -> None:
    """Raise UsageError when the program changed what `plan_settings` set: TensorFlow would compile the step anew."""
    placement_refusals.check_clustering()
    # TensorFlow compiles a function again when these options change, so the check must precede each call, not only the
    # first.
    if not _disable_grappler() or tf.config.get_soft_device_placement():
        raise UsageError.build(
            "Grappler or soft placement was turned on inside pesto.apply, by which ops move and lose their order",
            remedy="set tf.config before the context, or leave it",
        )


def _disable_grappler() -> bool:
    return bool(tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False))


@contextlib.contextmanager
def require_functions(*, remedy: str = "") -> Iterator[None]:
    """Raise UsageError for gradients of trainable variables outside of tf.functions, where a step runs op by op.

    remedy: text added to the error's own remedy.
    """

    def guarded(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def derive(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            if any(getattr(s, "trainable", False) for s in tf.nest.flatten(sources)):
                if tf.executing_eagerly():
                    raise placement_refusals.eager_error(more=remedy)
                # A gradient inside a nested trace makes all enclosing traces part of a step.
                graph = tf.compat.v1.get_default_graph()
                while hasattr(graph, "outer_graph"):
                    _DERIVING.add(graph)
                    graph = graph.outer_graph
            return original(self, target, sources, *args, **kwargs)

        return derive

    originals = {name: getattr(tf.GradientTape, name) for name in ("gradient", "jacobian")}
    for name, original in originals.items():
        setattr(tf.GradientTape, name, guarded(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(tf.GradientTape, name, original)


# Functions that train.

_DERIVING: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""FuncGraphs in which gradients of trainable variables are taken, or in one that is traced within them."""


def refuse_gradients_only(graph: Any, label: str) -> None:
    """Raise InputError for a FuncGraph that takes gradients of trainable variables and updates none: half of a step."""
    # Inner graphs of a step take gradients too (custom gradients, recomputation); the outermost function decides
    # whether the step is complete.
    if graph not in _DERIVING or hasattr(graph.outer_graph, "outer_graph"):
        return
    _, trained = _find_resource_handles(graph)
    if not _writes_variable(trained, _bodies_of(graph), _always):
        raise InputError.build(
            f"{label} takes gradients of trainable variables and updates none, which is half of a step: a plan is for "
            "all of it",
            remedy="make one tf.function that takes the gradients, of as many batches as are accumulated, and applies "
            "them",
        )


def trains(graph: Any, seen: Collection[str] | None = None) -> bool:
    """Return True if a FuncGraph's own ops, loops and branches included, write a trainable variable.

    The variable may be captured or an argument. Called functions count only where `seen`, the names of functions whose
    own trace was judged, is given without them. The trace that creates a function's variables never runs as a step.
    """

    def through(op: Any) -> bool:
        return seen is not None and op.get_attr("f").name not in seen

    bodies = _bodies_of(graph)
    captured, trained = _find_resource_handles(graph)
    if not trained or not _writes_variable(trained, bodies, through):
        return False
    # tf.function traces a function that creates variables twice. The first trace initialises them and never runs as a
    # step.
    return not any(_is_created_here(inner, bodies) for inner in captured)


def _find_resource_handles(graph: Any) -> tuple[list[Any], list[Any]]:
    """Return the handles that a FuncGraph captures, and those of trainable variables that it captures or is given."""
    mine = {id(v.handle) for v in graph.variables if v.trainable}
    captured = [(outer, inner) for outer, inner in graph.captures if inner.dtype == tf.resource]
    trained = [inner for outer, inner in captured if id(outer) in mine]
    specs = tf.nest.flatten(graph.structured_input_signature or ())
    # The signature does not say which resource argument belongs to which variable, so one that is trainable counts for
    # all.
    if any(getattr(spec, "trainable", False) for spec in specs):
        names = {inner.name for _, inner in graph.captures}
        trained += [t for t in graph.inputs if t.dtype == tf.resource and t.name not in names]
    return [inner for _, inner in captured], trained


def _bodies_of(graph: Any) -> Callable[[], FunctionEffects]:
    @functools.cache
    def bodies() -> FunctionEffects:  # as late as can be: it serialises the graph
        return FunctionEffects(Signatures({f.signature.name: f for f in graph.as_graph_def().library.function}))

    return bodies


def _writes_variable(handles: list[Any], bodies: Callable[[], FunctionEffects], through: Callable[[Any], bool]) -> bool:
    """Return True if an op writes a variable behind the handles, also through ops that pass them on.

    through: predicate that tells which ops that call functions count.
    """
    inside = (*FLOW, *CALLS)
    visited, stack = {t.name for t in handles}, list(handles)
    ops: dict[str, tuple[Any, dict[str, list[int]]]] = {}
    while stack:
        tensor = stack.pop()
        for op in tensor.consumers():
            # Called functions are traced and judged on their own, unless nobody saw their trace.
            if op.type in READS or (op.type in CALLS and not through(op)):
                continue
            if op.type not in inside and plain_effect(op.type, 0).written:
                return True
            if op.name not in ops:
                ops[op.name] = op.node_def, _slots(op)
            node, slots = ops[op.name]
            for slot in slots[tensor.name]:
                fate = bodies().fate(node, slot) if op.type in inside else plain_effect(op.type, slot)
                if fate.written:
                    return True
                # Identity, Switch and loops return the handle they are given; a write behind them is a write of the
                # same variable.
                handed = [op.outputs[k] for k in sorted(fate.outputs) if op.outputs[k].name not in visited]
                visited.update(t.name for t in handed)
                stack += handed
    return False


def _slots(op: Any) -> dict[str, list[int]]:
    """Return {tensor: the inputs of an op at which it is read}."""
    slots: dict[str, list[int]] = {}
    for slot, tensor in enumerate(op.inputs):
        slots.setdefault(tensor.name, []).append(slot)
    return slots


def _is_created_here(handle: Any, bodies: Callable[[], FunctionEffects]) -> bool:
    """Return True if a trace creates the variable behind a handle: it then initialises the variable conditionally."""
    has_value_flags = [op.outputs[0] for op in handle.consumers() if op.type == "VarIsInitializedOp"]
    branches = {
        op.name: op for has_value in has_value_flags for op in has_value.consumers() if op.type in ("If", "StatelessIf")
    }
    for op in branches.values():
        for slot in _slots(op).get(handle.name, ()):
            with_value, without = (op.get_attr(name).name for name in ("then_branch", "else_branch"))
            if bodies().of(without, slot - 1).written and not bodies().of(with_value, slot - 1).written:
                return True
    return False


def find_called_steps(function: Any, names: Collection[str]) -> set[str]:
    """Return those of `names` that a ConcreteFunction is, or calls at any depth.

    Raise InputError when it calls one from a loop or branch, whose rounds would overlap.
    """
    graph_def = function.graph.as_graph_def()
    library = {f.signature.name: f for f in graph_def.library.function}
    steps: set[str] = set()
    own = function.function_def.signature.name
    stack: list[tuple[str, Iterable[Any], bool]] = [(own, graph_def.node, False)]
    seen = set()
    while stack:
        name, nodes, looped = stack.pop()
        if name in names:
            if looped:
                raise InputError.build(
                    f"function {shown(function.graph.name)} runs the step inside a loop, whose rounds may overlap",
                    remedy="set steps_per_execution=1, or loop in Python",
                )
            steps.add(name)
        for node in nodes:
            for inner in find_called_names(node):
                # A call runs its function once. While and If run theirs any number of times, and two runs of one step
                # could overlap, so its order would not hold.
                within = looped or node.op not in CALLS
                if inner in library and (inner, within) not in seen:
                    seen.add((inner, within))
                    stack.append((inner, library[inner].node_def, within))
    return steps


def trains_untraced(function: Any) -> bool:
    """Return True if a ConcreteFunction traced elsewhere, or loaded, writes a trainable variable; calls included."""
    graph = function.graph
    bodies = _bodies_of(graph)
    captured = [(outer, inner) for outer, inner in graph.captures if inner.dtype == tf.resource]
    if not captured or not _writes_variable([inner for _, inner in captured], bodies, _always):
        return False
    variables = find_holders().by_handle()  # a loaded function does not know its variables
    trained = [inner for outer, inner in captured if getattr(variables.get(id(outer)), "trainable", False)]
    return bool(trained) and _writes_variable(trained, bodies, _always)


def _always(op: Any) -> bool:
    del op
    return True
