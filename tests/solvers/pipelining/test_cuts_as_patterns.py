"""Cuts and bounds against patterns that the checker has unrolled: periods, batches in flight, bytes, flushed steps."""

import numpy as np
import pytest
from pipelines import small_chain

from benchmarks.chain_families import CHAIN_FAMILIES, make_case
from solvers.pipelining.chain import Allocation, Machines, MemoryModel
from solvers.pipelining.contiguous import best_cuts, bytes_lacking, period_bound, thinnings
from solvers.pipelining.exact_periodic import PeriodicProblem, exact_all
from solvers.pipelining.flushed import gpipe, interleaved, one_f_one_b, round_robin, zero_bubble
from solvers.pipelining.one_f_one_b_star import least_period, thinned
from solvers.pipelining.pattern_check import check
from solvers.pipelining.pipeline_bounds import flushed_step, of_all, of_allocation

PAPER, RECEIVED = MemoryModel.PAPER, MemoryModel.RECEIVED


def laid(case, model, keeps):
    """The cuts of a case, found and checked as the pattern that they stand for."""
    found = best_cuts(case.chain, Machines.alike(case.devices, case.memory), model, keeps)
    pattern = thinned(case.chain, found.allocation, found.T, found.keep)
    checked = check(case.chain, found.allocation, pattern, case.memory, model)
    assert checked.valid, checked.text
    assert pattern.period == found.period
    return found, checked


@pytest.mark.parametrize("name", [name for name in CHAIN_FAMILIES if name != "one-two-one"])
def test_cuts_of_every_family_are_valid_patterns(name) -> None:
    """Both models: what a stage is charged with is what it holds by the paper's model, and no less by the other."""
    case = make_case(name, 1)
    for model in MemoryModel:
        found, checked = laid(case, model, thinnings(3))
        stages = len(found.group)
        exact = checked.peaks[:stages] == found.bytes if model is PAPER else checked.peaks[:stages] <= found.bytes
        assert exact.all()
        assert (checked.peaks[stages:] == 0).all()
        assert (checked.in_flight[found.first[:-1]] == found.in_flight).all()


def test_cuts_of_random_chains_are_valid_patterns(seeds) -> None:
    """And no cuts are worse than what 1F1B* with an exact count of bytes reaches on the same allocation."""
    same = 0
    for seed in seeds(30):
        rng = np.random.default_rng(seed)
        chain, devices = small_chain(rng, int(rng.integers(2, 8))), int(rng.integers(1, 5))
        memory, keeps = bytes_lacking(chain, Machines.alike(devices, 0)) + int(rng.integers(12)), thinnings(3)
        found = best_cuts(chain, Machines.alike(devices, memory), RECEIVED, keeps)
        checked = check(chain, found.allocation, thinned(chain, found.allocation, found.T, found.keep), memory)
        assert checked.valid, (seed, checked.text)
        assert (checked.peaks[: len(found.group)] <= found.bytes).all(), seed
        exact = least_period(chain, found.allocation, memory, RECEIVED, keeps)
        bound = period_bound(chain, Machines.alike(devices, memory), RECEIVED, keeps)
        assert bound <= exact.period <= found.period, seed
        same += exact.period == found.period
        found = best_cuts(chain, Machines.alike(devices, memory), PAPER, keeps)
        exact = least_period(chain, found.allocation, memory, PAPER, keeps)
        assert exact.period == found.period == period_bound(chain, Machines.alike(devices, memory), PAPER, keeps), seed
    assert same >= 20


def test_bounds_hold_for_flushed_schedules_of_any_allocation(seeds) -> None:
    """Steps of GPipe, 1F1B, interleaved and split ones; and as periods, within the memory that the checker counts."""
    met = dict.fromkeys(("gpipe", "1f1b", "interleaved", "zero bubble"), 0)
    for seed in seeds(25):
        rng = np.random.default_rng(seed)
        chain, devices = small_chain(rng, int(rng.integers(4, 9))), int(rng.integers(2, 4))
        batches = devices * int(rng.integers(1, 4))
        scattered = Allocation(device=rng.integers(devices, size=chain.layers), devices=devices)
        cuts = best_cuts(chain, Machines.alike(devices)).allocation
        chunks = round_robin(np.diff([0, *range(1, 2 * devices), chain.layers]).tolist(), devices) if (
            chain.layers >= 2 * devices
        ) else cuts  # fmt: skip
        for name, allocation, schedule in (
            ("gpipe", scattered, gpipe),
            ("1f1b", cuts, one_f_one_b),
            ("interleaved", chunks, interleaved if chunks is not cuts else one_f_one_b),
            ("zero bubble", scattered, zero_bubble),
        ):
            pattern = schedule(chain, allocation, batches)
            split = name == "zero bubble"
            bounds = flushed_step(chain, allocation, batches, split=split)
            assert max(bound.value for bound in bounds) <= pattern.T, (seed, name)
            met[name] += any(bound.value == pattern.T for bound in bounds)
            for model in MemoryModel:
                memory = int(check(chain, allocation, pattern, None, model).peaks.max())
                bounds = (*of_allocation(chain, allocation, memory, model), *of_all(chain, devices, memory, model))
                for bound in bounds:
                    # Stages whose layers are split do not do their halves at once.
                    assert bound.value <= pattern.period or (split and bound.name == "in flight"), (seed, name, bound)
    assert min(met.values()) >= 1


@pytest.mark.slow
def test_bounds_hold_for_exact_schedules_of_any_allocation(seeds) -> None:
    """Of 1, 2 and 3 batches a period, within 1 to 2 times the bytes of a batch alone; some meet a bound."""
    questions = []
    for seed in seeds(10):
        rng = np.random.default_rng(seed)
        chain, devices = small_chain(rng, int(rng.integers(2, 5))), int(rng.integers(1, 4))
        device = rng.integers(devices, size=chain.layers)
        allocation = Allocation(device=np.sort(device) if seed % 2 else device, devices=devices)
        model = list(MemoryModel)[seed // 2 % 2]
        alone = int(check(chain, allocation, gpipe(chain, allocation, 1), None, model).peaks.max())
        memory = int(rng.integers(alone, 2 * alone + 1))
        k = 1 + seed % 3
        questions.append(
            PeriodicProblem(chain=chain, allocation=allocation, k=k, memory=memory, model=model, seconds=600)
        )
    equal = 0
    for q, answer in zip(questions, exact_all(questions), strict=True):
        bounds = (
            *of_allocation(q.chain, q.allocation, q.memory, q.model),
            *of_all(q.chain, q.allocation.devices, q.memory, q.model),
        )
        for bound in bounds:
            assert bound.value <= answer.ticks or (bound.name == "in flight" and not q.allocation.contiguous), bound
        equal += any(bound.value == answer.ticks for bound in bounds)
    assert equal > len(seeds(10)) / 6
