"""Detection of traced functions that train, themselves or in functions that they call: these need a plan."""

import contextlib
import functools
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.tf.nodes.inline import CALLS, called_names
from pesto.tf.nodes.signatures import Signatures
from pesto.tf.placement_refusals import EAGERLY, nested_function_error
from pesto.tf.variables.handles import find_holders
from pesto.tf.variables.variables import FLOW, READS, FunctionEffects, plain_effect

_DERIVING: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""FuncGraphs in which gradients of trainable variables are taken, or in one that is traced within them."""


def called_steps(function: Any, names: Collection[str]) -> set[str]:
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
            for inner in called_names(node):
                # A call runs its function once. While and If run theirs any number of times, and two runs of one step
                # could overlap, so its order would not hold.
                within = looped or node.op not in CALLS
                if inner in library and (inner, within) not in seen:
                    seen.add((inner, within))
                    stack.append((inner, library[inner].node_def, within))
    return steps


def refuse_gradients_only(graph: Any, label: str) -> None:
    """Raise InputError for a FuncGraph that takes gradients of trainable variables and updates none: half of a step."""
    # Inner graphs of a step take gradients too (custom gradients, recomputation); the outermost function decides
    # whether the step is complete.
    if graph not in _DERIVING or hasattr(graph.outer_graph, "outer_graph"):
        return
    _, trained = _resource_handles(graph)
    if not _writes_variable(trained, _bodies_of(graph), _always):
        raise InputError.build(
            f"{label} takes gradients of trainable variables and updates none, which is half of a step: a plan is for "
            "all of it",
            remedy="make one tf.function that takes the gradients, of as many batches as are accumulated, and applies "
            "them",
        )


def refuse_nested(graph: Any, planned: Iterable[str], label: str) -> None:
    """Raise InputError when ops of the step lie in functions that it calls, where they cannot be placed."""
    own = {op.name for op in graph.get_operations()}
    if not own.issuperset(planned):
        inner = next(op.get_attr("f").name for op in graph.get_operations() if op.type in CALLS)
        raise nested_function_error(label, inner)


def trains(graph: Any, seen: Collection[str] | None = None) -> bool:
    """Return True if a FuncGraph's own ops, loops and branches included, write a trainable variable.

    The variable may be captured or an argument. Called functions count only where `seen`, the names of functions whose
    own trace was judged, is given without them. The trace that creates a function's variables never runs as a step.
    """

    def through(op: Any) -> bool:
        return seen is not None and op.get_attr("f").name not in seen

    bodies = _bodies_of(graph)
    captured, trained = _resource_handles(graph)
    if not trained or not _writes_variable(trained, bodies, through):
        return False
    # tf.function traces a function that creates variables twice. The first trace initialises them and never runs as a
    # step.
    return not any(_is_created_here(inner, bodies) for inner in captured)


def _resource_handles(graph: Any) -> tuple[list[Any], list[Any]]:
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


def trains_unseen(function: Any) -> bool:
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


def _bodies_of(graph: Any) -> Callable[[], FunctionEffects]:
    @functools.cache
    def bodies() -> FunctionEffects:  # as late as can be: it serialises the graph
        return FunctionEffects(Signatures({f.signature.name: f for f in graph.as_graph_def().library.function}))

    return bodies


@contextlib.contextmanager
def in_functions_only(*, remedy: str = "") -> Iterator[None]:
    """Raise UsageError for gradients of trainable variables outside of tf.functions, where a step runs op by op.

    remedy: text added to the error's own remedy.
    """

    def guarded(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def derive(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            if any(getattr(s, "trainable", False) for s in tf.nest.flatten(sources)):
                if tf.executing_eagerly():
                    raise UsageError(EAGERLY + remedy)
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


def _writes_variable(handles: list[Any], bodies: Callable[[], FunctionEffects], through: Callable[[Any], bool]) -> bool:
    """Return True if an op writes a variable behind the handles, also through ops that pass them on.

    through: predicate that tells which ops that call functions count.
    """
    inside = (*FLOW, *CALLS)
    seen, stack = {t.name for t in handles}, list(handles)
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
                handed = [op.outputs[k] for k in sorted(fate.outputs) if op.outputs[k].name not in seen]
                seen.update(t.name for t in handed)
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
