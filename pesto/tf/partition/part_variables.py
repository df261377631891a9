"""Variables of a step, whole and in the parts that workers hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pesto.split.geometry import Layouts, Shape
from pesto.split.pieces import Box, worker_boxes

Array = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PartVariable:
    """A variable, and the one on each worker that holds a part of it."""

    name: str
    """Name of the op that makes its handle in the whole step."""
    parts: tuple[str, ...]
    """[K] of the ops that make the handles of its parts; one where a single worker holds it."""
    dtype: str
    shape: Shape
    layouts: Layouts
    factors: Shape
    places: tuple[int, ...]
    """The device of each part."""

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Which part each holds."""
        all_boxes = worker_boxes(self.shape, self.layouts, self.factors)
        return tuple(box for box in all_boxes[: len(self.parts)] if box is not None)

    def cut(self, value: Array) -> dict[str, Array]:
        """Each part of a value."""
        return {name: value[_index(box)] for name, box in zip(self.parts, self.boxes, strict=True)}

    def joined(self, parts: Mapping[str, Array]) -> Array:
        """The value that parts are of; of what several workers hold, the last one's."""
        first = np.asarray(parts[self.parts[0]])
        value = np.empty(self.shape, dtype=first.dtype)
        for name, box in zip(self.parts, self.boxes, strict=True):
            value[_index(box)] = parts[name]
        return value

    @property
    def part_elements(self) -> int:
        """Elements that each worker holds."""
        return prod(self.boxes[0][1])


def split_values(variables: Sequence[PartVariable], values: Mapping[str, Array]) -> dict[str, Array]:
    """Convert values of whole variables to values of their parts, by name: a checkpoint for the partitioned graph."""
    return {name: part for v in variables if v.name in values for name, part in v.cut(values[v.name]).items()}


def join_values(variables: Sequence[PartVariable], values: Mapping[str, Array]) -> dict[str, Array]:
    """Convert values of parts to values of whole variables, by name: a checkpoint for the original step."""
    return {v.name: v.joined(values) for v in variables if all(name in values for name in v.parts)}


def _index(box: Box) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip(*box, strict=True))
