"""All kinds of plans share one time limit; none is searched for without one, and none once it is over."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from pesto.choosing.strategy_choice import choice
from pesto.choosing.strategy_choice.choice import LEAST_S, choose, place_from_board
from pesto.core.errors import NothingFoundError
from pesto.core.settings import Settings

SETTINGS = Settings(time_limit_s=60.0)


@pytest.fixture
def searches(monkeypatch):
    """(clock, what each search was given); the split takes a second and is shorter than any placement can be."""
    clock, given = [0.0, 1.0], {}
    candidate = SimpleNamespace(makespan=10, fits=True, peak=np.zeros(1))
    division = SimpleNamespace(factors=(2,))
    timed = SimpleNamespace(candidate=candidate, makespan_s=1e-8, proof="", split=SimpleNamespace(division=division))

    def cut_and_time(*_, **__):
        clock[0] += clock[1]
        yield (timed,)

    def place_from_board(_graph, _cluster, _costs, settings, _watch):
        given["place"] = settings
        plan = SimpleNamespace(makespan_s=1e9, peak_bytes={"gpu:0": 0})
        return [(None, SimpleNamespace(plan=plan, interrupted=False))]

    def split_partially(_step, _cluster, settings, *_):
        given["both"] = settings

    def cut_along_batch(*_, seconds):
        given["data-parallel"] = seconds
        raise NothingFoundError("no batch divides")

    monkeypatch.setattr(choice, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(choice, "formulate", lambda *_: None)
    monkeypatch.setattr(choice, "quick_bounds", SimpleNamespace(best=lambda _: (10**18, "a bound")))
    for search in (cut_and_time, place_from_board, split_partially, cut_along_batch):
        monkeypatch.setattr(choice, search.__name__, search)
    return clock, given


def found(settings):
    """The choice among the made-up kinds."""
    return choose((None, None), None, None, settings, lambda _: None, cuts=[(2,)])


def test_a_placement_that_is_beaten_has_a_limit(searches):
    """With no limit all quick candidates would be made, however long they take: a gap that all meet ends it sooner."""
    _, given = searches
    found(SETTINGS)
    assert (given["place"].time_limit_s, given["place"].gap) == (29.5, choice.ANY_GAP)
    assert given["both"].time_limit_s == 59.0
    assert given["data-parallel"] == choice.CUTTING_SHARE * 60.0 / 2
    found(Settings(time_limit_s=60.0, deterministic=True))
    assert (given["place"].time_limit_s, given["place"].gap) == (0.0, 0.0)


def test_nothing_is_cut_once_the_time_is_over(searches):
    """The split took all of it: a moment is left to place."""
    clock, given = searches
    clock[1] = 101.0
    chosen = found(SETTINGS)
    assert chosen.chosen.name == "split 2" and "both" not in given
    assert given["place"].time_limit_s == LEAST_S / 2


@pytest.mark.parametrize(("interrupted", "spent_s"), [(False, 0.0), (True, math.inf)])
def test_an_interrupted_board_leaves_no_time(monkeypatch, interrupted, spent_s):
    """The whole cluster begins from the board's plan with the other half of the time; after Ctrl-C with none of it."""
    asked = []

    def solve(_graph, cluster, _costs, settings, _watch, *earlier):
        asked.append((cluster, settings.time_limit_s, *earlier))
        return SimpleNamespace(plan="its plan", interrupted=interrupted)

    monkeypatch.setattr(choice, "first_board", lambda *_: ("board", None))
    monkeypatch.setattr(choice, "solve", solve)
    place_from_board(None, "all", None, SETTINGS, lambda _: None)
    (board, all_of_it) = asked
    assert board == ("board", 30.0)
    assert all_of_it[:2] == ("all", 30.0)
    assert (all_of_it[2].start, all_of_it[2].spent_s) == ("its plan", spent_s)
