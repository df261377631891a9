"""Cuts by the least largest device sum, held against all cuts."""

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest

from solvers.pipelining import device_sums
from solvers.pipelining.chain import Allocation, Chain, Machines
from solvers.pipelining.device_sums import equal_shares, least_device_sum

ORDERS = {
    "round": lambda devices: [*range(devices)] * 2,
    "round three times": lambda devices: [*range(devices)] * 3,
    "v": lambda devices: [*range(devices), *reversed(range(devices))],
    "one stage each": lambda devices: [*range(devices)],
}


def chain_of(forward, backward):
    none = [0] * len(forward)
    return Chain(
        forward=forward, backward=backward, weights=none, activation=none, output=[0, *none],
        transfers=none[1:], weight_gradient=none,
    )  # fmt: skip


def busiest(chain, machines, device, layers):
    """Ticks of the busiest device, from the chain as the devices run it."""
    where = np.repeat(device, layers)
    loads = machines.on(chain, Allocation(device=where, devices=machines.devices)).loads
    return int(np.bincount(where, weights=loads).max())


def every_cut(layers, stages):
    for ends in combinations(range(1, layers), stages - 1):
        yield [b - a for a, b in pairwise([0, *ends, layers])]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(12))
def test_the_busiest_device_has_the_least_of_all_cuts(order, seed):
    """On equal and unequal devices, with layers that take nothing among the others; proven."""
    rng = np.random.default_rng(seed)
    devices = int(rng.integers(1, 4))
    device = ORDERS[order](devices)
    layers = len(device) + int(rng.integers(0, 5))
    ticks = rng.integers(0, 12 if seed % 2 else 1000, (2, layers)) * (rng.random(layers) < 0.8)
    chain = chain_of(*(half.tolist() for half in ticks))
    speeds = [Fraction(int(rng.integers(1, 4)), int(rng.integers(1, 4))) for _ in range(devices)]
    machines = Machines(speed=tuple(speeds)) if seed % 3 == 0 else Machines.alike(devices)
    found = least_device_sum(chain, machines, device)
    assert len(found.layers) == len(device) and sum(found.layers) == layers and min(found.layers) >= 1
    least = min(busiest(chain, machines, device, cuts) for cuts in every_cut(layers, len(device)))
    assert found.ticks == busiest(chain, machines, device, found.layers) == least
    assert found.optimal and found.bound == least


def test_a_heavy_last_layer_is_balanced_by_its_devices_first_stage():
    """A table, 16 equal layers and a head of 2.6: equal shares have 1710 and 1680 on the busiest device."""
    chain = chain_of([10, *[100] * 16, 260], [20, *[200] * 16, 520])
    for order, shares in (("round", 1680), ("v", 1710)):
        device, machines = ORDERS[order](4), Machines.alike(4)
        assert busiest(chain, machines, device, equal_shares(chain, machines, device)) == shares
        found = least_device_sum(chain, machines, device)
        assert found.ticks == found.bound == 1500


@pytest.mark.parametrize("seed", range(4))
def test_long_chains_have_a_bound(seed, monkeypatch):
    """Never above equal shares, and never below the bound, which is near."""
    monkeypatch.setattr(device_sums, "MOST_STATES", 2000)
    rng = np.random.default_rng(seed)
    chain = chain_of(*rng.integers(1, 10**6, (2, 128)).tolist())
    for order in ("round", "v"):
        device, machines = ORDERS[order](4), Machines.alike(4)
        found = least_device_sum(chain, machines, device)
        shares = busiest(chain, machines, device, equal_shares(chain, machines, device))
        assert int(chain.loads.sum()) <= 4 * found.bound
        assert found.bound <= found.ticks <= min(shares, 1.01 * found.bound)


def test_too_few_layers_are_refused():
    """Every stage has at least one."""
    with pytest.raises(ValueError, match="4 stages need 4 layers"):
        least_device_sum(chain_of([1, 1, 1], [1, 1, 1]), Machines.alike(2), [0, 1, 1, 0])
