"""The exact scheduler against enumeration: every start of every half of a layer, one and two batches a period."""

import numpy as np
import pytest
from periods_by_force import least_ticks, one_fits
from pipelines import small_chain

from solvers.pipelining.chain import Allocation, MemoryModel
from solvers.pipelining.exact_periodic import PeriodicProblem, exact_all


def least_room(chain, device, paper) -> int:
    """The fewest bytes of a device that one batch fits."""
    return next(memory for memory in range(10**6) if one_fits(chain, device, memory, paper))


@pytest.mark.slow
@pytest.mark.parametrize(("k", "layers", "ticks", "many"), [(1, 3, 4, 12), (2, 2, 3, 5), (2, 3, 2, 2)])
def test_exact_periods_are_those_of_enumeration(k, layers, ticks, many, seeds) -> None:
    """On any allocation, in both models; what is proven is never above. Stages done at once are never shorter."""
    questions, least, at_once = [], [], []
    for seed in seeds(many):
        rng = np.random.default_rng(seed)
        chain, devices = small_chain(rng, int(rng.integers(1, layers + 1)), ticks, 5), int(rng.integers(1, 4))
        device, model = tuple(rng.integers(devices, size=chain.layers).tolist()), list(MemoryModel)[seed % 2]
        paper = model is MemoryModel.PAPER
        memory = least_room(chain, device, paper) + int(rng.integers(0, 8))
        least.append(least_ticks(chain, device, k, memory, paper))
        allocation = Allocation(device=device, devices=devices)
        for apart in (True, False):
            question = PeriodicProblem(
                chain=chain, allocation=allocation, k=k, memory=memory, model=model, apart=apart, seconds=600,
                most=least[-1] if apart else None,
            )  # fmt: skip
            (questions if apart else at_once).append(question)
    for seed, (ticks_found, answer) in enumerate(zip(least, exact_all(questions), strict=True)):
        assert answer.ticks * k == answer.least * k == ticks_found, seed
    for ticks_found, answer in zip(least, exact_all(at_once), strict=True):
        assert answer.ticks * k >= ticks_found
