"""What an op is to one who divides it: its type, attributes and the shapes of its operands; not its name."""

from dataclasses import dataclass

Attribute = int | float | bool | str | tuple["Attribute", ...]
Number = int | float | bool | tuple["Number", ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A data input. A variable's handle is seen as its value, of data type resource:float32 and the like."""

    shape: tuple[int, ...] | None
    """None where it has no shape of its own, as variants."""
    dtype: str
    """TensorFlow's name of it, such as float32."""
    value: Number | None = None
    """Small constants (at most 64 elements), nested as their shape is: shape operands, axes, permutations."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One kind of op; a step has hundreds of them for its thousands of ops."""

    type: str
    attributes: tuple[tuple[str, Attribute], ...]
    """By name, sorted."""
    inputs: tuple[Operand, ...]
    """Data inputs, in their order."""
    outputs: tuple[tuple[tuple[int, ...] | None, str], ...]
    """Shape and data type of each output."""

    def attribute(self, name: str, missing: Attribute | None = None) -> Attribute | None:
        """The value of an attribute, or `missing`."""
        return dict(self.attributes).get(name, missing)
