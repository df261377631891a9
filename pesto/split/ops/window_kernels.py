"""Windows of pictures, and kernels that run on a window of their input: what each part pads, and where it begins.

A part that reads beyond its share runs the op's own kernel on what it was given. What the whole op pads, only the parts
at the border pad, so padding is written out for each; what the whole op skips, no part has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pesto.split.geometry import Box, worker_boxes
from pesto.split.tdl import NotDescribedError, OpOperands
from pesto.split.typed_graph import Number, Signature

if TYPE_CHECKING:
    from pesto.split.regions import Strategy

_OUT, _SIZES = -1, -2
_PADDED = {
    "Conv2D": (0, _OUT, 1), "DepthwiseConv2dNative": (0, _OUT, 1), "MaxPool": (0, _OUT, _SIZES),
    "Conv2DBackpropInput": (_OUT, 2, 1), "DepthwiseConv2dNativeBackpropInput": (_OUT, 2, 1),
    "Conv2DBackpropFilter": (0, 2, _OUT), "DepthwiseConv2dNativeBackpropFilter": (0, 2, _OUT),
}  # fmt: skip
"""Op types that can be told what to pad at each side -> the input that is the picture under the windows, the one that
has an element a window, and the one that is a window, the filters; or the output, or an attribute for sizes."""
_AS_THEY_ARE = ("Conv3D", "AvgPool", "AvgPool3D", "MaxPool3D")
_AT_ONCE = ("MaxPoolGrad", "AvgPoolGrad", "MaxPool3DGrad", "AvgPool3DGrad")
_PADS, _SLICE = ("Pad", "PadV2"), "Slice"
WINDOWED = frozenset((*_PADDED, *_AS_THEY_ARE, *_AT_ONCE, *_PADS, _SLICE))
"""Op types whose description has windows where a halo is asked for."""

Boxes = Sequence[Box | None]


@dataclass(frozen=True, slots=True)
class KernelOverrides:
    """Attributes and operands of one part's op that replace the whole op's."""

    padding: tuple[int, ...] = ()
    """Two numbers a dimension, as in `explicit_paddings`; empty where padding stays as it is."""
    operands: Mapping[int, Number] = field(default_factory=dict)
    """Input -> the constant in its place."""


def channel(signature: Signature, rank: int) -> int:
    """Return the dimension of the channels."""
    return 1 if str(signature.attribute("data_format", "NHWC")).startswith("NC") else rank - 1


def spatial(signature: Signature, rank: int) -> list[int]:
    """Return the dimensions of the picture."""
    return [d for d in range(1, rank) if d != channel(signature, rank)]


def per_dimension(signature: Signature, name: str, rank: int) -> tuple[int, ...]:
    """Return an attribute that has a number for each dimension; 1 each if it is missing."""
    result = signature.attribute(name, ())
    return tuple(result) if isinstance(result, tuple) and result else (1,) * rank  # type: ignore[arg-type]


def padding_before(signature: Signature, d: int, extent: int, out: int, window: int, stride: int) -> int:
    """Return the elements of padding before the first along dimension d; raise NotDescribedError for other paddings."""
    padding = str(signature.attribute("padding", "VALID"))
    if padding == "VALID":
        return 0
    if padding == "SAME":
        return max((out - 1) * stride + window - extent, 0) // 2
    if padding == "EXPLICIT":
        return int(tuple(signature.attribute("explicit_paddings", ()))[2 * d])  # type: ignore[arg-type]
    raise NotDescribedError(f"padding {padding}")


def kernel_overrides(signature: Signature, given: Boxes, made: Boxes, windows: Sequence[int]) -> KernelOverrides:
    """Return padding and operands of one part, given its inputs and outputs, and the dimensions that have windows."""
    if signature.type in _PADDED:
        return KernelOverrides(padding=tuple(n for sides in _sides(signature, given, made) for n in sides))
    if signature.type in _PADS:
        if given[0] is None or made[0] is None:
            raise ValueError("a worker without a part has no kernel")
        (first, size), (at, many), paddings = given[0], made[0], list[Number]()
        for d, sides in enumerate(_numbers(OpOperands(signature).value(1))):
            low, high = _numbers(sides)
            begin = at[d] - low  # along windows a part is padded by as much as its window lacks
            window = first[d] - begin, begin + many[d] - first[d] - size[d]
            paddings.append(window if d in windows else (low, high))
        return KernelOverrides(operands={1: tuple(paddings)})
    if signature.type == _SLICE:
        begins = _numbers(OpOperands(signature).value(1))
        return KernelOverrides(operands={1: tuple(0 if d in windows else n for d, n in enumerate(begins))})
    return KernelOverrides()


def kernel_fault(signature: Signature, strategy: "Strategy", k: int) -> str:
    """Return why the op's kernel cannot run on the windows of a strategy; empty if it can."""
    if not strategy.rims or signature.type in (*_PADS, _SLICE):
        return ""
    if any(r and o.dtype.startswith("resource") for r, o in zip(strategy.rims, signature.inputs, strict=True)):
        return "a variable lies in shares"
    if signature.type in _PADDED:
        if not strategy.name.startswith("x"):
            return "windows of filters are not cut"
        given = [
            worker_boxes(operand.shape or (), (layout,), (k,), rims)
            for operand, layout, rims in zip(signature.inputs, strategy.needs, strategy.rims, strict=True)
        ]
        made = [
            worker_boxes(shape or (), (layout,), (k,))
            for (shape, _), layout in zip(signature.outputs, strategy.gives, strict=True)
        ]
        parts = (([row[w] for row in given], [row[w] for row in made]) for w in range(k))
        fine = all(_has_its_windows(signature, *part) for part in parts)
        return "" if fine else "no padding makes its kernel give just the part"
    as_it_is = all(
        not rim.low and rim.step * (k - 1) + rim.size <= (operand.shape or ())[rim.dimension]
        for rims, operand in zip(strategy.rims, signature.inputs, strict=True)
        for rim in rims
    )
    return "" if as_it_is else "its kernel cannot be told to pad, or to begin, otherwise for each part"


def _box(number: int, given: Boxes, made: Boxes) -> Box:
    result = made[0] if number == _OUT else given[number]
    if result is None:
        raise ValueError("a worker without a part has no kernel")
    return result


def _extents(signature: Signature, number: int) -> tuple[int, ...]:
    return (signature.outputs[0][0] if number == _OUT else signature.inputs[number].shape) or ()


def _reach(signature: Signature, d: int) -> int:
    """Return the extent of a window with its dilation, along a dimension of the picture."""
    under, _, number = _PADDED[signature.type]
    rank = len(_extents(signature, under))
    if number == _SIZES:
        return per_dimension(signature, "ksize", rank)[d]
    taps = _extents(signature, number)[spatial(signature, rank).index(d)]
    return (taps - 1) * per_dimension(signature, "dilations", rank)[d] + 1


def _sides(signature: Signature, given: Boxes, made: Boxes) -> list[tuple[int, int]]:
    """Return the padding before and after a part's picture, for each dimension."""
    under, by_window, _ = _PADDED[signature.type]
    picture, windows = _extents(signature, under), _extents(signature, by_window)
    (first, size), (at, many) = _box(under, given, made), _box(by_window, given, made)
    strides, result = per_dimension(signature, "strides", len(picture)), [(0, 0)] * len(picture)
    for d in spatial(signature, len(picture)):
        reach = _reach(signature, d)
        begin = strides[d] * at[d] - padding_before(signature, d, picture[d], windows[d], reach, strides[d])
        end = begin + strides[d] * (many[d] - 1) + reach
        result[d] = first[d] - begin, max(0, end - first[d] - size[d])
    return result


def _has_its_windows(signature: Signature, given: Boxes, made: Boxes) -> bool:
    """Return True if a part, padded, has just the windows that are its own."""
    under, by_window, _ = _PADDED[signature.type]
    (_, size), (_, many) = _box(under, given, made), _box(by_window, given, made)
    strides = per_dimension(signature, "strides", len(size))
    for d, (low, high) in enumerate(_sides(signature, given, made)):
        if d in spatial(signature, len(size)):
            left = size[d] + low + high - _reach(signature, d)
            if low < 0 or left < 0 or left // strides[d] + 1 != many[d]:
                return False
    return True


def _numbers(value: Number) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)  # type: ignore[return-value]
