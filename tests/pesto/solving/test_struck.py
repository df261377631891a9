"""An interruption that strikes within compiled code comes out of it as another error, and loses no plan either."""

from contextlib import nullcontext

import numpy as np
import pytest

from pesto.problem import build
from pesto.solving.candidates import Bench
from pesto.solving.tracker import Tracker


@pytest.mark.parametrize("cause", [KeyboardInterrupt(), ValueError("x")])
def test_a_solve_keeps_its_plan(cause, make_graph, make_cluster, make_costs) -> None:
    """numba raises a SystemError in the interruption's place; one that comes of anything else is an error."""
    graph, cluster, tracker = make_graph([{"name": "a", "s": 1e-3}]), make_cluster(), Tracker(lambda _: None)
    struck = isinstance(cause, KeyboardInterrupt)
    with pytest.raises(SystemError), tracker.interruptible():  # there is no plan yet
        raise SystemError from cause
    bench = Bench.of(graph, build(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes))
    tracker.offer(bench.placed("list", "", np.array([1])))
    with nullcontext() if struck else pytest.raises(SystemError), tracker.interruptible():
        raise SystemError from cause
    assert tracker.interrupted == struck
