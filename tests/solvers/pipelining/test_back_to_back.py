"""Patterns of any allocation whose period is its greatest load, which the checker accepts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chain_families import make_case
from solvers.pipelining.any_allocation import back_to_back, greatest_load
from solvers.pipelining.chain import Allocation, Chain
from solvers.pipelining.pattern_check import check


@given(st.integers(0, 99), st.integers(1, 9), st.data())
def test_the_period_is_the_greatest_load(seed, layers, data) -> None:
    """On any allocation, contiguous or not, with and without transfers: no schedule of it can be shorter."""
    chain = make_case("random-chain", seed, layers=layers, devices=3).chain
    device = data.draw(st.lists(st.integers(0, 2), min_size=layers, max_size=layers))
    allocation = Allocation(device=np.array(device), devices=4)
    found = back_to_back(chain, allocation)
    assert (found.k, found.T) == (1, max(1, greatest_load(chain, allocation)))
    checked = check(chain, allocation, found)
    assert checked.valid, checked.text


def test_ticks_that_are_none() -> None:
    """A chain that takes no time has a period of one tick, the least that there is."""
    none = np.zeros(3, dtype=np.int64)
    chain = Chain(forward=none, backward=none, weights=none, activation=none, output=[0] * 4, transfers=none[1:])
    allocation = Allocation(device=np.array([0, 1, 0]), devices=2)
    assert back_to_back(chain, allocation).T == 1 and check(chain, allocation, back_to_back(chain, allocation)).valid
