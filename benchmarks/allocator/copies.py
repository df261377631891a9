"""Copies for what crosses between logical CPUs or is fed, and devices kept in step: edits of a planned GraphDef.

Logical CPUs share one memory: a tensor that crosses is referred to and not copied, and so is a feed. A GPU would have
bytes of its own. A `DeepCopy` on the receiving device makes it so.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np
from tensorflow.core.framework import node_def_pb2

from pesto.core.plans.plan import Plan
from pesto.tf.apply_placement.placement import FED, SendRelay
from pesto.tf.nodes.needed_nodes import TRAVELS_NOT, StepNodes, parse_nodes, producer

PREFIX = "pesto_copy_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedCopy:
    """One op that stands for a received tensor, or for a feed on the device that the plan gives it."""

    name: str
    source: str
    """Op of the step that makes the tensor."""
    output: int
    device: str
    """TensorFlow's."""
    fed: bool
    dtype: int

    def node(self, read: str) -> Any:
        """The NodeDef, reading the tensor `read`."""
        made = node_def_pb2.NodeDef(name=self.name, op="DeepCopy", input=[read], device=self.device)
        made.attr["T"].type = self.dtype
        return made


@dataclass(frozen=True, slots=True)
class _Copies:
    """The copies made so far, one a tensor and device."""

    made: dict[tuple[str, int, str, bool], ReceivedCopy] = field(default_factory=dict)
    nodes: list[Any] = field(default_factory=list)

    def of(self, tensor: tuple[str, int], read: str, device: str, dtype: int, *, fed: bool) -> str:
        """The tensor that is the copy on `device` of an op's output, which `read` names."""
        key = (*tensor, device, fed)
        if key not in self.made:
            source, output = tensor
            copy = ReceivedCopy(
                name=f"{PREFIX}{len(self.made)}", source=source, output=output, device=device, fed=fed, dtype=dtype
            )
            self.made[key] = copy
            self.nodes.append(copy.node(read))
        return f"{self.made[key].name}:0"


def with_copies(
    graph_def: Any, plan: Plan, wanted: Mapping[str, str], relays: Collection[SendRelay]
) -> tuple[ReceivedCopy, ...]:
    """Put the copies into `graph_def`, which is placed by `plan`; `wanted` is TensorFlow's device for each of its own.

    Handles, variants and strings are not copied: the first two never cross, and strings have no known size. What is
    read through one of the `relays` counts as read from the op behind it.
    """
    nodes = parse_nodes(graph_def, plan.names)
    index = {node.name: i for i, node in enumerate(nodes.defs)}
    device = {name: wanted[at] for name, at in zip(plan.names, plan.device_names(), strict=True)}
    device.update((relay.name, device[producer(relay.tensor)]) for relay in relays)
    copies, passed = _Copies(), {relay.name for relay in relays}
    for node in graph_def.node:
        if node.name in device:
            for slot, (p, k) in enumerate(nodes.inputs[index[node.name]]):
                behind = nodes.inputs[p][0] if nodes.defs[p].name in passed else (p, k)
                read = _read(copies, nodes, (p, k), behind, device, device[node.name])
                if read is not None:
                    node.input[slot] = read
    graph_def.node.extend(copies.nodes)
    return tuple(copies.made.values())


def _read(
    copies: _Copies,
    nodes: StepNodes,
    tensor: tuple[int, int],
    behind: tuple[int, int],
    device: Mapping[str, str],
    here: str,
) -> str | None:
    """What an op on device `here` is to read in place of output k of node p; None to leave it.

    behind: the tensor that this one passes on; else the same.
    """
    (p, k), given, maker = tensor, nodes.defs[tensor[0]], nodes.defs[behind[0]]
    dtype, read = nodes.dtypes[p][k], None
    if dtype in TRAVELS_NOT or given.name not in device:
        return None
    if given.op in FED:
        read = copies.of((given.name, k), f"{given.name}:{k}", device[given.name], dtype, fed=True)
    if device[given.name] != here:
        read = copies.of((maker.name, behind[1]), read or f"{given.name}:{k}", here, dtype, fed=False)
    return read


def pin(graph_def: Any, plan: Plan, chained: Collection[str]) -> None:
    """Let no op of `graph_def` start before what the plan has ended by then on the other devices.

    The devices then keep step as the plan predicts, however busy the machine is that stands for them. chained: names of
    the ops that have a place in their device's chain; only these wait and are waited for.
    """
    nodes = {node.name: node for node in graph_def.node if node.name in chained}
    s = plan.schedule
    at = np.array([name in nodes for name in plan.names])
    lanes = [np.flatnonzero(at & (s.device == d)) for d in range(len(plan.lanes))]
    lanes = [lane[np.argsort(plan.rank[lane])] for lane in lanes]
    for here, there in permutations(lanes, 2):
        # An op that takes no time may start when another ends: the ranks say which comes first.
        ended = np.minimum(
            np.searchsorted(s.finish[there], s.start[here], side="right"),
            np.searchsorted(plan.rank[there], plan.rank[here]),
        )
        for op in np.flatnonzero(np.diff(ended, prepend=0) > 0).tolist():
            nodes[plan.names[here[op]]].input.append(f"^{plan.names[there[ended[op] - 1]]}")
