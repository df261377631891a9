"""A plan's schedule at the times of a real run: what separates an error of the memory model from one of the times."""

from typing import Any

import numpy as np

from benchmarks.allocator.allocations import TracedSteps
from pesto.core.errors import InputError
from pesto.core.graph import Graph
from pesto.core.problem import payloads
from pesto.core.simulator import Timeline
from pesto.tf.enforce.partitions import is_duplicate_device
from solvers.schedule import Schedule

_UNTRACED = ("Const", "HostConst")
"""What TensorFlow may hand out without running a kernel; their bytes do not depend on when."""


def retimed(traced: TracedSteps, stats: Any, graph: Graph, timeline: Timeline) -> Timeline:
    """`timeline`, of the plan that was traced without congestion, with each op and transfer when it was in one step.

    Ticks count nanoseconds since the first op. A feed begins with its copy. InputError when an op is not in the trace.
    """
    spans = _spans(stats)
    fed = {copy.source: copy.name for copy in traced.copies if copy.fed}
    began = min(start for start, _ in spans.values())
    times = np.full((graph.ops, 2), -1, dtype=np.int64)
    for i, name in enumerate(graph.names):
        span = spans.get(fed.get(name, name))
        if span is None and graph.types[graph.type_of[i]] not in _UNTRACED:
            raise InputError(f"the trace lacks op {name} - trace it alone")
        times[i] = (0, 0) if span is None else (span[0] - began, span[1] - began)
    s = timeline.schedule
    sent = np.array(_sent(traced, spans, graph, s), dtype=np.int64).reshape(-1, 2) - began
    return Timeline(
        problem=timeline.problem,
        schedule=Schedule(
            device=s.device, start=times[:, 0], finish=times[:, 1], sent_payload=s.sent_payload, sent_to=s.sent_to,
            sent_start=sent[:, 0], sent_finish=sent[:, 1],
        ),
    )  # fmt: skip


def _spans(stats: Any) -> dict[str, tuple[int, int]]:
    """(start, end) of each op in nanoseconds, from where it got its inputs to where it passed its outputs on."""
    return {
        e.node_name: (e.all_start_nanos, e.all_start_nanos + e.all_end_rel_nanos)
        for device in stats.dev_stats
        if not is_duplicate_device(device.device)
        for e in device.node_stats
    }


def _sent(traced: TracedSteps, spans: dict[str, tuple[int, int]], graph: Graph, s: Schedule) -> list[tuple[int, int]]:
    """(start, end) of the copy that each transfer made."""
    locations = list(traced.targets.values())
    copy = {(c.source, c.output, locations.index(c.device)): c.name for c in traced.copies if not c.fed}
    tensor = payloads(graph, per_edge=False)[1][s.sent_payload]
    output = tensor - np.searchsorted(graph.tensor_op, graph.tensor_op[tensor])
    maker = [graph.names[op] for op in graph.tensor_op[tensor].tolist()]
    # What carries no bytes is not copied: it is there when its op ends.
    return [
        spans[copy[key]] if key in copy else (spans[key[0]][1], spans[key[0]][1])
        for key in zip(maker, output.tolist(), s.sent_to.tolist(), strict=True)
    ]
