"""Ops gathered by the scopes in their names: few scopes where they take little time, more where they take much."""

from collections import defaultdict

import numpy as np

from pesto.reporting.explaining.name_scopes import GRADIENT
from solvers.arrays import Ints, ints

MOST_SCOPES = 48
"""Boxes, a scope on a device each, up to which scopes are taken apart."""
SMALL = 0.004
"""Share of all time below which a scope is no box of its own."""
_DEPTH = 3
Prefix = tuple[str, ...]


def group_scopes(names: tuple[str, ...], device: Ints, took: Ints, limit: int = MOST_SCOPES) -> tuple[Ints, list[str]]:
    """([n] box of each op, the scope of each box): ops of one scope and device together.

    From the whole graph on, the scope that takes the most time is taken apart into the scopes within it, but for those
    that take less than a share of SMALL, as long as there are at most `most` boxes; else it is left whole.
    """
    parts = [tuple(name.split("/")[:-1]) for name in names]
    groups: dict[Prefix, list[int]] = {(): list(range(len(names)))}
    whole: set[Prefix] = set()
    while len(whole) < len(groups):
        largest = max((p for p in groups if p not in whole), key=lambda p: (int(took[groups[p]].sum()), p))
        inner = _within(largest, groups[largest], parts, took)
        others = sum(_places(ops, device) for prefix, ops in groups.items() if prefix != largest)
        if set(inner) == {largest} or others + sum(_places(ops, device) for ops in inner.values()) > limit:
            whole.add(largest)
            continue
        whole |= {largest} & set(inner)
        del groups[largest]
        groups |= inner
    return _numbered(groups, device)


def _within(scope: Prefix, ops: list[int], parts: list[Prefix], took: Ints) -> dict[Prefix, list[int]]:
    """The ops of a scope by the scopes within it; small ones and what is in none stay with it."""
    inner: dict[Prefix, list[int]] = defaultdict(list)
    for i in ops:
        inner[parts[i][: len(scope) + 1]].append(i)
    least = SMALL * int(took.sum())
    for prefix in [p for p, within in inner.items() if p != scope and int(took[within].sum()) < least]:
        inner[scope] += inner.pop(prefix)
    return dict(inner)


def _places(ops: list[int], device: Ints) -> int:
    """How many devices the ops are on."""
    return len(np.unique(device[ops]))


def _numbered(groups: dict[Prefix, list[int]], device: Ints) -> tuple[Ints, list[str]]:
    box_of = np.zeros(len(device), dtype=np.int64)
    labels: list[str] = []
    for prefix in sorted(groups):
        ops = np.array(groups[prefix], dtype=np.int64)
        for d in np.unique(device[ops]):
            box_of[ops[device[ops] == d]] = len(labels)
            labels.append("/".join(prefix) or "(no scope)")
    return ints(box_of), labels


def heaviest(names: tuple[str, ...], box_of: Ints, took: Ints) -> list[str]:
    """The scope, in its first parts, or without one the op, that takes the most of each box's time."""
    time: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name, box, ticks in zip(names, box_of.tolist(), took.tolist(), strict=True):
        parts = name.split("/")
        depth = _DEPTH + bool(GRADIENT.match(name))
        time[box]["/".join(parts[:-1][:depth]) or name] += ticks + 1
    return [max(time[box].items(), key=lambda each: (each[1], each[0]))[0] for box in range(len(time))]
