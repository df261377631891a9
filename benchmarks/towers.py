"""Measure what placement makes of a step whose optimizer stands in an `If`, against one GPU; modelled, nothing is run.

    python -m benchmarks.towers [--layers 4] [--units 2048] [--batch 512] [--cluster v100x2-nvlink] [--time-limit 15]

A markdown row for each of three steps of two towers of dense layers with Adam: in float32, with
`gradient_accumulation_steps=4`, and under `mixed_float16`, whose `LossScaleOptimizer` may skip the update. `one GPU`
is the whole step on a single GPU, `ratio` the plan's step over that.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.on_gpus import head, row
from pesto.core.graph import Graph
from pesto.core.problem import TICK_S
from pesto.core.settings import Settings
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.flow import solve
from pesto.tf.tensorflow_start import load_tensorflow

STEPS = {
    "float32": ("float32", None),
    "float32, `gradient_accumulation_steps=4`": ("float32", 4),
    "`mixed_float16`": ("mixed_float16", None),
}
"""Policy, and steps of gradients that are added up, by the row's name."""
COLUMNS = ("step", "ops", "one GPU", "plan", "ratio", "bound", "chosen", "CPU s", "load")


def main() -> None:
    """Print the table."""
    given = _parser().parse_args()
    cluster = load_cluster(given.cluster)
    print(head(COLUMNS), flush=True)
    for name, (policy, accumulated) in STEPS.items():
        graph = traced(policy, accumulated, given)
        costs = load_costs(graph, cluster, None)
        began = time.process_time()
        outcome = solve(graph, cluster, costs, Settings(time_limit_s=given.time_limit), lambda _: None)
        cpu_s = time.process_time() - began
        single = outcome.candidates["single"]
        if single is None:
            raise SystemExit(f"{name}: nothing was placed on one GPU")
        plan, alone_s = outcome.plan, single.makespan * TICK_S
        bound_s = plan.provenance.lower_bound_ticks * TICK_S
        print(row((
            name, graph.ops, f"{1e3 * alone_s:.2f} ms", f"{1e3 * plan.makespan_s:.2f} ms",
            f"{plan.makespan_s / alone_s:.2f}", f"{1e3 * bound_s:.2f} ms", plan.provenance.chosen, f"{cpu_s:.1f}",
            f"{os.getloadavg()[0]:.1f}",
        )), flush=True)  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--layers", type=int, default=4, help="of each tower")
    result.add_argument("--units", type=int, default=2048)
    result.add_argument("--batch", type=int, default=512)
    result.add_argument("--cluster", default="v100x2-nvlink")
    result.add_argument("--time-limit", type=float, default=15.0, help="seconds of each solve")
    return result


def traced(policy: str, accumulated: int | None, arguments: argparse.Namespace) -> Graph:
    """The training step of the two towers."""
    from pesto.tf.sources import sources

    keras = load_tensorflow().keras
    keras.mixed_precision.set_global_policy(policy)
    try:
        fed = keras.Input((arguments.units,))
        towers = [fed, fed]
        for _ in range(arguments.layers):
            towers = [keras.layers.Dense(arguments.units, "relu")(tower) for tower in towers]
        model = keras.Model(fed, keras.layers.Dense(1, dtype="float32")(keras.layers.Add()(towers)))
        model.compile(optimizer=keras.optimizers.Adam(gradient_accumulation_steps=accumulated), loss="mse")
        return sources.from_keras(model, arguments.batch, static=True)
    finally:
        keras.mixed_precision.set_global_policy("float32")


if __name__ == "__main__":
    main()
