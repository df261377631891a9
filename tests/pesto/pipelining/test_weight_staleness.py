"""Versions of weights in a chain: one for each batch in flight, or two that batches of an update share."""

import numpy as np
import pytest

from pesto.pipelining.staged_step import StepChain, add_weight_versions, weight_staleness
from solvers.pipelining.chain import Chain

OPS = [
    {"name": "w0", "param": 40, "group": "a", "launches": False},
    {"name": "w1", "param": 24, "group": "b", "launches": False},
    {"name": "pesto_weights_1/ReadVariableOp", "inputs": ["w1"], "bytes": 24, "launches": False},
    {"name": "pesto_weights_0/ReadVariableOp", "inputs": ["w0"], "bytes": 40, "launches": False},
]
PLACE = [0, 1, 1, 0]
"""The layer of each."""
WEIGHTS, ACTIVATION = np.array([80, 48]), np.array([7, 5])
"""Variables and sums of gradients, and what each batch keeps."""


def _chain() -> StepChain:
    chain = Chain(
        forward=[3, 3], backward=[6, 6], weights=WEIGHTS, activation=ACTIVATION, output=[0, 1, 0], transfers=[1]
    )
    layer, once = np.array(PLACE), np.array([5, 8])
    return StepChain(
        chain=chain, layer=layer, home=layer, weight=np.zeros(4, dtype=np.bool_), once=once, far=(),
        version=np.zeros(2, dtype=np.int64),
    )  # fmt: skip


@pytest.mark.parametrize("flight", [1, 2, 5])
@pytest.mark.parametrize("every", [1, 4])
def test_versions_are_counted(make_graph, flight, every):
    """Beside the variable one for each further batch in flight, or one; each batch has its part of the ticks."""
    found = add_weight_versions(_chain(), make_graph(OPS), every)
    held = found.chain.weights + found.chain.activation * flight
    more = flight - 1 if every == 1 else 1
    assert (held == WEIGHTS + ACTIVATION * flight + more * np.array([40, 24])).all()
    assert found.chain.backward.tolist() == ([11, 14] if every == 1 else [8, 8])
    assert (found.version == (np.array([40, 24]) if every == 1 else 0)).all() and not found.once.any()


def test_how_late_each_variable_is(make_graph):
    """As batches are in flight where it is, less 1, and no more than there are; by one where updates have several."""
    given = (_chain(), make_graph(OPS), np.array([5, 1]))
    assert weight_staleness(*given, 8, 1) == (4, 0) and weight_staleness(*given, 3, 1) == (2, 0)
    assert weight_staleness(*given, 8, 4) == (1, 1)
