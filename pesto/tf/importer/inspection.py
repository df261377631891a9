"""Facts of a captured step: feeds, updates, colocation ties, and the reasons for which it is refused."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from pesto.core.errors import PestoError
from pesto.core.files.json import shown
from pesto.tf.importer.importer import build_graph, colocation_groups
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.needed_nodes import RESOURCE, VARIANT, StepNodes, parse_nodes
from pesto.tf.nodes.shape_inference import count_size_reads, has_open_batch
from pesto.tf.placement_refusals import nested_function_error
from pesto.tf.step_facts import StepFacts, StepFeed, VariableTie
from pesto.tf.variables.variables import FLOW, find_resource_origins, touches, value_bytes

STAND_IN = 32
"""Examples in a batch where none is given: whether a step is refused seldom depends on how many there are."""


def inspect_step(captured: CapturedStep, batch: int | None, refused: tuple[PestoError, ...] = ()) -> StepFacts:
    """Return the facts of a step; `refused` has what is known to be wrong with it, to which building its graph adds."""
    nodes = parse_nodes(captured.graph_def, captured.fetches)
    touched, size = touches(nodes), value_bytes(nodes, find_resource_origins(nodes))
    by_op: dict[int, set[int]] = defaultdict(set)
    for variable, accesses in touched.items():
        for touch in accesses if size[variable] else ():
            by_op[touch.op].add(variable)
    touched_by = _TouchedVariables(nodes, size, by_op)
    updates = [[touch.op for touch in accesses if touch.writes] for v, accesses in touched.items() if size[v]]
    holders = [
        touched_by.tie(1, by_op[i], touched_by.name(i)) for i in by_op if nodes.defs[i].op in FLOW and len(by_op[i]) > 1
    ]
    open_batch = has_open_batch(captured.graph_def)
    try:
        ops = build_graph(captured, batch=batch or (STAND_IN if open_batch else None)).ops
    except PestoError as error:
        ops, refused = len(nodes.defs), (*refused, error)
    feeds = [
        StepFeed(name=f"{node.name}:{k}" if k else node.name, dtype=tf.as_dtype(dtype).name, shape=nodes.shapes[i][k])
        for i, node in enumerate(nodes.defs)
        if node.op.startswith(("Placeholder", "IteratorGetNext")) and node.name not in captured.values
        for k, dtype in enumerate(nodes.dtypes[i])
        if dtype != RESOURCE
    ]
    return StepFacts(
        source=captured.source,
        ops=ops,
        variables=sum(bool(s) for s in size),
        variable_bytes=sum(size),
        ties=_pick_largest(touched_by.ties()),
        ends=captured.fetches,
        feeds=tuple(feeds),
        batch=batch,
        open_batch=open_batch,
        size_ops=count_size_reads(captured.graph_def) if open_batch else 0,
        optimizer=captured.optimizer,
        updated=sum(bool(writers) for writers in updates),
        updates=dict(Counter(nodes.defs[i].op for i in sorted({i for ops in updates for i in ops})).most_common()),
        holders=_pick_largest(holders),
        careful=tuple(f"in pesto.apply, {nested_function_error(captured.source, name)}" for name in captured.calls[:1]),
        refused=refused,
    )


def _pick_largest(ties: Iterable[VariableTie]) -> tuple[VariableTie, ...]:
    return tuple(sorted(ties, key=lambda tie: (-tie.variable_bytes, -tie.ops)))


@dataclass(frozen=True, slots=True)
class _TouchedVariables:
    """Variables that the ops of a step touch."""

    nodes: StepNodes
    size: list[int]
    """[n] bytes of the variable that a node makes."""
    by_op: Mapping[int, set[int]]
    """Op -> the variables that it touches, without tables and other resources that have no known bytes."""

    def tie(self, ops: int, variables: Iterable[int], why: str) -> VariableTie:
        """Tie ops to the variables that they touch."""
        touched = set(variables)
        return VariableTie(ops=ops, variables=len(touched), variable_bytes=sum(self.size[v] for v in touched), why=why)

    def name(self, i: int) -> str:
        """Return a node's type and name, for people."""
        return f"{self.nodes.defs[i].op} {shown(self.nodes.defs[i].name)}"

    def ties(self) -> Iterable[VariableTie]:
        """Yield each colocation group, with the reason for which its ops share a device."""
        group = colocation_groups(self.nodes)
        members: dict[int, list[int]] = defaultdict(list)
        for i in np.flatnonzero(group >= 0).tolist():
            members[int(group[i])].append(i)
        for inside in members.values():
            variables = set[int]().union(*(self.by_op.get(i, ()) for i in inside))
            if len(variables) > 1:
                most = max(inside, key=lambda i: len(self.by_op.get(i, ())))
                why = f"{self.name(most)} takes {len(self.by_op[most])} of its variables"
            elif variables:
                why = f"touch variable {shown(self.nodes.defs[min(variables)].name)}"
            else:
                lists = any(VARIANT in self.nodes.dtypes[i] for i in inside)
                why = f"hand on {'a list of tensors' if lists else 'a table or another resource'} of "
                why += self.name(inside[0])
            yield self.tie(len(inside), variables, why)
