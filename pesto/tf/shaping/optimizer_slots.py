"""Variables that share a layout: a weight and its optimizer's slots, found by the step's data flow."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from pesto.split.geometry import Shape
from pesto.split.ops.op_types import CLASSES
from pesto.split.signature import Signature

Use = tuple[int, int, int]
"""An op, the input by which it takes a variable's handle, and the variable."""


def tied_variables(
    signatures: Sequence[Signature], inputs: Sequence[Sequence[tuple[int, int]]], uses: Sequence[Use], variables: int
) -> list[int]:
    """[v] the least of the variables that each lies like; only variables of one shape lie alike.

    inputs: of each op the (op, output) that it reads. Alike are variables that one op takes, as ResourceApplyAdam; and
    a weight with what element-wise ops alone bring to its updates, or bring it to, where that is a slot: a variable
    that serves nothing but updates. No two weights are tied, whatever a slot of one has to do with the other.
    """
    step = _UpdateFlow(signatures, inputs, uses)
    sets = _VariableSets(variables, [v for v in range(variables) if v not in step.slots])
    taken: dict[tuple[int, Shape | None], int] = {}
    for op, at, v in uses:
        sets.join(taken.setdefault((op, signatures[op].inputs[at].shape), v), v)
    pairs = step.pairs()
    for written, read in sorted(pairs, key=lambda pair: (pair[0] in step.slots, pair)):
        if written in step.slots or read in step.slots:
            sets.join(written, read, two_weights=False)
    return [sets.of(v) for v in range(variables)]


class _VariableSets:
    """Variables that lie alike, and the weights among them."""

    def __init__(self, variables: int, weights: Iterable[int]) -> None:
        self._up = list(range(variables))
        self._weights = dict.fromkeys(weights, 1)

    def of(self, v: int) -> int:
        while self._up[v] != v:
            self._up[v] = self._up[self._up[v]]
            v = self._up[v]
        return v

    def join(self, one: int, other: int, *, two_weights: bool = True) -> None:
        low, high = sorted((self.of(one), self.of(other)))
        many = self._weights.get(low, 0) + self._weights.get(high, 0)
        if low != high and (two_weights or many < 2):
            self._up[high], self._weights[low] = low, many


class _UpdateFlow:
    """Readers and writers of variables, and the ops between them."""

    def __init__(
        self, signatures: Sequence[Signature], inputs: Sequence[Sequence[tuple[int, int]]], uses: Sequence[Use]
    ) -> None:
        self.signatures, self.inputs = signatures, inputs
        self.read_of = {op: v for op, _, v in uses if signatures[op].type == "ReadVariableOp"}
        self.written_by: dict[int, list[int]] = defaultdict(list)
        self.shape: dict[int, Shape | None] = {}
        self.others: set[int] = set()
        """Variables that an op takes which neither hands on its value nor updates it alone."""
        for op, at, v in uses:
            self.shape[v] = signatures[op].inputs[at].shape
            if not signatures[op].outputs:
                self.written_by[op].append(v)
            elif op not in self.read_of:
                self.others.add(v)
        self.readers: dict[int, list[int]] = defaultdict(list)
        for op, given in enumerate(inputs):
            for p, _ in given:
                self.readers[p].append(op)

    @cached_property
    def slots(self) -> frozenset[int]:
        """Variables that are updated, and whose values element-wise ops bring to updates, and to nothing else."""
        reads: dict[int, list[int]] = defaultdict(list)
        for op, v in self.read_of.items():
            reads[v].append(op)
        updated = {v for written in self.written_by.values() for v in written} - self.others
        return frozenset(v for v in updated if self.shape[v] and self._serves_updates(reads[v], self.shape[v]))

    def _serves_updates(self, reads: list[int], shape: Shape | None) -> bool:
        seen, left = set(reads), list(reads)
        while left:
            after = self.readers[left.pop()]
            if not after or not all(op in self.written_by or self._elementwise(op, shape) for op in after):
                return False
            more = {op for op in after if op not in self.written_by} - seen
            seen |= more
            left += more
        return True

    def pairs(self) -> set[tuple[int, int]]:
        """(a variable that is updated, another of its shape whose value element-wise ops bring there)."""
        updated_from = set()
        for op, written in self.written_by.items():
            for v in written:
                if self.shape[v]:
                    updated_from |= {(v, read) for read in self._brought(op, self.shape[v]) if read != v}
        return updated_from

    def _brought(self, op: int, shape: Shape | None) -> set[int]:
        """Variables of a shape whose values element-wise ops bring to an op."""
        variables, seen, left = set(), {op}, [op]
        while left:
            for p, _ in self.inputs[left.pop()]:
                if p in self.read_of:
                    variables |= {self.read_of[p]} if self.shape[self.read_of[p]] == shape else set()
                elif p not in seen and self._elementwise(p, shape):
                    seen.add(p)
                    left.append(p)
        return variables

    def _elementwise(self, op: int, shape: Shape | None) -> bool:
        signature = self.signatures[op]
        return signature.type in CLASSES["elementwise"] and all(given == shape for given, _ in signature.outputs)
