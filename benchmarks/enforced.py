"""What a step takes with the order that TensorFlow really keeps, against the plan's own time; modelled, nothing is run.

    python benchmarks/enforced.py [--models rnnlm,nmt,transformer,nasnet] [--variant tiny] [--gpus 2,4,8,16]
        [--time-limit 3]

A markdown row for each model and cluster: the plan's step and, as differences from it, the same order in a v1 session
or GraphDef, there without relays (what ops outside of the chains send leaves at the start), in a tf.function, and
without an order; and how many ops no chain holds.
"""

from on_gpus import CLUSTERS, cases, head, parser, row

from pesto.core.graph import BOUND, FUNCTION, SESSION
from pesto.core.plans.execution_modes import PLACEMENT
from pesto.core.simulator import simulate
from pesto.core.source import Source
from pesto.inputs.load import load_graph
from pesto.verbs import api

COLUMNS = ("model", "ops", "GPUs", "predicted", "session", "no relays", "function", "no order", "outside, session")


def main() -> None:
    """Print the table."""
    given = parser(__doc__, models="rnnlm,nmt,transformer,nasnet", seconds=3.0).parse_args()
    print(head(COLUMNS))
    for model, gpus in cases(given):
        print(row(cells(Source(model=model, variant=given.variant), gpus, given.time_limit)), flush=True)


def cells(source: Source, gpus: int, seconds: float) -> list[str]:
    """One row: a plan of so many seconds."""
    graph = load_graph(source, quiet=True)
    plan = api.solve(graph, cluster=CLUSTERS[gpus], time_limit_s=seconds)
    step = api.simulate(plan, graph)
    session, function, placement = (step.enforced(way) for way in (SESSION, FUNCTION, PLACEMENT))
    bare = simulate(step.bench.problem, plan.schedule.device, plan.rank, free=graph.loose > BOUND)
    result = (session.makespan_s, bare.makespan_s, function.makespan_s, placement.makespan_s)
    more = [f"{each / plan.makespan_s - 1.0:+.2%}" for each in result]
    return [
        f"{source.model} {source.variant}", str(graph.ops), str(gpus), f"{plan.makespan_s * 1e3:.3f} ms", *more,
        str(session.outside),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
