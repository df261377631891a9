"""ParDNN step 1 against a plain transcription of its text, on random graphs of every kind."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from solvers.heuristics.pardnn import place
from solvers.heuristics.pardnn import place as pardnn
from solvers.heuristics.pardnn.place import switched
from solvers.heuristics.pardnn.slicing import WeightedGraph, weights_of
from solvers.instances.random import generate
from solvers.instances.table import FAMILIES, make

TRANSCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[3] / "tests" / "oracles" / "pardnn_transcript.py"))
SMALL = {
    "chain": {"tasks": 12},
    "fork": {"tasks": 14},
    "lstm-grid": {"layers": 3, "steps": 4},
    "transformer": {"layers": 1, "heads": 3},
    "layered": {"layers": 5, "width": 5},
    "series-parallel": {"tasks": 30},
    "independent": {"tasks": 12, "makespan": 30},
    "planted": {"tasks": 30, "makespan": 60},
    "heterogeneous": {"layers": 4, "width": 3},
    "random": {"tasks": 24},
}
"""Parameters of each family at which the quadratic transcript is quick."""


def transcribed(w: WeightedGraph):
    n, k = w.allowed.shape
    tail = np.repeat(np.arange(n), np.diff(w.out))
    return TRANSCRIPT["Graph"](
        comp=w.took.tolist(),
        edges=list(zip(tail.tolist(), w.head.tolist(), w.out_cost.tolist(), strict=True)),
        places=k,
        ticks=w.ticks.tolist(),
        may=[set(np.flatnonzero(row).tolist()) for row in w.allowed],
        unit=w.unit.tolist(),
        fixed=[None if place < 0 else place for place in w.place.tolist()],
    )


ALL = (10**9, 10**9)
"""The text knows no limit of the partners in a swap."""


def agree(p, limits=ALL) -> None:
    w, _ = weights_of(p)
    g = transcribed(w)
    for refine in (False, True):
        mine = pardnn.partitioned(w, refine=refine, level_aware=True)
        assert mine.tolist() == TRANSCRIPT["partitioned"](g, refine=refine, partners=limits[0], looked=limits[1])


@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
def test_random_problems(gpus):
    """Identical placements with hosts, kinds, groups, unlike speeds, edges given twice and zero costs."""
    for seed in range(75):
        rng = np.random.default_rng(1000 * gpus + seed)
        agree(generate(rng, tasks=int(rng.integers(1, 31)), gpus=gpus))


def test_every_family_is_compared():
    assert SMALL.keys() == FAMILIES.keys()


@pytest.mark.parametrize("name", SMALL)
def test_families(name):
    """Identical placements on graphs with structure: forks and joins, grids, chains, planted optima."""
    for seed in range(10):
        for gpus in (2, 4):
            agree(make(name, seed, gpus=gpus, **SMALL[name]))


def test_both_refinements_are_exercised():
    """On planted graphs like those above clusters are swapped and nodes switched, so that the agreement covers both."""
    swaps = switches = 0
    for seed in range(25):
        w, _ = weights_of(make("planted", seed, gpus=4, **SMALL["planted"]))
        m = TRANSCRIPT["Mapping"](transcribed(w))
        m.map()
        before = dict(m.place)
        m.swap(*ALL)
        between = dict(m.place)
        m.switch()
        swaps += before != between
        switches += between != m.place
    assert swaps >= 3
    assert switches >= 3


def test_limits_of_the_search_for_partners(monkeypatch):
    """Clusters that have more partners than are tried (100 of one task each): none is left out, as in the text.

    In graphs of many clusters the first 32 are tried, of the first 128 within the span: then, too, as transcribed.
    """
    problems = [make("independent", 1, tasks=100, gpus=2, makespan=500)]
    problems += [make("planted", seed, tasks=120, gpus=3, makespan=200) for seed in range(3)]
    for p in problems:
        agree(p)
    monkeypatch.setattr(place, "TRIES", 0)
    for p in problems:
        agree(p, (32, 128))


@pytest.mark.parametrize("seed", [27, 31, 79, 87])
def test_a_round_that_lengthens_the_critical_path_is_taken_back(seed):
    """On these graphs, found by search, levels go stale within a round of switches so that it does harm."""
    w, _ = weights_of(make("series-parallel", seed, tasks=80, gpus=4, transfer=30))
    m = TRANSCRIPT["Mapping"](transcribed(w))
    m.map()
    mapped = np.array([m.place[n] for n in range(80)])
    longest = m.lengths()[2]
    m.switch()
    assert m.lengths()[2] <= longest
    assert switched(w, mapped, np.ones(80, dtype=bool)).tolist() == [m.place[n] for n in range(80)]
