"""Products of matrices, one or a batch of them, or by an equation, and a bias added to channels."""

from collections.abc import Mapping

from pesto.split.ops.elementwise import at
from pesto.split.ops.formats import channel
from pesto.split.tdl import Body, Description, Index, Lambda, NotDescribedError, OpOperands, Sum, Value, opaque


def matmul(op: OpOperands) -> list[Body]:
    """MatMul, either operand transposed or not."""
    a, b = op[0], op[1]
    ta, tb = op.attribute("transpose_a"), op.attribute("transpose_b")
    return [lambda m, n: Sum(lambda k: (a[k, m] if ta else a[m, k]) * (b[n, k] if tb else b[k, n]))]


def batch_matmul(op: OpOperands) -> list[Lambda]:
    """BatchMatMulV2: leading dimensions broadcast."""
    a, b = op[0], op[1]
    ta, tb = op.attribute("adj_x"), op.attribute("adj_y")
    names = tuple(f"batch{d}" for d in range(len(op.out()) - 2))

    def element(*i: Index) -> Value:
        *batch, m, n = i
        return Sum(
            lambda k: at(a, (*batch, k, m) if ta else (*batch, m, k)) * at(b, (*batch, n, k) if tb else (*batch, k, n))
        )

    return [Lambda((*names, "m", "n"), element)]


def einsum(op: OpOperands) -> list[Lambda]:
    """Einsum by its equation: letters of the output are its variables, all others are summed over."""
    given, _, made = str(op.attribute("equation", "")).replace(" ", "").partition("->")
    letters = given.split(",")
    if "." in given or len(letters) != op.inputs:
        raise NotDescribedError("an equation with an ellipsis")
    summed = sorted(set(given) - set(made) - {","})

    def element(*i: Index) -> Value:
        place = dict(zip(made, i, strict=True))

        def inner(*r: Index) -> Value:
            at_ = place | dict(zip(summed, r, strict=True))
            return opaque(*(op[n][tuple(at_[letter] for letter in own)] for n, own in enumerate(letters)))

        return Sum(inner, summed) if summed else inner()

    return [Lambda(tuple(made), element)]


def bias(op: OpOperands) -> list[Body]:
    """BiasAdd: a vector along the channels."""
    tensor, vector = op[0], op[1]
    return [lambda *i: tensor[i] + vector[i[channel(op, tensor.rank)]]]


ROWS: Mapping[str, Description] = {
    "MatMul": matmul,
    "BatchMatMul": batch_matmul,
    "BatchMatMulV2": batch_matmul,
    "BatchMatMulV3": batch_matmul,
    "BiasAdd": bias,
    "Einsum": einsum,
}
