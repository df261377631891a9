"""An interruption that strikes within compiled code comes out of it as another error, and loses no plan either."""

import os
import signal
from contextlib import nullcontext, suppress

import numpy as np
import pytest

from pesto.core.problem import build_problem
from pesto.planning.solving.candidates import CandidateEvaluator


@pytest.mark.parametrize("cause", [KeyboardInterrupt(), ValueError("x")])
def test_a_solve_keeps_its_plan(cause, make_graph, make_cluster, make_costs, make_tracker) -> None:
    """numba raises a SystemError in the interruption's place; one that comes of anything else is an error."""
    graph, cluster = make_graph([{"name": "a", "s": 1e-3}]), make_cluster()
    bench = CandidateEvaluator.of(
        graph, build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
    )
    tracker, struck = make_tracker(bench), isinstance(cause, KeyboardInterrupt)
    with pytest.raises(SystemError), tracker.interruptible():  # there is no plan yet
        raise SystemError from cause
    tracker.offer(bench.placed("list", "", np.array([1])))
    with nullcontext() if struck else pytest.raises(SystemError), tracker.interruptible():
        raise SystemError from cause
    assert tracker.interrupted == struck


def test_an_error_that_follows_an_interruption_loses_no_plan(
    make_graph, make_cluster, make_costs, make_tracker, signals: None
) -> None:
    """What was broken off may fail later, with an error that tells of no interruption."""
    graph, cluster = make_graph([{"name": "a", "s": 1e-3}]), make_cluster()
    bench = CandidateEvaluator.of(
        graph, build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
    )
    tracker = make_tracker(bench)
    tracker.offer(bench.placed("list", "", np.array([1])))
    with pytest.raises(ValueError), tracker.interruptible():
        raise ValueError("of its own")
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    with tracker.interruptible():
        raise ValueError("a consequence")
    assert tracker.interrupted
