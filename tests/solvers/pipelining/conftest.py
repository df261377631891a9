"""Chains and allocations for every test of pipelines."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from solvers.pipelining.chain import Allocation, Chain


def made(forward, backward, **bytes_and_ticks):
    layers = len(forward)
    given = {
        "weights": [0] * layers,
        "activation": [1] * layers,
        "output": [0] * (layers + 1),
        "transfers": [0] * (layers - 1),
    } | bytes_and_ticks
    return Chain(forward=forward, backward=backward, **given)


@contextmanager
def started(name: str) -> Iterator[subprocess.Popen[bytes]]:
    script = Path(__file__).parent.parent / "stubs" / f"{name}.py"
    where = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        [sys.executable, "-P", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": where},
    ) as running:  # fmt: skip
        yield running
        running.stdin.close()


@pytest.fixture(scope="session")
def stub():
    """A program of tests/solvers/stubs in a process of its own, while the context lasts."""
    return started


@pytest.fixture(scope="session")
def chain():
    """A chain of these forward and backward ticks; no weights, activations of a byte, nothing to send, if not given."""
    return made


@pytest.fixture(scope="session")
def each():
    """The allocation of a layer to each device."""
    return lambda layers: Allocation(device=np.arange(layers), devices=layers)


@pytest.fixture(scope="session")
def random_case():
    """Of a seed: a random chain of up to 8 layers with a random contiguous allocation; `least`: fewest ticks."""

    def of(seed, most=8, least=0):
        rng = np.random.default_rng(seed)
        layers = int(rng.integers(1, most + 1))
        transfers = rng.integers(0, 7, layers - 1) * rng.integers(0, 2)
        found = made(
            rng.integers(least, 9, layers), rng.integers(least, 9, layers), weights=rng.integers(0, 5, layers),
            activation=rng.integers(1, 6, layers), output=rng.integers(0, 5, layers + 1), transfers=transfers,
        )  # fmt: skip
        devices = int(rng.integers(1, layers + 1))
        cuts = np.sort(rng.choice(np.arange(1, layers), devices - 1, replace=False)) if devices > 1 else []
        device = np.repeat(rng.permutation(devices), np.diff([0, *cuts, layers]))
        return found, Allocation(device=device, devices=devices)

    return of
