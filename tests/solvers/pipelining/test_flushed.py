"""Named schedules of one flushed step are valid, as long as the literature says, and hold what they should."""

import pytest

from solvers.pipelining.chain import Allocation
from solvers.pipelining.flushed import gpipe, interleaved, one_f_one_b, round_robin, v_shaped, zero_bubble
from solvers.pipelining.pattern_check import check


def step(chain, allocation, pattern):
    """Ticks of a step, and batches in flight on each layer."""
    found = check(chain, allocation, pattern)
    assert found.valid, found.text
    # From an empty pipeline to an empty one: what takes any time is in its batch's own period, and ends there.
    ticks = chain.ticks(pattern.kind, pattern.layer)
    assert len(set((pattern.shift - pattern.copy)[ticks > 0].tolist())) == 1
    assert int((pattern.t + ticks).max()) <= pattern.T
    return pattern.T, found.in_flight.tolist()


@pytest.mark.parametrize(("devices", "whole", "split", "within"), [(2, 15, 13, 14), (3, 24, 20, 22), (4, 33, 27, 30)])
def test_equal_thirds(chain, each, devices, whole, split, within):
    """Forward half, input gradient and weight gradient of a tick each, two batches a device: all are optimal."""
    found, where, batches = chain([1] * devices, [2] * devices), each(devices), 2 * devices
    ahead = list(range(devices, 0, -1))
    assert step(found, where, gpipe(found, where, batches)) == (whole, [batches] * devices)
    assert step(found, where, one_f_one_b(found, where, batches)) == (whole, ahead)
    assert step(found, where, zero_bubble(found, where, batches, [batches] * devices))[0] == split
    assert step(found, where, zero_bubble(found, where, batches, ahead)) == (within, ahead)
    ticks, held = step(found, where, zero_bubble(found, where, batches))
    assert split <= ticks <= within
    assert max(held) <= devices


def test_interleaved_chunks_halve_the_bubble(chain, each):
    """Narayanan et al. 2021: with v chunks a device, of a v-th each, a step is M (F + B) + (P - 1) (F + B) / v long."""
    devices, batches = 4, 8
    coarse = chain([2] * 4, [4] * 4)
    assert step(coarse, each(4), one_f_one_b(coarse, each(4), batches))[0] == 8 * 6 + 3 * 6
    fine, where = chain([1] * 8, [2] * 8), round_robin([1] * 8, devices)
    assert where.device.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert step(fine, where, interleaved(fine, where, batches))[0] == 8 * 6 + 3 * 6 // 2
    assert step(fine, where, gpipe(fine, where, batches))[1] == [batches] * 8


def test_a_v_brings_the_first_and_the_last_chunk_together(chain):
    where = v_shaped([1, 2, 1, 1, 1, 1])
    assert where.device.tolist() == [0, 1, 1, 2, 2, 1, 0]
    found = chain([1] * 7, [2] * 7, transfers=[1] * 6)
    stages = len(where.stages)
    ticks, held = step(found, where, zero_bubble(found, where, 6, list(range(stages, 0, -1))))
    assert held[0] <= stages
    assert ticks < step(found, where, gpipe(found, where, 6))[0]


def schedules(chain, allocation, batches):
    yield gpipe(chain, allocation, batches)
    yield zero_bubble(chain, allocation, batches)
    yield zero_bubble(chain, allocation, batches, [1] * len(allocation.stages))
    if allocation.contiguous:
        yield one_f_one_b(chain, allocation, batches)


def test_every_schedule_is_valid(random_case, seeds):
    for seed in seeds(15):
        chain, allocation = random_case(seed)
        backwards = Allocation(device=allocation.device[::-1], devices=allocation.devices)
        zigzag = Allocation(device=[layer % 2 for layer in range(chain.layers)], devices=2)
        for where in (allocation, backwards, zigzag):
            for pattern in schedules(chain, where, 1 + seed % 5):
                step(chain, where, pattern)


def test_one_layer_that_takes_no_time_is_scheduled(chain, each):
    nothing = chain([0], [0])
    for pattern in schedules(nothing, each(1), 2):
        assert check(nothing, each(1), pattern).valid


def test_what_cannot_be_is_said(chain, each):
    found = chain([1] * 4, [1] * 4)
    zigzag = Allocation(device=[0, 1, 0, 1], devices=2)
    with pytest.raises(ValueError, match="0 batches"):
        gpipe(found, each(4), 0)
    with pytest.raises(ValueError, match="contiguous"):
        one_f_one_b(found, zigzag, 4)
    with pytest.raises(ValueError, match="multiple of the devices"):
        interleaved(found, zigzag, 3)
    with pytest.raises(ValueError, match="go round"):
        interleaved(found, Allocation(device=[0, 1, 1, 0], devices=2), 4)
    with pytest.raises(ValueError, match="3 chunks"):
        round_robin([1, 1, 2], 2)
    with pytest.raises(ValueError, match="3 chunks"):
        v_shaped([1, 1, 2])
    with pytest.raises(ValueError, match="at least one each"):
        zero_bubble(found, each(4), 4, [1, 1, 0, 1])
