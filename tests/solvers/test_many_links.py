"""What is allocated is for links that are used: neither their numbers nor the square of their count matter.

A problem of 150 GPUs in which every ordered pair has a link of its own has 151 * 150 = 22 650 links; a square of
them, or one table of locations a link, would take 4 GB.
"""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from solvers import Options, Status, api, check
from solvers.bounds import quick_bounds
from solvers.files.problem_json import Instance, dumps_problem, fingerprint, loads_problem
from solvers.instances.random import generate
from solvers.milp.paper.rows import shared_links
from solvers.problem import FORBIDDEN, Problem
from solvers.structure.symmetry import interchangeable
from solvers.timing.rebuild import rebuild

MOST_BYTES = 64 << 20
FAR = 10**6


def machine(gpus: int, links: np.ndarray) -> Problem:
    """A host that reads, and tasks for GPUs, each of which needs what the host read and what the last one made."""
    places, n = gpus + 1, 12
    duration = np.full((n, places), 5)
    duration[:, 0], duration[0] = FORBIDDEN, FORBIDDEN
    duration[0, 0] = 3
    path_class = np.where(np.eye(places, dtype=bool), -1, 0)
    return Problem(
        duration=duration, location=np.arange(places), memory=np.ones(n, dtype=int), capacity=np.full(places, n),
        src=[0] * (n - 1) + list(range(1, n - 1)), dst=[*range(1, n), *range(2, n)],
        payload=[0] * (n - 1) + list(range(1, n - 1)), producer=range(n - 1), transfer=np.full((n - 1, 1), 4),
        path_class=path_class, path_links=links, group=np.full(n, -1),
    )  # fmt: skip


def own(gpus: int) -> Problem:
    """Every ordered pair of locations has a link of its own."""
    places = gpus + 1
    links = np.arange(places * places).reshape(places, places, 1)
    return machine(gpus, np.where(np.eye(places, dtype=bool)[:, :, None], -1, links))


def far(gpus: int) -> Problem:
    """The same, with links numbered up to a million and beyond."""
    problem = own(gpus)
    return replace(problem, path_links=np.where(problem.path_links >= 0, problem.path_links + FAR, -1))


def peak(work) -> int:
    """Bytes that the work holds at most, beyond what was there."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_links_in_use_are_numbered_without_gaps():
    """Links 7 and 900: `holds` calls them 0 and 1; the file's own numbers stay, for its fingerprint and messages."""
    links = [[[-1, -1], [900, 7]], [[7, -1], [-1, -1]]]
    p = machine(1, np.array(links))
    assert p.links == 2 and p.path_links.tolist() == links
    assert p.holds.tolist() == [[[-1, -1], [1, 0]], [[0, -1], [-1, -1]]]
    assert own(3).holds.max() == own(3).links - 1 == 4 * 3 - 1


def test_numbers_of_links_change_nothing_but_names(seeds):
    """Any problem with its links renumbered has the same bounds, the same rebuilt schedules and the same file back."""
    for seed in seeds(40):
        some = generate(np.random.default_rng(seed))
        apart = replace(some, path_links=np.where(some.path_links >= 0, some.path_links * 4099 + 17, -1))
        assert quick_bounds.best(apart) == quick_bounds.best(some)
        assert apart.links == some.links == len(np.unique(some.path_links[some.path_links >= 0]))
        assert interchangeable(apart) == interchangeable(some)
        one, two = (api.solve(p, "list", Options(seconds=600)).schedule for p in (apart, some))
        assert one.start.tolist() == two.start.tolist() and not check(apart, one)
        assert rebuild(apart, two).start.tolist() == rebuild(some, one).start.tolist()
        again = loads_problem(dumps_problem(Instance(problem=apart))).problem
        assert fingerprint(again) == fingerprint(apart) and np.array_equal(again.path_links, apart.path_links)


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(far(3), id="a million"),
        pytest.param(own(150), id="150 GPUs", marks=pytest.mark.slow),
        pytest.param(far(150), id="both", marks=pytest.mark.slow),
    ],
)
def test_bounds_and_structure_need_little_memory(problem):
    """A million links in a square are 8 TB, 22 650 are 4 GB; all that is needed is some MB."""
    quick_bounds.best(far(2))  # compiled beforehand: the compiler's own memory is not asked about
    gpus = problem.locations - 1
    assert peak(lambda: quick_bounds.best(replace(problem))) < MOST_BYTES
    assert peak(lambda: interchangeable(problem)) < MOST_BYTES
    assert interchangeable(problem) == [tuple(range(1, gpus + 1))]
    assert peak(lambda: shared_links(problem)) < MOST_BYTES
    assert len(shared_links(problem)) == problem.links


@pytest.mark.parametrize("problem", [far(3), own(150)], ids=["a million", "150 GPUs"])
def test_such_a_problem_is_solved(problem):
    """3 ticks of the host, 4 of the first crossing, then a chain of 11 tasks of 5 on one GPU: 62, the least."""
    found = api.solve(problem, "list", Options(seconds=600))
    assert found.status in (Status.FEASIBLE, Status.OPTIMAL) and found.schedule.makespan == 3 + 4 + 11 * 5
    assert not check(problem, found.schedule) and 0 < found.lower_bound <= found.schedule.makespan
