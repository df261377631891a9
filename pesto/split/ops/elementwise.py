"""Element by element, with broadcasting: what each element of the output reads is at its own place."""

from collections.abc import Mapping

from pesto.split.tdl import Body, Description, Index, InputTensor, OpOperands, Value, opaque

NAMES = (
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
"""Op types, each with one output of the shape that its inputs broadcast to."""


def at(tensor: InputTensor, place: tuple[Index, ...]) -> Value:
    """The element of an input that broadcasting puts at a place of the output."""
    own = place[len(place) - tensor.rank :]
    return tensor[tuple(i if extent != 1 else Index() for i, extent in zip(own, tensor.shape, strict=True))]


def describe(op: OpOperands) -> list[Body]:
    """Any of them."""
    inputs = [op[number] for number in range(op.inputs)]

    def element(*i: Index) -> Value:
        result = Value()
        for tensor in inputs:
            result = result + at(tensor, i)
        return result

    return [element]


def select(op: OpOperands) -> list[Body]:
    """Select of TensorFlow 1: a vector as condition follows the first dimension, not the last."""
    condition, then, other = op[0], op[1], op[2]
    return [lambda *i: condition[i[: condition.rank]] + then[i] + other[i]]


def bitcast(op: OpOperands) -> list[Body]:
    """Bitcast: a last dimension comes, or goes, with the bytes of an element; the others stay."""
    tensor, rank = op[0], len(op.out())
    if rank > tensor.rank:
        return [lambda *i: opaque(tensor[i[:-1]])[i[-1]]]
    return [lambda *i: tensor[(*i, slice(None)) if rank < tensor.rank else i]]


ROWS: Mapping[str, Description] = dict.fromkeys(NAMES, describe) | {"Bitcast": bitcast, "Select": select}
