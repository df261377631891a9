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
    """Write FILE into the folder, which is made where it is not there; what it held is replaced.

    TensorBoard's graph page colours ops by device and, with the run of TAG, by time.
    """
    tf = load_tensorflow()
    where, run = folder / FILE, tf.compat.v1.Event()
    run.tagged_run_metadata.tag = TAG
    run.tagged_run_metadata.run_metadata = _times(tf, plan, timeline).SerializeToString()
    laid = tf.compat.v1.Event(graph_def=_graph_def(tf, plan, graph, timeline))
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / FILE
        with tf.io.TFRecordWriter(str(made)) as writer:
            for event in (tf.compat.v1.Event(file_version="brain.Event:2"), laid, run):
                writer.write(event.SerializeToString(deterministic=True))
        data = made.read_bytes()
    make_folder(folder)
    write_atomic(where, data)
    return where


def _graph_def(tf: Any, plan: Plan, graph: Graph, timeline: Timeline) -> bytes:
    device = _devices(plan, timeline)
    graph_def = tf.compat.v1.GraphDef()
    for name, kind, where, inputs in zip(plan.names, graph.type_of.tolist(), device, _inputs(graph), strict=True):
        graph_def.node.add(name=name, op=graph.types[kind], device=where, input=inputs)
    data: bytes = graph_def.SerializeToString(deterministic=True)
    return data


def _inputs(graph: Graph) -> list[list[str]]:
    """[n] what each op reads, as nodes name it, then what it waits for."""
    first = np.zeros(graph.ops + 1, dtype=np.int64)
    np.add.at(first, graph.tensor_op + 1, 1)
    output = np.arange(len(graph.tensor_op)) - np.cumsum(first)[graph.tensor_op]
    inputs: list[list[str]] = [[] for _ in range(graph.ops)]
    for tail, head, tensor in zip(graph.src.tolist(), graph.dst.tolist(), graph.tensor.tolist(), strict=True):
        k = int(output[tensor])
        inputs[head].append(f"{graph.names[tail]}:{k}" if k else graph.names[tail])
    for tail, head in zip(graph.control_src.tolist(), graph.control_dst.tolist(), strict=True):
        inputs[head].append(f"^{graph.names[tail]}")
    return inputs


def _times(tf: Any, plan: Plan, timeline: Timeline) -> Any:
    metadata = tf.compat.v1.RunMetadata()
    s, per = timeline.schedule, dict[str, Any]()
    for name, where, start, finish in zip(
        plan.names, _devices(plan, timeline), s.start.tolist(), s.finish.tolist(), strict=True
    ):
        if where not in per:
            per[where] = metadata.step_stats.dev_stats.add(device=where)
        took = (finish - start) * _NS
        per[where].node_stats.add(
            node_name=name, all_start_micros=start * _NS // 1000, all_start_nanos=start * _NS,
            op_end_rel_micros=-(-took // 1000), op_end_rel_nanos=took, all_end_rel_micros=-(-took // 1000),
            all_end_rel_nanos=took,
        )  # fmt: skip
    return metadata


def _devices(plan: Plan, timeline: Timeline) -> list[str]:
    """[n] the device of each op, as TensorFlow spells it."""
    named = [f"/device:{name.upper()}" for name in plan.lane_device]
    return [named[d] for d in timeline.schedule.device.tolist()]
