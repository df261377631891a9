"""Contiguous stages with memory: the least period of all cuts and all T, and what a stage holds."""

from fractions import Fraction

import numpy as np
import pytest
from pipelines import every_cut, groups, held, least_of_cuts, peaks, small_chain, stages_of, twelve

from solvers.pipelining.chain import Chain, Machines, MemoryModel
from solvers.pipelining.contiguous import best_cuts, bytes_lacking, period_bound, thinnings

PAPER, RECEIVED = MemoryModel.PAPER, MemoryModel.RECEIVED
RATIOS = ((1, 1), (1, 2), (2, 3), (1, 3), (3, 4), (1, 4), (4, 5), (3, 5), (2, 5), (1, 5))


LEAST = {
    # memory: (cuts 3, 6, 8; joint, 1F1B*; joint, thinned)
    200: (52, 52, 52), 160: (84, 58, 58), 140: (84, 58, 58), 120: (100, 59, 59), 100: (100, 72, 72),
    90: (100, 75, 75), 80: (186, 87, 87), 70: (186, 104, Fraction(201, 2)), 60: (None, 135, 135),
    50: (None, 171, 171), 40: (None, None, None),
}  # fmt: skip


@pytest.mark.parametrize("memory", LEAST)
def test_the_least_periods_of_a_chain_as_memory_shrinks(memory: int) -> None:
    """Four devices, the paper's memory: cut where it is best without memory, cut for the memory, and thinned, too."""
    chain, (fixed, joint, thinned) = twelve(), LEAST[memory]
    assert least_of_cuts(chain, [0, 3, 6, 8, 12], memory, (1, 1), True) == fixed
    found = best_cuts(chain, Machines.alike(4, memory), PAPER)
    assert (found and found.period) == joint
    found = best_cuts(chain, Machines.alike(4, memory), PAPER, thinnings(5))
    assert (found and found.period) == thinned


def test_memory_that_just_suffices() -> None:
    """With the least memory the chain is done one batch at a time, and with a byte less not at all."""
    chain = twelve()
    for model, least in ((PAPER, 50), (RECEIVED, 62)):
        assert bytes_lacking(chain, Machines.alike(4, 0), model) == least
        assert best_cuts(chain, Machines.alike(4, least), model) is not None
        assert best_cuts(chain, Machines.alike(4, least - 1), model, thinnings(5)) is None
    assert bytes_lacking(chain, Machines.alike(1, 0), PAPER) == int((chain.weights + chain.activation).sum())


def matches_every_cut(seed: int) -> bool:
    """One random chain, memory, thinning and model against all cuts and all T; whether anything fits."""
    rng = np.random.default_rng(seed)
    chain = small_chain(rng, int(rng.integers(1, 8)))
    devices, memory = int(rng.integers(1, 5)), int(rng.integers(2, 60))
    paper = bool(rng.integers(2))
    model, most = (PAPER if paper else RECEIVED), int(rng.integers(1, 6))
    every = list(every_cut(chain.layers, devices))

    def least(ratios):
        found = [least_of_cuts(chain, first, memory, ratio, paper) for first in every for ratio in ratios]
        return min((period for period in found if period is not None), default=None)

    found = best_cuts(chain, Machines.alike(devices, memory), model, thinnings(most))
    expected = least([(k, n) for k, n in RATIOS if n <= most])
    assert (found and found.period) == expected, seed
    if found is None:
        return False
    stages = stages_of(chain, found.first.tolist())
    assert groups(stages, found.T)[::2] == found.group.tolist()
    group = groups(stages, found.T)
    assert found.bytes.tolist() == [held(stages, at, group, found.keep, paper) for at in range(0, len(group), 2)]
    assert found.bytes.max() <= memory
    assert found.allocation.device.tolist() == np.repeat(np.arange(len(found.group)), np.diff(found.first)).tolist()
    return True


def test_stages_are_the_best_of_all_cuts(seeds) -> None:
    """The dynamic program against every cut and every T: transfers, memory, both models, thinnings."""
    fitting = sum(matches_every_cut(seed) for seed in seeds(120))
    assert fitting >= len(seeds(120)) / 2


def test_no_pattern_holds_more_than_the_model_says(seeds) -> None:
    """1F1B* laid out batch by batch: batches in flight are as many as the group says, bytes at most what is charged."""
    tight = 0
    for seed in seeds(150):
        rng = np.random.default_rng(seed)
        chain = small_chain(rng, int(rng.integers(2, 7)))
        first = [0, *sorted(rng.choice(np.arange(1, chain.layers), rng.integers(chain.layers), replace=False).tolist())]
        stages = stages_of(chain, [*first, chain.layers])
        period = int(rng.integers(max(s.ticks for s in stages), sum(s.ticks for s in stages) + 1))
        ratio, group = RATIOS[rng.integers(len(RATIOS))], groups(stages, period)
        for at, peak in enumerate(peaks(stages, period, ratio)):
            assert peak.in_flight == -(-group[2 * at] * ratio[0] // ratio[1]), seed
            charged = held(stages, 2 * at, group, ratio, False)
            assert peak.bytes <= charged, seed
            least = stages[2 * at].weights + peak.in_flight * (stages[2 * at].activation + stages[2 * at].entering)
            assert peak.bytes >= least, seed
            tight += (at > 0) * (peak.bytes == charged)
    assert tight


def least_of_peaks(chain: Chain, devices: int, memory: int, ratios) -> Fraction | None:
    """The least period of all cuts and T by what 1F1B* holds when it is laid out batch by batch."""
    found = []
    for first in every_cut(chain.layers, devices):
        stages = stages_of(chain, first)
        for ratio in ratios:
            for period in range(max(s.ticks for s in stages), sum(s.ticks for s in stages) + 1):
                if all(peak.bytes <= memory for peak in peaks(stages, period, ratio)):
                    found.append(Fraction(period * ratio[1], ratio[0]))
                    break
    return min(found, default=None)


def test_the_bound_frames_what_stages_hold_when_laid_out(seeds) -> None:
    """Received inputs and gradients, tick by tick: what is found fits, and the bound is below all that does."""
    equal = 0
    for seed in seeds(12):
        rng = np.random.default_rng(seed)
        chain = small_chain(rng, int(rng.integers(2, 5)), ticks=4)
        devices, memory = 3, int(rng.integers(10, 40))
        reached = least_of_peaks(chain, devices, memory, thinnings(2))
        found = best_cuts(chain, Machines.alike(devices, memory), RECEIVED, thinnings(2))
        bound = period_bound(chain, Machines.alike(devices, memory), RECEIVED, thinnings(2))
        if found is None:
            assert bound is None or reached is None or bound <= reached, seed
        else:
            assert bound <= reached <= found.period, seed
            equal += bound == found.period
    assert equal >= 4


@pytest.mark.parametrize(
    ("devices", "memory", "said"),
    [(0, None, "no devices - give"), (4097, None, "give 1 to 4096"), (2, -1, "has -1 bytes - give 0 or more")],
)  # fmt: skip
def test_what_cannot_be_laid_out_is_refused(devices, memory, said) -> None:
    """No device, too many, and negative memory."""
    with pytest.raises(ValueError, match=said):
        best_cuts(twelve(), Machines.alike(devices, memory))


def test_bytes_that_cannot_be_summed_are_refused() -> None:
    """Each column sums to less than 2^62, but a stage may have several batches in flight."""
    two = np.array([1, 1])
    vast = Chain(
        forward=two, backward=two, weights=two, activation=two * 2**60, output=np.zeros(3, dtype=int), transfers=two[:1]
    )
    with pytest.raises(
        ValueError, match="stages could hold more than 4611686018427387904 bytes - count in larger units"
    ):
        best_cuts(vast, Machines.alike(2))


def test_ratios_are_named_once() -> None:
    """In lowest terms, all batches first."""
    assert thinnings(4) == ((1, 1), (1, 2), (2, 3), (1, 3), (3, 4), (1, 4))
