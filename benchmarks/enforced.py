"""What a step takes with the order that TensorFlow really keeps, against the plan's own time; modelled, nothing is run.

    python benchmarks/enforced.py [--models rnnlm,nmt,transformer,nasnet] [--variant tiny] [--gpus 2,4,8,16]
        [--time-limit 3]

A markdown row for each model and cluster: the plan's step and, as differences from it, the same order in a v1 session
or GraphDef, there without relays (what ops outside of the chains send leaves at the start), in a tf.function, and
without an order; and how many ops no chain holds.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from pesto import api
from pesto.graph import BOUND, FUNCTION, SESSION
from pesto.inputs.load import load_graph
from pesto.plans.ways import PLACEMENT
from pesto.simulator import simulate
from pesto.source import Source

CLUSTERS = {2: "v100x2-nvlink", 4: "v100x4", 8: "v100x8", 16: "v100x16"}
COLUMNS = ("model", "ops", "GPUs", "predicted", "session", "no relays", "function", "no order", "outside, session")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="rnnlm,nmt,transformer,nasnet")
    parser.add_argument("--variant", help="by default tiny", default="tiny")
    parser.add_argument("--gpus", default="2,4,8,16")
    parser.add_argument("--time-limit", type=float, default=3.0)
    given = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS), sep="\n")
    for model in given.models.split(","):
        for row in rows(Source(model=model, variant=given.variant), given):
            print("| " + " | ".join(row) + " |", flush=True)


def rows(source: Source, given: Any) -> Iterator[list[str]]:
    """One for each number of GPUs."""
    graph = load_graph(source, quiet=True)
    for gpus in map(int, given.gpus.split(",")):
        plan = api.solve(graph, cluster=CLUSTERS[gpus], time_limit_s=given.time_limit)
        step = api.simulate(plan, graph)
        session, function, placement = (step.enforced(way) for way in (SESSION, FUNCTION, PLACEMENT))
        bare = simulate(step.bench.problem, plan.schedule.device, plan.rank, free=graph.loose > BOUND)
        found = (session.makespan_s, bare.makespan_s, function.makespan_s, placement.makespan_s)
        more = [f"{seconds / plan.makespan_s - 1.0:+.2%}" for seconds in found]
        yield [
            f"{source.model} {source.variant}", str(graph.ops), str(gpus), f"{plan.makespan_s * 1e3:.3f} ms", *more,
            str(session.outside),
        ]  # fmt: skip


if __name__ == "__main__":
    main()
