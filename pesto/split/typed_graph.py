"""A training step as one who divides it sees it: signatures of its ops, which output goes to which input, variables."""

from dataclasses import dataclass, fields

import numpy as np

from pesto.core.errors import InputError
from pesto.core.source import GraphOrigin, origin_of
from solvers.arrays import Bools, Ints, bools, ints

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
        """Return the value of an attribute, or `missing`."""
        return dict(self.attributes).get(name, missing)

    def bounded_output(self, output: int) -> tuple[int, ...]:
        """Return the dimensions of an output whose extent depends on the data."""
        return self.bounded[output] if self.bounded else ()

    @property
    def reads_shapes_alone(self) -> bool:
        """True if it reads only shapes that are known before the step runs, and no elements."""
        return self.type in READ_SHAPES and not any(operand.bounded for operand in self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TypedGraph:
    """n ops in topological order, e data edges, v variables, u uses of variables. Arrays are copied and made read-only.

    The ops are those of the `Graph` of the same step, in the same order. Raise InputError, naming the first offender,
    if lengths differ, an index is out of range, or an edge goes back.
    """

    names: tuple[str, ...]
    """[n] as in the graph."""
    signatures: tuple[Signature, ...]
    """[s] the kinds of op."""
    signature_of: Ints
    """[n] index into `signatures`."""
    src: Ints
    """[e] tail of each data edge."""
    output: Ints
    """[e] which output of the tail."""
    dst: Ints
    """[e] head of each data edge."""
    input: Ints
    """[e] which input of the head."""
    control_src: Ints
    """[c] tail of each control edge."""
    control_dst: Ints
    """[c] head of each control edge."""
    handle: Ints
    """[v] the op that makes each variable's handle."""
    tie: Ints
    """[v] variables of one number lie alike: a variable and its slots."""
    use_op: Ints
    """[u] an op that takes a variable's handle."""
    use_input: Ints
    """[u] the input that takes it."""
    use_variable: Ints
    """[u] the variable."""
    once: Bools
    """[n] True for ops that must run once: they draw random numbers, or have effects beyond variables."""
    source: str
    """Line that names the origin of the step for people."""
    fingerprint: str
    """Fingerprint of the step's `Graph`."""
    origin: GraphOrigin = GraphOrigin()  # noqa: RUF009
    """Origin of the step as fields, in the form of `Graph.origin`; when left out, that of `source`."""
    batch: int | None = None
    """Batch size given for a step that leaves it open, as of `Graph.batch`."""
    feed_shapes: tuple[str, ...] = ()
    """Shapes given for feeds and ops whose sizes the step leaves open, as of `Graph.feed_shapes`."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate every array."""
        if not self.origin.kind:
            object.__setattr__(self, "origin", origin_of(self.source))
        object.__setattr__(self, "source", str(self.source))
        for f in fields(self):
            if f.name not in ("names", "signatures", "source", "origin", "fingerprint", "batch", "feed_shapes"):
                value = getattr(self, f.name)
                object.__setattr__(self, f.name, bools(value) if f.name == "once" else ints(value))
        n, v = len(self.names), len(self.handle)
        self._within("signature_of", n, len(self.signatures))
        self._within("once", n, 2)
        for names, count in (
            (("src", "output", "dst", "input"), len(self.src)),
            (("control_src", "control_dst"), len(self.control_src)),
            (("handle", "tie"), v),
            (("use_op", "use_input", "use_variable"), len(self.use_op)),
        ):
            for name in names:
                many = v if name in ("tie", "use_variable") else n
                self._within(name, count, None if name in ("output", "input", "use_input") else many)
        back = np.flatnonzero(self.src >= self.dst)
        if len(back):
            raise InputError(f"edge {back[0]} goes back from op {self.src[back[0]]} to {self.dst[back[0]]}")
        outputs = np.array([len(s.outputs) for s in self.signatures], dtype=np.int64)
        inputs = np.array([len(s.inputs) for s in self.signatures], dtype=np.int64)
        for name, port, ports in (
            ("output", self.output, outputs[self.signature_of[self.src]]),
            ("input", self.input, inputs[self.signature_of[self.dst]]),
            ("use_input", self.use_input, inputs[self.signature_of[self.use_op]]),
        ):
            wrong = np.flatnonzero(port >= ports)
            if len(wrong):
                raise InputError(f"{name}: {port[wrong[0]]} at {wrong[0]} is out of range")

    def _within(self, name: str, count: int, many: int | None) -> None:
        array = getattr(self, name)
        if array.shape != (count,):
            raise InputError(f"{name} has {len(array)} entries in place of {count}")
        wrong = np.flatnonzero((array < 0) | (array >= many)) if many is not None else np.flatnonzero(array < 0)
        if len(wrong):
            raise InputError(f"{name}: {array[wrong[0]]} at {wrong[0]} is out of range")

    def __repr__(self) -> str:
        """One line, without arrays."""
        kinds, variables = len(self.signatures), len(self.handle)
        return f"TypedGraph({self.source!r}, {self.ops} ops of {kinds} kinds, {variables} variables)"

    @property
    def ops(self) -> int:
        """Number of ops, n."""
        return len(self.names)

    @property
    def edges(self) -> list[tuple[int, int, int, int]]:
        """Tail, its output, head and its input of each data edge."""
        ends = self.src.tolist(), self.output.tolist(), self.dst.tolist(), self.input.tolist()
        return list(zip(*ends, strict=True))

    @property
    def uses(self) -> list[tuple[int, int, int]]:
        """Op, its input and the variable of each use of a variable's handle."""
        return list(zip(self.use_op.tolist(), self.use_input.tolist(), self.use_variable.tolist(), strict=True))

    def signature(self, op: int) -> Signature:
        """Return the signature of an op."""
        return self.signatures[self.signature_of[op]]
