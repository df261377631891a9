"""A planned step as an event file of TensorBoard: the graph with its devices, and when each op runs."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.files.disk import make_folder, write_atomic
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.problem import TICK_S
from pesto.core.simulator import Timeline
from pesto.tf.tensorflow_start import load_tensorflow

FILE = "events.out.tfevents.pesto"
TAG = "step as predicted"
_NS = round(TICK_S * 1e9)


def write_events(folder: Path, plan: Plan, graph: Graph, timeline: Timeline) -> Path:
    """Write FILE into the folder, which is made where it is not there, and return its path; an old FILE is replaced.

    TensorBoard's graph page colours ops by device and, with the run of TAG, by time.
    """
    tf = load_tensorflow()
    named = [f"/device:{name.upper()}" for name in plan.lane_device]
    schedule = timeline.schedule
    device = [named[d] for d in schedule.device.tolist()]
    graph_def, metadata = tf.compat.v1.GraphDef(), tf.compat.v1.RunMetadata()
    # [n] what each op reads, as nodes name it, then what it waits for.
    first = np.zeros(graph.ops + 1, dtype=np.int64)
    np.add.at(first, graph.tensor_op + 1, 1)
    output = np.arange(len(graph.tensor_op)) - np.cumsum(first)[graph.tensor_op]
    reads: list[list[str]] = [[] for _ in range(graph.ops)]
    for tail, head, tensor in zip(graph.src.tolist(), graph.dst.tolist(), graph.tensor.tolist(), strict=True):
        k = int(output[tensor])
        reads[head].append(f"{graph.names[tail]}:{k}" if k else graph.names[tail])
    for tail, head in zip(graph.control_src.tolist(), graph.control_dst.tolist(), strict=True):
        reads[head].append(f"^{graph.names[tail]}")
    for name, kind, target, inputs in zip(plan.names, graph.type_of.tolist(), device, reads, strict=True):
        graph_def.node.add(name=name, op=graph.types[kind], device=target, input=inputs)
    stats: dict[str, Any] = {}
    times = zip(plan.names, device, schedule.start.tolist(), schedule.finish.tolist(), strict=True)
    for name, target, start, finish in times:
        if target not in stats:
            stats[target] = metadata.step_stats.dev_stats.add(device=target)
        took = (finish - start) * _NS
        stats[target].node_stats.add(
            node_name=name, all_start_micros=start * _NS // 1000, all_start_nanos=start * _NS,
            op_end_rel_micros=-(-took // 1000), op_end_rel_nanos=took, all_end_rel_micros=-(-took // 1000),
            all_end_rel_nanos=took,
        )  # fmt: skip
    run = tf.compat.v1.Event()
    run.tagged_run_metadata.tag = TAG
    run.tagged_run_metadata.run_metadata = metadata.SerializeToString()
    program = tf.compat.v1.Event(graph_def=graph_def.SerializeToString(deterministic=True))
    with tempfile.TemporaryDirectory() as scratch:
        scratch_file = Path(scratch) / FILE
        with tf.io.TFRecordWriter(str(scratch_file)) as writer:
            for event in (tf.compat.v1.Event(file_version="brain.Event:2"), program, run):
                writer.write(event.SerializeToString(deterministic=True))
        data = scratch_file.read_bytes()
    make_folder(folder)
    write_atomic(folder / FILE, data)
    return folder / FILE
