"""The check by a trace: the order in which the ops of a chain really ran."""

from typing import Any

import numpy as np

from pesto.tf.enforce.partitions import Expected, Findings


def examine(stats: Any, expected: Expected) -> Findings:
    """Compare the StepStats of one run with the chains: no op may start before its neighbour has ended.

    v1 loops and ops that were not traced are left out.
    """
    placement, names = expected.placement, expected.placement.graph.names
    index = {name: i for i, name in enumerate(names) if name not in expected.loops}
    start, end = np.full(len(names), -1), np.full(len(names), -1)
    for device in stats.dev_stats:
        if "stream" in device.device or "memcpy" in device.device:
            continue
        for entry in device.node_stats:
            i = index.get(entry.node_name)
            if i is not None:
                begun = entry.all_start_nanos or entry.all_start_micros * 1000
                start[i] = begun + (entry.op_start_rel_nanos or entry.op_start_rel_micros * 1000)
                end[i] = begun + (entry.op_end_rel_nanos or entry.op_end_rel_micros * 1000)
    member = np.flatnonzero(placement.chained & (start >= 0))
    sequence = member[np.lexsort((placement.rank[member], placement.device[member]))]
    before, after = sequence[:-1], sequence[1:]
    wrong = (placement.device[before] == placement.device[after]) & (start[after] < end[before])
    pairs = zip(before[wrong].tolist(), after[wrong].tolist(), strict=True)
    return Findings(
        ops=len(member), moves=(), inversions=tuple(f"op {names[b]} ran before {names[a]} had ended" for a, b in pairs)
    )  # fmt: skip


def joined(a: Findings, b: Findings) -> Findings:
    """Both sets of findings on one run."""
    return Findings(
        ops=a.ops, moves=a.moves + b.moves, inversions=a.inversions + b.inversions, absent=a.absent + b.absent
    )
