"""The message that nothing fits names what came nearest: the fewest bytes short, of all that was tried."""

import numpy as np
import pytest

from pesto.core.errors import NothingFoundError
from pesto.core.problem import build_problem
from pesto.planning.solving.candidates import CandidateEvaluator
from pesto.planning.solving.flow import _nothing_fits


@pytest.mark.parametrize("first", [0, 1])
def test_the_nearest_is_what_lacks_least_though_a_shorter_one_has_its_name(
    first, make_graph, make_cluster, make_costs, make_tracker
):
    """Variables of 3 x 1000 bytes in 1000: on one GPU 2000 bytes lack, on two 1000 and a transfer more of time."""
    ops = [{"name": f"op{k}", "s": 1e-3, "param": 1000, "inputs": [f"op{k - 1}"] if k else []} for k in range(3)]
    graph, cluster = make_graph(ops), make_cluster(memory=1000)
    problem = build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
    bench = CandidateEvaluator.of(graph, problem)
    tracker = make_tracker(bench, cluster=cluster)
    both = [bench.placed("list", "", np.array(device)) for device in ([1, 1, 1], [1, 1, 2])]
    assert [c.short for c in both] == [2000, 1000] and both[0].makespan < both[1].makespan
    for candidate in (both[first], both[1 - first]):
        tracker.offer(candidate)
    assert tracker.candidates["list"] is both[0] and tracker.nearest is both[1]
    with pytest.raises(NothingFoundError, match=r"\(list\) peaks at 1\.95 KiB on gpu:0, 1000 B more than its 1000 B -"):
        _nothing_fits(tracker, None)
