"""TDL: an op described as a lambda from index variables to elements of its inputs (Tofu, section 3.1).

    conv1d:  lambda b, co, x: Sum(lambda ci, dx: data[b, ci, x + dx] * filters[ci, co, dx])

A description is a Python function of an `OpOperands` that returns one lambda for each output. The function is traced
once with symbols in place of numbers. The trace records which elements of which input are read, by which affine index,
and the outermost reduction. Nothing is computed.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from pesto.split.typed_graph import Attribute, Number, Operand, Signature


class NotDescribedError(Exception):
    """Raised for expressions beyond the language: a product or comparison of indices, an index into a number."""


class MisdescribedError(NotDescribedError):
    """A description is of other outputs than an op's."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """An affine index: a sum of variables times constants, and a constant; rounded down if it is not whole."""

    terms: tuple[tuple[str, Fraction], ...] = ()
    """Variables with their coefficients, by name; none is 0."""
    offset: Fraction = Fraction(0)

    def __add__(self, other: "Index | int") -> "Index":
        """Add two indices."""
        added, terms = _index(other), dict(self.terms)
        for name, times in added.terms:
            terms[name] = terms.get(name, Fraction(0)) + times
        kept = tuple(sorted((name, times) for name, times in terms.items() if times))
        return Index(kept, self.offset + added.offset)

    def __sub__(self, other: "Index | int") -> "Index":
        """Subtract an index."""
        return self + _index(other) * -1

    def __mul__(self, times: "int | Fraction | Index") -> "Index":
        """Multiply by a constant; raise NotDescribedError for a product of indices."""
        if isinstance(times, Index):
            raise NotDescribedError("a product of two indices")
        return Index(tuple((name, c * times) for name, c in self.terms if times), self.offset * times)

    def __truediv__(self, parts: "int | Index") -> "Index":
        """Divide by a constant, rounding down; raise NotDescribedError for a quotient of indices."""
        if isinstance(parts, Index):
            raise NotDescribedError("a quotient of two indices")
        return self * Fraction(1, parts)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: int) -> "Index":
        """Subtract the index from a constant."""
        return self * -1 + other

    def __lt__(self, other: object) -> bool:
        """Raise NotDescribedError: indices cannot be compared."""
        raise NotDescribedError("a comparison of indices")

    __gt__ = __le__ = __ge__ = __eq__ = __ne__ = __lt__

    def __bool__(self) -> bool:
        """Raise NotDescribedError: nothing can depend on an index."""
        raise NotDescribedError("a condition on an index")


def _index(value: "Index | int") -> Index:
    return value if isinstance(value, Index) else Index(offset=Fraction(value))


@dataclass(frozen=True, slots=True, eq=False)
class ElementRead:
    """Elements of one input."""

    tensor: int
    """Number of the input."""
    at: tuple[Index | None, ...]
    """Index along each dimension; None for all of it."""
    padded: bool = False
    """True if it may lie beyond the input, where there are zeros."""
    spaced: bool = False
    """True if there is an element only where the index is whole, and zeros between."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """Elements that an expression reads, and its reductions."""

    reads: tuple[ElementRead, ...] = ()
    opaque: frozenset[str] = frozenset()
    """Variables that pick elements of what an opaque function returns: cutting them cuts no work."""
    reducer: str = ""
    """Outermost reduction: sum, mean, max, min or prod; empty if there is none."""
    reduced: tuple[str, ...] = ()
    """Variables that the outermost reduction is over."""
    bound: frozenset[str] = frozenset()
    """Variables of all reductions within."""

    def _with(self, other: object) -> "Value":
        more = other if isinstance(other, Value) else Value()
        return Value(self.reads + more.reads, self.opaque | more.opaque, bound=self.bound | more.bound)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _with

    def __getitem__(self, at: "Index | tuple[Index, ...]") -> "Value":
        """Pick an element of what an opaque function returned."""
        names = [name for index in (at if isinstance(at, tuple) else (at,)) for name, _ in _index(index).terms]
        return replace(self._with(None), opaque=self.opaque | frozenset(names))

    __iter__ = None

    def __lt__(self, other: object) -> bool:
        """Raise NotDescribedError: elements are not known, so they cannot be compared."""
        raise NotDescribedError("a comparison of elements: an opaque function can make one")

    __gt__ = __le__ = __ge__ = __eq__ = __ne__ = __lt__

    def __bool__(self) -> bool:
        """Raise NotDescribedError: nothing can depend on an element."""
        raise NotDescribedError("a condition on an element: an opaque function can make one")


@dataclass(frozen=True, slots=True)
class InputTensor:
    """An input of an op, to be indexed; `:` reads all of a dimension."""

    number: int
    shape: tuple[int, ...]
    pads: bool = False
    spaces: bool = False
    __iter__ = None

    @property
    def padded(self) -> "InputTensor":
        """The input with zeros around it, which indices may reach."""
        return replace(self, pads=True)

    @property
    def spaced(self) -> "InputTensor":
        """The input with zeros around it and between its elements, where an index is not whole."""
        return replace(self, pads=True, spaces=True)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, at: object) -> Value:
        """Read the elements at an index for each dimension; raise NotDescribedError for more or fewer."""
        given = at if isinstance(at, tuple) else (at,)
        if len(given) != self.rank:
            raise NotDescribedError(f"{len(given)} indices into input {self.number} of rank {self.rank}")
        place = tuple(None if isinstance(i, slice) else _index(i) for i in given)
        return Value((ElementRead(self.number, place, self.pads, self.spaces),))


@dataclass(frozen=True, slots=True)
class OpOperands:
    """Argument of a description: the op's inputs as tensors, its attributes and constants."""

    signature: Signature
    halo: bool = False
    """True if parts may read beyond their shares: windows are worth describing."""

    def __getitem__(self, number: int) -> InputTensor:
        """Return an input; raise NotDescribedError if its shape is not known."""
        shape = self.operand(number).shape
        if shape is None:
            raise NotDescribedError(f"input {number} has no known shape")
        return InputTensor(number, shape)

    def operand(self, number: int) -> Operand:
        """Return an input's shape, data type and value."""
        return self.signature.inputs[number]

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return len(self.signature.inputs)

    def value(self, number: int) -> Number:
        """Return the constant that an input is; raise NotDescribedError if it is none."""
        value = self.operand(number).value
        if value is None:
            raise NotDescribedError(f"input {number} is not a constant")
        return value

    def attribute(self, name: str, missing: Attribute | None = None) -> Attribute | None:
        """Return an attribute's value, or `missing`."""
        return self.signature.attribute(name, missing)

    def number(self, name: str, missing: int = 0) -> int:
        """Return an attribute that is a whole number, or `missing`."""
        result = self.attribute(name, missing)
        return result if isinstance(result, int) else missing

    def out(self, number: int = 0) -> tuple[int, ...]:
        """Return the shape of an output; raise NotDescribedError if it is not known."""
        shape = self.signature.outputs[number][0]
        if shape is None:
            raise NotDescribedError(f"output {number} has no known shape")
        return shape


Body = Callable[..., Value]


@dataclass(frozen=True, slots=True)
class Lambda:
    """An output: names of its index variables, one a dimension, and its element there."""

    variables: tuple[str, ...]
    body: Body


Description = Callable[[OpOperands], Sequence[Lambda | Body]]
"""Function from an op to one lambda for each output."""


def _element(body: Body, variables: Sequence[str]) -> Value:
    """Evaluate a lambda for symbols; raise NotDescribedError if one is bound twice."""
    made = body(*(Index(((name, Fraction(1)),)) for name in variables))
    result = made if isinstance(made, Value) else Value()._with(made)
    twice = result.bound.intersection(variables) or {name for name in variables if list(variables).count(name) > 1}
    if twice:
        raise NotDescribedError(f"two variables are named {min(twice)}: rename one")
    return result


def _reduction(reducer: str) -> Callable[..., Value]:
    def reduce(body: Body, variables: Sequence[str] = ()) -> Value:
        names = tuple(variables) or tuple(inspect.signature(body).parameters)
        inner = _element(body, names)
        return Value(inner.reads, inner.opaque, reducer, names, inner.bound | frozenset(names))

    return reduce


Sum, Mean, Max, Min, Prod = map(_reduction, ("sum", "mean", "max", "min", "prod"))


def opaque(*read: Value) -> Value:
    """Combine the reads of a function that the language cannot express; the result is to be indexed."""
    result = Value()
    for value in read:
        result = result + value
    return result


def trace(
    description: Description, signature: Signature, *, halo: bool = False
) -> tuple[tuple[tuple[str, ...], Value], ...]:
    """Return index variables and element of each output, then of the variables that an op updates.

    With `halo` parts may read beyond their shares. Raise MisdescribedError for a lambda of another rank than its
    output, or if one is missing.
    """
    op, result = OpOperands(signature, halo), []
    for number, output in enumerate(description(op)):
        rank = len(op.out(number)) if number < len(signature.outputs) else None
        made = output
        if not isinstance(made, Lambda):
            # A lambda has its own names; i0, i1, .. if it takes any number.
            given = inspect.signature(made).parameters.values()
            anything = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in given)
            names = (f"i{d}" for d in range(rank or 0)) if anything else (each.name for each in given)
            made = Lambda(tuple(names), made)
        if rank is not None and len(made.variables) != rank:
            raise MisdescribedError(f"{len(made.variables)} index variables for output {number} of rank {rank}")
        result.append((made.variables, _element(made.body, made.variables)))
    if len(result) < len(signature.outputs):
        raise MisdescribedError(f"{len(result)} lambdas for {len(signature.outputs)} outputs")
    return tuple(result)
