"""Plans beside oneDNN's rewrites of CPU graphs. A script, as TensorFlow asks the environment once, when it is loaded.

A convolution with bias, its gradients and a padding before it: each is of two ops that oneDNN makes one kernel of, in a
v1 session and in Keras' fit. Prints one JSON line for each.
"""

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

os.environ.update(TF_ENABLE_ONEDNN_OPTS="1", TF_CPP_MIN_LOG_LEVEL="3")
from pesto.verbs import api

api.logical_cpus(2)

import tensorflow as tf  # noqa: E402  # after the environment is set

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fit_cases  # noqa: E402

from pesto.core.source import Source  # noqa: E402
from pesto.inputs import load as inputs  # noqa: E402
from pesto.tf import named_sources  # noqa: E402
from pesto.tf.run import planned_run  # noqa: E402
from pesto.tf.run.run_options import RunOptions  # noqa: E402

v1 = tf.compat.v1


def program() -> Any:
    """Three convolutions of images of 32 x 32, normalised between."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(3)
        x = v1.placeholder(tf.float32, [16, 32, 32, 3], name="x")
        for k, width in enumerate((3, 16, 24)):
            filters = v1.get_variable(f"filters{k}", [3, 3, width, 24 if k else 16], use_resource=True)
            bias = v1.get_variable(f"bias{k}", [24 if k else 16], use_resource=True)
            x = tf.nn.bias_add(tf.nn.conv2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), filters, 1, "VALID"), bias)
            x = tf.nn.relu((x - tf.reduce_mean(x, [0, 1, 2])) / (1e-3 + tf.math.reduce_std(x, [0, 1, 2])))
        loss = tf.reduce_mean(x**2, name="loss")
        v1.train.AdamOptimizer(0.01).minimize(loss, name="train")
    return graph


def merged(step: Any) -> int:
    """Kernels of two ops in a run without a plan."""
    drive = planned_run.StepDriver.of(step, steps=1, threads=2, gpu=False)
    graphs = drive.run(traced=True).traced[0].partition_graphs
    return sum(node.op.startswith("_Mkl") and "With" in node.op for part in graphs for node in part.node)


def session() -> None:
    """A run by a plan, against both references."""
    path = Path(tempfile.mkdtemp()) / "step.pb"
    path.write_bytes(program().as_graph_def(add_shapes=True).SerializeToString())
    source = Source(file=path, fetch=("train", "loss"))
    graph, step = named_sources.load_runnable(source)
    plan = api.solve(graph, cluster="cpux2", time_limit_s=0, solver="list")
    found: dict[str, Any] = {"case": "session", "merged": merged(step)}
    for reference in ("unplaced", "stock"):
        ran = inputs.run_plan(plan, source, RunOptions(steps=3, devices="cpu", reference=reference))
        found[reference] = {
            "as_planned": ran.as_planned, "losses_equal": ran.losses_equal, "unordered_equal": ran.unordered_equal,
            "losses_distance": ran.losses_distance, "variables_distance": ran.variables_distance,
            "furthest": ran.furthest, "reference_is": ran.reference_is,
        }  # fmt: skip
    print(json.dumps(found), flush=True)


def fit() -> None:
    """Keras' fit by a random plan without its order, then with it."""
    images, labels = np.zeros((16, 8, 8, 3), np.float32), np.zeros(16, np.int32)
    with api.record(batch=8) as recorded:
        fit_cases.made("cnn").fit(images, labels, batch_size=8, verbose=0)
    plan = fit_cases.random_plan(recorded.graph, "cpux2", 0)
    plan = replace(plan, schedule=replace(plan.schedule, device=np.zeros_like(plan.schedule.device)))
    for order in (False, True):
        with api.apply(plan, devices="cpu", order=order) as applied:
            fit_cases.made("cnn").fit(images, labels, batch_size=8, verbose=0)
        (one,) = applied.findings
        print(json.dumps({"case": f"fit, order={order}", "moves": len(one.moves), "ops": one.ops}), flush=True)


if __name__ == "__main__":
    session()
    fit()
