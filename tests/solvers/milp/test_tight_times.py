"""The tight program's times and loads: nothing is left open that a limit settles, and nothing is cut off."""

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from solvers.checker import check
from solvers.instances.plain import on_equal_gpus
from solvers.milp.formulations import MakespanLimits
from solvers.milp.tight.program import CUTS, LaneJob, _ends, build
from solvers.milp.tight.times import transitive_reduction
from solvers.problem import FORBIDDEN


def late(p, s, most):
    """Each task and transfer, the last first, as late as what follows it allows: it may be invalid."""
    at, start, sent = p.location[s.device], s.start.copy(), s.sent_start.copy()
    ticks, takes = s.finish - s.start, s.sent_finish - s.sent_start
    links = [
        {*p.path_links[at[p.producer[k]], to].tolist()} - {-1} for k, to in zip(s.sent_payload, s.sent_to, strict=True)
    ]
    placed = []
    steps = [(s.finish[i], s.start[i], 0, i) for i in range(p.tasks)]
    steps += [(s.sent_finish[k], s.sent_start[k], 1, k) for k in range(len(sent))]
    for _, _, kind, k in sorted(steps, reverse=True):
        if kind:
            readers = p.dst[(p.payload == s.sent_payload[k]) & (at[p.dst] == s.sent_to[k])]
            others = [sent[j] for what, j in placed if what and links[j] & links[k]]
            sent[k] = min([*start[readers], *others]) - takes[k]
        else:
            near = [start[j] for j in p.dst[(p.src == k) & ((p.payload < 0) | (at[p.dst] == at[k]))]]
            leaves = [sent[j] for j in np.flatnonzero(p.producer[s.sent_payload] == k)]
            others = [start[j] for what, j in placed if not what and s.device[j] == s.device[k]]
            start[k] = min([*near, *leaves, *others, most]) - ticks[k]
        placed.append((kind, k))
    return replace(s, start=start, finish=start + ticks, sent_start=sent, sent_finish=sent + takes)


def test_every_schedule_as_late_as_can_be_is_a_point(cases):
    """What a limit on the makespan leaves open is not cut off: not the latest time of any task or transfer."""
    tried = 0
    for problem, schedule in cases[2::6]:
        most = schedule.makespan + 2
        pushed = late(problem, schedule, most)
        if check(problem, pushed):  # what takes no ticks may be in two orders at once
            continue
        program = build(problem, MakespanLimits(least=0, most=most))
        values = program.values(pushed)
        assert program.linear.violation(values) <= 1e-9
        assert program.linear.cost @ values == pytest.approx(pushed.makespan)
        tried += 1
    assert tried > len(cases) / 12


@pytest.mark.parametrize("spare", [0, 5])
def test_a_chain_over_two_devices_leaves_open_what_is_spare(spare):
    """Tasks that run on one device each, by turns, so that every payload crosses: all times are open by `spare` ticks.

    With t the ticks of tasks and c those of crossings, all in a row, C is sum t + sum c or `spare` more; on each lane
    what is before an activity, itself and what is behind it are all of that.
    """
    rng = np.random.default_rng(4)
    ticks, sends = rng.integers(1, 9, 6), rng.integers(1, 9, 6)
    base = on_equal_gpus(ticks, np.arange(5), np.arange(1, 6), gpus=2, transfer=sends)
    problem = replace(base, duration=np.where(np.arange(6)[:, None] % 2 == np.arange(2), ticks[:, None], FORBIDDEN))
    start = np.concatenate([[0], np.cumsum(ticks[:5] + sends[:5])])
    least = int(start[5] + ticks[5])
    program = build(problem, MakespanLimits(least=least, most=least + spare))
    linear, draft = program.linear, program.draft
    assert linear.lower[draft.makespan] == least and linear.upper[draft.makespan] == least + spare
    crossed = [c.start for c in program.crossings]
    begins = [*start.tolist(), *(start[:5] + ticks[:5]).tolist()]
    assert [c.producer for c in program.crossings] == [0, 1, 2, 3, 4]
    assert linear.lower[[*draft.start, *crossed]].tolist() == begins
    assert linear.upper[[*draft.start, *crossed]].tolist() == [begin + spare for begin in begins]
    ends = [*(start + ticks).tolist(), *start[1:].tolist()]
    found = [(a.earliest, a.latest) for a in program.lanes.activities]
    assert found == [(begin, end + spare) for begin, end in zip(begins, ends, strict=True)]
    assert [c.window for c in program.crossings] == found[6:]
    assert sum(map(len, program.lanes.jobs)) == 6 + 5
    for job in (job for jobs in program.lanes.jobs for job in jobs):
        assert (job.head, job.head + job.ticks, job.sure) == (begins[job.activity], ends[job.activity], True)
        assert job.head + job.ticks + job.tail == least
    assert not program.orders


def test_rows_are_those_of_the_transitive_reduction():
    """Tasks that follow another have a row where nothing is between the two: as networkx reduces random orders."""
    rng = np.random.default_rng(5)
    for _ in range(30):
        n = int(rng.integers(2, 9))
        closure = nx.transitive_closure_dag(nx.DiGraph(np.argwhere(np.triu(rng.random((n, n)) < 0.4, 1)).tolist()))
        after = np.zeros((n, n), dtype=bool)
        for one, two in closure.edges:
            after[one, two] = True
        reduced = nx.transitive_reduction(closure)
        assert {(a, b) for a, b in np.argwhere(transitive_reduction(after)).tolist()} == set(reduced.edges)


def test_load_cuts_are_of_the_sets_with_most_work():
    """All jobs of a lane, and at most eight other sets between a head and a tail: h + t + half the work is most there.

    None may say more than is known where nothing of it is on the lane: h + t <= least.
    """
    rng, left_out = np.random.default_rng(9), 0
    for _ in range(50):
        head, tail, ticks = rng.integers(0, 30, (3, int(rng.integers(1, 7))))
        jobs = [
            LaneJob(activity=k, head=int(h), ticks=int(p), tail=int(t), columns=((k, int(p)),), sure=False)
            for k, (h, t, p) in enumerate(zip(head, tail, ticks, strict=True))
        ]
        least = int(rng.integers(20, 60))
        scored = []
        for h, t in itertools.product(sorted({*head.tolist()}), sorted({*tail.tolist()})):
            inside = (head >= h) & (tail >= t)
            scored += [(h + t + ticks[inside].sum() / 2, frozenset(np.flatnonzero(inside).tolist()))] * (h + t <= least)
        best = [chosen for _, chosen in sorted(scored, key=lambda each: -each[0])]
        every = frozenset(range(len(jobs)))
        wanted = list(dict.fromkeys([*([every] if every in best else []), *best]))[: 1 + CUTS]
        found = [frozenset(np.flatnonzero((head >= h) & (tail >= t)).tolist()) for h, t in _ends(jobs, least)]
        assert found == wanted
        left_out += len(set(best)) > 1 + CUTS
    assert left_out > 5
    assert _ends([], 9) == []
