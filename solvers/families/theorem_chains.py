"""The examples of Beaumont, Eyraud-Dubois and Shilova (Euro-Par 2021), with the least periods that they prove.

Where the paper has one cost for both halves of a layer, the forward half has half of it, rounded down. Nothing is
charged for what crosses a cut, so both models of memory agree.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from solvers.arrays import Ints
from solvers.families.pipeline_case import PipelineCase
from solvers.pipelining.chain import Allocation, Chain


def three_partition(rng: np.random.Generator, parts: int, total: int) -> PipelineCase:
    """`of_numbers` of 3 `parts` numbers that a hidden partition puts in threes of sum `total` >= 3."""
    low, high = max(1, total // 4), total // 2
    threes: list[tuple[int, int, int]] = []
    while len(threes) < parts:
        a, b = (int(n) for n in rng.integers(low, high + 1, 2))
        if low <= total - a - b <= high:
            threes.append((a, b, total - a - b))
    return of_numbers(rng.permutation(np.array(threes).ravel()).tolist(), partitioned=True)


def of_numbers(numbers: Sequence[int], *, partitioned: bool | None = None) -> PipelineCase:
    """Theorem 2: an allocation of 6 m layers to two devices on which 2 m V ticks are reached if 3 m numbers can be put
    in m threes of equal sum V, and only then; `partitioned` says whether they can, where that is known.

    Memory keeps one batch in each of the last 2 m layers, which leaves the first device m holes of V ticks. ValueError
    where the numbers are not 3 m, or do not sum to a multiple of m.
    """
    parts, lacking = divmod(len(numbers), 3)
    if not parts or lacking or sum(numbers) % parts:
        raise ValueError(f"{len(numbers)} numbers of sum {sum(numbers)} - give 3 m whose sum is a multiple of m")
    total = sum(numbers) // parts
    device = np.array([1] * parts + [0] * (3 * parts) + [1, 0] * parts)
    allocation = Allocation(device=device, devices=2)
    return PipelineCase(
        chain=_chain(
            forward=[total] * parts + list(numbers) + [total] * (2 * parts), backward=[0] * (6 * parts),
            activation=[0] * (4 * parts) + [1] * (2 * parts),
        ),
        devices=2, memory=parts, given=allocation,
        least=Fraction(2 * parts * total) if partitioned else None, reached_on=allocation if partitioned else None,
    )  # fmt: skip


def many_batches(k: int) -> PipelineCase:
    """Theorem 4: k + 1 equal layers on as many devices; 2 (k + 1) / k ticks need patterns of k batches or more.

    Layer l has room for k batches, then k, k - 1, ..., 1. Two layers on one device take 4 ticks, never less.
    """
    layers = k + 1
    least = Fraction(2 * layers, k)
    return PipelineCase(
        chain=_chain(
            forward=[1] * layers, backward=[1] * layers, activation=[1] * layers, weights=[1, *range(1, layers)]
        ),
        devices=layers, memory=layers, least=least, least_contiguous=least,
        reached_on=Allocation(device=np.arange(layers), devices=layers),
    )  # fmt: skip


def twice_as_long(k: int) -> PipelineCase:
    """Theorem 5, k >= 2: the best contiguous allocation takes 2 - 1 / k times as long as the best, and a bit more.

    A tick is the paper's epsilon: on 2 k + 1 devices k (2 k + 1) ticks, against (2 k - 1) (2 k + 1) + 1.
    """
    if k < 2:
        raise ValueError(f"k is {k} - give 2 or more, as for 1 the paper's chain has fewer than no layers of one kind")
    unit = 2 * k + 1
    small = (k - 2) * unit + 1
    costs = [k * unit, 1, (k - 1) * unit, 1] * k + [k * unit] + [1] * small + [unit]
    # k + 1 devices have the long layers, one the last layer and a shorter one, k - 1 a shorter one and 2 k + 1 ticks.
    device = np.zeros(len(costs), dtype=np.int64)
    device[np.flatnonzero(np.array(costs) == k * unit)] = np.arange(k + 1)
    shorter = np.arange(2, 4 * k, 4)
    device[shorter] = k + 1 + np.arange(k)
    device[-1] = k + 1
    ticks = np.flatnonzero(np.array(costs) == 1)
    device[ticks] = k + 2 + np.arange(len(ticks)) // unit
    return PipelineCase(
        chain=_of_costs(costs), devices=unit, least=Fraction(k * unit),
        least_contiguous=Fraction((2 * k - 1) * unit + 1), reached_on=Allocation(device=device, devices=unit),
    )  # fmt: skip


def arbitrarily_longer(k: int) -> PipelineCase:
    """Theorem 6, k >= 2: within the memory the best contiguous allocation takes k - 1 times as long as the best.

    k layers of one tick and M - 1 bytes, one of k ticks and M bytes, k of k - 1 ticks and one byte; k + 2 devices of
    M = max(k, 3) bytes, of which the best leaves one idle.
    """
    if k < 2:
        raise ValueError(f"k is {k} - give 2 or more, as for 1 the last layers take no time")
    memory = max(k, 3)
    return PipelineCase(
        chain=_of_costs([1] * k + [k] + [k - 1] * k, [memory - 1] * k + [memory] + [1] * k),
        devices=k + 2, memory=memory, least=Fraction(k), least_contiguous=Fraction(k * (k - 1)),
        reached_on=Allocation(device=np.array([*range(k), k, *range(k)]), devices=k + 2),
    )  # fmt: skip


def one_two_one(bounded: bool) -> PipelineCase:
    """Layers of 1, 2 and 1 ticks and bytes on two devices: 2 ticks, or 3 if contiguous (section 6.1).

    `bounded`: of two bytes each, which no contiguous allocation fits (Lemma 2).
    """
    return PipelineCase(
        chain=_of_costs([1, 2, 1], [1, 2, 1]), devices=2, memory=2 if bounded else None, least=Fraction(2),
        reached_on=Allocation(device=np.array([0, 1, 0]), devices=2),
        least_contiguous=None if bounded else Fraction(3), fits_contiguous=not bounded,
    )  # fmt: skip


def _of_costs(costs: Sequence[int], weights: Sequence[int] | None = None) -> Chain:
    forward = [cost // 2 for cost in costs]
    backward = [cost - cost // 2 for cost in costs]
    return _chain(forward=forward, backward=backward, weights=weights)


def _chain(
    *,
    forward: Sequence[int],
    backward: Sequence[int],
    activation: Sequence[int] | None = None,
    weights: Sequence[int] | None = None,
) -> Chain:
    layers = len(forward)

    def column(values: Sequence[int] | None) -> Ints:
        return np.array([0] * layers if values is None else values, dtype=np.int64)

    return Chain(
        forward=column(forward), backward=column(backward), weights=column(weights), activation=column(activation),
        output=np.zeros(layers + 1, dtype=np.int64), transfers=np.zeros(layers - 1, dtype=np.int64),
    )  # fmt: skip
