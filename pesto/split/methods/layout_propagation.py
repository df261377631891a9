"""Propagation of layouts: strategies of ops, and layouts of their outputs, that follow from the tensors cut so far."""

from collections import defaultdict
from collections.abc import Mapping
from math import prod

import numpy as np

from pesto.split.division import readers
from pesto.split.layouts import ONE, PARTIAL, WHOLE
from pesto.split.op_strategy import OpStrategy, admissible_strategies, uncut_strategy
from pesto.split.program import CutProgram
from pesto.split.typed_graph import TypedGraph
from solvers.arrays import Ints

Port = tuple[int, int]
"""An op and one of its outputs."""


class Spreading:
    """One cut of a program whose variables and ops may be whole; an op's way is open where nothing cut reaches it."""

    def __init__(self, shaped: TypedGraph, program: CutProgram, variables: Mapping[int, int], *, rows: bool) -> None:
        self.shaped, self.made = shaped, program
        self.rows = rows
        """True if what cannot hand on a cut goes on along its rows; else it is whole."""
        self.variables = variables
        """Tie -> the dimension that it is cut along; others are whole."""
        self.cut: dict[Port, int] = {}
        """Tensor -> the dimension that it is cut along."""
        self.open: set[Port] = set()
        """Tensors whose layout is left open: partial sums, what is drawn once, and what is made of these alone."""
        self.way: dict[int, int] = {}
        """Op -> its way; -1 where only the layout of what it makes is fixed, nothing where that is open too."""
        self.reads = defaultdict[int, list[tuple[Port, int]]](list)
        """Op -> (tensor, input)."""
        self.takes = defaultdict[int, list[tuple[int, int]]](list)
        """Op -> (input, tie)."""
        for port, result in readers(shaped).items():
            for i, at in result:
                self.reads[i].append((port, at))
        for op, at, v in zip(
            shaped.use_op.tolist(), shaped.use_input.tolist(), shaped.use_variable.tolist(), strict=True
        ):
            self.takes[op].append((at, program.tie[v]))

    def op(self, op: int) -> None:
        """Divide an op as its inputs are."""
        result = self.ways(op)
        cut = any(port in self.cut for port, _ in self.reads[op])
        cut = cut or any(tie in self.variables for _, tie in self.takes[op])
        if not cut and (self.shaped.once[op] or any(port in self.open for port, _ in self.reads[op])):
            self.open.update((op, k) for k in range(len(self.shaped.signature(op).outputs)))
            return
        fitting = [k for k, way in enumerate(result) if self.fits(op, way)] if cut else []
        whole = [k for k, way in enumerate(result) if {lay[-1] for lay in (*way.needs, *way.gives)} <= {WHOLE}]
        if cut and not fitting and self.rows:
            self.along_rows(op)
        elif fitting or whole:
            self.take(op, (fitting or whole)[0])

    def along_rows(self, op: int) -> None:
        """Keep what an op makes along its first dimension where no way hands on how its inputs are cut."""
        self.way[op] = 0 if len(self.made.ways[op]) == 1 else -1
        for k, layouts in enumerate(self.made.layouts[op]):
            if any(result[-1] == 0 for result in layouts):
                self.cut[op, k] = 0

    def ways(self, op: int) -> tuple[OpStrategy, ...]:
        """Strategies that an op would have if it were not whole for being tiny; its outputs may be cut by them."""
        result = self.made.ways[op]
        if len(result) > 1 or self.shaped.once[op]:
            return result
        signature = self.shaped.signature(op)
        return admissible_strategies(
            signature, uncut_strategy(signature), (prod(self.made.factors),), whole=True, once=False
        )

    def take(self, op: int, number: int) -> None:
        """Divide an op in one of its ways, and note where its outputs are."""
        self.way[op] = number if len(self.made.ways[op]) > 1 else 0
        for k, gives in enumerate(self.ways(op)[number].gives):
            if gives[-1] in (PARTIAL, ONE):
                self.open.add((op, k))
            elif gives[-1] >= 0:
                self.cut[op, k] = gives[-1]

    def fits(self, op: int, way: OpStrategy) -> bool:
        """Return True if a way needs every cut input as it is cut, and variables as they lie."""
        held = all(way.needs[at][-1] == self.variables.get(tie, WHOLE) for at, tie in self.takes[op])
        return held and all(way.needs[at][-1] == self.cut[port] for port, at in self.reads[op] if port in self.cut)

    def labels(self, count: int) -> Ints:
        """[count] of the problem's first variables; -1 for what is open."""
        result = np.full(count, -1, dtype=np.int64)
        for op, way in self.way.items():
            if self.made.op[op] >= 0:
                result[self.made.op[op]] = way
            for k, at in enumerate(self.made.tensor[op]):
                if at >= 0 and (op, k) not in self.open:
                    result[at] = _label(self.made.layouts[op][k], self.cut.get((op, k), WHOLE))
        for tied, at in zip(self.made.tied, self.made.tie, strict=True):
            result[at] = _label(tied, self.variables.get(at, WHOLE))
        return result


def _label(layouts: tuple[tuple[int, ...], ...], wanted: int) -> int:
    return next((k for w in (wanted, WHOLE) for k, result in enumerate(layouts) if result[-1] == w), -1)
