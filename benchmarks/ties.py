"""What a step takes where who asks for a link in the same tick is served in random orders; modelled, nothing is run.

    python benchmarks/ties.py [--models rnnlm,nmt,transformer,nasnet] [--variant tiny] [--gpus 2,4,8,16]
        [--time-limit 3] [--orders 32] [--deterministic]

Three markdown rows for each model and cluster. `unpriced`: a plan as search alone finds it, and `priced`: one as
`pesto solve` makes it, which promises the longest of the orders that it tried; both with the least and the most that
other random orders between devices make of it. `one op's`: the priced plan where each op's own transfers go in random
orders, for information. `tried`: orders of which the promise is the longest. `cpu s`: what trying orders took in all,
of the `solve s` that the process took on all cores.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pesto.cluster import Cluster
from pesto.graph import Graph
from pesto.inputs.load import load_cluster, load_costs, load_graph
from pesto.problem import TICK_S
from pesto.settings import Settings
from pesto.simulator import _Run
from pesto.solving.candidates import Bench, Candidate
from pesto.solving.flow import Outcome, solve
from pesto.source import Source
from solvers.timing.replay import prepare
from solvers.timing.turns import drawn

CLUSTERS = {2: "v100x2-nvlink", 4: "v100x4", 8: "v100x8", 16: "v100x16"}
COLUMNS = ("model", "ops", "GPUs", "plan", "predicted", "least", "most", "tried", "cpu s", "solve s")
SEED = 10**6
"""Of the orders here, none of which is one that a solve has tried."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="rnnlm,nmt,transformer,nasnet")
    parser.add_argument("--variant", help="by default tiny", default="tiny")
    parser.add_argument("--gpus", default="2,4,8,16")
    parser.add_argument("--time-limit", type=float, default=3.0)
    parser.add_argument("--orders", type=int, default=32)
    parser.add_argument("--deterministic", action="store_true", help="count work in place of seconds")
    given = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS), sep="\n")
    for model in given.models.split(","):
        graph = load_graph(Source(model=model, variant=given.variant), quiet=True)
        for gpus in map(int, given.gpus.split(",")):
            for row in rows(graph, load_cluster(CLUSTERS[gpus]), given):
                print(
                    "| " + " | ".join([f"{model} {given.variant}", str(graph.ops), str(gpus), *row]) + " |", flush=True
                )


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
    priced, spent = Bench.priced, list[float]()

    def timed(bench: Bench, candidate: Candidate, *given: Any, **more: Any) -> Candidate:
        began = time.thread_time()
        found = priced(bench, candidate, *given, **more) if there_is else candidate
        spent.append(time.thread_time() - began)
        return found

    Bench.priced = timed  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        Bench.priced = priced  # type: ignore[method-assign]


def spread(outcome: Outcome, found: list[int]) -> list[str]:
    """The prediction, and the least and the most that was found, as differences from it."""
    step = outcome.plan.schedule.makespan
    return [f"{step * TICK_S * 1e3:.3f} ms", *(f"{ticks / step - 1:+.2%}" for ticks in (min(found), max(found)))]


def devices(outcome: Outcome, orders: int) -> list[int]:
    """Steps where devices that ask in one tick are served in random orders."""
    run = outcome.plan.schedule.device, outcome.plan.rank
    return [ticks for ticks, _ in drawn(prepare(outcome.problem), *run, count=orders, seed=SEED)]


def transfers(outcome: Outcome, orders: int) -> list[int]:
    """Steps where the transfers of each op are asked for in random orders."""
    return [Shuffled(outcome, SEED + k).makespan() for k in range(orders)]


class Shuffled(_Run):
    """The reference simulation of a plan whose ops ask for their transfers in random orders."""

    def __init__(self, outcome: Outcome, seed: int) -> None:
        problem, plan = outcome.problem, outcome.plan
        super().__init__(problem, plan.schedule.device, plan.rank, np.zeros(problem.tasks, dtype=np.bool_))
        self.chance = np.random.default_rng(seed)

    def makespan(self) -> int:
        """Run it."""
        self._begin_all()
        while self.events:
            now, task = self._finish()
            wanted = sorted(self._wanted(task))
            asked = [wanted[k] for k in self.chance.permutation(len(wanted))]
            self._release(task, {each: self._send(*each, now) for each in asked}, now)
            self._begin(self.device_list[task])
        return self.schedule().makespan


if __name__ == "__main__":
    main()
