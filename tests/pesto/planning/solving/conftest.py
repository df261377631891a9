"""A small training step that several tests of solves share."""

import numpy as np
import pytest

from pesto.core.settings import Settings
from pesto.planning.solving.tracker import ContributionLedger, Deadlines, SolveRecord, Tracker
from solvers.bounds.evidence import FullBound


@pytest.fixture
def case(make_graph, make_cluster, make_costs):
    """Return (graph, cluster, costs): 60 ops in layers of three of 0.1 to 1 ms that read the layer before; two GPUs."""
    rng, rows = np.random.default_rng(3), []
    for k in range(60):
        before = list(range(max(0, (k // 3 - 1) * 3), k // 3 * 3))
        inputs = tuple(f"op{b}" for b in rng.permutation(before)[: rng.integers(1, 4)])
        seconds, size = float(rng.integers(1, 11)) * 1e-4, int(rng.integers(100, 900)) * 1000
        rows.append({"name": f"op{k}", "inputs": inputs, "s": seconds, "bytes": size, "kinds": ("gpu",)})
    graph, cluster = make_graph(rows), make_cluster(memory=10**8)
    return graph, cluster, make_costs(graph, cluster)


@pytest.fixture
def make_tracker():
    """Return the tracker of a solve that nobody watches."""

    def made(evaluator, settings=None, cluster=None):
        settings = settings or Settings()
        record = SolveRecord(
            graph=evaluator.graph, cluster=cluster, costs=None, settings=settings, bound=FullBound(0, "none")
        )

        def nobody(incumbent):
            """Watch when nobody does."""

        return Tracker(evaluator, record, nobody, ContributionLedger(nobody), Deadlines(settings))

    return made
