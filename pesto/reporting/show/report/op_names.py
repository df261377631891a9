"""Names of ops as columns: a tree of scopes, and the numbers in names as steps from name to name."""

import re
from dataclasses import dataclass

import numpy as np

from solvers.arrays import Ints, ints

_NUMBER = re.compile(r"(?<![0-9])(0|[1-9][0-9]{0,14})(?![0-9])")
Part = tuple[int, tuple[int, ...]]
"""A part of a name between slashes: its pattern, and the numbers in it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpNameTree:
    """n names as nodes of a tree: first s scopes, each behind the scope that it is in, then the n ops."""

    patterns: tuple[tuple[str, ...], ...]
    """Text around the numbers of a name's part: ("MatMul_", "_grad") for MatMul_12_grad."""
    parent: Ints
    """[s + n] the scope that each node is in, -1 for none."""
    pattern: Ints
    """[s + n] the pattern of each node's own part."""
    steps: Ints
    """Difference of each number from the one in the previous node of the same pattern; 0 before the first."""
    scopes: dict[tuple[str, ...], int]
    """Node of each scope, by its parts."""


class _TreeBuilder:
    """The tree while it grows."""

    def __init__(self) -> None:
        self.patterns: dict[tuple[str, ...], int] = {}
        self.parts: dict[str, Part] = {}
        self.scopes: dict[tuple[str, ...], int] = {}
        self.rows: list[tuple[int, Part]] = []

    def part(self, text: str) -> Part:
        result = self.parts.get(text)
        if result is None:
            pieces = _NUMBER.split(text)
            pattern = self.patterns.setdefault(tuple(pieces[::2]), len(self.patterns))
            result = self.parts[text] = (pattern, tuple(int(number) for number in pieces[1::2]))
        return result

    def scope(self, parts: tuple[str, ...]) -> int:
        """The node of a scope, which it gets with those above it; -1 for the outermost."""
        if not parts:
            return -1
        result = self.scopes.get(parts)
        if result is None:
            above = self.scope(parts[:-1])
            result = self.scopes[parts] = len(self.rows)
            self.rows.append((above, self.part(parts[-1])))
        return result


def build_name_tree(names: tuple[str, ...]) -> OpNameTree:
    """The names as a tree; the name of a node is its part behind that of its scope and a slash."""
    tree = _TreeBuilder()
    split = [tuple(name.split("/")) for name in names]
    above = [tree.scope(parts[:-1]) for parts in split]
    rows = tree.rows + [(scope, tree.part(parts[-1])) for scope, parts in zip(above, split, strict=True)]
    return OpNameTree(
        patterns=tuple(tree.patterns),
        parent=ints([scope for scope, _ in rows]),
        pattern=ints([pattern for _, (pattern, _) in rows]),
        steps=_steps(rows),
        scopes=tree.scopes,
    )


def _steps(rows: list[tuple[int, Part]]) -> Ints:
    last: dict[int, tuple[int, ...]] = {}
    result: list[int] = []
    for _, (pattern, numbers) in rows:
        before = last.get(pattern) or (0,) * len(numbers)
        result += [number - old for number, old in zip(numbers, before, strict=True)]
        last[pattern] = numbers
    return ints(np.array(result, dtype=np.int64))
