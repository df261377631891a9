"""The proof that nothing fits: against enumeration, and by hand."""

import numpy as np
import pytest
from exhaustive import exhaustive
from footprints import footprint_for

from solvers import Footprint
from solvers.instances.plain import on_equal_gpus
from solvers.instances.random import Features, generate
from solvers.memory.one_by_one import nothing_fits


def test_it_proves_what_enumeration_finds_and_no_more() -> None:
    """Random problems without activities of no time, where it misses nothing."""
    count = {True: 0, False: 0}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        p = generate(rng, tasks=2 + seed % 4, features=Features(zeros=False, memory=False))
        f = footprint_for(rng, p)
        p = p.holding(capacity=np.full(p.locations, int(rng.integers(4, 24)))).living(f)
        impossible = exhaustive(p) is None
        assert bool(nothing_fits(p)) == impossible, seed
        count[impossible] += 1
    assert min(count.values()) > 5


@pytest.mark.parametrize(("capacity", "fits"), [(5, True), (4, False)])
def test_an_output_written_into_its_input_needs_no_room(capacity: int, fits: bool) -> None:
    """A chain of three tasks of 5 bytes each in place on one GPU: 5 bytes are enough, 10 without."""
    p = on_equal_gpus([1, 1, 1], [0, 1], [1, 2], gpus=1, transfer=np.ones(3, dtype=np.int64))
    f = Footprint(
        static=[0, 0, 0], size=[5, 5], maker=[0, 1], passes=[-1, -1], reuses=[-1, 0], read_buffer=[0, 1],
        read_by=[1, 2], read_payload=[0, 1],
    )  # fmt: skip
    assert bool(nothing_fits(p.holding(capacity=[capacity]).living(f))) != fits


def test_without_lives_it_says_nothing() -> None:
    """Static bytes have proofs of their own."""
    assert nothing_fits(on_equal_gpus([1], [], [], gpus=1, transfer=np.ones(1, dtype=np.int64))) == ""
