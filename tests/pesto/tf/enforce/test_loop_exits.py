"""What runs behind a loop is found to wait for the whole of it, or not to."""

from collections.abc import Callable

import numpy as np

from pesto.core.graph import Graph
from pesto.tf.tensorflow_start import load_tensorflow

v1 = load_tensorflow().compat.v1

from pesto.tf.apply_placement.placement import StepPlacement  # noqa: E402  # after the quiet load
from pesto.tf.enforce.partitions import find_unordered_neighbours  # noqa: E402
from pesto.tf.nodes.v1_loops import Loop  # noqa: E402


def test_a_loop_is_waited_for_at_all_of_its_exits(make_graph: Callable[..., Graph]) -> None:
    """What runs behind a loop of three exits waits for each of them, or is found."""
    graph = make_graph([{"name": "a/loss"}, {"name": "a/train", "inputs": ["a/loss"]}])
    lane, rank = np.zeros(graph.ops, np.int64), np.arange(graph.ops)
    none = np.array([], np.int64)
    placement = StepPlacement(
        graph=graph, devices=("/device:CPU:0",), device=lane, lane=lane, rank=rank, chained=np.ones(graph.ops, bool),
        before=none, after=none, planned=rank,
    )  # fmt: skip
    loops = {"a/loss": Loop(nodes=("in", "e0", "e1", "e2"), entries=("in",), exits=("e0", "e1", "e2"))}
    present = set(graph.names)
    for waited in (("e0", "e1", "e2"), ("e0", "e1"), ("e2",), ("e1", "e2"), ()):
        part = v1.GraphDef()
        part.node.add(name="in", op="Enter")
        for name in ("e0", "e1", "e2"):
            part.node.add(name=name, op="Exit", input=["in"])
        part.node.add(name="a/train", op="NoOp", input=[f"^{name}" for name in waited])
        wrong = find_unordered_neighbours([part], placement, loops, present, "")
        assert wrong == ([] if len(waited) == 3 else ["op a/train does not wait for a/loss"])
