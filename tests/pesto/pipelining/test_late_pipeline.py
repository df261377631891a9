"""The schedule of a step without a flush: the shortest that fits and whose batches two versions of weights serve."""

from types import SimpleNamespace

import numpy as np
import pytest

from pesto.core.errors import NothingFoundError, UsageError
from pesto.pipelining import late_pipeline
from pesto.pipelining.schedules import EXACT, STAR, THINNED, ChainRequest
from solvers.pipelining.chain import Chain, Machines, MemoryModel


def _staged(every=1, batches=8):
    """Stand in for a staged step: only its numbers of batches an update and a step are read."""
    return SimpleNamespace(every=every, step=SimpleNamespace(batches=batches))


def _thirds(memory=None):
    """Three layers of 1 + 1 ticks and 4 bytes a batch on three devices."""
    none = np.zeros(3, dtype=np.int64)
    chain = Chain(
        forward=none + 1, backward=none + 1, weights=none, activation=none + 4, output=np.zeros(4, dtype=np.int64),
        transfers=none[1:],
    )  # fmt: skip
    return ChainRequest(chain=chain, machines=Machines.alike(3, memory), model=MemoryModel.PAPER)


@pytest.mark.parametrize(("memory", "star", "thinned"), [(12, 2, 2), (8, 4, 3), (4, 6, 6)])
def test_the_shortest_of_all_that_fit(memory, star, thinned):
    """Room for 3, 2 and 1 batches on the first device: 1F1B* puts stages together, thinned 3, 2 or 1 of 3 are kept."""
    periods = {
        name: late_pipeline._schedule(_staged(), _thirds(memory), name)[0].period for name in (STAR, THINNED, None)
    }
    assert periods == {STAR: star, THINNED: thinned, None: min(star, thinned)}


def test_two_versions_serve_as_many_batches_as_an_update_has():
    """Three are in flight on the first device at 2 ticks a batch: for updates behind 3 or 1, not behind 2."""
    for every in (1, 3, 4):
        schedule, interrupted = late_pipeline._schedule(_staged(every), _thirds(), STAR)
        assert (schedule.period, schedule.in_flight.tolist(), interrupted) == (2, [3, 2, 1], False)
    with pytest.raises(
        UsageError, match=r"every 2 micro-batches: 1f1b\* has 3 in flight.* - give 3 or more.*, or fewer"
    ):
        late_pipeline._schedule(_staged(2), _thirds(), STAR)
    schedule, _ = late_pipeline._schedule(_staged(2, batches=2), _thirds(), STAR)
    assert schedule.period == 2


def test_what_fits_nowhere_is_refused_with_the_bytes_of_a_device():
    """A layer of 4 bytes in 3; and in 4 all are a batch after the other, which three devices do in 6 ticks."""
    with pytest.raises(NothingFoundError, match=r"of 4 bytes, 4 B, or more\), more of them"):
        late_pipeline._schedule(_staged(), _thirds(3), None)
    assert late_pipeline._schedule(_staged(), _thirds(4), STAR)[0].period == 6


def test_an_interrupt_counts_where_nothing_else_fits(monkeypatch):
    """Ctrl-C in the search for the exact schedule, asked for alone or beside others."""

    def struck(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pesto.pipelining.schedules.exact", struck)
    request = _thirds()
    request = ChainRequest(chain=request.chain, machines=request.machines, model=request.model, k=1)
    with pytest.raises(KeyboardInterrupt):
        late_pipeline._schedule(_staged(), request, EXACT)
    schedule, interrupted = late_pipeline._schedule(_staged(), request, None)
    assert (schedule.period, interrupted) == (2, True)
