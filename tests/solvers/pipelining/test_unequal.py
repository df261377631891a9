"""Devices and links that are not equal: the best of all orders by enumeration, bounds below it, ticks of the check."""

from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from pipelines import small_chain

from solvers.arrays import ints
from solvers.pipelining import contiguous as cutting
from solvers.pipelining.chain import Allocation, Chain, Machines, MemoryModel
from solvers.pipelining.contiguous import all_orders, best_cuts, bytes_lacking, period_bound, thinnings
from solvers.pipelining.one_f_one_b_star import least_period, thinned
from solvers.pipelining.pattern_check import check
from solvers.pipelining.pipeline_bounds import best, of_machines
from solvers.problem import MOST

SPEEDS = [Fraction(*pair) for pair in ((1, 1), (1, 1), (2, 1), (1, 2), (2, 3), (5, 3))]
KEEPS = thinnings(3)


def drawn(seed: int, devices: int = 3, most: int = 5) -> tuple[Chain, Machines]:
    """A chain of up to so many layers, and devices of which some are alike."""
    rng = np.random.default_rng(seed)
    chain = small_chain(rng, int(rng.integers(1, most + 1)), 3)
    held = int((chain.weights + chain.activation).sum())
    memory = ints([int(x) for x in rng.integers(0, 2 * held + 2, devices)])
    memory = np.where(rng.random(devices) < 0.2, MOST, memory) if rng.random() < 0.8 else None
    pairs = [(d, e) for e in range(devices) for d in range(e)]
    links = {pair: SPEEDS[int(rng.integers(6))] for pair in pairs if rng.random() < 0.6}
    speed = tuple(SPEEDS[int(rng.integers(6))] for _ in range(devices))
    return chain, Machines(speed=speed, memory=memory, links=links)


def contiguous(chain: Chain, machines: Machines):
    """Every allocation of one run of layers a device."""
    for stages in range(1, min(chain.layers, machines.devices) + 1):
        for order in permutations(range(machines.devices), stages):
            for inner in product(range(stages), repeat=chain.layers):
                if list(inner) == sorted(inner) and set(inner) == set(range(stages)):
                    device = ints([order[s] for s in inner])
                    yield Allocation(device=device, devices=machines.devices)


def least_by_force(chain: Chain, machines: Machines, model: MemoryModel, keeps) -> Fraction | None:
    """The least period of all of them."""
    found = [
        least_period(machines.on(chain, each), each, machines.memory, model, keeps)
        for each in contiguous(chain, machines)
    ]
    return min((each.period for each in found if each is not None), default=None)


def holds(seed: int, most: int = 5) -> bool:
    """One case in both models; whether memory or the order mattered: the best is not that of the listed order."""
    chain, machines = drawn(seed, 3, most)
    least = least_by_force(chain, machines, MemoryModel.PAPER, KEEPS)
    found = best_cuts(chain, machines, MemoryModel.PAPER, KEEPS)
    assert (found and found.period) == least, seed
    assert period_bound(chain, machines, MemoryModel.PAPER, KEEPS) == least, seed
    for model in MemoryModel:
        found = best_cuts(chain, machines, model, KEEPS)
        bound = period_bound(chain, machines, model, KEEPS)
        least = least_by_force(chain, machines, model, KEEPS)
        if least is not None:
            assert bound is not None and bound <= least, seed
            assert best(of_machines(chain, machines, model)).value <= least, seed
        if found is None:
            assert bytes_lacking(chain, machines, model) > 0
            continue
        seen = machines.on(chain, found.allocation)
        pattern = thinned(seen, found.allocation, found.T, found.keep)
        told = check(chain, found.allocation, pattern, machines.memory, model, machines)
        assert told.valid and pattern.period == found.period and found.period >= least, (seed, told.text)
        assert (told.peaks[found.order] <= found.bytes).all(), seed
    return found is not None and found.order.tolist() != list(range(len(found.order)))


@pytest.mark.property
def test_the_best_order_by_enumeration(seeds) -> None:
    """Up to 5 layers on 3 devices, speeds, memory and links of their own, thinnings; in many the order changes."""
    assert sum(holds(seed) for seed in seeds(20)) > len(seeds(20)) / 15


def test_the_best_order_by_enumeration_of_some() -> None:
    """As above, up to 3 layers."""
    assert sum(holds(seed, 3) for seed in range(8)) >= 1


def test_devices_of_two_kinds_are_all_looked_at_and_many_different_ones_are_not() -> None:
    """What is tried is then no less than the bound of all, and no order bound is told."""
    chain = small_chain(np.random.default_rng(0), 24, 9)
    two = Machines(speed=(Fraction(1),) * 8 + (Fraction(2),) * 8)
    assert all_orders(chain, two)
    found = best_cuts(chain, two)
    assert found is not None and found.period == period_bound(chain, two)
    many = Machines(speed=tuple(Fraction(at + 9, 9) for at in range(16)))
    assert not all_orders(chain, many) and period_bound(chain, many) == 0
    found = best_cuts(chain, many)
    seen = many.on(chain, found.allocation)
    assert least_period(seen, found.allocation, None).period == found.period
    assert best(of_machines(chain, many)).value <= found.period


def test_tried_orders_are_near_the_best(monkeypatch) -> None:
    """Of 5 different devices, which are few enough: never below the best of all, and in most cases equal to it."""
    known = [(drawn(seed, 5, 8), seed) for seed in range(20)]
    least = [best_cuts(chain, machines, MemoryModel.PAPER, KEEPS) for (chain, machines), _ in known]
    monkeypatch.setattr(cutting, "all_orders", lambda *_: False)
    tried = [best_cuts(chain, machines, MemoryModel.PAPER, KEEPS) for (chain, machines), _ in known]
    pairs = [(one.period, two.period) for one, two in zip(least, tried, strict=True) if one and two]
    assert all(one is not None for one, two in zip(least, tried, strict=True) if two is not None)
    assert all(one <= two for one, two in pairs) and sum(one == two for one, two in pairs) >= len(pairs) / 2 >= 5


def test_the_check_takes_its_ticks_from_the_devices() -> None:
    """What fits the chain's own ticks overlaps at half the speed; machines of another number are no claim."""
    chain = small_chain(np.random.default_rng(3), 3, 5)
    where = Allocation(device=ints([0, 0, 1]), devices=2)
    pattern = least_period(chain, where, None).pattern
    assert check(chain, where, pattern, None, machines=Machines.alike(2)).valid
    slow = Machines(speed=(Fraction(1, 2), Fraction(1, 2)))
    assert check(chain, where, pattern, None, machines=slow).refusal in ("overlap", "dependency")
    with pytest.raises(ValueError, match="to 2 devices for 3 of them"):
        check(chain, where, pattern, None, machines=Machines.alike(3))
