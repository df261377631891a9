"""Descriptions of arithmetic: elementwise ops, updates of variables, reductions, products of matrices, softmaxes."""

from collections.abc import Callable, Mapping
from typing import Any

from pesto.split.ops.window_kernels import channel
from pesto.split.tdl import (
    Body,
    Description,
    Index,
    InputTensor,
    Lambda,
    Max,
    Mean,
    Min,
    NotDescribedError,
    OpOperands,
    Prod,
    Sum,
    Value,
    opaque,
)  # fmt: skip

ALL = slice(None)
ELEMENTWISE_TYPES = (
    "Abs", "Acos", "Add", "AddN", "AddV2", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "BiasAddV1",
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "CheckNumerics", "ClipByValue", "Cos", "Cosh", "Digamma",
    "Div", "DivNoNan", "Elu", "EluGrad", "Equal", "Erf", "Erfc", "Erfinv", "Exp", "Expm1", "Floor", "FloorDiv",
    "FloorMod", "Greater", "GreaterEqual", "Identity", "Igamma", "Igammac", "Inv", "InvGrad", "Invert", "IsFinite",
    "IsInf", "IsNan", "LeakyRelu", "LeakyReluGrad", "LeftShift", "Less", "LessEqual", "Lgamma", "Log", "Log1p",
    "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mod", "Mul", "MulNoNan", "Ndtri", "Neg",
    "NextAfter", "NotEqual", "OnesLike", "Pow", "PreventGradient", "ReadVariableOp", "RealDiv",
    "Reciprocal", "ReciprocalGrad", "Relu", "Relu6", "Relu6Grad", "ReluGrad", "RightShift", "Rint", "Round", "Rsqrt",
    "RsqrtGrad", "SelectV2", "Selu", "SeluGrad", "Sigmoid", "SigmoidGrad", "Sign", "Sin", "Sinh", "Softplus",
    "SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt", "SqrtGrad", "Square", "SquaredDifference", "StopGradient",
    "Sub", "Tan", "Tanh", "TanhGrad", "TruncateDiv", "TruncateMod", "Xdivy", "Xlogy", "ZerosLike",
)  # fmt: skip
"""Op types with one output, whose shape is what the inputs broadcast to."""
UPDATE_TYPES = (
    "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceApplyAdaMax", "ResourceApplyAdadelta",
    "ResourceApplyAdagrad", "ResourceApplyAdagradV2", "ResourceApplyAdam", "ResourceApplyAdamWithAmsgrad",
    "ResourceApplyAddSign", "ResourceApplyCenteredRMSProp", "ResourceApplyFtrl", "ResourceApplyFtrlV2",
    "ResourceApplyGradientDescent", "ResourceApplyKerasMomentum", "ResourceApplyMomentum", "ResourceApplyPowerSign",
    "ResourceApplyProximalAdagrad", "ResourceApplyProximalGradientDescent", "ResourceApplyRMSProp",
)  # fmt: skip
"""Op types without outputs that update the variable in their first input."""


def broadcast_element(tensor: InputTensor, place: tuple[Index, ...]) -> Value:
    """Return the element of an input that broadcasting puts at a place of the output."""
    own = place[len(place) - tensor.rank :]
    return tensor[tuple(i if extent != 1 else Index() for i, extent in zip(own, tensor.shape, strict=True))]


def elementwise(op: OpOperands) -> list[Body]:
    """Describe an op whose output elements each read the inputs' elements at their own place, with broadcasting."""
    inputs = [op[number] for number in range(op.inputs)]
    return [lambda *i: sum((broadcast_element(tensor, i) for tensor in inputs), Value())]


def select(op: OpOperands) -> list[Body]:
    """Describe Select of TensorFlow 1, whose condition, if a vector, follows the first dimension, not the last."""
    condition, then, other = op[0], op[1], op[2]
    return [lambda *i: condition[i[: condition.rank]] + then[i] + other[i]]


def bitcast(op: OpOperands) -> list[Body]:
    """Describe Bitcast, which adds or removes a last dimension for the bytes of an element and keeps the others."""
    tensor, rank = op[0], len(op.out())
    if rank > tensor.rank:
        return [lambda *i: opaque(tensor[i[:-1]])[i[-1]]]
    return [lambda *i: tensor[(*i, ALL) if rank < tensor.rank else i]]


def update(op: OpOperands) -> list[Lambda]:
    """Describe an update in place: the variable, its slots and the gradient have one shape; rates are scalars."""
    tensors = [op[number] for number in range(op.inputs)]
    names = tuple(f"i{d}" for d in range(tensors[0].rank))
    return [Lambda(names, lambda *i: sum((tensor[i] if tensor.rank else tensor[()] for tensor in tensors), Value()))]


def scatter(op: OpOperands) -> list[Lambda]:
    """Describe ResourceScatterAdd and its kin, which update the rows of a variable that indices name."""
    variable, indices, updates = op[0], op[1], op[2]

    def element(row: Index, *i: Index) -> Value:
        rows = (ALL,) * indices.rank
        given = updates[(*rows, *i)] if updates.rank else updates[()]
        return variable[(row, *i)] + opaque(indices[rows])[row] + given

    return [Lambda(("row", *(f"i{d}" for d in range(1, variable.rank))), element)]


def _over(reduce: Callable[..., Value]) -> Callable[[OpOperands], list[Lambda]]:
    def describe(op: OpOperands) -> list[Lambda]:
        over, keep = axes(op.value(1), op[0].rank), bool(op.attribute("keep_dims", missing=False))
        if not (reduce is Mean and "int" in op.operand(0).dtype):
            return [_reduced(op, reduce, over, keep=keep)]
        # A mean of integers is rounded: means of parts do not add up to it.
        tensor = op[0]
        left = [d for d in range(tensor.rank) if keep or d not in over]

        def element(*i: Index) -> Value:
            place = dict(zip(left, i, strict=True))
            return opaque(tensor[tuple(ALL if d in over else place[d] for d in range(tensor.rank))])

        return [Lambda(tuple(f"i{d}" for d in left), element)]

    return describe


def axes(value: Any, rank: int) -> frozenset[int]:
    """Return the axes that a constant names, counted from the first dimension."""
    return frozenset(axis % rank for axis in (value if isinstance(value, tuple) else (value,)) if rank)


def _reduced(op: OpOperands, reduce: Callable[..., Value], over: frozenset[int], *, keep: bool) -> Lambda:
    tensor = op[0]
    left = [d for d in range(tensor.rank) if keep or d not in over]

    def element(*i: Index) -> Value:
        place = dict(zip(left, i, strict=True))

        def inner(*r: Index) -> Value:
            return tensor[tuple((place | dict(zip(sorted(over), r, strict=True)))[d] for d in range(tensor.rank))]

        return reduce(inner, [f"r{d}" for d in sorted(over)]) if over else inner()

    return Lambda(tuple(f"i{d}" for d in left), element)


def l2_loss(op: OpOperands) -> list[Lambda]:
    """Describe L2Loss, half the sum of all squares."""
    return [_reduced(op, Sum, frozenset(range(op[0].rank)), keep=False)]


def bias_gradient(op: OpOperands) -> list[Lambda]:
    """Describe BiasAddGrad, the sum over all dimensions but the channels."""
    rank = op[0].rank
    return [_reduced(op, Sum, frozenset(range(rank)) - {channel(op.signature, rank)}, keep=False)]


def bias(op: OpOperands) -> list[Body]:
    """Describe BiasAdd, which adds a vector along the channels."""
    tensor, vector = op[0], op[1]
    return [lambda *i: tensor[i] + vector[i[channel(op.signature, tensor.rank)]]]


def matmul(op: OpOperands) -> list[Body]:
    """Describe MatMul with either operand transposed or not."""
    a, b = op[0], op[1]
    ta, tb = op.attribute("transpose_a"), op.attribute("transpose_b")
    return [lambda m, n: Sum(lambda k: (a[k, m] if ta else a[m, k]) * (b[n, k] if tb else b[k, n]))]


def batch_matmul(op: OpOperands) -> list[Lambda]:
    """Describe BatchMatMulV2, whose leading dimensions broadcast."""
    a, b = op[0], op[1]
    ta, tb = op.attribute("adj_x"), op.attribute("adj_y")

    def element(*i: Index) -> Value:
        *batch, m, n = i
        return Sum(
            lambda k: (
                broadcast_element(a, (*batch, k, m) if ta else (*batch, m, k))
                * broadcast_element(b, (*batch, n, k) if tb else (*batch, k, n))
            )
        )

    return [Lambda((*(f"batch{d}" for d in range(len(op.out()) - 2)), "m", "n"), element)]


def einsum(op: OpOperands) -> list[Lambda]:
    """Describe Einsum by its equation: letters of the output are its variables, all others are summed over."""
    given, _, made = str(op.attribute("equation", "")).replace(" ", "").partition("->")
    letters = given.split(",")
    if "." in given or len(letters) != op.inputs:
        raise NotDescribedError("an equation with an ellipsis")
    summed = sorted(set(given) - set(made) - {","})

    def element(*i: Index) -> Value:
        place = dict(zip(made, i, strict=True))

        def inner(*r: Index) -> Value:
            at = place | dict(zip(summed, r, strict=True))
            return opaque(*(op[n][tuple(at[letter] for letter in own)] for n, own in enumerate(letters)))

        return Sum(inner, summed) if summed else inner()

    return [Lambda(tuple(made), element)]


def _row(op: OpOperands, number: int, i: tuple[Index, ...]) -> Value:
    tensor = op[number]
    return tensor[(*(index if extent != 1 else Index() for index, extent in zip(i, tensor.shape, strict=False)), ALL)]


def softmax(op: OpOperands) -> list[Body]:
    """Describe Softmax and LogSoftmax: each element reads its row of the last dimension whole."""
    return [lambda *i: opaque(_row(op, 0, i[:-1]))[i[-1]]]


def cross_entropy(op: OpOperands) -> list[Body]:
    """Describe (Sparse)SoftmaxCrossEntropyWithLogits: loss and gradient of each row, from its labels or its label."""
    sparse = op.signature.type.startswith("Sparse")

    def read(b: Index) -> Value:
        return opaque(_row(op, 0, (b,)) + (op[1][b] if sparse else _row(op, 1, (b,))))

    return [read, lambda b, c: read(b)[c]]


ELEMENTWISE: Mapping[str, Description] = dict.fromkeys(ELEMENTWISE_TYPES, elementwise) | {
    "Bitcast": bitcast, "Select": select,
}  # fmt: skip
UPDATES: Mapping[str, Description] = dict.fromkeys(UPDATE_TYPES, update) | {
    f"ResourceScatter{kind}": scatter for kind in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Update")
}
REDUCTIONS: Mapping[str, Description] = {
    "Sum": _over(Sum), "Mean": _over(Mean), "Max": _over(Max), "Min": _over(Min), "Prod": _over(Prod),
    "L2Loss": l2_loss, "BiasAddGrad": bias_gradient,
}  # fmt: skip
CONTRACTIONS: Mapping[str, Description] = {
    "MatMul": matmul, "BatchMatMul": batch_matmul, "BatchMatMulV2": batch_matmul, "BatchMatMulV3": batch_matmul,
    "BiasAdd": bias, "Einsum": einsum,
}  # fmt: skip
SOFTMAXES: Mapping[str, Description] = {
    "Softmax": softmax, "LogSoftmax": softmax, "SoftmaxCrossEntropyWithLogits": cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": cross_entropy,
}  # fmt: skip
