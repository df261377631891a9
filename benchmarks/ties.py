"""What a step takes where who asks for a link in the same tick is served in random orders; modelled, nothing is run.

    python benchmarks/ties.py [--models rnnlm,nmt,transformer,nasnet] [--variant tiny] [--gpus 2,4,8,16]
        [--time-limit 3] [--orders 32] [--deterministic]

Three markdown rows for each model and cluster. `unpriced`: a plan as search alone finds it, and `priced`: one as
`pesto solve` makes it, which promises the longest of the orders that it tried; both with the least and the most that
other random orders between devices make of it. `one op's`: the priced plan where the tensors of each op go in random
orders, for information: enforcement keeps the plan's. `tried`: orders of which the promise is the longest. `cpu s`:
what trying orders took in all, of the `solve s` that the process took on all cores.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from on_gpus import CLUSTERS, cases, head, parser, row

from pesto.core.cluster import Cluster
from pesto.core.graph import Graph
from pesto.core.problem import TICK_S
from pesto.core.settings import Settings
from pesto.core.simulator import simulate
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs, load_graph
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.flow import SolveOutcome, solve
from solvers.timing.replay import prepare
from solvers.timing.turns import draw_merges

COLUMNS = ("model", "ops", "GPUs", "plan", "predicted", "least", "most", "tried", "cpu s", "solve s")
SEED = 10**6
"""Of the orders here, none of which is one that a solve has tried."""


def main() -> None:
    """Print the table."""
    asked = parser(__doc__, models="rnnlm,nmt,transformer,nasnet", seconds=3.0)
    asked.add_argument("--orders", type=int, default=32)
    asked.add_argument("--deterministic", action="store_true", help="count work in place of seconds")
    given = asked.parse_args()
    print(head(COLUMNS))
    for model, gpus in cases(given):
        graph = load_graph(Source(model=model, variant=given.variant), quiet=True)
        for cells in rows(graph, load_cluster(CLUSTERS[gpus]), given):
            print(row([f"{model} {given.variant}", str(graph.ops), str(gpus), *cells]), flush=True)


def rows(graph: Graph, cluster: Cluster, given: Any) -> Iterator[list[str]]:
    """The last seven columns of each of the three rows."""
    costs = load_costs(graph, cluster, None)
    settings = Settings(time_limit_s=given.time_limit, deterministic=given.deterministic)
    for name in ("unpriced", "priced"):
        with pricing(there_is=name == "priced") as spent:
            began = time.process_time()
            outcome = solve(graph, cluster, costs, settings, lambda _: None)
            took = time.process_time() - began
        tried = str(outcome.turns.tried) if name == "priced" else "-"
        yield [name, *spread(outcome, devices(outcome, given.orders)), tried, f"{sum(spent):.2f}", f"{took:.1f}"]
    yield ["one op's", *spread(outcome, transfers(outcome, given.orders)), "-", "-", "-"]


@contextmanager
def pricing(*, there_is: bool) -> Iterator[list[float]]:
    """Solves inside price plans, or do not; the value gets the CPU seconds of each time."""
    priced, spent = CandidateEvaluator.priced, list[float]()

    def timed(bench: CandidateEvaluator, candidate: Candidate, *given: Any, **more: Any) -> Candidate:
        began = time.thread_time()
        result = priced(bench, candidate, *given, **more) if there_is else candidate
        spent.append(time.thread_time() - began)
        return result

    CandidateEvaluator.priced = timed  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        CandidateEvaluator.priced = priced  # type: ignore[method-assign]


def spread(outcome: SolveOutcome, result: list[int]) -> list[str]:
    """The prediction, and the least and the most that was found, as differences from it."""
    step = outcome.plan.schedule.makespan
    return [f"{step * TICK_S * 1e3:.3f} ms", *(f"{ticks / step - 1:+.2%}" for ticks in (min(result), max(result)))]


def devices(outcome: SolveOutcome, orders: int) -> list[int]:
    """Steps where devices that ask in one tick are served in random orders."""
    run = outcome.plan.schedule.device, outcome.plan.rank
    return [ticks for ticks, _ in draw_merges(prepare(outcome.problem), *run, count=orders, seed=SEED)]


def transfers(outcome: SolveOutcome, orders: int) -> list[int]:
    """Steps where the tensors of each op are sent in random orders: a simulation asks in the order of their numbers."""
    problem, plan = outcome.problem, outcome.plan
    result = []
    for k in range(orders):
        number = np.random.default_rng(SEED + k).permutation(len(problem.producer))
        payload = np.where(problem.payload < 0, -1, number[problem.payload])
        order = np.argsort(number)
        shuffled = replace(
            problem, payload=payload, producer=problem.producer[order], transfer=problem.transfer[order]
        )  # fmt: skip
        result.append(simulate(shuffled, plan.schedule.device, plan.rank).schedule.makespan)
    return result


if __name__ == "__main__":
    main()
