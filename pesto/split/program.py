"""One more cut of a step, or several at once, as a labelling problem (Tofu, section 4.1, but of all ops at once).

The problem has a variable for every op, whose labels are the ways to divide it, one for every tensor that is read,
whose labels are the layouts to keep it in, and one for a network's variable with its slots. An op and its tensor cost
the bytes that bring what workers compute to where it is kept; a tensor and its readers the bytes that bring it where it
is needed, each layout once.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.split import geometry, pieces
from pesto.split.division import Division, cut_though_small, item_bytes, readers
from pesto.split.geometry import Layouts, Need, Shape
from pesto.split.layouts import ONE, WHOLE
from pesto.split.op_strategy import (
    ONCE_WAY,
    WHOLE_WAY,
    OpStrategy,
    admissible_strategies,
    replicated_strategy,
    single_worker_strategy,
    uncut_strategy,
)
from pesto.split.ops.replicated_ops import FED
from pesto.split.prices import Prices
from pesto.split.signature import RANK, Signature
from pesto.split.typed_graph import TypedGraph
from solvers.arrays import Bools, bools
from solvers.labels.labelling import FORBIDDEN, Builder, Labelling

TINY_BYTES, TINY_SHARE = 1 << 16, 1 << 10
"""Tensors of fewer bytes lie whole on every worker, and ops of nothing else are done by all; in small steps, of less
than such a part of the largest tensor."""
SMALL_SHARE = 0.02
"""Maximum share of all variables' bytes that may stay whole for being tiny; beyond it the largest of them are cut."""
_NOT_DIVIDED = ("VarHandleOp", "NoOp")
CUT_PRICE = 4096
"""Bytes that it must save to cut one more op, where ops need not be cut: each worker has one more kernel to start."""
REACH = 6
"""How many edges from ops that are worth it others may be cut with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of a division."""

    replicate: bool = False
    """True if variables, and what is made of them, may lie whole on every worker."""
    redundant: bool = False
    """True if every worker may do all of an op that could be cut."""
    partial: bool = False
    """True if an op may be done whole by one worker alone; of one cut."""
    memory_bytes: int | None = None
    """Most that one worker may hold of variables with slots; the exact method alone keeps to it."""
    halo: bool = False
    """True if parts may read a little more than their share of an input, which their neighbours have (windows)."""
    prices: Prices | None = None
    """Prices of ops and messages; None counts bytes alone."""

    def before(self, later: Shape) -> "Rules":
        """The same of cuts that others, `later`, come after: they can take the rest of the variables apart."""
        return self if self.memory_bytes is None else replace(self, memory_bytes=self.memory_bytes * prod(later))


@dataclass(frozen=True, slots=True, kw_only=True)
class CutGain:
    """Gain of cutting an op, as the bytes that may be sent for it; for partial splits."""

    worth: Sequence[int] = ()
    """[n] of each op; () where only what sends less is cut."""
    transfer: int = 0
    """Bytes that each transfer costs besides what it sends; ops of tensors of less than half of it are not cut."""
    feed: float = 0.0
    """Bytes sent while the host feeds each worker one, as of `Prices`."""
    cut_out: float = 0.0
    """Bytes sent while the host copies one of a block that is not consecutive rows of what is fed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CutProgram:
    """The labelling problem of one more cut, or of several, and what its labels mean.

    Its first variables are ties, tensors and ops; those that stand for what is fetched come last.
    """

    problem: Labelling
    ways: Sequence[tuple[OpStrategy, ...]]
    """[n] of each op."""
    op: Sequence[int]
    """[n] its variable of the problem; -1 where there is no choice to make."""
    layouts: Sequence[tuple[tuple[Layouts, ...], ...]]
    """[n] of each output the layouts that it can be kept in."""
    tensor: Sequence[tuple[int, ...]]
    """[n] of each output its variable of the problem; -1 where nothing reads it."""
    tied: Sequence[tuple[Layouts, ...]]
    """[v] the layouts of each variable of the network."""
    tie: Sequence[int]
    """[v] its variable of the problem."""
    factors: Shape

    def division(self, labels: Sequence[int]) -> Division:
        """Translate labels to a division."""
        return Division(
            factors=self.factors,
            ways=tuple(
                result[labels[at]] if at >= 0 else result[0] for result, at in zip(self.ways, self.op, strict=True)
            ),
            kept=tuple(
                tuple(result[labels[v]] if v >= 0 else result[0] for result, v in zip(options, at, strict=True))
                for options, at in zip(self.layouts, self.tensor, strict=True)
            ),
            variables=tuple(result[labels[at]] for result, at in zip(self.tied, self.tie, strict=True)),
        )


def build_program(shaped: TypedGraph, division: Division | None, k: int, rules: Rules) -> CutProgram:
    """The problem of cutting each group of workers in k more."""
    return build_joint_program(shaped, division, (k,), rules)


def build_joint_program(
    shaped: TypedGraph,
    division: Division | None,
    more: Shape,
    rules: Rules,
    *,
    each: bool = False,
    gain: CutGain | None = None,
) -> CutProgram:
    """The problem of several more cuts at once, whose labels are products of the cuts' labels.

    each: every reader is charged its own fetch, as in Tofu, so that nothing stands for what is fetched; the numbers of
    all other variables are the same. gain: of partial rules; what its value counts is then more than bytes.
    """
    if rules.partial and (division is not None or len(more) > 1):
        raise UsageError.build("a partial split is of one cut", remedy="give one number of workers")
    return _ProgramBuilder(shaped, division, more, rules, each=each, gain=gain or CutGain()).make()


class _ProgramBuilder:
    """One problem in the making: variables first, then the costs of pairs."""

    def __init__(
        self, shaped: TypedGraph, division: Division | None, more: Shape, rules: Rules, *, each: bool, gain: CutGain
    ) -> None:
        self.shaped, self.made, self.rules, self.each, self.builder = shaped, division, rules, each, Builder()
        self.worth, self.near = gain.worth or [0] * shaped.ops, _near(shaped, gain.worth)
        self.transfer = gain.transfer if rules.prices is None else rules.prices.message
        fed = gain if rules.prices is None else rules.prices
        self.feed = (fed.feed, fed.feed + fed.cut_out)
        self.handles = dict(zip(shaped.handle.tolist(), shaped.tie.tolist(), strict=True))
        self.tiny = min(TINY_BYTES, max(map(_largest, shaped.signatures), default=0) // TINY_SHARE)
        self.factors: Shape = (*(division.factors if division else ()), *more)
        self.cuts = range(len(self.factors) - len(more), len(self.factors))
        self.readers = readers(shaped)
        self.taken = {
            (op, at): int(shaped.tie[v])
            for op, at, v in zip(
                shaped.use_op.tolist(), shaped.use_input.tolist(), shaped.use_variable.tolist(), strict=True
            )
        }
        """(op, input) -> the tie of the variable whose handle it takes."""
        self.tie_of = {op: tie for (op, _), tie in self.taken.items()}
        """op -> the tie of a variable whose handle it takes."""
        self.small = cut_though_small(shaped, self.tiny, SMALL_SHARE)
        self.lies_whole: frozenset[int] = frozenset()
        """Ties that no layout fits which is cut wherever it can be: they may be whole, and so may what takes them."""
        self.ways = [self._ways(op) for op in range(shaped.ops)]
        self.lies_whole = frozenset(v for v, result in self._possible().items() if not set.intersection(*result))
        for op in {op for (op, _), v in self.taken.items() if v in self.lies_whole}:
            self.ways[op] = self._ways(op)
        self.tied = self._tied()
        self.tie = {v: self.builder.variable([0] * len(result)) for v, result in self.tied.items()}
        for op in self.handles if rules.partial else ():
            self.ways[op] = self._of_handle(op)
        self.layouts = [self._layouts(op) for op in range(shaped.ops)]
        self.tensor = [self._tensors(op) for op in range(shaped.ops)]
        self.op = [self._variable(op) for op in range(shaped.ops)]

    def make(self) -> CutProgram:
        """The problem, with all costs."""
        for op in range(self.shaped.ops):
            if self._hands_on(op) < 0 and self._handle(op) < 0:
                self._keep(op)
        for (op, output), result in self.readers.items():
            if self.tensor[op][output] >= 0:
                self._fetch(op, output, result)
        for (op, at), v in self.taken.items():
            table = [[0 if way.needs[at] == result else FORBIDDEN for result in self.tied[v]] for way in self.ways[op]]
            self.builder.edge(self.op[op], self.tie[v], table)
        ties = self.shaped.tie.tolist()
        return CutProgram(
            problem=self._built(), ways=self.ways, op=self.op, layouts=self.layouts, tensor=self.tensor,
            tied=[self.tied[v] for v in ties], tie=[self.tie[v] for v in ties], factors=self.factors,
        )  # fmt: skip

    def _built(self) -> Labelling:
        """InputError where there are more bytes than can be summed exactly."""
        try:
            return self.builder.build()
        except ValueError as error:
            raise InputError.build(
                f"{self.factors[-1]} parts of so much data would send more bytes than can be counted exactly (2**53)",
                where=shown(self.shaped.source),
                remedy="give fewer workers",
            ) from error

    def _ways(self, op: int) -> tuple[OpStrategy, ...]:
        result = [self.made.ways[op] if self.made else uncut_strategy(self.shaped.signature(op))]
        for at in self.cuts:
            result = [way for before in result for way in self._once_more(op, before, self.factors[: at + 1])]
        return tuple(result)

    def _once_more(self, op: int, before: OpStrategy, factors: Shape) -> tuple[OpStrategy, ...]:
        signature, once, rules = self.shaped.signature(op), bool(self.shaped.once[op]), self.rules
        tiny = _largest(signature) < self.tiny and self.tie_of.get(op) not in self.small
        if tiny and not once and not rules.partial:
            return (replicated_strategy(signature, before),)
        if rules.partial and not once:
            return self._if_it_pays(op, before, factors)
        update = (not signature.outputs and bool(signature.inputs)) or (op, 0) in self.taken
        whole = rules.redundant or (update and rules.replicate) or self.tie_of.get(op) in self.lies_whole
        return admissible_strategies(signature, before, factors, whole=whole, once=once, halo=rules.halo)

    def _if_it_pays(self, op: int, before: OpStrategy, factors: Shape) -> tuple[OpStrategy, ...]:
        """Once, or cut; what is fed all have."""
        signature = self.shaped.signature(op)
        if signature.type in FED:
            return (replicated_strategy(signature, before),)
        alone, result = single_worker_strategy(signature, before), list[OpStrategy]()
        if self.near[op] and _largest(signature) >= max(self.tiny, self.transfer // 2):
            options = admissible_strategies(signature, before, factors, whole=False, once=False)
            result = [way for way in options if way.names[-1] != WHOLE_WAY]
        return (alone, *result)

    def _handle(self, op: int) -> int:
        """The tie of the variable whose handle an op makes, where that may be on one worker alone; else -1."""
        return self.handles.get(op, -1) if self.rules.partial else -1

    def _of_handle(self, op: int) -> tuple[OpStrategy, ...]:
        """For each layout of its variable, where a handle is: on the worker that has it, or on all with their parts."""
        signature, before = self.shaped.signature(op), uncut_strategy(self.shaped.signature(op))
        return tuple(
            (single_worker_strategy if ONE in at else replicated_strategy)(signature, before)
            for at in self.tied[self.handles[op]]
        )

    def _hands_on(self, op: int) -> int:
        """The tie of the variable whose value an op hands on; -1 for any other op."""
        return self.taken.get((op, 0), -1) if self.shaped.signature(op).type == "ReadVariableOp" else -1

    def _tied(self) -> dict[int, tuple[Layouts, ...]]:
        """Layouts that all ops on a variable and its slots can do with."""
        possible, tied = self._possible(), {}
        for v in sorted(set(self.shaped.tie.tolist())):
            before = self.made.variables[v] if self.made else ()
            common = self._cut_if_possible(set.intersection(*possible[v]) if possible[v] else set())
            otherwise = ONE if self.rules.partial else WHOLE
            tied[v] = tuple(sorted(common)) or ((*before, *([otherwise] * len(self.cuts))),)
        return tied

    def _possible(self) -> dict[int, list[set[Layouts]]]:
        """Tie -> for each op that takes one of its variables the layouts that the op can do with."""
        possible: dict[int, list[set[Layouts]]] = defaultdict(list)
        for (op, at), v in self.taken.items():
            possible[v].append({way.needs[at] for way in self.ways[op]})
        return possible

    def _cut_if_possible(self, found: set[Layouts]) -> set[Layouts]:
        """Those that are whole in a cut only where none with the same cuts before is cut, or replication is asked."""
        for at in self.cuts:
            cut = {layouts[:at] for layouts in found if layouts[at] >= 0}
            found = {
                layouts
                for layouts in found
                if layouts[at] >= 0
                or (layouts[at] == WHOLE and (self.rules.replicate or layouts[:at] not in cut))
                or (layouts[at] == ONE and self.rules.partial)
            }
        return found

    def _layouts(self, op: int) -> tuple[tuple[Layouts, ...], ...]:
        outputs, v = self.shaped.signature(op).outputs, self._hands_on(op)
        if self._handle(op) >= 0:
            return tuple(tuple(way.gives[output] for way in self.ways[op]) for output in range(len(outputs)))
        return tuple(self.tied[v] if v >= 0 else self._options(op, output) for output in range(len(outputs)))

    def _options(self, op: int, output: int) -> tuple[Layouts, ...]:
        """Where a tensor can be kept: cut where that is even; whole where it is tiny, cannot be cut, or all have it."""
        shape, dtype = self.shaped.signature(op).outputs[output]
        if self.rules.partial and shape is not None and item_bytes(dtype) and not self._free(op, output, 0):
            return ((ONE,), *(at for at in self._longer(op, output, (), whole=False) if at != (WHOLE,)))
        result: list[Layouts] = [self.made.kept[op][output] if self.made else ()]
        for at in self.cuts:
            whole = shape is None or prod(shape) * item_bytes(dtype) < self.tiny or self.rules.replicate
            whole = whole or self._free(op, output, at)
            result = [layouts for before in result for layouts in self._longer(op, output, before, whole=whole)]
        return tuple(result)

    def _free(self, op: int, output: int, at: int) -> bool:
        """Return True if all workers have a tensor, however the op is divided after some cuts before this."""
        given = defaultdict[tuple[str, ...], set[int]](set)
        for way in self.ways[op]:
            given[way.names[:at]].update(way.gives[output][: at + 1])
        return {WHOLE} in given.values()

    def _longer(self, op: int, output: int, before: Layouts, *, whole: bool) -> list[Layouts]:
        """The layouts that one more cut makes of one; dimensions whose extents depend on the data are not cut."""
        factors, cut = self.factors[: len(before) + 1], list[Layouts]()
        signature = self.shaped.signature(op)
        (shape, dtype), bounded = signature.outputs[output], signature.bounded_output(output)
        if shape is not None and prod(shape) * item_bytes(dtype) >= self.tiny and RANK not in bounded:
            along = [d for d in range(len(shape)) if d not in bounded]
            cut = [(*before, d) for d in along if geometry.divides(shape, (*before, d), factors)]
        return [*cut, *([(*before, WHOLE)] if whole or not cut else [])]

    def _tensors(self, op: int) -> tuple[int, ...]:
        """A variable for each output that is read and can be sent."""
        v, result = max(self._hands_on(op), self._handle(op)), []
        for output, (shape, dtype) in enumerate(self.shaped.signature(op).outputs):
            read = (op, output) in self.readers and shape is not None and item_bytes(dtype) > 0
            options = [0] * len(self.layouts[op][output])
            result.append(self.tie[v] if v >= 0 else self.builder.variable(options) if read else -1)
        return tuple(result)

    def _variable(self, op: int) -> int:
        """A choice among ways; none for what is not divided."""
        if self._handle(op) >= 0:
            return self.tie[self._handle(op)]
        divided = self.shaped.signature(op).type not in _NOT_DIVIDED
        if not divided:
            return -1
        if self.rules.prices is not None:
            return self.builder.variable([self._work(op, way, self.rules.prices) for way in self.ways[op]])
        if not self.rules.partial or len(self.ways[op]) == 1:
            return self.builder.variable([0] * len(self.ways[op]))
        return self.builder.variable([int(self.worth[op]), *([CUT_PRICE] * (len(self.ways[op]) - 1))])

    def _work(self, op: int, way: OpStrategy, prices: Prices) -> int:
        """Price of an op on all workers together."""
        cut = [k for name, k in zip(way.names, self.factors, strict=True) if name not in (WHOLE_WAY, ONCE_WAY)]
        alone = [k for name, k in zip(way.names, self.factors, strict=True) if name == ONCE_WAY]
        return prod(self.factors) // prod(alone) * prices.of_part(op, prod(cut))

    def _keep(self, op: int) -> None:
        for output, (shape, dtype) in enumerate(self.shaped.signature(op).outputs):
            if self.tensor[op][output] >= 0 and shape is not None:
                gives = tuple(way.gives[output] for way in self.ways[op])
                table = _keeping(shape, self._price(dtype), gives, self.layouts[op][output], self.factors)
                self.builder.edge(self.op[op], self.tensor[op][output], table)

    def _price(self, dtype: str) -> tuple[int, int]:
        """Price in bytes of one element, and of sending one block of elements."""
        return item_bytes(dtype), self.transfer

    def _feed(self, op: int) -> tuple[float, float]:
        """Price of a byte that the host feeds to every worker, in rows and in other blocks; 0 where it feeds none."""
        return self.feed if self.shaped.signature(op).type in FED else (0.0, 0.0)

    def _fetch(self, op: int, output: int, result: Sequence[tuple[int, int]]) -> None:
        shape, dtype = self.shaped.signature(op).outputs[output]
        needs = sorted({way.need(at) for i, at in result for way in self.ways[i]})
        classes = {need: c for c, need in enumerate(needs)}
        cost = _fetching(
            shape or (),
            self._price(dtype),
            self.layouts[op][output],
            tuple(needs),
            self.factors,
            self._feed(op),
        )
        together = defaultdict[int, list[tuple[int, int]]](list)
        for i, at in result:
            together[i if self.each else -1].append((i, at))
        for some in together.values():
            needed = [[classes[way.need(at)] for way in self.ways[i]] for i, at in some]
            self.builder.shared(self.tensor[op][output], [self.op[i] for i, _ in some], needed, cost)


def _near(shaped: TypedGraph, worth: Sequence[int]) -> Bools:
    """[n] ops within REACH edges of one that is worth something."""
    near = np.array(worth, dtype=np.int64) > 0 if len(worth) else np.zeros(shaped.ops, dtype=np.bool_)
    for _ in range(REACH):
        edges = near[shaped.src] | near[shaped.dst]
        near[shaped.src[edges]] = near[shaped.dst[edges]] = True
    return bools(near)


@lru_cache(maxsize=1 << 14)
def _largest(signature: Signature) -> int:
    """Bytes of the largest tensor that an op reads or makes."""
    tensors = [*((operand.shape, operand.dtype) for operand in signature.inputs), *signature.outputs]
    return max((prod(shape) * item_bytes(dtype) for shape, dtype in tensors if shape is not None), default=0)


@lru_cache(maxsize=1 << 16)
def _keeping(
    shape: Shape, price: tuple[int, int], gives: tuple[Layouts, ...], kept: tuple[Layouts, ...], factors: Shape
) -> list[list[int]]:
    item, block = price
    return [
        [
            item * geometry.elements_to_store(shape, g, at, factors)
            + (block * pieces.keeping_blocks(shape, g, at, factors) if block else 0)
            for at in kept
        ]
        for g in gives
    ]


@lru_cache(maxsize=1 << 16)
def _fetching(
    shape: Shape, price: tuple[int, int], kept: tuple[Layouts, ...], needs: tuple[Need, ...], factors: Shape,
    feed: tuple[float, float],
) -> list[list[int]]:  # fmt: skip
    item, block = price
    return [
        [
            item * geometry.elements_to_fetch(shape, at, need.layouts, factors, need.rims)
            + (block * pieces.fetching_blocks(shape, at, need, factors) if block else 0)
            + (_feeding(shape, item, need, factors, feed) if any(feed) else 0)
            for need in needs
        ]
        for at in kept
    ]


def _feeding(shape: Shape, item: int, need: Need, factors: Shape, feed: tuple[float, float]) -> int:
    part = geometry.largest_extents(shape, need, factors)
    return round(feed[part[1:] != shape[1:]] * item * prod(part))
