"""Caps of merged nodes and united groups: what they begin with, how they grow, and that the last stage has none."""

from dataclasses import replace

import numpy as np
import pytest

from pesto.planning.coarsen.coarsening import Caps, Coarsening, quotient
from pesto.planning.coarsen.merge import WHOLE, scale
from solvers.instances.plain import on_equal_gpus


@pytest.fixture
def measured():
    """40 tasks of 10 ticks in four chains on two GPUs of 1 000 bytes, for 8 nodes: 400 ticks, 100 of them in a row."""
    src = np.arange(36)
    problem = on_equal_gpus(np.full(40, 10), src, src + 4, gpus=2, transfer=np.zeros(40, dtype=np.int64))
    problem = replace(problem, capacity=[1000, 1000])
    return lambda caps: scale(problem, quotient(problem)[0], caps, 8)


def test_caps_are_shares_of_the_graph(measured):
    """A mean node has 50 ticks and 5 tasks, a fair share is 200 ticks; nothing may be lost at first."""
    first = measured(Caps(time=2.0, members=3.0, path=0.75, group=0.25)).limits(0)
    assert (first.time, first.members, first.path, first.mean, first.loss) == (100, 15, 150, 50.0, 0)
    assert (first.unit_time.tolist(), first.unit_memory.tolist()) == ([50], [250])
    # A path is never capped below the critical one, and a node may have two tasks.
    assert measured(Caps(path=0.1)).limits(0).path == 100
    assert measured(Caps(members=0.1)).limits(0).members == 2


def test_caps_grow_until_there_are_none(measured):
    """Each stage allows what the one before did: nodes by `growth`, paths and groups by its root, groups to a limit."""
    found = measured(Caps(growth=4.0, group=0.4, loss=0.5))
    # 2 mean nodes at first, and 2 x 4 are all 8: a second stage, and the last.
    assert found.stages == 2
    found = measured(Caps(time=0.1, growth=4.0, group=0.4, loss=0.5))
    # 0.1 x 4^4 = 25.6 are more than 8 nodes, 0.1 x 4^3 are not.
    assert found.stages == 1 + 4
    stages = [found.limits(stage) for stage in range(found.stages)]
    assert [each.time for each in stages] == [5, 20, 80, 320, WHOLE]
    assert [each.loss for each in stages] == [0, 75, 375, 1575, WHOLE]
    assert [each.path for each in stages] == [100, 200, 400, 800, WHOLE]
    assert [each.members for each in stages] == [20, 80, 320, 1280, WHOLE]
    # Of the share 0.4, 0.8, 1.6, ...: time to 3/4 of a fair share, memory to all of a location.
    assert [each.unit_time[0] for each in stages] == [80, 150, 150, 150, WHOLE]
    assert [each.unit_memory[0] for each in stages] == [400, 800, 1000, 1000, 1000]


def test_what_has_one_location_has_no_caps_on_groups():
    """All of a kind that can run at one location are there anyway."""
    problem = on_equal_gpus([1] * 4, [0], [1], gpus=1, transfer=np.zeros(4, dtype=np.int64))
    found = scale(problem, quotient(problem)[0], Caps(time=0.1), 2).limits(0)
    assert (found.unit_time.tolist(), found.unit_memory.tolist()) == ([WHOLE], [WHOLE])


@pytest.mark.parametrize("rank", [[0, 0, 1], [0, 1], [1, 2, 3]])
def test_a_rank_is_a_permutation(rank):
    """Two tasks at one place, one task without a place, and a place beyond the last are refused."""
    with pytest.raises(ValueError, match="rank must be a permutation"):
        Coarsening(
            node_of=np.arange(3), nodes=3, rank=np.array(rank), target=3, reason="", rounds=(), largest_group_share=0.0
        )
