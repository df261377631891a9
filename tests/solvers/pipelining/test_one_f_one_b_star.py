"""1F1B* has the fewest batches in flight that its period allows, thinned or not, and its least period is the least."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.arrays import ints
from solvers.pipelining.chain import BACKWARD, Allocation, MemoryModel
from solvers.pipelining.one_f_one_b_star import (
    candidate_periods,
    groups,
    least_period,
    stages_of,
    thinned,
)
from solvers.pipelining.pattern_check import check

PAPER = MemoryModel.PAPER
KEEPS = tuple((k, n) for n in range(1, 6) for k in range(1, n + 1))


def in_flight(chain, allocation, pattern):
    found = check(chain, allocation, pattern)
    assert found.valid, found.text
    return found.in_flight.tolist()


def test_figure_3(chain, each):
    three = chain([1, 1, 1], [1, 1, 1])
    assert in_flight(three, each(3), thinned(three, each(3), 2, (1, 1))) == [3, 2, 1]
    two_of_three = thinned(three, each(3), 2, (2, 3))
    assert (two_of_three.T, two_of_three.k, two_of_three.period) == (6, 2, 3)
    assert in_flight(three, each(3), two_of_three) == [2, 2, 1]


@pytest.mark.parametrize(("period", "held"), [(3, [4, 3, 2, 1]), (6, [2, 2, 1, 1]), (9, [2, 1, 1, 1]), (12, [1] * 4)])
def test_groups_are_packed_from_the_last_stage(chain, each, period, held):
    four = chain([1] * 4, [2] * 4)
    assert groups(stages_of(four, each(4)), period).tolist() == held
    assert in_flight(four, each(4), thinned(four, each(4), period, (1, 1))) == held


def test_what_begins_at_the_end_of_a_period_begins_the_next(chain, each):
    """Erratum: the paper wraps what is later than T, and leaves B_3 at 6 of 6."""
    found = thinned(chain([1] * 4, [2] * 4), each(4), 6, (1, 1))
    row = np.flatnonzero((found.kind == BACKWARD) & (found.layer == 2))
    assert (found.t[row].tolist(), found.shift[row].tolist()) == ([0], [0])


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_theorem_4(chain, each, k):
    """k of k + 1 batches: a period of 2 (1 + 1/k) where NCA is at most k, k, k - 1, ..., 1."""
    found = chain([1] * (k + 1), [1] * (k + 1), weights=[1, *range(1, k + 1)])
    pattern = thinned(found, each(k + 1), 2, (k, k + 1))
    assert pattern.period == 2 + Fraction(2, k)
    checked = check(found, each(k + 1), pattern, k + 1, PAPER)
    assert checked.valid, checked.text
    assert checked.in_flight.tolist() == [k, *range(k, 0, -1)]


def test_thinning_between_1f1b_star_and_the_best(chain, each):
    """One of the chains on which 1F1B* is 9, its best thinning 15/2 and the best of all 7; another: 8, 8."""
    one, two = chain([1, 3, 3, 1], [1, 2, 1, 4]), chain([1, 1, 2], [5, 1, 4])
    assert least_period(one, each(4), ints([3, 2, 2, 2]), PAPER).period == 9
    best = least_period(one, each(4), ints([3, 2, 2, 2]), PAPER, KEEPS)
    assert best.period == Fraction(15, 2)
    assert Fraction(best.T * best.keep[1], best.keep[0]) == best.period
    for keeps in (((1, 1),), KEEPS):
        assert least_period(two, each(3), ints([2, 2, 1]), PAPER, keeps).period == 8


def test_memory_that_holds_no_batch_has_no_period(chain, each):
    found = chain([1, 1], [1, 1], weights=[3, 3])
    assert least_period(found, each(2), 3, PAPER) is None
    assert least_period(found, each(2), 4, PAPER).period == 4
    assert least_period(found, each(2), 5, PAPER).period == 2
    assert least_period(found, each(2), None).period == 2


def test_received_inputs_cost_more_than_the_paper_counts(chain, each):
    found = chain([2, 2], [2, 2], activation=[4, 4], output=[0, 4, 0], transfers=[2])
    pattern = thinned(found, each(2), 4, (1, 1))
    paper, received = (check(found, each(2), pattern, model=model).peaks for model in MemoryModel)
    assert (received >= paper).all()
    assert received[1] > paper[1]


def test_what_cannot_be_is_said(chain, each):
    three = chain([1, 4, 1], [1, 1, 1], transfers=[0, 9])
    with pytest.raises(ValueError, match="takes 9 ticks a batch"):
        thinned(three, each(3), 8, (1, 1))
    with pytest.raises(ValueError, match="contiguous"):
        thinned(three, Allocation(device=[0, 1, 0], devices=2), 20, (1, 1))
    with pytest.raises(ValueError, match="3 of 2"):
        thinned(three, each(3), 9, (3, 2))


def holds(random_case, seed, period_more, keep, least=1):
    """Valid, and in flight just as said: ceil(g k/n) in a stage of group g."""
    chain, allocation = random_case(seed, least=least)
    stages = stages_of(chain, allocation)
    period = max(1, int((stages.forward + stages.backward).max())) + period_more
    found = in_flight(chain, allocation, thinned(chain, allocation, period, keep))
    group = groups(stages, period)
    for number, (first, last, _) in zip(group[stages.transfer == 0].tolist(), allocation.stages.tolist(), strict=True):
        said = -(-number * keep[0] // keep[1])
        held = max(found[first : last + 1])
        assert held == said if least and keep == (1, 1) else held <= said


@given(
    seed=st.integers(0, 2**32),
    more=st.integers(0, 30),
    keep=st.sampled_from(KEEPS),
    least=st.integers(0, 1),
)
def test_every_pattern_is_valid(random_case, seed, more, keep, least):
    holds(random_case, seed, more, keep, least)


def test_groups_change_at_sums_of_consecutive_stages_alone(random_case):
    """Theorem 3: no other period has to be tried, and memory never grows with it."""
    for seed in range(40):
        stages = stages_of(*random_case(seed))
        candidates = candidate_periods(stages)
        last = None
        for period in range(candidates[0], candidates[-1] + 2):
            found = groups(stages, period)
            assert last is None or (found <= last).all()
            assert last is None or period in candidates or (found == last).all()
            last = found
