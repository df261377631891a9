"""A plan that is written into a GraphDef is rehearsed there, and nothing of the step is run."""

from pathlib import Path

from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.enforce import rewrite  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def test_nothing_of_the_step_is_run(tmp_path: Path) -> None:
    """A step that writes a file, prints and asks for a feed: rehearsed, it does none of it; run, it writes."""
    graph, out, ran = tf.Graph(), tmp_path / "written", []
    with graph.as_default():
        v1.disable_control_flow_v2()
        n = v1.placeholder(tf.int32, [], name="n")
        last = tf.while_loop(lambda i: i < n, lambda i: [i + 1], [0], maximum_iterations=5)
        with tf.control_dependencies([tf.identity(last), v1.Print(n, [n])]):
            written = tf.io.write_file(str(out), tf.strings.as_string(tf.random.uniform([])))
        with tf.control_dependencies([tf.raw_ops.ControlTrigger()]):
            other = v1.py_func(lambda: ran.append(1), [], [])  # what waits for a trigger alone would live
        with tf.control_dependencies([written, other]):
            tf.no_op(name="step")
        v1.enable_control_flow_v2()
    plan = api.solve(sources.from_v1(graph, ["step"]), cluster="cpux2", time_limit_s=0, solver="list")
    after = api.rewrite(graph.as_graph_def(), plan)
    assert not out.exists() and not ran
    again = tf.Graph()
    with again.as_default():
        tf.import_graph_def(after, name="")
    with v1.Session(graph=again, config=rewrite.logical_cpu_config(2)) as s:
        s.run("step", {"n:0": 2})
    assert out.exists() and ran


def test_an_op_without_a_cpu_kernel_is_stood_in_for() -> None:
    """cuDNN's ops exist on GPUs only: a graph with one is rehearsed all the same, and keeps it."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [3, 2, 4], name="x")
        state = tf.zeros([1, 2, 5])
        w = v1.get_variable("w", [205], use_resource=True)
        y = tf.raw_ops.CudnnRNN(input=x, input_h=state, input_c=state, params=w, rnn_mode="lstm").output
        tf.reduce_sum(tf.tanh(tf.ensure_shape(y, [3, 2, 5])), name="y")
    plan = api.solve(sources.from_v1(graph, ["y"]), cluster="v100x2-nvlink", time_limit_s=0, solver="list")
    after = api.rewrite(graph.as_graph_def(), plan)
    kept = next(node for node in after.node if node.op == "CudnnRNN")
    assert kept.device.startswith("/device:GPU:")
