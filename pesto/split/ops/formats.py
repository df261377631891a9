"""Where the channels and the picture are: data formats, strides and padding of convolutions and pools."""

from pesto.split.tdl import NotDescribedError, OpOperands


def channel(op: OpOperands, rank: int) -> int:
    """The dimension of the channels."""
    return 1 if str(op.attribute("data_format", "NHWC")).startswith("NC") else rank - 1


def spatial(op: OpOperands, rank: int) -> list[int]:
    """The dimensions of the picture."""
    return [d for d in range(1, rank) if d != channel(op, rank)]


def listed(op: OpOperands, name: str, rank: int) -> tuple[int, ...]:
    """An attribute with a number for each dimension; 1 each where it is missing."""
    result = op.attribute(name, ())
    return tuple(result) if isinstance(result, tuple) and result else (1,) * rank  # type: ignore[arg-type]


def before(op: OpOperands, d: int, extent: int, out: int, window: int, stride: int) -> int:
    """Elements of padding before the first along dimension d."""
    padding = str(op.attribute("padding", "VALID"))
    if padding == "VALID":
        return 0
    if padding == "SAME":
        return max((out - 1) * stride + window - extent, 0) // 2
    if padding == "EXPLICIT":
        return int(tuple(op.attribute("explicit_paddings", ()))[2 * d])  # type: ignore[arg-type]
    raise NotDescribedError(f"padding {padding}")
