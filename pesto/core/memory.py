"""Bytes that a graph's ops hold over time, and the peak bytes of each device during a simulated step."""

import re

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.graph import Graph
from pesto.core.problem import COPIED, payloads
from pesto.core.quantities import shorten, size
from pesto.core.simulator import Timeline
from solvers import Footprint, Problem
from solvers.arrays import Bools, Ints, bools, ints, rank_of
from solvers.compiled.dag import after_all, topological_order
from solvers.memory.usage import Usage, usage

# Which op types share memory between input and output, as TensorFlow 2.21's kernels do; told by the type's name.

_UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil Conj Cos Cosh Digamma Erf Erfc Erfinv Exp
Expm1 Floor Inv Invert Lgamma Log Log1p LogicalNot Ndtri Neg Reciprocal Rint Round Rsqrt Sigmoid Sign Sin Sinh Sqrt
Square Tan Tanh"""
"""UnaryOp in cwise_ops_common.h."""
_BINARY = """Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Div DivNoNan FloorDiv FloorMod Igamma Igammac LeftShift
LogicalAnd LogicalOr Maximum Minimum Mod Mul MulNoNan NextAfter Polygamma Pow RealDiv RightShift SquaredDifference Sub
TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta"""
"""BinaryOp in cwise_ops_common.h; of comparisons, input and output differ in type."""
_GRADIENTS = "InvGrad ReciprocalGrad RsqrtGrad SigmoidGrad SqrtGrad TanhGrad"
"""SimpleBinaryOp in cwise_ops_common.h."""
_ACTIVATIONS = """Elu EluGrad LeakyRelu LeakyReluGrad Relu Relu6 Relu6Grad ReluGrad Selu SeluGrad Softplus SoftplusGrad
Softsign SoftsignGrad"""
"""UnaryElementWiseOp and BinaryElementWiseOp in framework/numeric_op.h."""
_OTHERS = """AddN BiasAdd BiasAddV1 ClipByValue LogSoftmax OnesLike Select SelectV2 Snapshot Softmax
SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits ZerosLike"""

IN_PLACE = frozenset(f"{_UNARY} {_BINARY} {_GRADIENTS} {_ACTIVATIONS} {_OTHERS}".split())
"""Op types whose output may take over the buffer of an equally large input."""
KEPT = frozenset(("Const", "HostConst"))
"""Op types whose outputs live as long as the session."""
_VARIABLES = frozenset(("AutoReloadVariable", "Variable", "VariableV2"))
"""Op types whose output is the variable itself, by reference."""
_UPDATES = re.compile(r"(Assign|Apply|SparseApply|Scatter|RefIdentity|StridedSliceAssign)")
"""Beginnings of op types that hand on the variable that is their first input, by reference."""


def of_type(graph: Graph, types: frozenset[str]) -> Bools:
    """Return [n], true for each op of one of `types`."""
    return np.isin(graph.type_of, [k for k, name in enumerate(graph.types) if name in types])


def of_variable(graph: Graph) -> Bools:
    """Return [t], true for each tensor that is the variable its op holds (`Graph.param_bytes`), without own bytes."""
    holds = ~graph.launches | of_type(graph, _VARIABLES)
    held = np.where(holds, graph.param_bytes, 0)[graph.tensor_op]
    return bools((graph.tensor_bytes > 0) & (graph.tensor_bytes <= held))


def updated_variables(graph: Graph) -> tuple[Ints, Ints]:
    """Return (tensors that are a variable as an update hands it on, the data edge by which the update reads it)."""
    types = [k for k, name in enumerate(graph.types) if _UPDATES.match(name)]
    op, edge = np.unique(graph.dst, return_index=True)  # the first input of each op
    first = np.full(graph.ops, -1)
    first[op] = edge
    edges = np.where(np.isin(graph.type_of, types), first, -1)[graph.tensor_op]
    of = np.append(graph.tensor, 0)[edges]
    made = np.flatnonzero((edges >= 0) & of_variable(graph)[of] & (graph.tensor_bytes == graph.tensor_bytes[of]))
    return ints(made), ints(edges[made])


def reused_inputs(graph: Graph, root: Ints, kept: Bools) -> Ints:
    """Return [t] the data edge whose tensor each output may be written into; -1 for none.

    root: [t] the tensor whose bytes each one is. kept: [t] tensors that stay, as variables and constants do. Of several
    equally large inputs it is the one whose bytes fewest ops read, since it is likeliest that nobody else needs them;
    the kernels take the first that nobody else holds.
    """
    own = root[graph.tensor]
    readers = np.bincount(own, minlength=len(root))[own]
    edge = np.flatnonzero(of_type(graph, IN_PLACE)[graph.dst] & ~kept[own])
    first = np.searchsorted(graph.tensor_op, np.arange(graph.ops + 1))
    outputs = np.diff(first)[graph.dst[edge]]
    edge = np.repeat(edge, outputs)
    within = np.arange(len(edge)) - np.repeat(np.cumsum(outputs) - outputs, outputs)
    tensor = first[graph.dst[edge]] + within
    fits = (graph.tensor_bytes[tensor] == graph.tensor_bytes[own[edge]]) & (graph.tensor_bytes[tensor] > 0)
    tensor, edge = tensor[fits], edge[fits]
    best = np.lexsort((edge, readers[edge]))[::-1]
    found = np.full(len(root), -1)
    found[tensor[best]] = edge[best]  # of several, the last one stands
    return found


def footprint(graph: Graph, *, per_edge: bool = False, scratch: Ints | None = None) -> Footprint:
    """Return the buffers of a graph's ops, one a tensor and one read a data edge; `per_edge` as its problem was built.

    A tensor lives from its op's start until its last reader on that device, or its last send, has finished; a
    received copy from the start of its transfer until its last reader there. An op that launches nothing and whose
    output is as large as its largest input (identity, reshape, the read of a variable) passes that on without a
    copy, and elementwise ops may write into an input that nobody else needs (`reused_inputs`). A
    constant lives for ever where it was made, and so does a variable, whose bytes (`Graph.param_bytes`) count once:
    what an op that launches nothing gives of them is another name for them. Copies of small constants
    (`pesto.core.problem.copied_constants`), at most 128 bytes a device, do not count. scratch: [n] bytes that each op's
    kernel needs while it runs, none where left out.
    """
    payload = payloads(graph, per_edge=per_edge)[0]
    made, edge = _renamed_inputs(graph)
    made, edge = made[payload[edge] >= 0], edge[payload[edge] >= 0]
    variable, constant = of_variable(graph), of_type(graph, KEPT)[graph.tensor_op]
    stays = variable | constant
    kept = np.flatnonzero(stays)
    tensors, reads = len(graph.tensor_op), len(graph.dst)
    static = graph.param_bytes.astype(np.int64)
    own = np.flatnonzero(constant & ~variable)
    np.add.at(static, graph.tensor_op[own], graph.tensor_bytes[own])
    passes = np.full(tensors + len(kept), -1)
    passes[made] = edge
    # The bytes of a constant or a variable are static where it was made: its tensor is another name of its kernel's, a
    # buffer of no size, and has a size of its own only where it is received.
    passes[kept] = reads + np.arange(len(kept))
    none = np.zeros(len(kept), dtype=np.int64)
    owner = graph.tensor_op[kept]
    # [t] the tensor whose bytes each one is, following what only passes its input on.
    source = np.arange(tensors)
    source[made] = graph.tensor[edge]
    while not np.array_equal(further := source[source], source):
        source = further
    return Footprint(
        static=static,
        size=np.concatenate([graph.tensor_bytes, none]),
        maker=np.concatenate([graph.tensor_op, owner]),
        passes=passes,
        read_buffer=np.concatenate([graph.tensor, tensors + np.arange(len(kept))]),
        read_by=np.concatenate([np.where(payload < 0, graph.src, graph.dst), owner]),  # a copy is read elsewhere
        read_payload=np.concatenate([payload, none - 1]),
        reuses=np.concatenate([reused_inputs(graph, source, stays), none - 1]),
        scratch=np.zeros(graph.ops, dtype=np.int64) if scratch is None else scratch,
    )


def add_lifetimes(problem: Problem, graph: Graph, *, per_edge: bool = False) -> Problem:
    """Return the full-graph problem with the bytes of its ops over time, for solvers that prove that schedules fit."""
    return problem.living(footprint(graph, per_edge=per_edge))


def measure(graph: Graph, timeline: Timeline, *, per_edge: bool = False, scratch: Ints | None = None) -> Usage:
    """Return the bytes alive over a simulated step; `per_edge` as the problem was built, `scratch` as `footprint`."""
    return usage(timeline.problem, footprint(graph, per_edge=per_edge, scratch=scratch), timeline.schedule)


def shortage(graph: Graph, problem: Problem, cluster: Cluster) -> str:
    """Describe which kind of memory the variables exceed and by how much, or which group no device can hold."""
    for kind in sorted({d.kind for d in cluster.devices}, reverse=True):
        # Bytes of the variables that only devices of `kind` may hold.
        other = [d for d, at in enumerate(problem.location.tolist()) if cluster.devices[at].kind != kind]
        confined_bytes = int(graph.param_bytes[~problem.allowed[:, other].any(axis=1)].sum())
        need, given = confined_bytes, [d.memory_bytes for d in cluster.devices if d.kind == kind]
        if need > sum(given):
            return (
                f"{kind} memory: {size(need)} needed, {len(given)} devices give {size(sum(given))}, "
                f"{size(need - sum(given))} short; the largest group has {_largest(graph, problem)}"
            )
    most = max(d.memory_bytes for d in cluster.devices)
    return f"the largest group has {_largest(graph, problem)}, the largest device {size(most)}"


def _largest(graph: Graph, problem: Problem) -> str:
    unit = np.where(problem.group >= 0, problem.group, int(problem.group.max(initial=-1)) + 1 + np.arange(graph.ops))
    held = np.zeros(int(unit.max(initial=-1)) + 1, dtype=np.int64)
    np.add.at(held, unit, graph.param_bytes)
    largest = int(held.argmax())
    name = graph.names[int(np.argmax((unit == largest) * graph.param_bytes))]
    return f"{size(int(held[largest]))} ({shorten(name)})"


def _renamed_inputs(graph: Graph) -> tuple[Ints, Ints]:
    """(tensors that are their op's largest input under another name, the data edge of that input).

    Not the read of a variable that an update follows which none of its readers leads to: they may come after it, and it
    then copies the variable (weights that are late, docs/guides/pipeline.md).
    """
    # A handle carries no bytes; what is read through it is the variable.
    carried = np.where(graph.tensor_bytes > 0, graph.tensor_bytes, graph.param_bytes[graph.tensor_op])[graph.tensor]
    largest = np.full(graph.ops, -1)
    by_size = np.argsort(carried, kind="stable")
    largest[graph.dst[by_size]] = by_size
    edge = largest[graph.tensor_op]
    same = graph.tensor_bytes == np.append(carried, -1)[edge]
    # Reads of variables with several updates whose readers need not be done when the next update comes.
    of, makes = np.full(graph.ops, -1), np.zeros(graph.ops, dtype=np.bool_)
    held = graph.param_bytes[graph.src] > COPIED
    of[graph.dst[held]], makes[graph.tensor_op] = graph.src[held], True
    src, dst = graph.control_src, graph.control_dst
    pair = np.flatnonzero((of[src] >= 0) & (of[src] == of[dst]) & makes[src] & ~makes[dst])
    variables, count = np.unique(of[(of >= 0) & ~makes], return_counts=True)
    pair = pair[np.isin(of[src[pair]], variables[count > 1])]
    order = topological_order(graph.ops, graph.edge_src, graph.edge_dst) if len(pair) else ints([])
    place, outliving = rank_of(order), [ints([])]
    for variable in variables[count > 1].tolist():
        its = of[src[pair]] == variable
        reads, updates = src[pair[its]], dst[pair[its]]
        key = np.zeros(graph.ops, dtype=np.int64)
        key[updates] = graph.ops - place[updates]
        # The earliest of these updates that each op leads to, which the later ones wait for.
        key = after_all(ints(order[::-1]), graph.edge_dst, graph.edge_src, ints(key))
        led = np.zeros(graph.ops, dtype=np.int64)
        np.maximum.at(led, graph.src, key[graph.dst])
        # Reads none of whose readers leads to the update behind them.
        outliving.append(ints(reads[led[reads] < graph.ops - place[updates]]))
    kept = np.isin(graph.tensor_op, np.concatenate(outliving))
    made = np.flatnonzero(~graph.launches[graph.tensor_op] & (edge >= 0) & same & ~kept)
    again, by = updated_variables(graph)
    passed, first = np.unique(np.append(made, again), return_index=True)
    return ints(passed), ints(np.append(edge[made], by)[first])
