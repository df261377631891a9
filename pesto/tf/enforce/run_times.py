"""The check by a trace: the order in which the ops of a chain really ran."""

from collections import Counter
from typing import Any

import numpy as np

from pesto.plans.control_edges import neighbours
from pesto.tf.enforce.partitions import Expected, Findings


def examine(stats: Any, expected: Expected) -> Findings:
    """Compare the StepStats of one run with the chains: no op may start before its neighbour has ended.

    v1 loops and ops that were not traced are left out, and names that were traced twice: ops of functions have any.
    """
    placement, names = expected.placement, expected.placement.graph.names
    index = {name: i for i, name in enumerate(names) if name not in expected.loops}
    times = Counter(e.node_name for d in stats.dev_stats if not repeats(d.device) for e in d.node_stats)
    start, end = np.full(len(names), -1), np.full(len(names), -1)
    for device in stats.dev_stats:
        if repeats(device.device):
            continue
        for entry in device.node_stats:
            i = index.get(entry.node_name)
            if i is not None and times[entry.node_name] == 1:
                begun = entry.all_start_nanos or entry.all_start_micros * 1000
                start[i] = begun + (entry.op_start_rel_nanos or entry.op_start_rel_micros * 1000)
                end[i] = begun + (entry.op_end_rel_nanos or entry.op_end_rel_micros * 1000)
    traced = placement.chained & (start >= 0)
    before, after = neighbours(placement.lane, placement.rank, traced)
    wrong = start[after] < end[before]
    pairs = zip(before[wrong].tolist(), after[wrong].tolist(), strict=True)
    late = tuple(f"op {names[b]} ran before {names[a]} had ended" for a, b in pairs)
    return Findings(ops=int(traced.sum()), moves=(), inversions=late)


def repeats(device: str) -> bool:
    """Whether a device of StepStats is one of a GPU's streams, which repeat what the GPU itself lists."""
    return "stream" in device or "memcpy" in device


def joined(a: Findings, b: Findings) -> Findings:
    """Both sets of findings on one run."""
    return Findings(
        ops=a.ops, moves=a.moves + b.moves, inversions=a.inversions + b.inversions, absent=a.absent + b.absent
    )
