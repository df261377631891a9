"""TensorBoard's event file has every op with its inputs, device and times."""

from pathlib import Path

import networkx as nx

import pesto
from pesto.tf.events import TAG, write_events
from pesto.tf.tensorflow_start import load_tensorflow


def test_an_event_file_is_the_plan(tmp_path: Path) -> None:
    """Read back by TensorFlow: devices as planned, edges by output, seconds as predicted; twice the same bytes."""
    dag = nx.MultiDiGraph()
    dag.add_node("a", seconds=1e-3, runs_on="cpu", outputs="8,16", type="Two")
    dag.add_node("b", seconds=2e-3, runs_on="gpu")
    dag.add_node("c", seconds=5e-7, runs_on="gpu")
    dag.add_edge("a", "b", output=1, bytes=16)
    dag.add_edge("a", "c", output=0, bytes=8)
    dag.add_edge("b", "c", control=True)
    graph = pesto.graph_from_networkx(dag)
    plan = pesto.solve(graph, time_limit_s=0)
    run = pesto.simulate(plan, graph)
    where = write_events(tmp_path / "logs", plan, graph, run.run.timeline)
    first = where.read_bytes()
    tf = load_tensorflow()
    events = list(tf.compat.v1.train.summary_iterator(str(where)))
    nodes = {n.name: n for n in tf.compat.v1.GraphDef.FromString(events[1].graph_def).node}
    assert (nodes["a"].op, nodes["a"].device) == ("Two", "/device:CPU:0")
    assert list(nodes["b"].input) == ["a:1"]
    assert list(nodes["c"].input) == ["a", "^b"]
    assert events[2].tagged_run_metadata.tag == TAG
    said = tf.compat.v1.RunMetadata.FromString(events[2].tagged_run_metadata.run_metadata).step_stats
    found = {
        n.node_name: (d.device, n.all_start_nanos, n.op_end_rel_nanos) for d in said.dev_stats for n in d.node_stats
    }
    s = run.run.timeline.schedule
    assert found == {
        name: (nodes[name].device, s.start[i], s.finish[i] - s.start[i]) for i, name in enumerate(plan.names)
    }
    assert {n.op_end_rel_micros for d in said.dev_stats for n in d.node_stats if n.node_name == "c"} == {1}
    assert write_events(tmp_path / "logs", plan, graph, run.run.timeline).read_bytes() == first
