"""Distances of pairs of tasks, by hand: what follows from paths, from each argument alone, and without effort."""

from dataclasses import replace

import numpy as np

from solvers.bounds.distances import NEVER, NONE, DistanceArguments
from solvers.bounds.windows import distances_of, known_within, separate_tasks
from solvers.instances.plain import chain, fork
from solvers.problem import FORBIDDEN

F = FORBIDDEN
PATHS = DistanceArguments(work=False, forced=False, spread=False, memory=False)
LONG = 99
"""Ticks that every schedule below has."""


def distances(p, arguments):
    known = known_within(p, LONG)
    assert known is not None
    known = separate_tasks(known, None)
    assert known is not None
    return distances_of(known, arguments)


def barriers():
    """Tasks of one tick on 2 GPUs without transfers: 0, 1, 2, then 3, then 4, 5, 6, then 7."""
    edges = {"src": [0, 1, 2, 3, 3, 3, 4, 5, 6], "dst": [3, 3, 3, 4, 5, 6, 7, 7, 7], "payload": np.full(9, -1)}
    return replace(chain(8), **edges, producer=[], transfer=np.zeros((0, 1)))


def test_a_path_pays_for_one_transfer_where_its_ends_are_apart():
    """Three tasks of a tick, transfers of 4: 1 tick between the ends at one location, 1 + 4 at two."""
    for gpus in (2, 3):
        found = distances(chain(3, gpus=gpus, transfer=4), PATHS)
        assert found.near[3, 1] == found.least[3, 1] == 1
        assert found.far[3, 1] == 5
        assert found.near[1, 3] == found.far[1, 3] == found.least[1, 3] == NONE
        assert found.head.tolist() == [0, 1, 2]
        assert found.tail.tolist() == [2, 1, 0]
        assert found.ticks == 3


def test_a_path_pays_for_two_transfers_by_a_location_of_neither_end():
    """The middle of three tasks is alone on a third GPU: 4 + 1 + 4 ticks between the ends, wherever these are."""
    p = replace(chain(3, gpus=3, transfer=4), duration=[[1, 1, F], [F, F, 1], [1, 1, F]])
    found = distances(p, PATHS)
    assert found.near[2, 1] >= NEVER
    assert found.far[2, 1] == 4
    assert found.near[3, 1] == found.far[3, 1] == 9
    assert found.ticks == 11
    # With the middle at a second of two GPUs, the ends share the first.
    p = replace(chain(3, transfer=4), duration=[[1, F], [F, 1], [1, F]])
    found = distances(p, PATHS)
    assert found.near[3, 1] == 9
    assert found.far[3, 1] >= NEVER


def test_without_effort_only_the_ends_of_the_schedule_are_looked_at():
    """Heads and tails count the work before and after, rounded up; tasks in between know their path alone.

    Three tasks on 2 GPUs take 1.5 ticks, so task 3 starts at 2, tasks 4 to 6 at 3 and task 7 at 4.5, which is 5. After
    task 3 come 1.5 + 1 ticks, so 3, and after each of tasks 0 to 2 one tick more; the whole takes 1.5 + 4 ticks, so 6.
    """
    found = distances(barriers(), PATHS._replace(work=True, effort=0))
    assert found.head.tolist() == [0, 0, 0, 2, 3, 3, 3, 5]
    assert found.tail.tolist() == [4, 4, 4, 3, 1, 1, 1, 0]
    assert found.ticks == 6
    assert found.task[3] == 3 and found.task[7] == 7
    assert found.near[8, 4] == found.far[8, 4] == 1
    assert distances(barriers(), PATHS._replace(work=True)).near[8, 4] == 2


def test_what_has_no_time_to_cross_is_forced_to_one_location():
    """A diamond with two tasks of 3 ticks and transfers of 2: by what is forced alone, without `spread`.

    With the ends at one location, a task at another needs 2 + 3 + 2 ticks; both at this one take 6. With the ends at
    two locations, one task is beside each: 3 + 2.
    """
    for gpus in (2, 3):
        p = replace(fork(4, gpus=gpus, transfer=2), duration=np.repeat([[1], [3], [3], [1]], gpus, axis=1))
        assert distances(p, PATHS).near[4, 1] == 3
        found = distances(p, PATHS._replace(forced=True))
        assert found.near[4, 1] == 6
        assert found.far[4, 1] == 5
        assert found.ticks == 7
