"""Tofu's coarse graph (section 4.2.1): ops and tensors that share a label, and those that are labelled together.

Coalesced, and of one label: element-wise ops in a row with the tensors between, and ops of unrolled time steps.
Grouped, and labelled together: a forward op with its backward ops, a tensor with its gradient and the sum of its
gradients. Which op is whose backward op is read from TensorFlow's names, as the paper reads it from its framework; time
steps are scopes of one name but for a number, which read one variable.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pesto.split.division import readers
from pesto.split.methods.cut import Tensors, tensors_of
from pesto.split.ops.op_types import CLASSES
from pesto.split.program import CutProgram
from pesto.split.typed_graph import TypedGraph
from solvers.arrays import Ints, ints
from solvers.compiled.dag import connected
from solvers.labels.labelling import FORBIDDEN, Builder, Labelling

_NUMBERED = re.compile(r"(.*_)\d+$")
_BACKWARD = re.compile(r"gradients(_\d+)?$|gradient_tape(_\d+)?$")
_GRAD = re.compile(r"_grad(_\d+)?$")


class CoarseLabelling(NamedTuple):
    """The coarse graph as a labelling problem."""

    problem: Labelling
    """A variable for each class of variables that share a label."""
    of: Ints
    """[count] class of each variable of the whole problem."""
    labels: list[list[int]]
    """[count] each variable's label for each label of its class."""
    group: Ints
    """[classes] the group of each, numbered in the order of the step."""
    length: Ints
    """[edges] bytes of each edge's tensor, once for each pair of classes."""

    def widened(self, labels: Ints) -> Ints:
        """Return [count] labels of the whole problem."""
        return np.array([own[labels[c]] for own, c in zip(self.labels, self.of.tolist(), strict=True)], dtype=np.int64)


def coarsen_labelling(
    shaped: TypedGraph, program: CutProgram, *, grouping: bool = True, coalescing: bool = True, steps: bool = True
) -> CoarseLabelling:
    """Return the coarse graph of a problem in which every reader is charged its own fetch.

    grouping: forward with backward ops; coalescing: element-wise ops in a row; steps: of unrolled time steps.
    """
    return _Coarsener(shaped, program).coarse(grouping=grouping, coalescing=coalescing, steps=steps)


def _numbered_sets(size: int, groups: Iterable[Sequence[int]]) -> Ints:
    """Return [size] the set of each number, where groups with a common member are one set, by their least members."""
    pairs = [(group[0], member) for group in groups for member in group[1:]]
    least = connected(size, ints([one for one, _ in pairs]), ints([other for _, other in pairs]))
    return np.unique(least, return_inverse=True)[1].reshape(-1)


class _Coarsener:
    def __init__(self, shaped: TypedGraph, program: CutProgram) -> None:
        self.shaped, self.program = shaped, program
        self.tensors: Tensors = tensors_of(shaped, program)
        self.inputs = defaultdict[int, list[tuple[tuple[int, int], int]]](list)
        """Op -> (tensor, input)."""
        self.given: dict[tuple[int, int], int] = {}
        """(op, input) -> variable of the tensor."""
        for (p, k), read_by in readers(shaped).items():
            self.given.update(dict.fromkeys(read_by, program.tensor[p][k]))
            for i, at in read_by:
                self.inputs[i].append(((p, k), at))
        self.taken: dict[int, set[int]] = defaultdict(set)
        """Op -> ties that it takes."""
        for op, _, v in shaped.uses:
            self.taken[op].add(program.tie[v])
        self.keys: dict[int, tuple[Hashable, ...]] = dict(self.tensors.layouts)
        for at, op in self.tensors.ops.items():
            strategies = program.strategies[op]
            self.keys[at] = tuple(strategy.gives[0] for strategy in strategies) if self._elementwise(op) else strategies
        self.alike: list[tuple[int, int]] = []
        """Pairs of variables that share a label."""

    def _elementwise(self, op: int) -> bool:
        """Return True if an op's output lies as the op is cut; not for ops that take variables."""
        strategies, signature = self.program.strategies[op], self.shaped.signature(op)
        if op in self.taken or self.shaped.once[op] or signature.type not in CLASSES["elementwise"]:
            return False
        return len(signature.outputs) == 1 and len({strategy.gives[0] for strategy in strategies}) == len(strategies)

    def _same(self, one: int, other: int) -> None:
        """Give both one label, if they have the same ones."""
        if one >= 0 and other >= 0 and set(self.keys[one]) == set(self.keys[other]):
            self.alike.append((one, other))

    def coarse(self, *, grouping: bool, coalescing: bool, steps: bool) -> CoarseLabelling:
        for at, op in self.tensors.ops.items() if coalescing else ():
            if not self._elementwise(op):
                continue
            self._same(at, self.program.tensor[op][0])
            for (maker, _), number in self.inputs[op]:
                alike = all(strategy.needs[number] == strategy.gives[0] for strategy in self.program.strategies[op])
                if self._elementwise(maker) and alike:
                    self._same(at, self.given[op, number])
        if steps:
            self._join_steps()
        of = _numbered_sets(self.tensors.count, self.alike)
        labels, problem, edge = self._contracted(of)
        together = [[*ties, self.program.op[op]] for op, ties in self.taken.items()]
        together += self._groups() if grouping else []
        classes = [of[group].tolist() for group in together]
        group = _numbered_sets(int(of.max(initial=-1)) + 1, classes)
        # [groups] place of each group's first op in the step, twice; tensors come after the op that makes them.
        first = np.full(int(group.max(initial=-1)) + 1, 2 * self.shaped.ops + 2)
        for at, op in self.tensors.ops.items():
            np.minimum.at(first, group[of[at]], 2 * op)
        for op, ats in enumerate(self.program.tensor):
            np.minimum.at(first, group[of[[v for v in ats if v >= 0]]], 2 * op + 1)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first, kind="stable")] = np.arange(len(first))
        p, seen, lengths = self.program.problem, set(), []
        for e in edge:
            a, b = int(p.a[e]), int(p.b[e])
            tensor = a if a in self.tensors.layouts else b
            key = (tensor, int(of[a]), int(of[b]))
            lengths.append(0 if key in seen else int(self.tensors.size[tensor]))
            seen.add(key)
        return CoarseLabelling(problem, of, labels, rank[group], np.array(lengths, dtype=np.int64))

    def _join_steps(self) -> None:
        """Join ops of one name but for the number of a time step, and what they make."""
        # [n] the tie of the variable whose value an op hands on; -1 for others.
        ties = [-1] * self.shaped.ops
        for op in range(self.shaped.ops):
            signature = self.shaped.signature(op)
            if op in self.taken and signature.outputs:
                ties[op] = min(self.taken[op])
            elif signature.type in CLASSES["elementwise"] and len(self.inputs[op]) == 1:
                ties[op] = ties[self.inputs[op][0][0][0]]
        scopes: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for op, name in enumerate(self.shaped.names):
            parts = name.split("/")
            for k, part in enumerate(parts[:-1]):
                numbered = _NUMBERED.fullmatch(part)
                if numbered:
                    scopes["/".join([*parts[:k], numbered[1]])][part].append(op)
        alike: dict[tuple[str, int], list[int]] = defaultdict(list)
        for scope, steps in scopes.items():
            # Scopes are time steps if those that read variables have one in common.
            read = [{ties[t[0]] for op in ops for t, _ in self.inputs[op]} - {-1} for ops in steps.values()]
            read = [each for each in read if each]
            if len(steps) > 1 and len(read) > 1 and set.intersection(*read):
                for op in (op for ops in steps.values() for op in ops):
                    name = scope + self.shaped.names[op][len(scope) :].lstrip("0123456789")
                    alike[name, int(self.shaped.signature_of[op])].append(op)
        for first, *others in alike.values():
            for op in others:
                self._same(self.program.op[first], self.program.op[op])
                for one, other in zip(self.program.tensor[first], self.program.tensor[op], strict=True):
                    self._same(one, other)

    def _contracted(self, of: Ints) -> tuple[list[list[int]], Labelling, list[int]]:
        """Return [count] labels of each variable for those of its class, the problem of classes, and its edges."""
        first: dict[int, tuple[Hashable, ...]] = {}
        labels = []
        for v, c in enumerate(of.tolist()):
            place = {key: k for k, key in enumerate(self.keys[v])}
            labels.append([place[key] for key in first.setdefault(c, self.keys[v])])
        p, builder, edges = self.program.problem, Builder(), list[int]()
        unary = [np.zeros(0, dtype=np.int64)] * (int(of.max(initial=-1)) + 1)
        for v, c in enumerate(of.tolist()):
            own = p.unary[p.first[v] : p.first[v + 1]][labels[v]]
            unary[c] = own if not len(unary[c]) else _sum(unary[c], own)
        kept = []
        known: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Ints] = {}
        for e, (a, b, t) in enumerate(zip(p.a.tolist(), p.b.tolist(), p.table.tolist(), strict=True)):
            key = (t, tuple(labels[a]), tuple(labels[b]))
            if key not in known:
                table = p.costs[p.begin[t] : p.begin[t + 1]].reshape(-1, p.labels[b])
                known[key] = table[labels[a]][:, labels[b]]
            if of[a] == of[b]:
                unary[of[a]] = _sum(unary[of[a]], known[key].diagonal())
            else:
                kept.append((e, int(of[a]), int(of[b]), known[key]))
        for costs in unary:
            builder.variable(costs.tolist())
        for e, a, b, table in kept:
            builder.edge(a, b, table.tolist())
            if table.any():
                edges.append(e)
        return labels, builder.build(), edges

    def _groups(self) -> list[list[int]]:
        """Return groups of variables: forward op and backward ops, tensor and gradients with their sums."""
        at, tensor, signature = self.program.op, self.program.tensor, self.shaped.signature
        backward: dict[int, list[int]] = defaultdict(list)
        for op, forward in forward_ops(self.shaped.names).items():
            backward[forward].append(op)

        groups, gradients = list[list[int]](), set[int]()
        for op, ops in backward.items():
            groups.append([at[op], *(at[b] for b in ops)])
            # A gradient is the first output of the backward ops that has the shape of an input.
            left = list(self.inputs[op])
            for b in ops:
                for output, made in enumerate(signature(b).outputs):
                    gradient = tensor[b][output]
                    fits = [t for t in left if signature(t[0][0]).outputs[t[0][1]] == made] if gradient >= 0 else []
                    if fits and self.given[op, fits[0][1]] >= 0:
                        left.remove(fits[0])
                        groups.append([self.given[op, fits[0][1]], gradient])
                        gradients.add(gradient)
        for op in range(self.shaped.ops):
            if signature(op).type == "AddN" and tensor[op][0] >= 0:
                summed = [self.given[op, k] for _, k in self.inputs[op] if self.given[op, k] in gradients]
                if summed:
                    groups.append([at[op], tensor[op][0], *summed])
        return [variables for group in groups if (variables := [v for v in group if v >= 0])]


def _sum(one: Ints, other: Ints) -> Ints:
    return np.where((one == FORBIDDEN) | (other == FORBIDDEN), FORBIDDEN, one + other)


def forward_ops(names: tuple[str, ...]) -> dict[int, int]:
    """Map backward ops to the op whose gradient they are part of: gradients/X_grad/Y and gradient_tape/X/Y to X."""
    number = {name: op for op, name in enumerate(names)}
    result = {}
    for op, name in enumerate(names):
        parts = name.split("/")
        begin = next((k for k, part in enumerate(parts) if _BACKWARD.match(part)), -1)
        if begin < 0:
            continue
        outer, rest = parts[:begin], parts[begin + 1 :]
        for many in range(len(rest), 0, -1):
            tail = [*rest[: many - 1], _GRAD.sub("", rest[many - 1])]
            of = number.get("/".join([*outer, *tail]), number.get("/".join(tail)))
            if of is not None and of != op:
                result[op] = of
                break
    return result
