"""Allocations of any kind: the least greatest load of all, never above the contiguous one, in a process of its own."""

import io
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from pipelines import small_chain

from benchmarks.chain_families import make_case
from solvers.pipelining import any_allocation
from solvers.pipelining.any_allocation import greatest_load, least_load
from solvers.pipelining.chain import Allocation, Chain, Machines
from solvers.pipelining.contiguous import best_cuts


@pytest.fixture(scope="module")
def spreads(stub):
    """CP-SAT in one process for all, whose start takes longer than the search; not in this one, for its libraries."""
    with stub("spreads") as running:
        yield running


@pytest.fixture
def here(monkeypatch, spreads):
    """It is asked in place of a process each."""

    def asked(_module, _limit, **given):
        sent = io.BytesIO()
        np.savez(sent, **given)
        spreads.stdin.write(len(sent.getvalue()).to_bytes(8) + sent.getvalue())
        spreads.stdin.flush()
        told = spreads.stdout.read(int.from_bytes(spreads.stdout.read(8)))
        with np.load(io.BytesIO(told), allow_pickle=False) as file:
            return dict(file)

    monkeypatch.setattr(any_allocation, "asked_of", asked)


def by_definition(chain: Chain, device: tuple[int, ...], devices: int) -> int:
    """The busiest device, or link between two devices, counted one layer at a time."""
    busy: dict[object, int] = {}
    for layer, d in enumerate(device):
        busy[d] = busy.get(d, 0) + int(chain.forward[layer] + chain.backward[layer])
        if layer + 1 < len(device) and device[layer + 1] != d:
            link = frozenset((d, device[layer + 1]))
            busy[link] = busy.get(link, 0) + int(chain.transfers[layer])
    return max(busy.values())


def matches_every_allocation(seed: int) -> bool:
    """A random chain, with room for its weights or not; whether the best is better than contiguous."""
    rng = np.random.default_rng(seed)
    drawn, devices = small_chain(rng, int(rng.integers(2, 6))), int(rng.integers(2, 4))
    none = np.zeros(drawn.layers, dtype=np.int64)
    chain = Chain(
        forward=drawn.forward, backward=drawn.backward, weights=drawn.weights, activation=none, output=drawn.output,
        transfers=drawn.transfers if seed % 2 else none[1:],
    )  # fmt: skip
    memory = int(rng.integers(4, 16)) if seed % 3 else None
    every = [
        by_definition(chain, device, devices)
        for device in product(range(devices), repeat=chain.layers)
        if memory is None or np.bincount(device, weights=chain.weights).max() <= memory
    ]
    found = least_load(chain, Machines.alike(devices, memory))
    assert (found and found.T) == min(every, default=None), seed
    if found is None:
        return False
    assert found.optimal, seed
    device = tuple(found.allocation.device.tolist())
    assert greatest_load(chain, found.allocation) == by_definition(chain, device, devices) == found.T
    cuts = best_cuts(chain, Machines.alike(devices, memory), "paper")
    return cuts is None or found.T < cuts.T


def test_the_best_of_all_allocations(here, seeds) -> None:
    """Exhaustively, up to 5 layers on 3 devices; some are better than contiguous ones."""
    assert sum(matches_every_allocation(seed) for seed in seeds(24)) >= 3


def test_the_best_of_all_allocations_to_unequal_devices(here) -> None:
    """Exhaustively: speeds, memory and links of their own; in most cases another than of equal ones is the best."""
    other = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        drawn, none = small_chain(rng, int(rng.integers(2, 6)), 5), np.zeros(5, dtype=np.int64)
        chain = replace(drawn, activation=none[: drawn.layers])
        speeds = [Fraction(1), Fraction(1), Fraction(2), Fraction(2, 3)]
        machines = Machines(
            speed=tuple(speeds[at] for at in rng.integers(4, size=3)), memory=rng.integers(4, 20, 3),
            links={(0, 1): speeds[rng.integers(4)], (1, 2): speeds[rng.integers(4)]},
        )  # fmt: skip
        every = [
            by_definition(machines.on(chain, Allocation(device=np.array(device), devices=3)), device, 3)
            for device in product(range(3), repeat=chain.layers)
            if (np.bincount(device, weights=chain.weights, minlength=3) <= machines.memory).all()
        ]
        found = least_load(chain, machines)
        assert (found and found.T) == min(every, default=None), seed
        if found is not None:
            assert found.optimal, seed
            held = np.bincount(found.allocation.device, weights=chain.weights, minlength=3)
            assert (held <= machines.memory).all(), seed
            equal = least_load(chain, Machines.alike(3))
            other += equal is not None and equal.T != found.T
    assert other > 15


@pytest.mark.parametrize(("sent", "least"), [(3, 8), (5, 10), (7, 12)])
def test_a_link_carries_both_ways(here, sent, least) -> None:
    """Layers of 4, 8 and 4 ticks on two devices: 8 if the ends share one and the link carries both cuts, 12 if not."""
    ticks, none = np.array([2, 4, 2]), np.zeros(3, dtype=np.int64)
    chain = Chain(
        forward=ticks, backward=ticks, weights=none, activation=none, output=np.zeros(4, dtype=np.int64),
        transfers=np.array([sent, sent]),
    )  # fmt: skip
    found = least_load(chain, Machines.alike(2))
    assert (found.T, found.optimal) == (least, True)


@pytest.mark.slow
def test_the_best_of_all_allocations_on_many(here, seeds) -> None:
    """The same, of other chains."""
    assert sum(matches_every_allocation(1000 + seed) for seed in seeds(20)) > len(seeds(20)) / 20


def test_greatest_loads_are_those_of_the_definition() -> None:
    """Of random allocations, links in both directions together."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        chain = small_chain(rng, int(rng.integers(1, 8)))
        device = tuple(rng.integers(3, size=chain.layers).tolist())
        assert greatest_load(chain, Allocation(device=np.array(device), devices=3)) == by_definition(chain, device, 3)


def test_the_papers_gap_is_closed_in_a_process_of_its_own() -> None:
    """Th 5 for k = 3: 21 ticks, proven, where contiguous stages take 36."""
    case = make_case("twice-as-long", k=3)
    found = least_load(case.chain, Machines.alike(case.devices))
    assert (found.T, found.optimal, case.least_contiguous) == (21, True, 36)


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("name", ["twice-as-long", "arbitrarily-longer"])
def test_the_papers_gaps_are_proven(name, k) -> None:
    """Th 5 and 6: the least of all allocations, with a bound that meets it."""
    case = make_case(name, k=k)
    weighed = case.memory is not None
    machines = Machines.alike(case.devices, case.memory) if weighed else Machines.alike(case.devices)
    found = least_load(case.chain, machines, seconds=10.0)
    assert (found.T, found.optimal) == (case.least, True)


def test_without_time_the_contiguous_allocation_is_the_answer(here) -> None:
    """With a bound that holds, and not called optimal."""
    case = make_case("twice-as-long", k=4)
    found = least_load(case.chain, Machines.alike(case.devices), seconds=0.0)
    assert case.least_contiguous == found.T
    assert found.bound.value <= case.least
    assert not found.optimal


def test_what_is_not_counted_is_refused() -> None:
    """Memory of batches in flight."""
    with pytest.raises(ValueError, match="memory for batches in flight is not counted here - leave memory out"):
        least_load(small_chain(np.random.default_rng(0), 4), Machines.alike(2, 10))
