"""Waits for other devices that the chains of a plan imply.

The outputs of a function, and what runs behind it, wait for each of its ops that has an effect, reads of variables
included. Across devices TensorFlow makes four nodes of each such wait: a constant, a send, a receive and an Identity.
Where something waits for several ops of one chain, the last of them is enough.
"""

from collections.abc import Iterable, Mapping

from pesto.tf.apply_placement.branches import conditional_ops
from pesto.tf.apply_placement.placement import StepPlacement
from pesto.tf.apply_placement.step_graph import StepTrace


def chain_ranks(placement: StepPlacement, trace: StepTrace) -> dict[str, tuple[int, int]]:
    """Return (processor, rank) of each op, by name, behind which all earlier ones of its chain have ended.

    Those of branches may not run, loops have several exits, and of a copied constant nobody reads the op itself.
    """
    # The last op of a chain implies the earlier ones only if it certainly runs and its end means that it is done.
    left_out = {*trace.loops, *(copy.constant for copy in placement.copies)}
    always = (placement.chained & ~conditional_ops(trace)).tolist()
    lane, rank = placement.lane.tolist(), placement.rank.tolist()
    return {
        name: (lane[i], rank[i]) for i, name in enumerate(placement.graph.names) if always[i] and name not in left_out
    }


def implied_by_chain(waits: Iterable[str], others: Iterable[str], ranks: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return those of `waits` that are earlier in their chain than another of them, or than one of `others`."""
    waits, last = [name for name in waits if name in ranks], dict[int, int]()
    for name in (*waits, *(name for name in others if name in ranks)):
        lane, rank = ranks[name]
        last[lane] = max(rank, last.get(lane, -1))
    return [name for name in waits if ranks[name][1] < last[ranks[name][0]]]


def implied_waits(
    placement: StepPlacement, trace: StepTrace, ranks: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[str, ...]]:
    """Return, by node, the control inputs from other devices that others of its inputs imply; none of a loop's."""
    op, nodes, names, device = trace.op_of_node, trace.nodes, trace.graph.names, placement.device.tolist()
    implied_controls: dict[str, tuple[str, ...]] = {}
    for node, controls in enumerate(nodes.controls):
        here = op[node]
        far = [names[op[c]] for c in controls if device[op[c]] != device[here]]
        gone = implied_by_chain(far, (names[op[p]] for p, _ in nodes.inputs[node]), ranks)
        if gone and names[here] not in trace.loops:
            implied_controls[str(nodes.defs[node].name)] = tuple(gone)
    return implied_controls
