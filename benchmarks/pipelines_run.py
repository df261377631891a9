"""A step in micro-batches, run by TensorFlow on two logical CPUs: 1F1B against all of it on one, in one run.

    python benchmarks/pipelines_run.py [--layers 8] [--width 1024] [--rows 2048] [--micro-batches 8] [--steps 12]

The model is so many equal dense layers, trained by SGD. Kernels have one thread, so that 1F1B has two and the serial
step one; both compute the same, bit for bit, and their steps alternate. Printed as one JSON object: the medians, what
both plans predict (modelled), the ratios serial / 1F1B, CPU seconds and the machine's load before.
"""

import argparse
import json
import os
import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np

from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.settings import Settings
from pesto.core.simulator import simulate
from pesto.core.source import Cut, function_source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.candidates import formulate
from pesto.verbs import api
from pesto.verbs.pipeline_step import pipeline_step
from pesto.verbs.requests import Context, PipelineRequest
from pesto.verbs.verb_options import PipelineOptions
from solvers.arrays import rank_of
from solvers.compiled.dag import topological_order
from solvers.heuristics.devices_of_location import devices_at

CLUSTER, WARM = "cpux2", 2


def main() -> None:
    """Run both and print what they took."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 8), ("width", 1024), ("rows", 2048), ("micro-batches", 8), ("steps", 12)):
        asked.add_argument(f"--{name}", type=int, default=default)
    given = asked.parse_args()
    load = os.getloadavg()[0]
    api.logical_cpus(2)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((given.rows, given.width)).astype("float32") for _ in range(2)]
    graph = _graph(given, data)
    piped = pipeline_step(
        PipelineRequest(source=graph, cluster=CLUSTER, options=PipelineOptions(schedule="1f1b")), Context()
    ).pipeline.plan
    plans = {"serial": _serial(graph, piped), "1f1b": piped}
    steps = {name: api.pipeline(_model(given), plan, devices="cpu") for name, plan in plans.items()}
    took: dict[str, list[float]] = {name: [] for name in plans}
    losses: dict[str, list[float]] = {name: [] for name in plans}
    began = time.process_time()
    for _ in range(given.steps):
        for name, step in steps.items():
            start = time.perf_counter()
            losses[name].append(float(step(*data)))
            took[name].append(time.perf_counter() - start)
    measured = {name: statistics.median(each[WARM:]) for name, each in took.items()}
    predicted = {name: plan.makespan_s for name, plan in plans.items()}
    print(json.dumps({
        "measured_s": measured, "measured_ratio": measured["serial"] / measured["1f1b"],
        "predicted_s": predicted, "predicted_ratio": predicted["serial"] / predicted["1f1b"],
        "equal_losses": losses["serial"] == losses["1f1b"],
        "moved": sum(len(result.moves) + len(result.inversions) for step in steps.values()
                     for result in step.applied.findings),
        "cpu_s": time.process_time() - began, "load": load,
    }))  # fmt: skip


def _model(arguments: argparse.Namespace) -> Any:
    import keras

    keras.utils.set_random_seed(7)
    layers = [keras.layers.Dense(arguments.width, activation="relu") for _ in range(arguments.layers)]
    model = keras.Sequential([keras.Input((arguments.width,)), *layers])
    model.compile(keras.optimizers.SGD(1e-3), keras.losses.MeanSquaredError(), jit_compile=False)
    return model


def _graph(arguments: argparse.Namespace, data: list[Any]) -> Graph:
    """The step in micro-batches, as `pesto pipeline --function` has it."""
    from pesto.tf.importer.importer import build_graph
    from pesto.tf.sources.sources import capture_keras

    cut = Cut(arguments.micro_batches)
    label = function_source("pipelines_run:model", arguments.rows, cut)
    return build_graph(capture_keras(_model(arguments), arguments.rows, data=tuple(data), source=label, cut=cut))


def _serial(graph: Graph, like: Plan) -> Plan:
    """All on the first device, one micro-batch after the other, as the graph lists them."""
    machine = load_cluster(CLUSTER)
    problem = formulate(graph, load_costs(graph, machine, None), machine, Settings())
    device = devices_at(problem, np.zeros(problem.tasks, dtype=np.int64))
    rank = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    return replace(like, rank=rank, schedule=simulate(problem, device, rank).schedule)


if __name__ == "__main__":
    main()
