"""Steadying: an order that hardly depends on turns is found where one is near, and no order gets worse."""

import numpy as np
import pytest

from solvers.timing.replay import prepare, replay
from solvers.timing.turns import SteadyingEffort, contenders, draw_merges, steady_order
from tests.solvers.timing.test_turns import bus, merges, small

EFFORT = SteadyingEffort(merges=50, runs=1500, enough=0.0)


def extremes(p, device, rank):
    """The shortest and the longest step of all merges."""
    steps = [replay(p, device, merge).makespan for merge in merges(p, device, rank)]
    return min(steps), max(steps)


def test_a_task_goes_first_where_that_ends_a_tie():
    """Two tasks of 5 ticks ask for the link at once, and 36 ticks become 46 if the wrong one is served.

    Where another task of its device goes before that one, it asks a tick later, and 36 are sure.
    """
    p = bus([5, 5, 20, 1, 1], [(0, 2), (1, 3)], [10] * 5)
    device, rank = np.array([0, 1, 2, 2, 1]), np.arange(5)
    assert {ticks for ticks, _ in draw_merges(prepare(p), device, rank, count=20)} == {36, 46}
    found = steady_order(p, prepare(p), device, rank, EFFORT)
    assert found[4] < found[1]
    assert {ticks for ticks, _ in draw_merges(prepare(p), device, found, count=20)} == {36}


@pytest.mark.parametrize("seed", range(40))
def test_no_order_gets_worse(seed):
    """Against all merges of six tasks: what is promised, and what may be below it, never come to more."""
    p, device, rank = small(seed)
    found = steady_order(p, prepare(p), device, rank, EFFORT)
    (least, most), (least_now, most_now) = extremes(p, device, rank), extremes(p, device, found)
    assert 2 * most_now - least_now <= 2 * most - least
    assert (found[p.src] < found[p.dst]).all()


def test_some_of_these_orders_get_better():
    """So that the test above is not of orders that stay."""
    better = 0
    for seed in range(60):
        p, device, rank = small(seed)
        if len(contenders(p, replay(p, device, rank))):
            (least, most) = extremes(p, device, rank)
            (least_now, most_now) = extremes(p, device, steady_order(p, prepare(p), device, rank, EFFORT))
            better += 2 * most_now - least_now < 2 * most - least
    assert better >= 2
