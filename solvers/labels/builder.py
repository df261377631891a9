"""A labelling problem in the making: variables, costs of pairs, and what several variables share."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from solvers.labels.labelling import FORBIDDEN, Labelling

Table = tuple[tuple[int, ...], ...]
"""Costs of pairs of labels, a row a label of the first variable."""


class Builder:
    """Variables and edges are numbered as they are added; equal tables are kept once."""

    def __init__(self) -> None:
        self._unary: list[Sequence[int]] = []
        self._a: list[int] = []
        self._b: list[int] = []
        self._table: list[int] = []
        self._tables: dict[Table, int] = {}

    def variable(self, costs: Sequence[int]) -> int:
        """Add a variable with the cost of each of its labels; its number."""
        self._unary.append(costs)
        return len(self._unary) - 1

    def edge(self, a: int, b: int, table: Sequence[Sequence[int]]) -> None:
        """Add the costs of pairs of labels of two variables; nothing where all are 0."""
        rows = tuple(map(tuple, table))
        if any(map(any, rows)):
            self._a.append(a)
            self._b.append(b)
            self._table.append(self._tables.setdefault(rows, len(self._tables)))

    def shared(
        self, producer: int, consumers: Sequence[int], needed: Sequence[Sequence[int]], cost: Sequence[Sequence[int]]
    ) -> None:
        """Add what readers fetch from a producer: each kind once, however many of them need it.

        `needed` has for each consumer the kind that each of its labels needs, `cost` for each label of the producer
        what each kind costs: the sum over kinds that anyone needs. A consumer that reads twice is there twice. A kind
        that several can need is a variable of two labels, whether it is fetched, and FORBIDDEN not to be while a
        consumer needs it: exact, and of pairs alone.
        """
        asked: dict[int, list[dict[int, None]]] = {}
        able: dict[int, set[int]] = {}
        for consumer, kinds in zip(consumers, needed, strict=True):
            for mine, kind in zip(asked.setdefault(consumer, [{} for _ in kinds]), kinds, strict=True):
                mine[kind] = None
                able.setdefault(kind, set()).add(consumer)
        fetched = {
            kind: self._fetched(producer, [row[kind] for row in cost])
            for kind, by in able.items()
            if len(by) > 1 and any(row[kind] for row in cost)
        }
        for consumer, labels in asked.items():
            alone = [[kind for kind in mine if len(able[kind]) == 1] for mine in labels]
            self.edge(producer, consumer, [[sum(row[kind] for kind in mine) for mine in alone] for row in cost])
            for kind in dict.fromkeys(kind for mine in labels for kind in mine):
                if kind in fetched:
                    self.edge(
                        fetched[kind],
                        consumer,
                        [[FORBIDDEN if kind in mine else 0 for mine in labels], [0] * len(labels)],
                    )

    def _fetched(self, producer: int, cost: Sequence[int]) -> int:
        kind = self.variable((0, 0))
        self.edge(producer, kind, [(0, c) for c in cost])
        return kind

    def build(self) -> Labelling:
        """All of it, as arrays."""
        tables = list(self._tables)
        flat = [cost for rows in tables for row in rows for cost in row]
        return Labelling(
            first=np.array([0, *accumulate(map(len, self._unary))], dtype=np.int64),
            unary=np.array([cost for costs in self._unary for cost in costs], dtype=np.int64),
            a=np.array(self._a, dtype=np.int64),
            b=np.array(self._b, dtype=np.int64),
            table=np.array(self._table, dtype=np.int64),
            begin=np.array([0, *accumulate(len(rows) * len(rows[0]) for rows in tables)], dtype=np.int64),
            costs=np.array(flat, dtype=np.int64),
        )
