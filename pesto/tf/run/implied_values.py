"""The ranges that a step's ops imply for whole numbers that are fed: classes, rows of tables, masks, lengths.

From each feed the numbers are followed through ops that hand them on, shift or cut them, into the functions of loops
and branches, to the ops that ask something of them. What an op asks is carried back to the feed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from pesto.tf.feed_values import FeedValues
from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.run.constant_values import value_interval
from pesto.tf.run.function_scopes import FunctionScope, FunctionScopes, ScopeTensor, step_scope
from pesto.tf.run.value_rules import HANDED_ON, REQUIREMENTS, ReachedInput, ValueRequirement

_MOST = 20_000
"""Tensors after which a feed is followed no further."""
_EACH = 4
"""Ways in which numbers are followed that reach one tensor changed in several."""
_EXACT = 1e-6
"""Rounding error allowed in divisions of floating point."""
_UNKNOWN = "no op implies a range"


@dataclass(frozen=True, slots=True)
class _ValueTransform:
    """A transform of fed numbers: x becomes x * `scale` plus an amount between `least` and `most`."""

    scale: float = 1
    least: float = 0
    most: float = 0
    floored: bool = False
    """True if small numbers were raised, so that no lower limit applies to the feed."""
    capped: bool = False
    whole: bool = False
    """True if the numbers passed through an integer type."""
    column: int | None = None
    perhaps: bool = False
    """True if an op chose between these and other numbers after a change, as when negative indices are moved up."""

    @property
    def changed(self) -> bool:
        """True if the numbers differ from the fed ones."""
        return (self.scale, self.least, self.most) != (1, 0, 0)

    def back(self, need: ValueRequirement) -> ValueRequirement:
        """Convert a requirement on the transformed numbers to one on the feed."""
        low = None if need.low is None or self.floored else math.ceil((need.low - self.least) / self.scale - _EXACT)
        high = None if need.high is None or self.capped else math.floor((need.high - self.most) / self.scale + _EXACT)
        specials = tuple(float((value - self.least) / self.scale) for value in need.specials)
        specials = specials if self.least == self.most else ()
        return replace(need, low=low, high=high, specials=specials, perhaps=self.perhaps)


@dataclass(frozen=True, slots=True)
class ImpliedValues:
    """Finds the values of feeds of one step."""

    step: FunctionScope
    functions: FunctionScopes

    @classmethod
    def of(cls, nodes: StepNodes) -> "ImpliedValues":
        """For the feeds of a step."""
        return cls(step_scope(nodes), FunctionScopes(nodes.signatures))

    def feed(self, name: str, shape: tuple[int, ...], dtype: Any) -> FeedValues:
        """The values to feed a tensor: the first output of an op that `name` names, or one by its number (name:1)."""
        op, _, output = name.partition(":")
        if dtype == tf.string:
            return FeedValues(name=name, shape=shape, dtype="object", why="ops may hash or parse them")
        plain = FeedValues(name=name, shape=shape, dtype=dtype.as_numpy_dtype.__name__)
        if dtype == tf.bool or dtype.is_complex:
            return plain
        return self._ranged(
            plain, list(self._needs_of(ScopeTensor(op, int(output or 0)), whole=dtype.is_integer)), dtype
        )

    def _ranged(self, plain: FeedValues, needs: list[tuple[ValueRequirement, bool]], dtype: Any) -> FeedValues:
        """A range that every op takes; where ops only compare, the numbers that they compare with."""
        needs = [(a, whole) for a, whole in needs if not a.perhaps] or needs
        if not dtype.is_integer:  # as whole numbers only where the step makes them such
            masked = {a.specials[0] for a, whole in needs if a.specials and a.equal and not whole}
            needs = [(a, whole) for a, whole in needs if whole]
            if not needs:
                return replace(plain, specials=tuple(sorted(masked)))
        needs = [(replace(a, specials=tuple(v for v in a.specials if v.is_integer())), whole) for a, whole in needs]
        # Requirements come before hints: an index beyond a table fails the step, while a comparison only makes some
        # values more interesting.
        required = [a for a, _ in needs if a.required and (a.low is not None or a.high is not None)]
        hinted = [a for a, _ in needs if not a.required and a.high is not None]
        specials = [a for a, _ in needs if a.specials]
        chosen = required or hinted
        if chosen:
            return self._within(plain, chosen, specials, dtype)
        if specials:
            numbers = sorted({v for a in specials for v in a.specials if dtype.min <= v <= dtype.max})
            low, high = (numbers[0], numbers[-1]) if numbers else (0.0, 1.0)
            rest = () if numbers == list(range(int(low), int(high) + 1)) else tuple(numbers)
            if rest and high - low > len(rest) * 4:  # far apart: what lies between says nothing more
                low, high = rest[-2], rest[-1]
            return replace(plain, low=low, high=high, whole=True, why=specials[0].why, specials=rest)
        if dtype == tf.uint8:
            return replace(plain, low=0, high=255, whole=True, why=f"all of the type, {_UNKNOWN}")
        return replace(plain, low=0, high=1, whole=True, why=_UNKNOWN)

    @staticmethod
    def _within(
        plain: FeedValues, chosen: list[ValueRequirement], specials: list[ValueRequirement], dtype: Any
    ) -> FeedValues:
        highs = [a for a in chosen if a.high is not None]
        lows = [a.low for a in chosen if a.low is not None]
        least = min(highs, key=lambda a: (a.high or 0, a.why)) if highs else chosen[0]
        # Where small numbers are raised on the way, nothing asks for a lower end: then 0, as with most indices.
        low = max(lows, default=min(0.0, least.high or 0.0)) if len(lows) == len(chosen) or lows else 0.0
        high = least.high if least.high is not None else low + 1
        if low > high:  # two ops that no number satisfies, as far as can be seen: the one with the least range
            low = least.low if least.low is not None else min(0.0, high)
        bounded = len(lows) == len(chosen)
        firsts = {a.specials[0] for a in specials}
        inside = sorted(v for v in firsts if (low <= v or not bounded) and v <= high and dtype.min <= v <= dtype.max)
        high = min(high, dtype.max)
        return replace(
            plain, low=low, high=high, whole=True, why=least.why, specials=tuple(inside),
            ordered=any(a.ordered for a in chosen), distinct=any(a.distinct for a in chosen),
        )  # fmt: skip

    def _needs_of(self, feed: ScopeTensor, *, whole: bool) -> Iterator[tuple[ValueRequirement, bool]]:
        """Yield the requirement of each op that the numbers reach, and whether they reach it as whole numbers."""
        stack = [(self.step, feed, _ValueTransform(whole=whole))]
        seen: dict[tuple[int, ScopeTensor], list[_ValueTransform]] = {}
        for _ in range(_MOST):
            if not stack:
                return
            scope, tensor, carried = stack.pop()
            transforms = seen.setdefault((id(scope), tensor), [])
            if carried in transforms or len(transforms) >= _EACH:
                continue
            transforms.append(carried)
            for read in scope.readers.get(tensor, ()):
                at = ReachedInput(scope, scope.nodes[read.node], read.input, carried.column)
                rule = REQUIREMENTS.get((at.node.op, read.input))
                need = rule(at) if rule is not None else None
                if need is not None:
                    yield carried.back(need), carried.whole or at.node.op == "Cast"
                stack += self._onward(at, carried)
            stack += self._returned(scope, tensor, carried)

    def _onward(
        self, at: ReachedInput, carried: _ValueTransform
    ) -> Iterator[tuple[FunctionScope, ScopeTensor, _ValueTransform]]:
        """The tensors that a node makes of the numbers."""
        node, op = at.node, at.node.op
        for inner, first in self.functions.called(at.scope, node.name):
            for name, number in inner.arguments.items():
                if number == at.input - first:
                    yield inner, ScopeTensor(name, 0), carried
        if self.functions.loops(at.scope, node.name):
            yield at.scope, ScopeTensor(node.name, at.input), carried
        changed = _changed(at, carried)
        if changed is not None:
            yield at.scope, ScopeTensor(node.name, 0), changed
            return
        where = HANDED_ON.get((op, at.input), HANDED_ON.get((op, -1)))
        if where is None:
            return
        if op == "Cast":
            whole = tf.as_dtype(node.attr["DstT"].type).is_integer
            carried = replace(carried, whole=carried.whole or whole)
        if op in ("Select", "SelectV2", "Merge"):
            carried = replace(carried, perhaps=carried.perhaps or carried.changed)
        if op in ("Pack", "ConcatV2"):
            carried = replace(carried, column=_column(at))
        outputs = {"first": [0], "same": [at.input]}.get(where)
        for k in outputs if outputs is not None else range(self.functions.outputs(node)):
            yield at.scope, ScopeTensor(node.name, k), carried

    def _returned(
        self, scope: FunctionScope, tensor: ScopeTensor, carried: _ValueTransform
    ) -> Iterator[tuple[FunctionScope, ScopeTensor, _ValueTransform]]:
        """A function's result is an output of the node that runs it, and in a loop the next argument."""
        if scope.caller is None or tensor not in scope.results:
            return
        outer, name = scope.caller
        if self.functions.is_condition(scope):
            return
        for number in scope.results[tensor]:
            yield outer, ScopeTensor(name, number), carried
            if self.functions.repeats(scope):
                for inner, _ in self.functions.called(outer, name):
                    for argument, place in inner.arguments.items():
                        if place == number:
                            yield inner, ScopeTensor(argument, 0), carried


def _column(at: ReachedInput) -> int | None:
    """Return the index of a number in its row where numbers are packed into rows."""
    shape = at.scope.shape(ScopeTensor(at.node.name, 0))
    if shape is None:
        return None
    if at.node.op == "Pack":
        last = at.node.attr["axis"].i in (-1, len(shape) - 1)
        return at.input if last else None
    axis = at.constant(len(at.inputs) - 1)
    last = axis is not None and int(axis) in (-1, len(shape) - 1)
    alone = all(at.size(k, -1) == 1 for k in range(len(at.inputs) - 1))
    return at.input if last and alone else None


def _changed(at: ReachedInput, carried: _ValueTransform) -> _ValueTransform | None:
    """Return the transform behind an arithmetic op with known operands; None for other ops and unknown operands."""
    op = at.node.op
    first = at.input == 0
    if op in ("Relu", "Relu6") or (op == "ClipByValue" and first):
        return replace(carried, floored=True, capped=carried.capped or op != "Relu")
    if op not in ("Add", "AddV2", "Sub", "Mul", "FloorDiv", "Maximum", "Minimum"):
        return None
    other = value_interval(at.scope, at.inputs[1 - at.input])
    one_way = first or op not in ("Sub", "FloorDiv")
    if other is None or not one_way or (op in ("Mul", "FloorDiv") and not 0 < other[0] == other[1]):
        return None
    least, most = other
    if op in ("Maximum", "Minimum"):
        return replace(carried, floored=carried.floored or op == "Maximum", capped=carried.capped or op == "Minimum")
    if op in ("Mul", "FloorDiv"):
        by, rest = (least, 0.0) if op == "Mul" else (1 / least, 1 - 1 / least)  # rest: what a division leaves out
        return replace(carried, scale=carried.scale * by, least=carried.least * by, most=carried.most * by - rest)
    down, up = (-most, -least) if op == "Sub" else (least, most)
    return replace(carried, least=carried.least + down, most=carried.most + up)
