"""Which op types share memory between input and output, as TensorFlow 2.21's kernels do; told by the type's name.

In place: a kernel that asks `forward_input_or_allocate_output` writes its output into an input's buffer if both are
equally large and of one type, and nobody else holds that buffer (tensorflow/core/framework/op_kernel.cc,
`OpKernelContext::forward_input`). Kept: a constant's kernel holds its tensor for as long as the session is open
(tensorflow/core/kernels/constant_op.cc). A graph does not say which types its tensors have: sizes decide.
"""

import re

import numpy as np

from pesto.core.graph import Graph
from solvers.arrays import Bools, Ints, bools, ints

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
    """[n] whether each op is of one of `types`."""
    return np.isin(graph.type_of, [k for k, name in enumerate(graph.types) if name in types])


def of_variable(graph: Graph) -> Bools:
    """[t] whether each tensor is the variable that its op holds (`Graph.param_bytes`), and no bytes of its own."""
    holds = ~graph.launches | of_type(graph, _VARIABLES)
    held = np.where(holds, graph.param_bytes, 0)[graph.tensor_op]
    return bools((graph.tensor_bytes > 0) & (graph.tensor_bytes <= held))


def updated_variables(graph: Graph) -> tuple[Ints, Ints]:
    """(tensors that are a variable as an update hands it on, the data edge by which the update reads it)."""
    types = [k for k, name in enumerate(graph.types) if _UPDATES.match(name)]
    op, edge = np.unique(graph.dst, return_index=True)  # the first input of each op
    first = np.full(graph.ops, -1)
    first[op] = edge
    edges = np.where(np.isin(graph.type_of, types), first, -1)[graph.tensor_op]
    of = np.append(graph.tensor, 0)[edges]
    made = np.flatnonzero((edges >= 0) & of_variable(graph)[of] & (graph.tensor_bytes == graph.tensor_bytes[of]))
    return ints(made), ints(edges[made])


def reused_inputs(graph: Graph, root: Ints, kept: Bools) -> Ints:
    """[t] the data edge whose tensor each output may be written into; -1 for none.

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
