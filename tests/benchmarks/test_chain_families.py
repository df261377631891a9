"""Families of chains: what their rows say, least periods that hold, and refusals with a remedy."""

from dataclasses import fields
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from benchmarks.chain_families import CHAIN_FAMILIES, PipelineCase, make_case, of_numbers
from solvers.pipelining.chain import Allocation, Chain, Machines, MemoryModel
from solvers.pipelining.contiguous import best_cuts, bytes_lacking, thinnings
from solvers.pipelining.exact_periodic import PeriodicProblem, exact_all
from solvers.pipelining.pipeline_bounds import best, of_all, of_allocation

PAPER = MemoryModel.PAPER
PERIODS = ("4", "3", "8/3", "5/2", "12/5")
"""Theorem 4's for k = 1 to 5."""


def columns(case: PipelineCase) -> list[list[int]]:
    """Every number of a case's chain."""
    return [getattr(case.chain, f.name).tolist() for f in fields(Chain)]


def load(chain: Chain, allocation: Allocation) -> int:
    """The ticks of the busiest device."""
    return int(np.bincount(allocation.device, weights=chain.loads).max())


@pytest.mark.parametrize("name", CHAIN_FAMILIES)
def test_equal_arguments_give_equal_cases(name) -> None:
    """A seed counts where the row says so; a case with memory that is not a gadget fits contiguous stages."""
    one, again, other = make_case(name, 3), make_case(name, 3), make_case(name, 4)
    assert columns(one) == columns(again)
    assert (columns(one) != columns(other)) == CHAIN_FAMILIES[name].seeded
    for case in (one, other):
        if case.given is None:
            found = best_cuts(case.chain, Machines.alike(case.devices, case.memory))
            assert (found is not None) == case.fits_contiguous


@pytest.mark.parametrize(
    ("name", "k", "least", "contiguous"),
    [
        *(("many-batches", k, Fraction(period), Fraction(period)) for k, period in enumerate(PERIODS, 1)),
        *(("twice-as-long", k, k * (2 * k + 1), (2 * k - 1) * (2 * k + 1) + 1) for k in (2, 3, 4, 5)),
        *(("arbitrarily-longer", k, k, longer) for k, longer in ((3, 6), (4, 12), (5, 20))),
        ("one-two-one", None, 2, 3),
    ],
)  # fmt: skip
def test_the_least_periods_of_the_papers_examples(name, k, least, contiguous) -> None:
    """As printed, with errata; bounds meet the least of all, contiguous stages reach theirs, an allocation its own."""
    case = make_case(name, **({"bounded": 0} if k is None else {"k": k}))
    assert (case.least, case.least_contiguous) == (least, contiguous)
    thinned = k + 1 if name == "many-batches" else 1
    found = best_cuts(case.chain, Machines.alike(case.devices, case.memory), PAPER, thinnings(thinned))
    assert found.period == contiguous
    bounds = of_all(case.chain, case.devices, case.memory, PAPER)
    if name == "many-batches":  # the bound is of the stages: one a device
        bounds = of_allocation(case.chain, case.reached_on, case.memory, PAPER)
    assert best(bounds).value == least
    assert load(case.chain, case.reached_on) <= least
    assert case.memory is None or name == "many-batches" or held(case) <= case.memory


def held(case: PipelineCase) -> int:
    """Weights of the fullest device of the allocation that is said to reach the least period."""
    return int(np.bincount(case.reached_on.device, weights=case.chain.weights).max())


def test_a_chain_that_no_contiguous_stages_fit() -> None:
    """Weights 1, 2 and 1 on two devices of 2 bytes: cut anywhere, some device has 3."""
    case = make_case("one-two-one")
    assert not case.fits_contiguous
    assert bytes_lacking(case.chain, Machines.alike(2, 0)) == 3
    assert held(case) == case.memory == 2
    assert load(case.chain, case.reached_on) == case.least == best(of_all(case.chain, 2, 2)).value


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_hidden_threes(parts) -> None:
    """Both devices are busy for 2 m V ticks; the first has m holes of V, which the numbers fill in threes."""
    for seed in range(5):
        case = make_case("three-partition", seed, parts=parts, total=20)
        busy = np.bincount(case.given.device, weights=case.chain.loads)
        assert busy.tolist() == [2 * parts * 20] * 2 == [case.least] * 2
        in_flight = np.bincount(case.given.device, weights=case.chain.activation)
        assert in_flight.tolist() == [case.memory] * 2 == [parts] * 2
        assert in_threes(case.chain.forward[parts : 4 * parts].tolist(), 20)


def in_threes(numbers: list[int], total: int) -> bool:
    """Whether numbers can be put in threes of one sum."""
    if not numbers:
        return True
    pairs = combinations(range(1, len(numbers)), 2)
    return any(
        numbers[0] + numbers[i] + numbers[j] == total
        and in_threes([n for at, n in enumerate(numbers) if at not in (0, i, j)], total)
        for i, j in pairs
    )


def test_numbers_that_cannot_be_put_in_threes() -> None:
    """Six numbers of sum 40: no least period is claimed; and what is not 3 m numbers is refused."""
    case = of_numbers([6, 6, 6, 6, 6, 10], partitioned=False)
    assert (case.least, case.reached_on, case.memory) == (None, None, 2)
    assert not in_threes(case.chain.forward[2:8].tolist(), 20)
    with pytest.raises(ValueError, match="4 numbers of sum 10 - give 3 m whose sum is a multiple of m"):
        of_numbers([1, 2, 3, 4])


def test_networks_have_large_activations_first_or_evenly_and_large_weights_last() -> None:
    """Of convolutions the first fifth keeps most and the last holds most; blocks of a transformer are alike."""
    chain = make_case("convolution-chain").chain
    assert chain.activation[:4].sum() > chain.activation[4:].sum()
    assert chain.weights[-4:].sum() > chain.weights[:-4].sum()
    assert (np.diff(chain.output[1:]) <= 0).all()
    chain = make_case("transformer-chain").chain
    assert (np.diff(chain.weights[1:-1].reshape(-1, 2), axis=0) == 0).all()
    assert chain.forward[0] == 1


def test_tight_memory_is_what_the_parameter_says() -> None:
    """With all of the least memory contiguous stages fit, and with a byte less not."""
    case = make_case("random-chain", 5, room=100)
    assert best_cuts(case.chain, Machines.alike(case.devices, case.memory)) is not None
    assert best_cuts(case.chain, Machines.alike(case.devices, case.memory - 1)) is None


@pytest.mark.parametrize(
    ("name", "seed", "parameters", "said"),
    [
        ("many-batch", 0, {}, "no family is called 'many-batch' - did you mean many-batches"),
        ("many-batches", 0, {"kk": 1}, "many-batches has no parameter 'kk' - did you mean k"),
        ("many-batches", 0, {"k": 0}, "many-batches: k is 0 - give an integer from 1 to 1000"),
        ("random-chain", -1, {}, r"seed -1 is out of range - give 0 to 2\^63 - 1"),
    ],
)  # fmt: skip
def test_bad_names_and_values_are_refused(name, seed, parameters, said) -> None:
    """With what is known, or the range."""
    with pytest.raises(ValueError, match=said):
        make_case(name, seed, **parameters)


def test_hidden_threes_have_a_schedule_of_the_least_period() -> None:
    """Found and checked within the least period, which is the load of both devices, for 2 and 3 threes."""
    cases = [of_numbers([5, 6, 9, 6, 6, 8], partitioned=True), make_case("three-partition", 2, parts=3)]
    answers = exact_all(
        [
            PeriodicProblem(chain=c.chain, allocation=c.given, k=1, memory=c.memory, model=PAPER, most=int(c.least))
            for c in cases
        ]
    )
    assert [answer.ticks for answer in answers] == [case.least for case in cases] == [80, 120]
