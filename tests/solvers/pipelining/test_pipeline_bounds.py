"""Bounds on periods and flushed steps: never above what is reached, and equal to it on known examples."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from pipelines import small_chain

from solvers.pipelining.chain import Allocation, Chain, Machines, MemoryModel
from solvers.pipelining.contiguous import best_cuts, bytes_lacking, thinnings
from solvers.pipelining.pipeline_bounds import best, bins, flushed_step, of_all, of_allocation

PAPER = MemoryModel.PAPER


def chain_of(forward, backward, **columns) -> Chain:
    """A chain without transfers and bytes but for those given."""
    none = np.zeros(len(forward), dtype=np.int64)
    given = {"weights": none, "activation": none, "output": np.append(none, 0), "transfers": none[1:]} | columns
    return Chain(forward=np.array(forward), backward=np.array(backward), **given)


def each_alone(layers: int) -> Allocation:
    """Each layer on a device of its own."""
    return Allocation(device=np.arange(layers), devices=layers)


def named(bounds):
    """The value of each by its name."""
    return {bound.name: bound.value for bound in bounds}


@pytest.mark.parametrize(
    ("forward", "backward", "room", "least"),
    [((1, 3, 3, 1), (1, 2, 1, 4), (3, 2, 2, 2), 7), ((1, 1, 2), (5, 1, 4), (2, 2, 1), 7)],
)
def test_batches_in_flight_bound_what_periodic_schedules_reach(forward, backward, room, least) -> None:
    """Two chains on which 1F1B* needs 9 and 8 ticks, and the best periodic schedule of all meets the bound."""
    chain = chain_of(forward, backward, activation=12 // np.array(room))
    stages = each_alone(len(forward))
    assert named(of_allocation(chain, stages, 12, PAPER))["in flight"] == least


@pytest.mark.parametrize(
    ("devices", "unsplit", "split"), [(2, 15, 13), (3, 24, 20), (4, 33, 27)],
)  # fmt: skip
def test_a_flushed_step_of_equal_thirds_is_as_long_as_its_bound(devices, unsplit, split) -> None:
    """Forward, input and weight gradient of one tick each, twice as many micro-batches as devices: proven optima."""
    chain = chain_of([1] * devices, [2] * devices)
    stages = each_alone(devices)
    assert best(flushed_step(chain, stages, 2 * devices)).value == unsplit
    assert best(flushed_step(chain, stages, 2 * devices, split=True)).value == split


def test_what_layers_inside_a_stage_hold_counts_from_their_own_half_on() -> None:
    """Layers of 3, 1 and 10 ticks, the second keeps 4 bytes for 11 ticks: 44 over the 4 bytes that there are."""
    chain = chain_of([1, 0, 5], [2, 1, 5], activation=np.array([0, 4, 0]))
    allocation = Allocation(device=np.array([0, 0, 1]), devices=2)
    assert named(of_allocation(chain, allocation, 4, PAPER)) == {
        "device load": 10, "link load": 0, "bytes in flight": 11, "in flight": 14,
    }  # fmt: skip


def test_what_enters_a_stage_is_held_as_long_as_its_activations() -> None:
    """Layers of 2 ticks, 1 byte a batch and 3 and 5 that enter: 4 bytes for 4 ticks, 6 for 2, and 7 there are.

    So 16 over 7 on the first device, where one batch has room, for 4 ticks; by the paper's model 4 over 7, and 7 have.
    """
    chain = chain_of([1, 1], [1, 1], activation=np.array([1, 1]), output=np.array([3, 5, 0]))
    load = {"device load": 2, "link load": 0}
    received, paper = (named(of_allocation(chain, each_alone(2), 7, model)) for model in (MemoryModel.RECEIVED, PAPER))
    assert received == {**load, "bytes in flight": Fraction(16, 7), "in flight": 4}
    assert paper == {**load, "bytes in flight": Fraction(4, 7), "in flight": Fraction(4, 7)}


def test_a_device_waits_only_for_input_gradients_before_it() -> None:
    """One batch, 1 + 4 ticks of which 2 can be last, then 5 + 5: forward 1, 10, and back 2; whole it takes all 15."""
    chain = chain_of([1, 5], [4, 5], weight_gradient=np.array([2, 0]))
    assert named(flushed_step(chain, each_alone(2), 1, split=True))["device"] == 13
    assert named(flushed_step(chain, each_alone(2), 1))["device"] == 15


def test_a_step_that_waits_for_a_link_is_bound_by_it() -> None:
    """Two layers of 1 + 1 ticks, 10 on the link: 3 batches take 30 there, framed by a forward and a backward half."""
    chain = chain_of([1, 1], [1, 1], transfers=np.array([10]))
    assert named(flushed_step(chain, each_alone(2), 3)) == {"device": 2 * 3 + 2 + 10, "link": 32}
    assert named(of_allocation(chain, each_alone(2))) == {"device load": 2, "link load": 10}


def test_bounds_hold_for_1f1b_and_its_thinnings(seeds) -> None:
    """Of random stages that fit: the period is at or above each bound, and equal to most of them at times."""
    met = set()
    for seed in seeds(60):
        rng = np.random.default_rng(seed)
        chain = small_chain(rng, int(rng.integers(1, 8)))
        devices, model = int(rng.integers(1, 5)), list(MemoryModel)[rng.integers(2)]
        memory = bytes_lacking(chain, Machines.alike(devices, 0), model) + int(rng.integers(20))
        found = best_cuts(chain, Machines.alike(devices, memory), model, thinnings(5))
        bounds = (*of_allocation(chain, found.allocation, memory, model), *of_all(chain, devices, memory, model))
        for bound in bounds:
            assert bound.value <= found.period, (seed, bound)
        met |= {bound.name for bound in bounds if bound.value == found.period}
    assert met >= {"device load", "in flight", "largest layer", "packed ticks", "packed bytes"}


def least_of_all(chain: Chain, devices: int, memory: int) -> Fraction | None:
    """The least T of all allocations at which no device has too many ticks, or bytes of D / T batches in flight.

    Written from the definition: every allocation, every T at which something changes.
    """
    loads = (chain.forward + chain.backward).tolist()
    passing = [sum(loads[at:]) for at in range(len(loads))]
    changes = sorted(
        {Fraction(d, n) for d in passing for n in range(1, d + 1)} | {Fraction(n) for n in range(1, sum(loads) + 1)}
    )
    found = []
    for device in product(range(devices), repeat=chain.layers):
        for period in changes:
            load, held = [0] * devices, [0] * devices
            for at, d in enumerate(device):
                load[d] += loads[at]
                held[d] += int(chain.weights[at] - (-passing[at] // period) * chain.activation[at])
            if max(load) <= period and max(held) <= memory:
                found.append(period)
                break
    return min(found, default=None)


def test_bounds_of_all_allocations_hold_for_each(seeds) -> None:
    """Against every allocation of up to 5 layers: no bound is above the best, and what is refused fits in none."""
    equal = refused = 0
    for seed in seeds(25):
        rng = np.random.default_rng(seed)
        chain = small_chain(rng, int(rng.integers(2, 6)), ticks=4)
        devices, memory = int(rng.integers(1, 4)), int(rng.integers(4, 30))
        reached = least_of_all(chain, devices, memory)
        try:
            bound = best(of_all(chain, devices, memory, PAPER)).value
        except ValueError:
            assert reached is None, seed
            refused += 1
            continue
        assert reached is None or bound <= reached, seed
        equal += bound == reached
    assert equal >= 8
    assert refused


def test_bins_are_never_too_many(seeds) -> None:
    """Against first fit decreasing, which holds the sizes in so many bins; two that need a bin each are seen."""
    for seed in seeds(200):
        rng = np.random.default_rng(seed)
        room = int(rng.integers(1, 20))
        sizes = rng.integers(0, room + 1, rng.integers(1, 12)).tolist()
        filled: list[int] = []
        for size in sorted(sizes, reverse=True):
            at = next((k for k, full in enumerate(filled) if full + size <= room), len(filled))
            filled[at:] = [sum(filled[at : at + 1]) + size, *filled[at + 1 :]]
        assert -(-sum(sizes) // room) <= bins(sizes, room) <= len(filled), seed
    assert bins([6, 6, 6], 10) == 3  # 18 of 30, but no two share
    assert bins([7, 6, 4, 4], 10) == 3  # beside 7 is no room for 4, beside 6 for one of them


def test_what_does_not_fit_is_refused_with_what_lacks() -> None:
    """A stage of 3 + 2 bytes in 4, and layers of 5 bytes on one device of 4."""
    chain = chain_of([1], [1], weights=np.array([3]), activation=np.array([2]))
    with pytest.raises(ValueError, match="device 0 lacks 1 bytes for one batch in flight - give it more"):
        of_allocation(chain, each_alone(1), 4, PAPER)
    with pytest.raises(ValueError, match="no allocation fits: 1 devices of 4 bytes"):
        of_all(chain, 1, 4, PAPER)
    with pytest.raises(ValueError, match="0 batches - give 1 or more"):
        flushed_step(chain, each_alone(1), 0)
