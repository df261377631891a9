"""Does every op of a chain wait for its neighbour? A walk over TensorFlow's own partition graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto.plans.control_edges import neighbours
from pesto.tf.enforce.branches import MERGES
from pesto.tf.enforce.loop_nodes import Loop
from pesto.tf.enforce.placement import Placement
from pesto.tf.nodes.needed_nodes import producer
from solvers.arrays import Ints

_NEXT = ("NextIteration", "RefNextIteration")


def unordered(
    partitions: Sequence[Any], placement: Placement, loops: Mapping[str, Loop], present: Ints, prefix: str
) -> list[str]:
    """One line for each pair of neighbours in a chain between which no path of edges leads.

    present: the ops that are in the partitions, under their names behind `prefix`.
    """
    names = placement.graph.names
    kept = np.zeros(placement.graph.ops, dtype=np.bool_)
    kept[present] = True
    before, after = neighbours(placement.lane, placement.rank, placement.chained & kept)
    walks = [_Walk.of(part) for part in partitions]
    wrong = []
    for lane in np.unique(placement.lane[before]).tolist():
        mine = placement.lane[before] == lane
        chain = [int(before[mine][0]), *after[mine].tolist()]
        doors = [loops.get(names[i]) for i in chain]
        starts = {prefix + n: k for k, d in enumerate(doors) for n in (d.entries if d else (names[chain[k]],))}
        ends = [tuple(prefix + n for n in (d.exits if d else (names[i],))) for i, d in zip(chain, doors, strict=True)]
        for walk in walks:
            late = walk.late(starts, ends)
            wrong += [f"op {names[chain[k]]} does not wait for {names[chain[k - 1]]}" for k in late]
    return wrong


@dataclass(frozen=True, slots=True)
class _Walk:
    """One partition, ready to be walked along its edges."""

    nodes: Mapping[str, Any]
    order: Sequence[str]
    """A topological order."""
    before: Mapping[str, Sequence[str]]
    """Producers of each node, without the edges that close loops."""

    @classmethod
    def of(cls, part: Any) -> "_Walk":
        nodes = {node.name: node for node in part.node}
        before = {name: _producers(nodes, name) for name in nodes}
        return cls(nodes, _topological(before), before)

    def late(self, starts: Mapping[str, int], ends: Sequence[Sequence[str]]) -> list[int]:
        """Places in one chain whose op can start before the one at the place before it has ended.

        ends: for each place, the nodes that all have ended when its op has. A loop has several exits, and waiting for
        one is not waiting for the others: there is a walk for the first exit of each, one for the second, and so on.
        """
        if not any(name in starts for name in self.order):
            return []
        here = [[name for name in names if name in self.nodes] for names in ends]
        late: set[int] = set()
        for turn in range(max(1, *map(len, here))):
            late.update(self._late(starts, {names[turn % len(names)]: k for k, names in enumerate(here) if names}))
        return sorted(late)

    def _late(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> list[int]:
        """`late`, where one node is the end of each place.

        Each node carries the last place that is known to be done when it starts. As a chain is followed from its first
        pair on, a path from the neighbour is all that has to be found.
        """
        done: dict[str, int] = {}
        wrong = []
        for name in self.order:
            known = self._known(name, done)
            place = starts.get(name)
            if place is not None and known < place - 1:
                wrong.append(place)
            done[name] = max(known, ends.get(name, -1))
        return wrong

    def _known(self, name: str, done: Mapping[str, int]) -> int:
        """The last place that is done when a node starts. A Merge waits for all that controls it, but for one input."""
        if self.nodes[name].op not in MERGES:
            return max((done[p] for p in self.before[name] if p in done), default=-1)
        inputs = self.nodes[name].input
        data = [done.get(producer(t), -1) for t in inputs if t[0] != "^" and producer(t) in done]
        controls = [done.get(producer(t), -1) for t in inputs if t[0] == "^"]
        return max([min(data, default=-1), *controls])


def _producers(nodes: Mapping[str, Any], name: str) -> list[str]:
    merge = nodes[name].op in MERGES
    found = dict.fromkeys(producer(text) for text in nodes[name].input)
    return [p for p in found if p in nodes and not (merge and nodes[p].op in _NEXT)]


def _topological(before: Mapping[str, Sequence[str]]) -> list[str]:
    after: dict[str, list[str]] = {name: [] for name in before}
    for name, producers in before.items():
        for p in producers:
            after[p].append(name)
    waiting = {name: len(producers) for name, producers in before.items()}
    order = [name for name, count in waiting.items() if count == 0]
    for name in order:
        for other in after[name]:
            waiting[other] -= 1
            if waiting[other] == 0:
                order.append(other)
    return order
