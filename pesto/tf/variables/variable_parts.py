"""Variables of an `If` that stay together when it is divided."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pesto.tf.variables.branch_function import SMALL, BranchFunction, Sizes, data_inputs, source_node

RESULT = -1
"""Stands beside the variables' numbers for the outputs of an `If` that depend on no variable."""


@dataclass(frozen=True, slots=True, eq=False)
class VariableParts:
    """A partition of the variables of an `If` into parts that stay together."""

    node: Any
    branches: tuple[BranchFunction, ...]
    sizes: Sizes
    above: dict[int, int] = field(default_factory=dict)
    """Union-find: variable -> one that it is together with."""
    parts: list[int] = field(default_factory=list)
    """The first variable of each part, or that of the results, in ascending order."""
    kept: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    """(part, branch) -> its nodes."""
    order: set[tuple[int, int]] = field(default_factory=set)
    """(before, after) of parts whose changes are ordered."""
    users: list[dict[str, set[int]]] = field(default_factory=list)
    """[branch] tensor that is computed once for several parts -> those that read it."""

    def find(self, variable: int) -> int:
        """The part of a variable."""
        while self.above.get(variable, variable) != variable:
            variable = self.above[variable]
        return variable

    def join(self, variables: Sequence[int]) -> None:
        """Put variables into one part, of which the first names it."""
        roots = sorted({self.find(v) for v in variables}, key=lambda v: (v < 0, v))
        for root in roots:
            self.above[root] = roots[0]

    def settle(self) -> bool:
        """Find the parts; False where there is one only."""
        changed: set[int] = set()
        for branch in self.branches:
            for effect in branch.effects:
                self.join(list(branch.needs[effect]))
                changed |= branch.held[effect]
        for k in range(len(self.node.attr["Tout"].list.type)):
            self.join([RESULT, *(v for b in self.branches for v in self._needed(b, b.results[k]))])
        # Counters and scales alone are worth no op of their own.
        scalars = [v for v in changed if self.sizes[v] == 1 and self._is_scalar(v)]
        self.join(scalars)
        # Joining parts can create new cycles or make another shared tensor local, so everything is derived anew until
        # nothing changes. Each round joins at least two parts, so it ends.
        while True:
            count = len({self.find(v) for v in changed})
            if count < 2:
                return False
            results = {self.find(RESULT)} if self.branches[0].results else set()
            self.parts[:] = sorted({self.find(v) for v in changed} | results)
            self._keep()
            if not self._merge_cycles() and not self._merge_large() and not self._merge_slots():
                return True

    def _is_scalar(self, variable: int) -> bool:
        part = self.find(variable)
        return all(self.sizes[v] == 1 for v in self.above if self.find(v) == part)

    @staticmethod
    def _needed(branch: BranchFunction, text: str) -> frozenset[int]:
        return branch.needs.get(source_node(text), frozenset())

    def _keep(self) -> None:
        """Find the nodes of each part, what several parts share, and the order among parts."""
        self.kept.clear()
        self.order.clear()
        self.users[:] = [{} for _ in self.branches]
        for b, branch in enumerate(self.branches):
            roots = self._roots(branch)
            users: dict[str, set[int]] = {}
            for part in self.parts:
                for name in branch.cone(roots[part]):
                    if len(branch.sources[name]) > 1 and not branch.needs[name]:
                        users.setdefault(name, set()).add(part)
            # A node that one part needs is computed there. One that several need and that depends on no changed
            # variable is computed once, in the shared branch op.
            several = {name for name, parts in users.items() if len(parts) > 1}
            for part in self.parts:
                kept = self.kept[part, b] = branch.cone(roots[part], several)
                for text in self._read(branch, part, kept):
                    if source_node(text) in several:
                        self.users[b].setdefault(text, set()).add(part)
                self._order(branch, part, kept)

    def _roots(self, branch: BranchFunction) -> dict[int, list[str]]:
        """The nodes for whose sake each part is there."""
        roots: dict[int, list[str]] = {part: [] for part in self.parts}
        for effect in branch.effects:
            roots[self.part_of(branch, effect)].append(effect)
        if branch.results:
            roots[self.find(RESULT)] += [source_node(text) for text in branch.results]
        return roots

    def _read(self, branch: BranchFunction, part: int, kept: set[str]) -> Iterator[str]:
        """Tensors that a part reads, or returns."""
        for name in branch.nodes:
            if name in kept:
                yield from data_inputs(branch.nodes[name])
        if branch.results and part == self.find(RESULT):
            yield from branch.results

    def _order(self, branch: BranchFunction, part: int, kept: set[str]) -> None:
        for name in kept:
            for text in branch.nodes[name].input:
                if text[0] == "^" and text[1:] not in kept:
                    others = {self.part_of(branch, earlier) for earlier in branch.before(text[1:])}
                    self.order.update((other, part) for other in others if other != part)

    def part_of(self, branch: BranchFunction, effect: str) -> int:
        """The part that has an op which changes a variable."""
        return self.find(min(branch.held[effect]))

    def _merge_cycles(self) -> bool:
        """Join parts that would wait for each other; whether there were any."""
        after: dict[int, set[int]] = {part: set() for part in self.parts}
        for a, b in self.order:
            after[a].add(b)
        reach = {part: _reached(after, part) for part in self.parts} if self.order else {}
        joined = False
        for a, b in list(self.order):
            if a in reach[b]:
                self.join([a, b])
                joined = True
        return joined

    def _merge_large(self) -> bool:
        """Join parts that share a large tensor, or one of unknown size; whether there were any."""
        joined = False
        for b, branch in enumerate(self.branches):
            for text, parts in self.users[b].items():
                elements = branch.elements(text)
                if elements is None or elements > SMALL:
                    self.join(sorted(parts))
                    joined |= len(parts) > 1
        return joined

    def _merge_slots(self) -> bool:
        """Join what is kept for a variable with the one part beside its own that reads it; whether there was any."""
        readers: dict[int, set[int]] = {}
        for (part, b), kept in self.kept.items():
            for name, variable in self.branches[b].reads.items():
                if name in kept and self.sizes[variable] != 1 and self.find(variable) in self.parts:
                    readers.setdefault(variable, set()).add(part)
        joined = False
        for variable, parts in readers.items():
            others = {self.find(part) for part in parts} - {self.find(variable)}
            if len(others) == 1:
                self.join([variable, *others])
                joined = True
        return joined


def _reached(after: Mapping[int, set[int]], start: int) -> set[int]:
    seen: set[int] = set()
    stack = [start]
    while stack:
        for other in after[stack.pop()]:
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return seen
