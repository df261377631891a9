"""Profiles, curves and integrals against examples small enough to compute by hand."""

import numpy as np
import pytest

from pesto.research.study.report import curves
from pesto.research.study.report.pictures import HIGHEST, spread_labels

INF, NAN = np.inf, np.nan


def test_ratios_are_against_the_best_solver_of_each_problem() -> None:
    """Rows: 2 and 6 s; only the first solves it; nobody does; 0 s against 5 s."""
    ratio = curves.ratios(np.array([[2.0, 6.0], [3.0, INF], [INF, INF], [0.0, 5.0]]))
    assert ratio.tolist() == [[1.0, 3.0], [1.0, INF], [INF, INF], [1.0, INF]]


@pytest.mark.parametrize("cost", [-1.0, NAN])
def test_ratios_refuse_what_is_no_cost(cost: float) -> None:
    with pytest.raises(ValueError, match="cost"):
        curves.ratios(np.array([[1.0, cost]]))


def test_a_profile_counts_the_problems_within_each_ratio() -> None:
    """Of four problems one at ratio 1, two at 3, one unsolved: 1/4 from 1 on, 3/4 from 3 on, for ever."""
    tau, rho = curves.profile(np.array([3.0, 1.0, INF, 3.0]))
    assert tau.tolist() == [1.0, 3.0]
    assert rho.tolist() == [0.25, 0.75]


def test_a_profile_begins_at_one_also_for_a_solver_that_is_never_best() -> None:
    tau, rho = curves.profile(np.array([2.0, 2.0]))
    assert (tau.tolist(), rho.tolist()) == ([1.0, 2.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="problem"):
        curves.profile(np.empty(0))


def test_shifted_geometric_mean() -> None:
    """sqrt((0 + 1)(8 + 1)) - 1 = 2; without the shift the 0 would make it 0."""
    assert curves.shifted_geometric_mean(np.array([0.0, 8.0])) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="values"):
        curves.shifted_geometric_mean(np.empty(0))


def test_gaps() -> None:
    """(10 - 8)/10; no schedule; no bound; 0/0; a bound above the makespan is no negative gap."""
    made = curves.gap(np.array([10.0, NAN, 10.0, 0.0, 10.0]), np.array([8.0, 5.0, NAN, 0.0, 11.0]))
    assert made.tolist() == pytest.approx([0.2, 1.0, 1.0, 0.0, 0.0])


def test_primal_gaps() -> None:
    """12 against 9: 3/12; equal; no schedule; none known; 0 against 0."""
    made = curves.primal_gap(np.array([12.0, 9.0, NAN, 5.0, 0.0]), np.array([9.0, 9.0, 9.0, NAN, 0.0]))
    assert made.tolist() == pytest.approx([0.25, 0.0, 1.0, 1.0, 0.0])


def test_lowest_so_far_starts_afresh_with_each_run_and_is_exact() -> None:
    """Beyond 2^53 neighbours are equal as floats."""
    run = np.array([0, 0, 0, 2, 2])
    value = np.array([2**60 + 1, 2**60, 2**60 + 5, 2**62, 7])
    assert curves.lowest_so_far(run, value).tolist() == [2**60 + 1, 2**60, 2**60, 2**62, 7]


def test_primal_integral_of_three_runs() -> None:
    """Horizon 10: 1 until 2 s, 1/2 until 6 s, then 0: 2 + 2. The second knows 1/4 from the start: 10/4. The third
    finds something only past its horizon of 4 s: 4. The fourth has no event: 5."""
    run = np.array([0, 0, 1, 2])
    seconds = np.array([2.0, 6.0, 0.0, 4.5])
    value = np.array([0.5, 0.0, 0.25, 0.5])
    area = curves.integral(run, seconds, value, np.array([10.0, 10.0, 4.0, 5.0]))
    assert area.tolist() == pytest.approx([4.0, 2.5, 4.0, 5.0])


def test_integral_without_any_event_is_the_horizon() -> None:
    none = np.empty(0, dtype=np.int64)
    assert curves.integral(none, np.empty(0), np.empty(0), np.array([3.0, 0.0])).tolist() == [3.0, 0.0]


def test_mean_of_step_functions() -> None:
    """Run 0: 1, from 2 s 0.5, from 4 s 0. Run 1: 0.6 from 0 s on, 0.2 from 4 s. Mean: .8, .55, .1; integral by hand."""
    run = np.array([0, 0, 1, 1])
    seconds = np.array([2.0, 4.0, 0.0, 4.0])
    times, means = curves.mean_steps(run, seconds, np.array([0.5, 0.0, 0.6, 0.2]), 2)
    assert times.tolist() == [0.0, 2.0, 4.0]
    assert means.tolist() == pytest.approx([0.8, 0.55, 0.1])
    when = np.array([0.0, 1.0, 2.0, 3.0, 5.0])
    assert curves.at(times, means, when).tolist() == pytest.approx([0.8, 0.8, 0.55, 0.55, 0.1])
    # 0, .8, 1.6, 1.6 + .55, 1.6 + 1.1 + .1
    assert curves.integral_until(times, means, when).tolist() == pytest.approx([0.0, 0.8, 1.6, 2.15, 2.8])


def test_a_run_without_events_counts_as_one_in_the_mean() -> None:
    times, means = curves.mean_steps(np.array([0]), np.array([1.0]), np.array([0.0]), 4)
    assert (times.tolist(), means.tolist()) == ([0.0, 1.0], [1.0, 0.75])
    with pytest.raises(ValueError, match="run"):
        curves.mean_steps(np.array([0]), np.array([1.0]), np.array([0.0]), 0)


def test_the_mean_of_integrals_is_the_integral_of_the_mean() -> None:
    """Two ways to one number, on random step functions."""
    rng = np.random.default_rng(5)
    run = np.sort(rng.integers(0, 20, 500))
    seconds = rng.random(500) * 10
    order = np.lexsort((seconds, run))
    run, seconds, value = run[order], seconds[order], rng.random(500)
    area = curves.integral(run, seconds, value, np.full(20, 10.0))
    whole = curves.integral_until(*curves.mean_steps(run, seconds, value, 20), np.array([10.0]))
    assert area.mean() == pytest.approx(whole[0])


def test_names_at_the_ends_of_lines_are_moved_apart_and_stay_in_order() -> None:
    placed = spread_labels(np.array([0.5, 0.1, 0.52, 1.0, 1.0]), 0.1)
    order = np.argsort([0.5, 0.1, 0.52, 1.0, 1.0], kind="stable")
    assert (np.diff(placed[order]) >= 0.1 - 1e-12).all()
    assert placed.max() == pytest.approx(HIGHEST)
    assert spread_labels(np.array([0.2, 0.8]), 0.1).tolist() == pytest.approx([0.2, 0.8])
