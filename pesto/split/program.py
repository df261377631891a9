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
from pesto.split.division import Division, item_bytes, parameter_bytes, readers
from pesto.split.geometry import (
    ONE,
    PARTIAL,
    WHOLE,
    Layouts,
    Need,
    Shape,
    divides,
    elements_to_fetch,
    elements_to_store,
    fetching_blocks,
    keeping_blocks,
    largest_extents,
)
from pesto.split.op_strategy import (
    NO_CUT,
    ONCE_WAY,
    SUMMANDS_WAY,
    WHOLE_WAY,
    OpStrategy,
    admissible_strategies,
    gives_summands,
    replicated_strategy,
    single_worker_strategy,
    summands_strategy,
    uncut_strategy,
)
from pesto.split.ops.op_types import FED
from pesto.split.typed_graph import RANK, Signature, TypedGraph
from solvers.arrays import Bools, bools
from solvers.labels.labelling import FORBIDDEN, Builder, Labelling


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """Seconds of ops and messages on a cluster, as the bytes that links send meanwhile.

    K workers have K (K - 1) links between them, which all send at once: a second of an accelerator is worth as many
    bytes as K - 1 of them send in it.
    """

    unit_s: float
    """Seconds that a byte takes of the mean link."""
    message: int
    """Bytes that its latency would let through: what each block that is sent costs."""
    kernel: int
    """Bytes sent while a kernel starts, which a part takes as long for as the whole op."""
    ops: tuple[int, ...]
    """[n] bytes sent while one worker does all of each op."""
    feed: float = 0.0
    """Bytes sent while the host feeds each worker one."""
    cut_out: float = 0.0
    """Bytes sent while the host copies one of a block that is not consecutive rows of what is fed."""

    def of_part(self, op: int, parts: int) -> int:
        """Return the price in bytes of one part of an op that is cut in `parts` equal parts."""
        whole = self.ops[op]
        start = min(whole, self.kernel)
        return start + (whole - start) // parts


TINY_BYTES, TINY_SHARE = 1 << 16, 1 << 10
"""Tensors of fewer bytes lie whole on every worker, and ops of nothing else are done by all; in small steps the limit
is the largest tensor's bytes divided by TINY_SHARE."""
SMALL_SHARE = 0.02
"""Maximum share of all variables' bytes that may stay whole for being tiny; beyond it the largest of them are cut."""
_NOT_DIVIDED = ("VarHandleOp", "NoOp")
CUT_PRICE = 4096
"""Bytes that cutting one more op must save in a partial split: each worker has one more kernel to start."""
REACH = 6
"""Maximum number of edges from an op whose cut pays to ops that may be cut with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of a division."""

    replicate: bool = False
    """True if variables, and what is made of them, may lie whole on every worker."""
    redundant: bool = False
    """True if every worker may do all of an op that could be cut."""
    summands: bool = False
    """True if tensors may be kept as summands where all readers are linear, such as gradients that are added up."""
    partial: bool = False
    """True if an op may be done whole by one worker alone; of one cut."""
    memory_bytes: int | None = None
    """Maximum bytes of variables with slots on one worker; the exact method alone keeps to it."""
    halo: bool = False
    """True if parts may read a little more than their share of an input, which their neighbours have (windows)."""
    prices: Prices | None = None
    """Prices of ops and messages; None counts bytes alone."""

    def before(self, later: Shape) -> "Rules":
        """Return the rules of cuts before `later` ones, which can take the rest of the variables apart."""
        return self if self.memory_bytes is None else replace(self, memory_bytes=self.memory_bytes * prod(later))


@dataclass(frozen=True, slots=True, kw_only=True)
class CutGain:
    """Gain of cutting an op, as the bytes that may be sent for it; for partial splits."""

    worth: Sequence[int] = ()
    """[n] bytes that cutting each op is worth; () if only what sends less is cut."""
    transfer: int = 0
    """Bytes that each transfer costs besides those it sends; ops of tensors of less than half of it are not cut."""
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
    strategies: Sequence[tuple[OpStrategy, ...]]
    """[n] the strategies of each op."""
    op: Sequence[int]
    """[n] its variable of the problem; -1 if there is no choice to make."""
    layouts: Sequence[tuple[tuple[Layouts, ...], ...]]
    """[n] of each output the layouts that it can be kept in."""
    tensor: Sequence[tuple[int, ...]]
    """[n] of each output its variable of the problem; -1 if nothing reads it."""
    tied: Sequence[tuple[Layouts, ...]]
    """[v] the layouts of each variable of the network."""
    tie: Sequence[int]
    """[v] its variable of the problem."""
    factors: Shape

    def division(self, labels: Sequence[int]) -> Division:
        """Translate labels to a division."""
        return Division(
            factors=self.factors,
            strategies=tuple(
                options[labels[v] if v >= 0 else 0] for options, v in zip(self.strategies, self.op, strict=True)
            ),
            kept=tuple(
                tuple(layouts[labels[v] if v >= 0 else 0] for layouts, v in zip(outputs, variables, strict=True))
                for outputs, variables in zip(self.layouts, self.tensor, strict=True)
            ),
            variables=tuple(layouts[labels[v]] for layouts, v in zip(self.tied, self.tie, strict=True)),
        )


def build_program(
    shaped: TypedGraph, division: Division | None, more: Shape, rules: Rules, *, each: bool = False,
    gain: CutGain | None = None,
) -> CutProgram:  # fmt: skip
    """Return the problem of several more cuts at once, whose labels are products of the cuts' labels.

    With `each` every reader is charged its own fetch, as in Tofu, so that nothing stands for what is fetched; the
    numbers of all other variables are the same. `gain` is for partial rules; the problem's value counts more than bytes
    then. Raise UsageError for partial rules with several cuts, InputError if bytes cannot be summed exactly.
    """
    if rules.partial and (division is not None or len(more) > 1):
        raise UsageError.build("a partial split is of one cut", remedy="give one number of workers")
    return _ProgramBuilder(shaped, division, more, rules, each=each, gain=gain or CutGain()).make()


class _ProgramBuilder:
    """One problem in the making: variables first, then the costs of pairs."""

    def __init__(
        self, shaped: TypedGraph, division: Division | None, more: Shape, rules: Rules, *, each: bool, gain: CutGain
    ) -> None:
        self.shaped, self.before, self.rules, self.each, self.builder = shaped, division, rules, each, Builder()
        self.worth, self.near = gain.worth or [0] * shaped.ops, _near(shaped, gain.worth)
        self.transfer = gain.transfer if rules.prices is None else rules.prices.message
        fed = gain if rules.prices is None else rules.prices
        self.feed = (fed.feed, fed.feed + fed.cut_out)
        self.handles = dict(zip(shaped.handle.tolist(), shaped.tie.tolist(), strict=True))
        self.tiny = min(TINY_BYTES, max(map(_largest, shaped.signatures), default=0) // TINY_SHARE)
        self.factors: Shape = (*(division.factors if division else ()), *more)
        self.cuts = range(len(self.factors) - len(more), len(self.factors))
        self.readers = readers(shaped)
        self.taken = {(op, at): int(shaped.tie[v]) for op, at, v in shaped.uses}
        """(op, input) -> the tie of the variable whose handle it takes."""
        self.tie_of = {op: tie for (op, _), tie in self.taken.items()}
        """op -> the tie of a variable whose handle it takes."""
        self.small = cut_though_small(shaped, self.tiny, SMALL_SHARE)
        self.lies_whole: frozenset[int] = frozenset()
        """Ties that no layout fits which is cut wherever it can be: they may be whole, and so may what takes them."""
        self.strategies = [self._strategies(op) for op in range(shaped.ops)]
        self.lies_whole = frozenset(v for v, needs in self._needs_of_ties().items() if not set.intersection(*needs))
        for op in {op for (op, _), v in self.taken.items() if v in self.lies_whole}:
            self.strategies[op] = self._strategies(op)
        self.tied = self._tied()
        self.tie = {v: self.builder.variable([0] * len(layouts)) for v, layouts in self.tied.items()}
        for op, tie in self.handles.items() if rules.partial else ():
            # Where a handle is follows from its variable: on the worker that has it, or on all with their parts.
            signature, uncut = shaped.signature(op), uncut_strategy(shaped.signature(op))
            self.strategies[op] = tuple(
                (single_worker_strategy if ONE in layouts else replicated_strategy)(signature, uncut)
                for layouts in self.tied[tie]
            )
        self.layouts = [self._layouts(op) for op in range(shaped.ops)]
        self.tensor = [self._tensors(op) for op in range(shaped.ops)]
        self.op = [self._variable(op) for op in range(shaped.ops)]

    def make(self) -> CutProgram:
        for op in range(self.shaped.ops):
            if self._read_tie(op) >= 0 or self._handle(op) >= 0:
                continue
            for output, (shape, dtype) in enumerate(self.shaped.signature(op).outputs):
                if self.tensor[op][output] >= 0 and shape is not None:
                    price, gives = (
                        (item_bytes(dtype), self.transfer),
                        tuple(strategy.gives[output] for strategy in self.strategies[op]),
                    )
                    summed = tuple(gives_summands(strategy, output) for strategy in self.strategies[op])
                    table = _keeping(shape, price, (gives, summed), self.layouts[op][output], self.factors)
                    self.builder.edge(self.op[op], self.tensor[op][output], table)
        for (op, output), read_by in self.readers.items():
            if self.tensor[op][output] < 0:
                continue
            shape, dtype = self.shaped.signature(op).outputs[output]
            needs = sorted({strategy.need(at) for i, at in read_by for strategy in self.strategies[i]})
            numbers = {need: number for number, need in enumerate(needs)}
            feed = self.feed if self.shaped.signature(op).type in FED else (0.0, 0.0)
            price, kept = (item_bytes(dtype), self.transfer), self.layouts[op][output]
            cost = _fetching(shape or (), price, kept, tuple(needs), self.factors, feed)
            together = defaultdict[int, list[tuple[int, int]]](list)
            for i, at in read_by:
                together[i if self.each else -1].append((i, at))
            for some in together.values():
                needed = [[numbers[strategy.need(at)] for strategy in self.strategies[i]] for i, at in some]
                self.builder.shared(self.tensor[op][output], [self.op[i] for i, _ in some], needed, cost)
        for (op, at), v in self.taken.items():
            table = [
                [0 if strategy.needs[at] == layouts else FORBIDDEN for layouts in self.tied[v]]
                for strategy in self.strategies[op]
            ]
            self.builder.edge(self.op[op], self.tie[v], table)
        try:
            problem = self.builder.build()
        except ValueError as error:
            raise InputError.build(
                f"{self.factors[-1]} parts of so much data would send more bytes than can be counted exactly (2**53)",
                where=shown(self.shaped.source),
                remedy="give fewer workers",
            ) from error
        ties = self.shaped.tie.tolist()
        return CutProgram(
            problem=problem, strategies=self.strategies, op=self.op, layouts=self.layouts, tensor=self.tensor,
            tied=[self.tied[v] for v in ties], tie=[self.tie[v] for v in ties], factors=self.factors,
        )  # fmt: skip

    def _strategies(self, op: int) -> tuple[OpStrategy, ...]:
        strategies = [self.before.strategies[op] if self.before else uncut_strategy(self.shaped.signature(op))]
        for at in self.cuts:
            strategies = [
                strategy for before in strategies for strategy in self._extensions(op, before, self.factors[: at + 1])
            ]
        return tuple(strategies)

    def _extensions(self, op: int, before: OpStrategy, factors: Shape) -> tuple[OpStrategy, ...]:
        """Return the strategies of an op with one more cut."""
        signature, once, rules = self.shaped.signature(op), bool(self.shaped.once[op]), self.rules
        tiny = _largest(signature) < self.tiny and self.tie_of.get(op) not in self.small
        if once or not (rules.partial or tiny):
            update = (not signature.outputs and bool(signature.inputs)) or (op, 0) in self.taken
            whole = rules.redundant or (update and rules.replicate) or self.tie_of.get(op) in self.lies_whole
            options = admissible_strategies(signature, before, factors, whole=whole, once=once, halo=rules.halo)
            return options if once else (*options, *self._summing(op, before))
        if not rules.partial or signature.type in FED:
            return (replicated_strategy(signature, before), *self._summing(op, before))
        alone, cut = single_worker_strategy(signature, before), list[OpStrategy]()
        if self.near[op] and _largest(signature) >= max(self.tiny, self.transfer // 2):
            options = admissible_strategies(signature, before, factors, whole=False, once=False)
            cut = [strategy for strategy in options if strategy.names[-1] != WHOLE_WAY]
        return (alone, *cut)

    def _summing(self, op: int, before: OpStrategy) -> tuple[OpStrategy, ...]:
        """Return the strategy of an op on summands, where the rules have it and it takes no variable."""
        fitting = self.rules.summands and not self.rules.partial and op not in self.tie_of
        strategy = summands_strategy(self.shaped.signature(op), before) if fitting else None
        return () if strategy is None else (strategy,)

    def _handle(self, op: int) -> int:
        """Return the tie of the variable whose handle an op makes, if that may be on one worker alone; else -1."""
        return self.handles.get(op, -1) if self.rules.partial else -1

    def _read_tie(self, op: int) -> int:
        """Return the tie of the variable whose value an op reads; -1 for any other op."""
        return self.taken.get((op, 0), -1) if self.shaped.signature(op).type == "ReadVariableOp" else -1

    def _needs_of_ties(self) -> dict[int, list[set[Layouts]]]:
        """Map each tie to the layouts that each op on one of its variables can do with."""
        needs: dict[int, list[set[Layouts]]] = defaultdict(list)
        for (op, at), v in self.taken.items():
            needs[v].append({strategy.needs[at] for strategy in self.strategies[op]})
        return needs

    def _tied(self) -> dict[int, tuple[Layouts, ...]]:
        """Map each tie to the layouts that all ops on its variables can do with."""
        needs, tied, rules = self._needs_of_ties(), {}, self.rules
        for v in sorted(set(self.shaped.tie.tolist())):
            common = set.intersection(*needs[v]) if needs[v] else set()
            for at in self.cuts:
                # Whole in a cut only if none with the same cuts before is cut, or replication is asked for.
                cut = {layouts[:at] for layouts in common if layouts[at] >= 0}
                common = {
                    layouts
                    for layouts in common
                    if layouts[at] >= 0
                    or (layouts[at] == WHOLE and (rules.replicate or layouts[:at] not in cut))
                    or (layouts[at] == ONE and rules.partial)
                }
            earlier = self.before.variables[v] if self.before else ()
            uncut = (*earlier, *([ONE if rules.partial else WHOLE] * len(self.cuts)))
            tied[v] = tuple(sorted(common)) or (uncut,)
        return tied

    def _layouts(self, op: int) -> tuple[tuple[Layouts, ...], ...]:
        """Return the layouts to keep each output in: all even cuts; whole if tiny, not to be cut, or had by all."""
        outputs, v = self.shaped.signature(op).outputs, self._read_tie(op)
        if self._handle(op) >= 0:
            return tuple(
                tuple(strategy.gives[output] for strategy in self.strategies[op]) for output in range(len(outputs))
            )
        if v >= 0:
            return (self.tied[v],) * len(outputs)
        result = []
        for output, (shape, dtype) in enumerate(outputs):
            if self.rules.partial and shape is not None and item_bytes(dtype) and not self._all_have(op, output, 0):
                cut = (layouts for layouts in self._longer(op, output, (), whole=False) if layouts != (WHOLE,))
                result.append(((ONE,), *cut))
                continue
            layouts: list[Layouts] = [self.before.kept[op][output] if self.before else ()]
            for at in self.cuts:
                whole = shape is None or prod(shape) * item_bytes(dtype) < self.tiny or self.rules.replicate
                whole = whole or self._all_have(op, output, at)
                layouts = [longer for before in layouts for longer in self._longer(op, output, before, whole=whole)]
            result.append((*layouts, *self._summands(op, output)))
        return tuple(result)

    def _summands(self, op: int, output: int) -> list[Layouts]:
        """Return the layouts in which an output may be kept as summands: all of its readers must be able to do so."""
        if not self.rules.summands:
            return []
        earlier = self.before.kept[op][output] if self.before else ()
        given = {strategy.gives[output] for strategy in self.strategies[op] if gives_summands(strategy, output)}
        read_by = self.readers.get((op, output), ())
        needed = [{strategy.needs[at] for strategy in self.strategies[i]} for i, at in read_by]
        return sorted(
            layouts
            for layouts in given
            if needed and layouts[: len(earlier)] == earlier and all(layouts in some for some in needed)
        )

    def _all_have(self, op: int, output: int, at: int) -> bool:
        """Return True if all workers have a tensor, however the op is divided after some cuts before this."""
        given = defaultdict[tuple[str, ...], set[int]](set)
        for strategy in self.strategies[op]:
            if SUMMANDS_WAY not in strategy.names:
                given[strategy.names[:at]].update(strategy.gives[output][: at + 1])
        return {WHOLE} in given.values()

    def _longer(self, op: int, output: int, before: Layouts, *, whole: bool) -> list[Layouts]:
        """Return the layouts that one more cut makes of one; not along dimensions whose extents depend on the data."""
        factors, cut = self.factors[: len(before) + 1], list[Layouts]()
        signature = self.shaped.signature(op)
        (shape, dtype), bounded = signature.outputs[output], signature.bounded_output(output)
        if shape is not None and prod(shape) * item_bytes(dtype) >= self.tiny and RANK not in bounded:
            along = [d for d in range(len(shape)) if d not in bounded]
            cut = [(*before, d) for d in along if divides(shape, (*before, d), factors)]
        return [*cut, *([(*before, WHOLE)] if whole or not cut else [])]

    def _tensors(self, op: int) -> tuple[int, ...]:
        """Add a variable for each output that is read and can be sent."""
        v, result = max(self._read_tie(op), self._handle(op)), []
        for output, (shape, dtype) in enumerate(self.shaped.signature(op).outputs):
            read = (op, output) in self.readers and shape is not None and item_bytes(dtype) > 0
            options = [0] * len(self.layouts[op][output])
            result.append(self.tie[v] if v >= 0 else self.builder.variable(options) if read else -1)
        return tuple(result)

    def _variable(self, op: int) -> int:
        """Add a choice among strategies, with the prices of an op on all workers; none if it is not divided."""
        strategies, prices, costs = self.strategies[op], self.rules.prices, []
        if self._handle(op) >= 0:
            return self.tie[self._handle(op)]
        if self.shaped.signature(op).type in _NOT_DIVIDED:
            return -1
        if prices is not None:
            for strategy in strategies:
                named = list(zip(strategy.names, self.factors, strict=True))
                parts = prod(k for name, k in named if name not in NO_CUT)
                idle = prod(k for name, k in named if name == ONCE_WAY)
                costs.append(prod(self.factors) // idle * prices.of_part(op, parts))
        elif not self.rules.partial or len(strategies) == 1:
            costs = [0] * len(strategies)
        else:
            costs = [int(self.worth[op]), *([CUT_PRICE] * (len(strategies) - 1))]
        return self.builder.variable(costs)


def cut_though_small(shaped: TypedGraph, tiny: int, share: float) -> frozenset[int]:
    """Return the ties of tiny variables that are cut nevertheless, because tiny variables together weigh too much.

    The variables of these ties are all of less than `tiny` bytes. The largest ties are taken until the tiny variables
    that are left make up at most `share` of all variables.
    """
    largest, held = dict[int, int](), defaultdict[int, int](int)
    whole = parameter_bytes(shaped, None)
    for tie, size in zip(shaped.tie.tolist(), whole.tolist(), strict=True):
        largest[tie] = max(largest.get(tie, 0), size)
        held[tie] += size
    small = sorted((tie for tie, size in largest.items() if size < tiny), key=lambda tie: (-held[tie], tie))
    left, result = sum(held[tie] for tie in small), set[int]()
    for tie in small:
        if left <= share * int(whole.sum()):
            break
        result.add(tie)
        left -= held[tie]
    return frozenset(result)


def _near(shaped: TypedGraph, worth: Sequence[int]) -> Bools:
    """Return [n] True for ops within REACH edges of one that is worth something."""
    near = np.array(worth, dtype=np.int64) > 0 if len(worth) else np.zeros(shaped.ops, dtype=np.bool_)
    for _ in range(REACH):
        edges = near[shaped.src] | near[shaped.dst]
        near[shaped.src[edges]] = near[shaped.dst[edges]] = True
    return bools(near)


@lru_cache(maxsize=1 << 14)
def _largest(signature: Signature) -> int:
    """Return the bytes of the largest tensor that an op reads or makes."""
    tensors = [*((operand.shape, operand.dtype) for operand in signature.inputs), *signature.outputs]
    return max((prod(shape) * item_bytes(dtype) for shape, dtype in tensors if shape is not None), default=0)


# Thousands of ops have few shapes: the tables of costs are shared among steps and cuts.


@lru_cache(maxsize=1 << 16)
def _keeping(
    shape: Shape, price: tuple[int, int], computed: tuple[tuple[Layouts, ...], tuple[bool, ...]],
    kept: tuple[Layouts, ...], factors: Shape,
) -> list[list[int]]:  # fmt: skip
    """Return the cost to keep each computed layout in each; price: bytes of an element, and of one block sent.

    computed: the layouts, and for each whether its PARTIAL results are summands: these alone may be kept as they are.
    """
    item, block = price
    return [
        [
            FORBIDDEN
            if PARTIAL in at and not (summands and g == at)
            else item * elements_to_store(shape, g, at, factors)
            + (block * keeping_blocks(shape, g, at, factors) if block else 0)
            for at in kept
        ]
        for g, summands in zip(*computed, strict=True)
    ]


@lru_cache(maxsize=1 << 16)
def _fetching(
    shape: Shape, price: tuple[int, int], kept: tuple[Layouts, ...], needs: tuple[Need, ...], factors: Shape,
    feed: tuple[float, float],
) -> list[list[int]]:  # fmt: skip
    """Return the cost of each need for each layout kept; feed: the host's price of a byte, in rows and other blocks."""
    item, block = price
    feeding = dict.fromkeys(needs, 0)
    for need in needs if any(feed) else ():
        part = largest_extents(shape, need, factors)
        feeding[need] = round(feed[part[1:] != shape[1:]] * item * prod(part))
    return [
        [
            FORBIDDEN
            if PARTIAL in (*at, *need.layouts) and at != need.layouts
            else item * elements_to_fetch(shape, at, need.layouts, factors, need.rims)
            + (block * fetching_blocks(shape, at, need, factors) if block else 0)
            + feeding[need]
            for need in needs
        ]
        for at in kept
    ]
