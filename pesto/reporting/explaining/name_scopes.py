"""Ops grouped by the scopes in their names: few groups for a text, and boxes of a picture by device."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from solvers.arrays import Ints, ints

MOST = 24
"""Scopes at most."""
NO_SCOPE = "(no scope)"
_LARGE = 0.25
"""Share of all time from which on a scope is taken apart into the scopes within it."""
GRADIENT = re.compile(r"^(?:gradients(?:_\d+)?|gradient_tape)/(?=.*/)")
"""The beginnings of the names of gradients, in v1 graphs and under a tape, where a scope follows."""
_LAYERS = 3
"""Scopes within one, at any depth, from which on it may be that of a whole model."""
MOST_SCOPES = 48
"""Boxes, a scope on a device each, up to which scopes are taken apart."""
SMALL = 0.004
"""Share of all time below which a scope is no box of its own."""
_DEPTH = 3
_MOSTLY = 0.75
"""Share of all scopes beside it from which on it may be."""
Prefix = tuple[str, ...]


def common_scope(names: tuple[str, ...]) -> tuple[str, ...]:
    """The scopes that a whole model is in, such as ("bert_1",), outermost first; () where there is none.

    A scope that has most of the scopes of which there are gradients, or of all where there are none, and several within
    it. Gradients count with what they are gradients of. None within which a scope is called as one beside it.
    """
    parts = {tuple(GRADIENT.sub("", name).split("/")[:-1]) for name in names}
    trained = {tuple(GRADIENT.sub("", name).split("/")[:-1]) for name in names if GRADIENT.match(name)} or parts
    result: Prefix = ()
    beside = set[str]()
    while True:
        at = len(result)
        here = [p for p in parts if len(p) > at and p[:at] == result]
        heads = {p[at] for p in trained if len(p) > at and p[:at] == result}
        many = Counter(p[at] for p in here if p[at] in heads)
        if not many:
            return result
        head = max(many, key=lambda scope: (many[scope], scope))
        inner = {p[at + 1] for p in here if p[at] == head and len(p) > at + 1}
        beside |= heads - {head}
        if many[head] < max(_LAYERS, _MOSTLY * many.total()) or len(inner) < 2 or inner & beside:
            return result
        result = (*result, head)


def without_scope(parts: Sequence[str], common: Sequence[str]) -> tuple[str, ...]:
    """The parts of a scope's name without those that it shares with the whole model; the model's own stays."""
    k = 0
    while k < min(len(common), len(parts) - 1) and parts[k] == common[k]:
        k += 1
    return tuple(parts[k:])


def name_scopes(names: tuple[str, ...], ticks: Ints) -> tuple[Ints, tuple[str, ...]]:
    """([n] scope of each op, the scopes' names by falling ticks): the outermost, the large ones taken apart.

    ticks: [n] of each op. The scope that takes the most is taken apart into those within it as long as it takes more
    than a quarter of all, and there are at most MOST. What all of a model shares is left out of the names.
    """
    common = common_scope(names)
    parts = [without_scope(GRADIENT.sub("", name).split("/")[:-1], common) for name in names]
    groups: dict[Prefix, list[int]] = {(): list(range(len(names)))}
    whole: set[Prefix] = set()
    while True:
        took = {prefix: int(ticks[ops].sum()) for prefix, ops in groups.items()}
        large = [p for p in groups if p not in whole and (not p or took[p] > _LARGE * int(ticks.sum()))]
        if not large:
            break
        largest = max(large, key=lambda p: (took[p], p))
        inner = defaultdict(list)
        for op in groups[largest]:
            inner[parts[op][: len(largest) + 1]].append(op)
        whole.add(largest)
        if len(groups) - 1 + len(inner) <= MOST or not largest:
            del groups[largest]
            groups |= inner
    order = sorted(groups, key=lambda prefix: (-took[prefix], prefix))
    result = np.zeros(len(names), dtype=np.int64)
    for number, prefix in enumerate(order):
        result[groups[prefix]] = min(number, MOST)
    labels = ["/".join(prefix) or NO_SCOPE for prefix in order[:MOST]]
    return ints(result), (*labels, *["(others)"] * (len(order) > MOST))


def group_scopes(names: tuple[str, ...], device: Ints, took: Ints, limit: int = MOST_SCOPES) -> tuple[Ints, list[str]]:
    """([n] box of each op, the scope of each box): ops of one scope and device together.

    From the whole graph on, the scope that takes the most time is taken apart into the scopes within it, but for those
    that take less than a share of SMALL, as long as there are at most `limit` boxes; else it is left whole.
    """
    parts = [tuple(name.split("/")[:-1]) for name in names]
    groups: dict[Prefix, list[int]] = {(): list(range(len(names)))}
    whole: set[Prefix] = set()
    while len(whole) < len(groups):
        largest = max((p for p in groups if p not in whole), key=lambda p: (int(took[groups[p]].sum()), p))
        inner: dict[Prefix, list[int]] = defaultdict(list)
        for i in groups[largest]:
            inner[parts[i][: len(largest) + 1]].append(i)
        least = SMALL * int(took.sum())
        for prefix in [p for p, within in inner.items() if p != largest and int(took[within].sum()) < least]:
            inner[largest] += inner.pop(prefix)
        rest = [ops for prefix, ops in groups.items() if prefix != largest]
        if set(inner) == {largest} or sum(len(np.unique(device[ops])) for ops in [*rest, *inner.values()]) > limit:
            whole.add(largest)
            continue
        whole |= {largest} & set(inner)
        del groups[largest]
        groups |= inner
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
