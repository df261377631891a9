"""Rows of probabilities: softmax and cross entropies; each row is one whole."""

from collections.abc import Mapping

from pesto.split.tdl import Body, Description, Index, OpOperands, Value, opaque

ALL = slice(None)


def _row(op: OpOperands, number: int, i: tuple[Index, ...]) -> Value:
    tensor = op[number]
    return tensor[(*(index if extent != 1 else Index() for index, extent in zip(i, tensor.shape, strict=False)), ALL)]


def softmax(op: OpOperands) -> list[Body]:
    """Softmax, LogSoftmax: along the last dimension."""
    return [lambda *i: opaque(_row(op, 0, i[:-1]))[i[-1]]]


def dense(op: OpOperands) -> list[Body]:
    """SoftmaxCrossEntropyWithLogits: a loss and a gradient of each row, by a row of labels."""
    return [
        lambda b: opaque(_row(op, 0, (b,)) + _row(op, 1, (b,))),
        lambda b, c: opaque(_row(op, 0, (b,)) + _row(op, 1, (b,)))[c],
    ]


def sparse(op: OpOperands) -> list[Body]:
    """SparseSoftmaxCrossEntropyWithLogits: the same by the number of the label."""
    return [
        lambda b: opaque(_row(op, 0, (b,)) + op[1][b]),
        lambda b, c: opaque(_row(op, 0, (b,)) + op[1][b])[c],
    ]


ROWS: Mapping[str, Description] = {
    "Softmax": softmax,
    "LogSoftmax": softmax,
    "SoftmaxCrossEntropyWithLogits": dense,
    "SparseSoftmaxCrossEntropyWithLogits": sparse,
}
