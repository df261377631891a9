"""Separation: a vendor is run again with the rows that its optimum breaks, within the limits of one run."""

import math
from dataclasses import replace

import numpy as np
import pytest

from solvers.instances.plain import on_equal_gpus
from solvers.milp.formulations import MakespanLimits
from solvers.milp.linear import LinearBuilder
from solvers.milp.tight.program import build
from solvers.milp.vendor import RunRequest, VendorOutcome, run_program, with_rows
from solvers.result import Limit, Status
from solvers.schedule import Schedule

ASK = RunRequest(seconds=30.0, gap=0.0, seed=3, threads=1, start=None)


class Heard:
    """Remembers what it is told."""

    def __init__(self, enough=False):
        self.enough = enough
        self.points, self.bounds = [], []

    def incumbent(self, values):
        self.points.append(values)

    def bound(self, objective):
        self.bounds.append(objective)

    def line(self, text):
        pass


@pytest.fixture
def case():
    """A program, a point in which its two transfers overlap, and one in which they do not: 8 and 9 ticks."""
    problem = on_equal_gpus([1, 1, 1], [0, 0], [1, 2], gpus=2, transfer=np.zeros(3, dtype=np.int64))
    problem = replace(problem, duration=[[1, 2]] * 3, payload=[0, 1], producer=[0, 0], transfer=[[3], [3]])
    columns = {"sent_payload": [0, 1], "sent_to": [1, 1]}
    both = Schedule(
        device=[0, 1, 1], start=[0, 4, 6], finish=[1, 6, 8], sent_start=[1, 1], sent_finish=[4, 4], **columns
    )
    apart = Schedule(
        device=[0, 1, 1], start=[0, 4, 7], finish=[1, 6, 9], sent_start=[1, 4], sent_finish=[4, 7], **columns
    )
    program = build(problem, MakespanLimits(least=0, most=12))
    return program, program.values(both), program.values(apart)


def vendor(asked, *outcomes):
    """A vendor that gives these outcomes one after the other, and notes what it was asked."""
    left = list(outcomes)

    def run(linear, ask, hear):
        asked.append((linear, ask))
        return left.pop(0)

    return run


def ended(values, bound, status=Status.OPTIMAL):
    return VendorOutcome(status=status, limit=Limit.NONE, values=values, bound=bound)


def test_an_optimum_that_breaks_a_disjunction_is_not_the_end(case):
    """The second run has the rows of the pair; what the first proved and found is told."""
    program, both, apart = case
    asked, heard = [], Heard()
    found = run_program(vendor(asked, ended(both, 8.0), ended(apart, 9.0)), program, ASK, heard)
    assert found.status is Status.OPTIMAL
    assert found.values is apart
    assert heard.points[0] is both
    assert heard.bounds == [8.0]
    (first, _), (second, ask) = asked
    assert first.violation(both) <= 1e-9
    assert second.violation(both) > 1e-3
    assert second.violation(apart) <= 1e-9
    assert second.columns == first.columns
    assert ask.seconds <= ASK.seconds
    assert ask.seed == 3


def test_an_optimum_that_breaks_nothing_is_one(case):
    """One run is enough."""
    program, _, apart = case
    asked = []
    assert run_program(vendor(asked, ended(apart, 9.0)), program, ASK, Heard()).status is Status.OPTIMAL
    assert len(asked) == 1


def test_what_is_no_optimum_is_passed_on(case):
    """A limit, or a proof that there is nothing, ends it, whatever the point breaks."""
    program, both, _ = case
    for outcome in (ended(both, 7.0, Status.FEASIBLE), ended(None, math.inf, Status.INFEASIBLE)):
        assert run_program(vendor([], outcome), program, ASK, Heard()) is outcome


def test_no_time_is_left_to_separate(case):
    """The point of a program without some rows is not called an optimum."""
    program, both, _ = case
    found = run_program(vendor([], ended(both, 8.0)), program, replace(ASK, seconds=0.0), Heard())
    assert (found.status, found.limit, found.bound) == (Status.FEASIBLE, Limit.TIME, 8.0)


def test_whoever_has_heard_enough_asks_for_no_more(case):
    """Where a bound from elsewhere is met, the first run is the last."""
    program, both, _ = case
    asked = []
    run_program(vendor(asked, ended(both, 8.0)), program, ASK, Heard(enough=True))
    assert len(asked) == 1


def test_effort_is_shared_by_the_runs(case):
    """Each gets half of what is left."""
    program, both, apart = case
    asked = []
    run_program(vendor(asked, ended(both, 8.0), ended(apart, 9.0)), program, replace(ASK, effort=10.0), Heard())
    assert [ask.effort for _, ask in asked] == [5.0, 2.5]


def test_rows_are_put_below_rows():
    """x >= 1, then x + 2 y <= 5."""
    rows, more = LinearBuilder(), LinearBuilder()
    x, y = rows.column(0.0, 9.0, cost=1.0), rows.column(0.0, 9.0)
    rows.row([(x, 1.0)], at_least=1.0)
    more.row([(x, 1.0), (y, 2.0)], at_most=5.0)
    linear = with_rows(rows.linear(), more.linear())
    assert linear.activity(np.array([2.0, 3.0])).tolist() == [2.0, 8.0]
    assert linear.row_lower.tolist() == [1.0, -math.inf]
    assert linear.row_upper.tolist() == [math.inf, 5.0]
    assert linear.columns == 2
