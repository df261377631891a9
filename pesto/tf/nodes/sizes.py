"""Sizes of tensors: known before a step runs, bounded, or unknown. A bound is never the value of a size."""

from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...] | None
"""Dimensions, -1 where unknown; None for an unknown rank."""


@dataclass(frozen=True, slots=True)
class KnownShape:
    """A shape that the tensor has in every step; it may be used as a value."""

    extents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoundedShape:
    """A shape that depends on the data, with an upper bound for its bytes and its work."""

    upper_bound: tuple[int, ...]
    """Largest extent of each dimension, as planned for; it may only be counted, not written into a graph."""
    known: Shape
    """The dimensions that do not depend on the data, the others -1; None where the rank depends on it."""


@dataclass(frozen=True, slots=True)
class UnknownShape:
    """A shape of which not even an upper bound is known."""


TensorShape = KnownShape | BoundedShape | UnknownShape


def is_known(shape: Shape) -> bool:
    """Return True if every dimension of a shape is known."""
    return shape is not None and -1 not in shape


def shape_from(proto: Any) -> Shape:
    """Return the shape that a TensorShapeProto states."""
    return None if proto.unknown_rank else tuple([d.size for d in proto.dim])
