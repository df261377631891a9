"""A chain, an allocation and a pattern are refused at the first value that cannot be, which is named."""

from fractions import Fraction

import numpy as np
import pytest

from solvers.pipelining.chain import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    SEND_BACKWARD,
    SEND_FORWARD,
    WEIGHT_GRADIENT,
    Allocation,
    Pattern,
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"forward": []}, "at least one layer"),
        ({"forward": [1, -1, 1]}, r"forward\[1\] is -1"),
        ({"backward": [1, 1]}, "backward has shape"),
        ({"weights": [0, 0, 2**63 - 1]}, r"weights\[2\]"),
        ({"weights": [2**62, 2**62, 0]}, "weights sums to more"),
        ({"output": [0, 0, 0]}, "output has shape"),
        ({"transfers": [0]}, "transfers has shape"),
        ({"transfers": [0.5, 1.0]}, "integers expected"),
        ({"weight_gradient": [0, 2, 0]}, r"weight_gradient\[1\] is longer"),
    ],
)
def test_a_chain_that_cannot_be_is_refused(chain, change, said):
    given = {"forward": [1, 1, 1], "backward": [1, 1, 1]} | change
    with pytest.raises(ValueError, match=said):
        chain(given.pop("forward"), given.pop("backward"), **given)


def test_ticks_of_each_kind_add_up(chain):
    found = chain([3, 1], [5, 4], transfers=[7], weight_gradient=[2, 0])
    assert found.loads.tolist() == [8, 5]
    assert not found.loads.flags.writeable
    of = {kind: int(found.ticks(np.array([kind]), np.array([0]))[0]) for kind in range(6)}
    assert of == {FORWARD: 3, BACKWARD: 5, SEND_FORWARD: 3, SEND_BACKWARD: 4, INPUT_GRADIENT: 3, WEIGHT_GRADIENT: 2}


def test_stages_are_runs_of_layers_on_one_device():
    found = Allocation(device=[1, 1, 0, 2, 2, 1], devices=4)
    assert found.stages.tolist() == [[0, 1, 1], [2, 2, 0], [3, 4, 2], [5, 5, 1]]
    assert not found.contiguous
    assert found.crossed.tolist() == [1, 2, 4]
    assert found.link(found.crossed).tolist() == [4 + 0 * 4 + 1, 4 + 0 * 4 + 2, 4 + 1 * 4 + 2]
    assert Allocation(device=[1, 1, 0], devices=2).contiguous


@pytest.mark.parametrize("device", [[], [0, 2], [-1], [[0]]])
def test_an_allocation_that_cannot_be_is_refused(device):
    with pytest.raises(ValueError, match="device"):
        Allocation(device=device, devices=2)


@pytest.mark.parametrize(
    "change", [{"k": 0}, {"T": 0}, {"t": [4]}, {"kind": [6]}, {"copy": [3]}, {"resource": [-1]}, {"shift": [0, 0]}]
)
def test_a_pattern_that_cannot_be_is_refused(change):
    rows = {"kind": [0], "layer": [0], "copy": [0], "resource": [0], "t": [0], "shift": [0]}
    assert Pattern(k=3, T=4, **rows).period == Fraction(4, 3)
    with pytest.raises(ValueError, match=next(iter(change))):
        Pattern(**({"k": 3, "T": 4} | rows | change))
