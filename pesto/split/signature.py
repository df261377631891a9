"""Signatures of ops: type, attributes and operand shapes, without names."""

from dataclasses import dataclass

Attribute = int | float | bool | str | tuple["Attribute", ...]
Number = int | float | bool | tuple["Number", ...]
READ_SHAPES = frozenset(("Rank", "Shape", "ShapeN", "Size"))
"""Op types that read shapes and no elements: nobody sends them anything where the shapes are known."""
RANK = -1
"""In a list of dimensions whose extents depend on the data: even how many dimensions there are does."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A data input. A variable's handle is seen as its value, of data type resource:float32 and the like."""

    shape: tuple[int, ...] | None
    """None where it has no shape of its own, as variants; of a `bounded` dimension the largest extent."""
    dtype: str
    """TensorFlow's name of it, such as float32."""
    value: Number | None = None
    """Small constants (at most 64 elements), nested as their shape is: shape operands, axes, permutations."""
    bounded: tuple[int, ...] = ()
    """Dimensions whose extent depends on the data, so that only an upper bound is known; with RANK all of them do."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One kind of op; a step has hundreds of them for its thousands of ops."""

    type: str
    attributes: tuple[tuple[str, Attribute], ...]
    """By name, sorted."""
    inputs: tuple[Operand, ...]
    """Data inputs, in their order."""
    outputs: tuple[tuple[tuple[int, ...] | None, str], ...]
    """Shape and data type of each output; of a bounded dimension the largest extent."""
    bounded: tuple[tuple[int, ...], ...] = ()
    """Bounded dimensions of each output, as of operands; empty where all sizes are known."""

    def attribute(self, name: str, missing: Attribute | None = None) -> Attribute | None:
        """The value of an attribute, or `missing`."""
        return dict(self.attributes).get(name, missing)

    def bounded_output(self, output: int) -> tuple[int, ...]:
        """Dimensions of an output whose extent depends on the data."""
        return self.bounded[output] if self.bounded else ()

    @property
    def reads_shapes_alone(self) -> bool:
        """True if it reads nothing but shapes that are known before the step runs, and no elements."""
        return self.type in READ_SHAPES and not any(operand.bounded for operand in self.inputs)
