"""Standing plans, drawn windows and their excerpts against brute force, without any engine."""

from dataclasses import replace

import numpy as np
import pytest

from solvers.checker import check
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.random import generate
from solvers.result import Options
from solvers.structure.units import units_of
from solvers.windows.excerpt import Span, excerpt_of, standing_of, tables_of
from solvers.windows.solver import KINDS, Choices

SEEDS = range(10)


def plan_of(seed, tasks=20, *, links=True):
    """A random problem, and its list schedule as it stands; None where the list finds no schedule."""
    problem = generate(np.random.default_rng([31, seed]), tasks=tasks, gpus=3)
    if not links:
        problem = replace(problem, path_links=np.full_like(problem.path_links, -1))
    start = ListScheduler().solve(problem, Options(seconds=1), lambda _: None).schedule
    if start is None:
        return None
    tables = tables_of(problem)
    return standing_of(tables, start.device, np.lexsort((tables.topological, start.finish, start.start)))


PLANS = [plan for plan in map(plan_of, SEEDS) if plan is not None]
LINKLESS = [plan for plan in (plan_of(seed, links=False) for seed in SEEDS) if plan is not None]


def followers(plan):
    """What must wait for each activity, tasks and then transfers, where all orders are kept."""
    p, s = plan.tables.problem, plan.schedule
    n, after = p.tasks, {k: set() for k in range(p.tasks + len(s.sent_payload))}
    sent = {(int(x), int(to)): n + k for k, (x, to) in enumerate(zip(s.sent_payload, s.sent_to, strict=True))}
    for (payload, _), transfer in sent.items():
        after[int(p.producer[payload])].add(transfer)
    for src, dst, payload in zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True):
        crosses = payload >= 0 and plan.at[src] != plan.at[dst]
        after[sent[payload, int(plan.at[dst])] if crosses else src].add(dst)
    start, finish = np.append(s.start, s.sent_start), np.append(s.finish, s.sent_finish)
    held = [{("device", int(d))} for d in s.device]
    for payload, to in zip(s.sent_payload, s.sent_to, strict=True):
        path = p.holds[plan.at[p.producer[payload]], to]
        held.append({("link", int(link)) for link in path if link >= 0})
    for one, later in after.items():
        for two in after:
            first = finish[one] <= start[two] and (finish[one] < finish[two] or start[one] < start[two])
            if one != two and first and held[one] & held[two]:
                later.add(two)
    return after, finish - start


@pytest.mark.parametrize("plan", PLANS)
def test_what_is_left_is_the_longest_path(plan):
    """No tail is longer than the run; each is at least that of what follows, with the ticks of its own."""
    after, took = followers(plan)
    start = np.append(plan.schedule.start, plan.schedule.sent_start)
    assert (start + plan.tail <= plan.makespan).all() and (plan.tail >= took).all()
    for one, later in after.items():
        for two in later:
            if took[one] and took[two]:  # of what takes no time several may stand in one tick, in either order
                assert plan.tail[one] >= took[one] + plan.tail[two]


@pytest.mark.parametrize("plan", PLANS)
def test_a_critical_task_ends_or_holds_up_the_end(plan):
    """Some task is critical, the last that ends among them, and none of them can start later."""
    s = plan.schedule
    critical = plan.critical
    assert len(critical)
    last = np.flatnonzero((s.finish == s.makespan) & (s.finish > s.start))
    assert np.isin(last, critical).all()
    assert (s.start[critical] + plan.tail[critical] == s.makespan).all()


@pytest.mark.parametrize("plan", PLANS)
def test_a_standing_plan_stands_as_it_is(plan):
    """Its own placement and order give the same run again, its tables the same bytes and turns."""
    p = plan.tables.problem
    again = standing_of(plan.tables, plan.schedule.device, plan.order)
    assert np.array_equal(again.schedule.start, plan.schedule.start) and again.makespan == plan.makespan
    assert not {violation.kind for violation in check(p, plan.schedule)}
    for place in range(p.locations):
        assert plan.held[place] == p.memory[plan.at == place].sum()
    for device, places in enumerate(plan.turns):
        assert set(plan.order[places].tolist()) == set(np.flatnonzero(plan.schedule.device == device).tolist())
    for payload, to in zip(*np.nonzero(plan.crossing >= 0), strict=True):
        sent = plan.crossing[payload, to]
        assert (plan.schedule.sent_payload[sent], plan.schedule.sent_to[sent]) == (payload, to)


@pytest.mark.parametrize("plan", LINKLESS)
def test_the_way_there_and_back_changes_nothing(plan):
    """The plan's own part, put back, is the plan; without links, where a window leaves nothing out of account."""
    for seed in range(4):
        _, span = Choices(seed, 7).draw(plan)
        excerpt = excerpt_of(plan, span)
        device, order = excerpt.back(excerpt.start, plan)
        assert np.array_equal(device, plan.schedule.device)
        assert sorted(order.tolist()) == list(range(len(order)))
        assert standing_of(plan.tables, device, order).makespan == plan.makespan
        assert excerpt.start.makespan + plan.schedule.start[excerpt.tasks].min() <= plan.makespan


@pytest.mark.parametrize("plan", PLANS)
def test_any_schedule_of_a_window_is_a_valid_plan(plan):
    """A list schedule of the excerpt, put back and run: the checker finds nothing but bytes that were there before."""
    p = plan.tables.problem
    for seed in range(3):
        _, span = Choices(seed, 8).draw(plan)
        excerpt = excerpt_of(plan, span)
        assert not check(excerpt.problem, excerpt.start)
        other = ListScheduler().solve(excerpt.problem, Options(seconds=1), lambda _: None).schedule
        if other is None:
            continue
        device, order = excerpt.back(other, plan)
        run = standing_of(plan.tables, device, order)
        assert not check(p, run.schedule)
        outside = np.setdiff1d(np.arange(p.tasks), plan.order[span.free])
        moved = np.flatnonzero(device != plan.schedule.device)
        assert not np.isin(moved, outside).any()


@pytest.mark.parametrize("plan", PLANS)
def test_only_whole_units_move_and_only_between_the_places_of_the_span(plan):
    """Each free task may be where its unit can be, within the two places; a unit of which one is not free stays."""
    p, units = plan.tables.problem, units_of(plan.tables.problem)
    free = np.arange(2, 12)
    places = frozenset(np.unique(plan.at)[:2].tolist())
    excerpt = excerpt_of(plan, Span(free, places))
    inside = set(plan.order[free].tolist())
    own = excerpt.problem.location
    for k, task in enumerate(excerpt.tasks.tolist()):
        can = set(own[excerpt.problem.allowed[k]].tolist())
        whole = set(np.flatnonzero(units.unit == units.unit[task]).tolist()) <= inside
        here = int(plan.at[task])
        if not whole or here not in places:
            assert can == {here}
        else:
            able = set(np.flatnonzero(units.allowed[units.unit[task]]).tolist())
            assert can <= (places & able) | {here}
    assert not excerpt.whole
    assert excerpt_of(plan, Span(np.arange(p.tasks))).whole


@pytest.mark.parametrize("name", KINDS)
def test_windows_are_of_the_size_that_is_asked_for(name):
    """Rising places of distinct tasks, as many as were asked for where there are so many; a period is without gaps."""
    for plan in PLANS:
        n, rng = len(plan.order), np.random.default_rng(5)
        for size in (1, 5, n, n + 9):
            places = KINDS[name].draw(plan, size, rng)
            assert (np.diff(places) > 0).all() and 0 <= places[0] <= places[-1] < n
            assert 0 < len(places) <= size
            if name == "period":
                assert len(places) == min(size, n) and (np.diff(places) == 1).all()
                assert np.isin(plan.order[places], plan.critical).any()


def test_the_same_outcomes_give_the_same_windows():
    """Draws depend on the seed and on what was learned alone; kinds that pay are drawn more often."""

    def drawn(seed, paying):
        choices, names = Choices(seed, 9), []
        for _ in range(60):
            name, span = choices.draw(PLANS[0])
            names.append((name, span.free.tolist(), span.places))
            choices.kinds.learn(name, closed=True, better=name == paying, effort=0.1)
        return names

    assert drawn(1, "long") == drawn(1, "long") != drawn(2, "long")
    often = [sum(name == "period" for name, _, _ in drawn(3, paying)) for paying in ("period", "long")]
    assert often[0] > often[1]


def test_sizes_follow_what_the_engine_manages():
    """Closed windows grow to their limit, those that are not closed shrink to theirs."""
    for closed, limit in ((True, 60), (False, 6)):
        choices = Choices(0, 20)
        for _ in range(300):
            for name in KINDS:
                choices.kinds.learn(name, closed=closed, better=False, effort=0.1)
        plan = plan_of(3, tasks=90)
        sizes = [len(choices.draw(plan)[1].free) for _ in range(12)]
        assert max(sizes) <= limit and (not closed or max(sizes) == limit)
