"""From a captured training step to `TypedGraph`."""

import numpy as np

from pesto.core.errors import InputError
from pesto.core.graph import Graph
from pesto.split.ops.replicated_ops import ONCE, ROWS
from pesto.split.typed_graph import TypedGraph
from pesto.tf.importer.importer import build_graph
from pesto.tf.importer.shapes import known_nodes
from pesto.tf.nodes import v1_loops
from pesto.tf.nodes.batch_dimension import READ_ITERATOR
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.trip_counts import LOOPS
from pesto.tf.private import op_def
from pesto.tf.shaping.op_signatures import op_signatures
from pesto.tf.shaping.optimizer_slots import tied_variables
from pesto.tf.variables.function_effects import BRANCHES
from pesto.tf.variables.variables import resource_origins
from solvers.arrays import bools, ints

_OPTIMIZERS_BRANCH = (
    "where the branch is an optimizer's own, as of Keras with gradient_accumulation_steps, leave that option out, or "
    "place the step whole by pesto.solve, which takes it as it is"
)
_LIKE_PURE = frozenset(("VarHandleOp", "Placeholder", "NoOp", "ReadVariableOp"))


def shape(captured: CapturedStep, *, batch: int | None = None) -> tuple[Graph, TypedGraph]:
    """A step's graph, and what its ops are; errors of `build_graph` and of `shape_of`."""
    graph = build_graph(captured, batch=batch)
    return graph, shape_of(captured, graph, batch)


def shape_of(captured: CapturedStep, graph: Graph, batch: int | None) -> TypedGraph:
    """What the ops of `graph` are, which was built of `captured`; InputError for what cannot be divided yet.

    That is loops of TensorFlow 1, reference variables, and loops and branches that take a variable's handle.
    """
    nodes = known_nodes(captured, batch)
    if (v1_loops.outermost_loops(nodes) >= 0).any():
        raise InputError.build(
            "loops of TensorFlow 1 cannot be divided",
            where=captured.source,
            remedy="build the step with tf.while_loop v2",
        )
    typed = shaped(nodes, graph)
    _refuse(nodes, typed)
    return typed


def _refuse(nodes: StepNodes, typed: TypedGraph) -> None:
    """InputError for variables that are not seen through handles alone, of ops that can be on any worker."""
    for node in nodes.defs:
        if nodes.signatures.has_ref(node):
            raise InputError.build(
                f"op {node.name}: a reference variable cannot be divided", remedy="build it with use_resource=True"
            )
        if node.op in READ_ITERATOR:
            raise InputError.build(
                f"op {node.name}: it takes the batch from an iterator, of which every worker would take "
                "another one, "
                "so the step cannot be divided",
                remedy=("give the batch to the step as an argument; pesto.solve and pesto.apply place it as it is"),
            )
    for op in typed.use_op.tolist():
        if typed.once[op]:
            kind = typed.signature(op).type
            before = "build a recurrent layer with unroll=True; otherwise " if kind in LOOPS else ""
            behind = f"; {_OPTIMIZERS_BRANCH}" if kind in BRANCHES else ""
            raise InputError.build(
                f"op {typed.names[op]}: it runs once and reads a variable itself, which cannot be divided",
                remedy=f"{before}read the variable before it, and hand the value on{behind}",
            )


def shaped(nodes: StepNodes, graph: Graph) -> TypedGraph:
    """What the ops of `graph` are, which was built of `nodes`."""
    signatures = op_signatures(nodes)
    number = {signature: k for k, signature in enumerate(dict.fromkeys(signatures))}
    edges = [(p, k, i, at) for i, given in enumerate(nodes.inputs) for at, (p, k) in enumerate(given)]
    src, output, dst, place = np.array(edges, dtype=np.int64).reshape(-1, 4).T
    handle, uses = _uses(nodes)
    use_op, use_input, use_variable = np.array(uses, dtype=np.int64).reshape(-1, 3).T
    return TypedGraph(
        names=tuple(node.name for node in nodes.defs),
        signatures=tuple(number),
        signature_of=ints([number[signature] for signature in signatures]),
        src=src,
        output=output,
        dst=dst,
        input=place,
        control_src=ints([p for i, given in enumerate(nodes.controls) for p in given]),
        control_dst=ints([i for i, given in enumerate(nodes.controls) for _ in given]),
        handle=ints(handle),
        tie=ints(tied_variables(signatures, nodes.inputs, uses, len(handle))),
        use_op=use_op,
        use_input=use_input,
        use_variable=use_variable,
        once=bools([_once(node.op) for node in nodes.defs]),
        source=graph.source,
        fingerprint=graph.fingerprint(),
        batch=graph.batch,
        feed_shapes=graph.feed_shapes,
    )


def _uses(nodes: StepNodes) -> tuple[list[int], list[tuple[int, int, int]]]:
    """The ops that make handles, and (op, input, variable) of those that take them."""
    root = resource_origins(nodes)
    handle = [i for i, of in enumerate(root) if i in of]
    variable = {i: v for v, i in enumerate(handle)}
    uses = []
    for i, given in enumerate(nodes.inputs):
        for at, (p, k) in enumerate(given):
            if root[p][k] >= 0:
                uses.append((i, at, variable[root[p][k]]))
    return handle, uses


def _once(op_type: str) -> bool:
    if ROWS.get(op_type) == ONCE:
        return True
    definition = op_def(op_type)
    if definition is None:
        return True
    takes = any(argument.type == 20 for argument in definition.input_arg)  # DT_RESOURCE
    return bool(definition.is_stateful) and op_type not in _LIKE_PURE and not takes
