"""Causes of waits: what each op of a step waited for, its slack, and the critical path.

A step is a graph of activities, ops and transfers: each starts when the last of those ends that it waits for, which are
what sends to it, and what was before it on its device or its links. So a path of activities without a hole leads from
time 0 to the end of the step: its legs sum to the makespan.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pesto.core.simulator import Timeline
from solvers.arrays import Ints, ints, rank_of
from solvers.compiled.dag import adjacency, tails, topological_order

BEGIN, DATA, TRANSFER, DEVICE = range(4)
"""`Waits.cause`: the step began; an op ended that it follows; a tensor arrived; the op before on its device ended."""
_LINK, _SENT = 4, 5
"""Further edges of the graph of activities: from a transfer to the next on a link, and from an op to what it sends."""
COMPUTE_LEG, TRANSFER_LEG, LINK_LEG, BEGIN_LEG = KINDS = ("compute", "transfer", "link wait", "begin")
"""`PathSegment.kind`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waits:
    """Causes of start times, and slack, of each op of a step."""

    cause: Ints
    """[n] BEGIN where it starts at 0, DATA where an op ended that it follows (at its location, or by a control edge),
    TRANSFER where a tensor arrived, DEVICE where the op before it on its device ended; the first that holds."""
    after: Ints
    """[n] the op that it waited for: that which it follows, the sender of the tensor, or the one before it on its
    device; -1 at BEGIN."""
    transfer: Ints
    """[n] the transfer that it waited for, by its place in the schedule; -1 where that is not the cause."""
    slack: Ints
    """[n] ticks that it may end later, with all placed and in order as they are, on devices and links, without a
    longer step."""
    held_by: Ints
    """[t] of each transfer, the one that last held a link which it waited for; -1 where it started when it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSegment:
    """A piece of the critical path, in ticks."""

    kind: str
    """One of `KINDS`: an op computes; a tensor is on its way to the next op; the next tensor waits for a link, which
    this leg's transfer holds; or nothing has begun, as in no simulated step."""
    op: int
    """The op that computes, or that sends the tensor; -1 where nothing has begun."""
    transfer: int
    """The transfer, by its place in the schedule; -1 where an op computes."""
    begin: int
    """Where the leg before ends; 0 for the first."""
    end: int
    """The makespan for the last."""


class _ActivityGraph(NamedTuple):
    """The graph of activities: n ops, then t transfers."""

    start: Ints
    finish: Ints
    tail: Ints
    """[k] the activity that another waits for."""
    head: Ints
    """[k] the one that waits."""
    kind: Ints
    """[k] DATA, TRANSFER, DEVICE, _LINK or _SENT."""
    order: Ints
    """[n + t] all activities in an order in which every one comes behind all that it waits for."""


def explain_waits(timeline: Timeline, rank: Ints | None = None) -> Waits:
    """Compute what each op of a step waited for, and its slack.

    timeline: a step in which all starts as early as it can behind what it waits for, as plans and `simulate` without
    `free` have it. rank: [n] the plan's order, which says which of ops of no time was first where start and finish do
    not; by default any that precedence allows. What a device or a link has done is in the order of start, finish, when
    it was asked for, rank. O((n + e + t) log n).

    ValueError where an activity overlaps what it waits for, or starts later than all of it.
    """
    network = _network(timeline, rank)
    begun = np.zeros(len(network.start), dtype=np.int64)
    np.maximum.at(begun, network.head, network.finish[network.tail])
    wrong = np.flatnonzero(begun != network.start)
    if len(wrong):
        at, ends = int(wrong[0]), int(begun[wrong[0]])
        raise ValueError(f"activity {at} starts at tick {network.start[at]}, what it waits for ends at {ends}")
    n, tight = timeline.problem.tasks, network.finish[network.tail] == network.start[network.head]
    # Of all that an op waited for until its start, the first kind counts, and of that the longest activity.
    edge = np.flatnonzero((tight & (network.head < n)) & (network.start[network.head] > 0))
    tail, head, kind = network.tail[edge], network.head[edge], network.kind[edge]
    by = np.lexsort((tail, network.start[tail], kind, head))
    op, first = np.unique(head[by], return_index=True)
    cause, before = np.full(n, BEGIN, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    cause[op], before[op] = kind[by[first]], tail[by[first]]
    sent, held = cause == TRANSFER, np.full(len(network.start) - n, -1, dtype=np.int64)
    by_link = tight & (network.kind == _LINK)
    held[network.head[by_link] - n] = network.tail[by_link] - n
    at_once = tight & (network.kind == _SENT)
    held[network.head[at_once] - n] = -1
    after = before.copy()
    after[sent] = _senders(timeline)[before[sent] - n]
    # An activity may end as late as where the longest path behind it would have to begin.
    took = network.finish - network.start
    offset, behind = adjacency(len(took), network.tail)
    level = tails(network.order, took, (offset, network.head[behind], np.zeros(len(behind), dtype=np.int64)))
    slack = network.finish.max(initial=0) - network.start - level
    return Waits(
        cause=ints(cause),
        after=ints(after),
        transfer=ints(np.where(sent, before - n, -1)),
        slack=ints(slack[:n]),
        held_by=ints(held),
    )


def critical_path(timeline: Timeline, waits: Waits) -> tuple[PathSegment, ...]:
    """The longest path of the step, from 0 to the makespan without a hole: its legs sum to the makespan.

    It begins at its end and goes back from each activity to the one that it waited for. Where a tensor waited for a
    link, that is the transfer which held the link, whoever reads what it sends. Ops of no time are legs, too, and no op
    on it has slack. Empty for a step without ops.
    """
    s = timeline.schedule
    if not len(s.start):
        return ()
    sender, op, legs = _senders(timeline), int(np.lexsort((s.start, s.finish))[-1]), []
    while op >= 0:
        legs.append(PathSegment(kind=COMPUTE_LEG, op=op, transfer=-1, begin=int(s.start[op]), end=int(s.finish[op])))
        sent, op, kind = int(waits.transfer[op]), int(waits.after[op]), TRANSFER_LEG
        while sent >= 0:
            op, begin, end = int(sender[sent]), int(s.sent_start[sent]), int(s.sent_finish[sent])
            legs.append(PathSegment(kind=kind, op=op, transfer=sent, begin=begin, end=end))
            sent, kind = int(waits.held_by[sent]), LINK_LEG
    return tuple(legs[::-1])


def _senders(timeline: Timeline) -> Ints:
    """[t] the op that each transfer comes from."""
    return timeline.problem.producer[timeline.schedule.sent_payload]


def _network(timeline: Timeline, rank: Ints | None) -> _ActivityGraph:
    p, s = timeline.problem, timeline.schedule
    if rank is None:
        rank = rank_of(topological_order(p.tasks, p.src, p.dst))
    sender = _senders(timeline)
    asked = np.concatenate([s.start, s.finish[sender]])
    start, finish = np.concatenate([s.start, s.sent_start]), np.concatenate([s.finish, s.sent_finish])
    is_sent = np.repeat([False, True], [p.tasks, len(sender)])
    order = np.lexsort((is_sent, np.concatenate([rank, rank[sender]]), asked, finish, start))
    place = rank_of(order)
    at = p.location[s.device]
    cut = (p.payload >= 0) & (at[p.src] != at[p.dst])
    crossing = s.sent_payload * p.locations + s.sent_to
    by = np.argsort(crossing)
    wanted = p.payload[cut] * p.locations + at[p.dst[cut]]
    sent = np.searchsorted(crossing[by], wanted)
    if len(wanted) and (sent.max() == len(by) or (crossing[by[sent]] != wanted).any()):
        raise ValueError("the schedule lacks a transfer that an op waits for")
    edges = [(p.src[~cut], p.dst[~cut], DATA), (p.tasks + by[sent], p.dst[cut], TRANSFER)]
    edges.append((sender, p.tasks + np.arange(len(sender)), _SENT))
    held = p.holds[p.location[s.device[sender]], s.sent_to]
    row, column = np.nonzero(held >= 0)
    edges.append((*_neighbours(s.device, np.arange(p.tasks), place), DEVICE))
    edges.append((*_neighbours(held[row, column], p.tasks + row, place), _LINK))
    tail, head = (np.concatenate([edge[k] for edge in edges]) for k in range(2))
    kind = np.repeat([edge[2] for edge in edges], [len(edge[0]) for edge in edges])
    return _ActivityGraph(start=start, finish=finish, tail=tail, head=head, kind=kind, order=order)


def _neighbours(holder: Ints, activity: Ints, place: Ints) -> tuple[Ints, Ints]:
    """(one, next) of the activities that hold the same thing, row by row; an activity may hold it twice."""
    by = np.lexsort((place[activity], holder))
    one, other = by[:-1], by[1:]
    follows = (holder[one] == holder[other]) & (activity[one] != activity[other])
    return activity[one[follows]], activity[other[follows]]
