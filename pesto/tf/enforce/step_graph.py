"""One traced step as a placement needs it: its graph, and the nodes behind the graph's ops."""

from dataclasses import dataclass

from pesto.graph import Graph
from pesto.tf.enforce.loop_nodes import Loop, loops
from pesto.tf.importer.importer import build
from pesto.tf.nodes.captured import Captured
from pesto.tf.nodes.needed_nodes import Nodes, parse


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """A captured step."""

    graph: Graph
    nodes: Nodes
    loops: dict[str, Loop]
    """By the op that stands for each."""

    @property
    def op_of_node(self) -> list[int]:
        """[nodes] index of the op of the graph that each node is, or is a part of."""
        leader = {node: name for name, loop in self.loops.items() for node in loop.nodes}
        index = {name: i for i, name in enumerate(self.graph.names)}
        return [index[leader.get(node.name, node.name)] for node in self.nodes.defs]


def trace(captured: Captured, batch: int | None) -> Trace:
    """What a placement needs to know of a captured step; InputError where it cannot be planned."""
    graph = build(captured, batch=batch)
    nodes = parse(captured.graph_def, captured.fetches)
    return Trace(graph=graph, nodes=nodes, loops=loops(nodes))
