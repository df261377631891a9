"""The branches of v1 conditionals: when theirs is not taken, nodes are dead, and so is all that waits for them."""

from collections.abc import Collection, Sequence

from pesto.tf.nodes.needed_nodes import StepNodes

MERGES = ("Merge", "RefMerge")
SWITCHES = ("Switch", "RefSwitch", "_SwitchN")
Conditions = frozenset[tuple[int, int]]
"""Conditions under which an op runs: pairs (node of a predicate, required outcome)."""


def node_conditions(nodes: StepNodes, op: Sequence[int], looped: Collection[int]) -> list[Conditions]:
    """[ops] what each op runs under; nothing for what always runs.

    op: [n] the op that each node is, or is a part of. looped: nodes of loops, which are one op each.
    """
    of_node: list[Conditions] = [frozenset()] * len(nodes.defs)
    conditions: list[Conditions] = [frozenset()] * (max(op, default=-1) + 1)
    if not any(node.op in SWITCHES and i not in looped for i, node in enumerate(nodes.defs)):
        return conditions
    for i, node in enumerate(nodes.defs):
        data = [of_node[p] | output_conditions(nodes, p, k, looped) for p, k in nodes.inputs[i]]
        if node.op in MERGES and i not in looped:
            data = [frozenset.intersection(*data)]
        # A loop is one op: what its first nodes wait for, the others do.
        conditions[op[i]] = of_node[i] = conditions[op[i]].union(*data, *(of_node[c] for c in nodes.controls[i]))
    return conditions


def output_conditions(nodes: StepNodes, producer: int, output: int, looped: Collection[int]) -> Conditions:
    """Return the condition under which an output of a node is alive, beyond those of the node."""
    if nodes.defs[producer].op not in SWITCHES or producer in looped:
        return frozenset()
    return frozenset(((nodes.inputs[producer][1][0], output),))
