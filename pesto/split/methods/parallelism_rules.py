"""Parallelism by hand-written rules: data parallelism, and Megatron-LM's column and row cuts (arXiv:1909.08053)."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from math import prod

import numpy as np

from pesto.core.errors import NothingFoundError
from pesto.split.division import readers
from pesto.split.geometry import ONE, PARTIAL, WHOLE
from pesto.split.methods.cut import CutChoice, CutTask, complete_labels, tensors_of
from pesto.split.op_strategy import SUMMANDS_WAY, OpStrategy, admissible_strategies, uncut_strategy
from pesto.split.ops.op_types import CLASSES, FED
from pesto.split.program import CutProgram
from pesto.split.typed_graph import Signature, TypedGraph
from solvers.arrays import Ints

Port = tuple[int, int]
"""An op and one of its outputs."""


class Spreading:
    """One cut spread from tensor to tensor: strategies and layouts of outputs follow from the tensors cut so far.

    Variables and ops may be whole; an op's strategy is open if nothing cut reaches it.
    """

    def __init__(self, shaped: TypedGraph, program: CutProgram, variables: Mapping[int, int], *, rows: bool) -> None:
        self.shaped, self.program = shaped, program
        self.rows = rows
        """True if what cannot hand on a cut goes on along its rows; else it is whole."""
        self.variables = variables
        """Tie -> the dimension that it is cut along; others are whole."""
        self.cut: dict[Port, int] = {}
        """Tensor -> the dimension that it is cut along."""
        self.open: set[Port] = set()
        """Tensors whose layout is left open: partial sums, what is drawn once, and what is made of these alone."""
        self.chosen: dict[int, int] = {}
        """Op -> number of its strategy; -1 if only the layout of its outputs is fixed, none if that is open too."""
        self.reads = defaultdict[int, list[tuple[Port, int]]](list)
        """Op -> (tensor, input)."""
        self.takes = defaultdict[int, list[tuple[int, int]]](list)
        """Op -> (input, tie)."""
        for port, result in readers(shaped).items():
            for i, at in result:
                self.reads[i].append((port, at))
        for op, at, v in shaped.uses:
            self.takes[op].append((at, program.tie[v]))

    def op(self, op: int) -> None:
        """Divide an op as its inputs are."""
        result = self.strategies(op)
        cut = any(port in self.cut for port, _ in self.reads[op])
        cut = cut or any(tie in self.variables for _, tie in self.takes[op])
        if not cut and (self.shaped.once[op] or any(port in self.open for port, _ in self.reads[op])):
            self.open.update((op, k) for k in range(len(self.shaped.signature(op).outputs)))
            return
        fitting = [k for k, strategy in enumerate(result) if self.fits(op, strategy)] if cut else []
        whole = [
            k for k, strategy in enumerate(result) if {lay[-1] for lay in (*strategy.needs, *strategy.gives)} <= {WHOLE}
        ]
        if cut and not fitting and self.rows:
            self.along_rows(op)
        elif fitting or whole:
            self.take(op, (fitting or whole)[0])

    def along_rows(self, op: int) -> None:
        """Keep what an op makes along its first dimension where no way hands on how its inputs are cut."""
        self.chosen[op] = 0 if len(self.own(op)) == 1 else -1
        for k, layouts in enumerate(self.program.layouts[op]):
            if any(result[-1] == 0 for result in layouts):
                self.cut[op, k] = 0

    def strategies(self, op: int) -> tuple[OpStrategy, ...]:
        """Strategies that an op would have if it were not whole for being tiny; its outputs may be cut by them."""
        result = self.own(op)
        if len(result) > 1 or self.shaped.once[op]:
            return result
        signature = self.shaped.signature(op)
        return admissible_strategies(
            signature, uncut_strategy(signature), (prod(self.program.factors),), whole=True, once=False
        )

    def own(self, op: int) -> tuple[OpStrategy, ...]:
        """Strategies of an op in the program, those on summands aside, which come last."""
        return tuple(way for way in self.program.strategies[op] if way.names[-1] != SUMMANDS_WAY)

    def take(self, op: int, number: int) -> None:
        """Divide an op in one of its ways, and note where its outputs are."""
        self.chosen[op] = number if len(self.own(op)) > 1 else 0
        for k, gives in enumerate(self.strategies(op)[number].gives):
            if gives[-1] in (PARTIAL, ONE):
                self.open.add((op, k))
            elif gives[-1] >= 0:
                self.cut[op, k] = gives[-1]

    def fits(self, op: int, strategy: OpStrategy) -> bool:
        """Return True if a way needs every cut input as it is cut, and variables as they lie."""
        held = all(strategy.needs[at][-1] == self.variables.get(tie, WHOLE) for at, tie in self.takes[op])
        return held and all(strategy.needs[at][-1] == self.cut[port] for port, at in self.reads[op] if port in self.cut)

    def labels(self, count: int) -> Ints:
        """[count] of the problem's first variables; -1 for what is open."""
        result = np.full(count, -1, dtype=np.int64)
        for op, number in self.chosen.items():
            if self.program.op[op] >= 0:
                result[self.program.op[op]] = number
            for k, at in enumerate(self.program.tensor[op]):
                if at >= 0 and (op, k) not in self.open:
                    result[at] = _label(self.program.layouts[op][k], self.cut.get((op, k), WHOLE))
        for tied, at in zip(self.program.tied, self.program.tie, strict=True):
            result[at] = _label(tied, self.variables.get(at, WHOLE))
        return result


def _label(layouts: tuple[tuple[int, ...], ...], wanted: int) -> int:
    return next((k for w in (wanted, WHOLE) for k, result in enumerate(layouts) if result[-1] == w), -1)


def data_parallel(cut: CutTask) -> CutChoice:
    """Divide every op along its batch, with variables whole and gradients summed.

    Fed tensors without the batch stay whole. A tensor cannot be kept as partial sums, so a variable's gradients of
    several time steps are summed one by one. Raise NothingFoundError if no batch divides.
    """
    shaped, program = cut.shaped, cut.program()
    fed = [op for op in range(shaped.ops) if shaped.signature(op).type in FED and shaped.signature(op).outputs[0][0]]
    shapes = {op: shaped.signature(op).outputs[0][0] or () for op in fed}
    # The batch is an extent that most fed tensors have: of several the one with which most begin, or else the largest,
    # but not that of the time steps, which are taken one by one.
    having = Counter(extent for shape in shapes.values() for extent in set(shape) if extent)
    first, most = Counter(shape[0] for shape in shapes.values()), max(having.values(), default=0)
    shared = [extent for extent, many in having.items() if many == most]
    steps = {_time_steps(signature) for signature in shaped.signatures}
    batches = [extent for extent in shared if extent not in steps] or shared
    batch = max(batches, key=lambda extent: (first[extent], extent), default=0)
    if not batch or batch % prod(program.factors):
        raise NothingFoundError.build(
            f"no batch that is fed divides by {prod(program.factors)}", where=shaped.source, remedy="give fewer workers"
        )
    spread = Spreading(shaped, program, {}, rows=True)
    for op in range(shaped.ops):
        spread.op(op)
        if batch in shapes.get(op, ()):
            spread.cut[op, 0] = shapes[op].index(batch)
    return complete_labels(cut, spread.labels(tensors_of(shaped, program).count), "data-parallel")


def _time_steps(signature: Signature) -> int:
    """Return into how many pieces an op takes a tensor apart, or of how many it puts one together; else 0."""
    tensors = [operand.shape for operand in signature.inputs] + [shape for shape, _ in signature.outputs]
    if signature.type in ("Pack", "Unpack") and all(tensors):
        return len(signature.inputs if signature.type == "Pack" else signature.outputs)
    return tensors[0][0] if signature.type == "TensorListFromTensor" and tensors[0] else 0


def megatron(cut: CutTask) -> CutChoice:
    """Cut the weights of pairs of matmuls, the first by columns, the second by rows, and what lies between with them.

    All other variables are whole, and so is what is between pairs; the backward pass follows as sends least. A pair
    is found by structure: what is between hands the cut on. Raise NothingFoundError if there is none.
    """
    program, firsts = cut.program(), None
    while True:
        pairs = _MatmulPairs(cut.shaped, program, firsts)
        if pairs.used == pairs.firsts:
            break
        firsts = pairs.used
    if not firsts and not pairs.firsts:
        raise NothingFoundError.build(
            f"no pair of matmuls by weights that {cut.more[-1]} divides",
            where=cut.shaped.source,
            remedy="use another method",
        )
    labels = pairs.spread.labels(tensors_of(cut.shaped, program).count)
    for tie in pairs.beside:
        labels[tie] = -1
    return complete_labels(cut, labels, "megatron")


class _MatmulPairs:
    """A division of the forward ops with some matmuls as first ones of pairs, and those that a second one follows."""

    def __init__(self, shaped: TypedGraph, program: CutProgram, allowed: set[int] | None) -> None:
        self.shaped, self.program, self.allowed = shaped, program, allowed
        self.variables: dict[int, int] = {}
        self.spread = Spreading(shaped, program, self.variables, rows=False)
        self.firsts: set[int] = set()
        self.used: set[int] = set()
        self.beside: set[int] = set()
        """Ties of variables that are added to what is cut: as sends least."""
        self.root: dict[Port, tuple[int, int]] = {}
        """Tensor -> the tie that it is the value of, and the op that read it."""
        self._from: dict[Port, set[int]] = {}
        """Cut tensor -> the first matmuls whose cut it has."""
        for op in forward(shaped):
            self._op(op)

    def _op(self, op: int) -> None:
        signature, spread = self.shaped.signature(op), self.spread
        reads = [(port, at) for port, at in spread.reads[op]]
        if spread.takes[op] and signature.outputs:
            self.root[op, 0] = (spread.takes[op][0][1], op)
            if signature.type == "ReadVariableOp":
                return
        elif signature.type in CLASSES["elementwise"] and len(reads) == 1 and reads[0][0] in self.root:
            self.root[op, 0] = self.root[reads[0][0]]
            return
        weights = [(port, at) for port, at in reads if port in self.root]
        came = set().union(*(self._from.get(port, set()) for port, _ in reads))
        product = signature.type in CLASSES["contraction"] and len(weights) == 1 and len(reads) == 2
        if product and self._matmul(op, weights[0], came):
            return
        spread.op(op)
        strategy = self.program.strategies[op][spread.chosen[op]] if op in spread.chosen else None
        if strategy is not None and came:
            self._note(op, came)
            self.beside |= {self.root[port][0] for port, at in weights if strategy.needs[at][-1] >= 0} - set(
                self.variables
            )

    def _note(self, op: int, came: set[int]) -> None:
        for k in range(len(self.shaped.signature(op).outputs)):
            if (op, k) in self.spread.cut:
                self._from[op, k] = came

    def _matmul(self, op: int, weight: tuple[Port, int], came: set[int]) -> bool:
        """Divide a matmul by a weight as the first or the second of a pair; return True if it is one."""
        tie = self.root[weight[0]][0]
        for number, strategy in enumerate(self.program.strategies[op]):
            along = strategy.needs[weight[1]][-1]
            free = self.variables.get(tie, along) == along and any(
                result[-1] == along for result in self.program.tied[self.program.tie.index(tie)]
            )
            if along < 0 or not free or not self.spread.fits(op, strategy):
                continue
            second = bool(came) and strategy.gives[0][-1] == PARTIAL
            whole = all(needs[-1] == WHOLE for at, needs in enumerate(strategy.needs) if at != weight[1])
            first = not came and strategy.gives[0][-1] >= 0 and whole
            if second or (first and (self.allowed is None or op in self.allowed)):
                self.variables[tie] = along
                self.spread.take(op, number)
                if second:
                    self.used |= came
                    self.spread.open.discard((op, 0))
                else:
                    self.firsts.add(op)
                    self._note(op, {op})
                return True
        return False


def forward(shaped: TypedGraph) -> list[int]:
    """Return the ops that lead to the loss: to what is neither an update nor only read by updates.

    All ops are returned if the step gives nothing but updates.
    """
    read, takes = set(shaped.src.tolist()), set(shaped.use_op.tolist())
    result = {
        op for op in range(shaped.ops)
        if op not in read and op not in takes and any(shape is not None for shape, _ in shaped.signature(op).outputs)
    }  # fmt: skip
    for src, _, dst, _ in sorted(shaped.edges, key=lambda edge: -edge[2]):
        if dst in result:
            result.add(src)
    return sorted(result) if any(op in takes for op in result) else list(range(shaped.ops))
