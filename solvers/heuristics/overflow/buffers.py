"""Lives of buffers and of their copies at each location, as a function of the placement.

Times are fixed: *positions* on a time axis whose ticks are those at which something of a given schedule begins, so that
each peak is at one. What shares bytes (`Footprint.passes`, and what the schedule lets it reuse) forms a *family*.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, rank_of
from solvers.compiled.dag import adjacency, topological_order
from solvers.footprint import Footprint
from solvers.memory.usage import roots, shared, spans
from solvers.problem import Problem
from solvers.schedule import Schedule

_WIDE = 32
"""Reads of one bundle from which on they are not walked one by one (see `fronts`)."""
_POSITIONS = 2**17
"""Positions at most; with more ticks, each position stands for several, and what lives in one counts in all."""


class BufferLives(NamedTuple):
    """Buffers by family, what uses another's bytes before what it uses; their reads in bundles, one a payload."""

    unit: Ints
    """[n] unit of each task."""
    begin: Ints
    """[n] position of each task's start."""
    gone: Ints
    """[n] first position at which each task has finished."""
    after: Ints
    """[n] position of each task's finish, from which a new transfer would run."""
    scratch: Ints
    """[n] bytes that each task needs while it runs."""
    family: Ints
    """[f + 1] where the buffers of each family start."""
    over: Ints
    """[f] first position at which nothing of a family is alive any more, wherever its units are."""
    maker: Ints
    """[b] task that makes each buffer."""
    size: Ints
    """[b] bytes of each buffer."""
    shares: Ints
    """[b] place in `reader` of the read whose bytes the buffer uses; -1 for none."""
    bundle: Ints
    """[b + 1] where the bundles of each buffer start."""
    read: Ints
    """[g + 1] where the reads of each bundle start."""
    payload: Ints
    """[g] payload of each bundle, -1 for none."""
    walk: Ints
    """[g] where those reads of each bundle end that are to be walked: those whose bytes a buffer uses, and all of a
    bundle that is not wide. Behind them, reads come by falling finish, then by falling unit."""
    wide: Ints
    """[g] number of each bundle among the wide ones, -1 for one that is not."""
    reader: Ints
    """[r] task of each read."""
    sent: Ints
    """[p + 1] where the transfers of each payload start."""
    sent_to: Ints
    sent_begin: Ints
    sent_gone: Ints
    fresh: Ints
    """[p] first position at which a transfer that the schedule does not have would have finished."""
    ticks: Ints
    """[k] tick of each position."""


def lives_of(
    problem: Problem, footprint: Footprint, schedule: Schedule, unit: Ints, negligible: int = 0
) -> BufferLives:
    """Return the tables of a valid schedule, without the smallest families, of `negligible` bytes at most in all.

    O((n + b + r + t) log).
    """
    f, ticks = footprint, axis(schedule)
    uses = shared(problem, f, schedule)
    # [b] the buffer whose bytes each one uses in the end, be it as a copy.
    parent, others = np.arange(len(f.size)), np.flatnonzero(uses >= 0)
    parent[others] = f.read_buffer[uses[others]]
    root = roots(parent)
    place = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    # What uses another's bytes is made later.
    by = np.lexsort((-place[f.maker], root))
    # The smallest families, of which one copy of each has this share of the bytes in all, do not matter.
    largest = np.zeros(len(root), dtype=np.int64)
    np.maximum.at(largest, root, f.size)
    families = np.unique(root)
    families = families[np.argsort(largest[families], kind="stable")]
    matters = np.ones(len(root), dtype=np.bool_)
    matters[families[np.cumsum(largest[families]) <= negligible // max(problem.locations, 1)]] = False
    by = by[matters[root][by]]
    first = np.flatnonzero(np.diff(root[by], prepend=-1))
    times = _times(problem, schedule, ticks)
    # [b] first position at which no task nor transfer, real or possible, has to do with a buffer any more.
    over, received = times["gone"][f.maker], times["fresh"].copy()
    np.maximum.at(received, np.repeat(np.arange(len(received)), np.diff(times["sent"])), times["sent_gone"])
    np.maximum.at(over, f.read_buffer, times["gone"][f.read_by])
    np.maximum.at(over, f.read_buffer, np.append(received, 0)[f.read_payload])
    over = over[by]
    return BufferLives(
        unit=unit, scratch=f.scratch, family=_starts(np.append(first, len(by))),
        over=np.maximum.reduceat(over, first) if len(first) else over, maker=f.maker[by], size=f.size[by],
        **_bundles(f, by, uses, times["gone"][f.read_by] * (int(unit.max(initial=0)) + 1) + unit[f.read_by]), **times,
    )  # fmt: skip


def _bundles(f: Footprint, by: Ints, uses: Ints, late: Ints) -> dict[str, Ints]:
    """The reads by buffer, in the order `by` of these, and payload; then those that are shared, then by falling `late`.

    late: [r].
    """
    place = np.full(len(f.size), -1, dtype=np.int64)
    place[by] = np.arange(len(by))
    buffer = place[f.read_buffer]
    alone = np.ones(len(buffer), dtype=np.bool_)
    alone[uses[uses >= 0]] = False
    by_read = np.lexsort((-late, alone, f.read_payload, buffer))
    by_read = by_read[np.count_nonzero(buffer < 0) :]
    buffer, payload = buffer[by_read], f.read_payload[by_read]
    first = np.flatnonzero((np.diff(buffer, prepend=-1) != 0) | (np.diff(payload, prepend=-2) != 0))
    read_place = np.full(len(f.read_by) + 1, -1, dtype=np.int64)
    read_place[by_read] = np.arange(len(by_read))
    read = np.append(first, len(by_read))
    walk = read[1:] - np.diff(np.append(0, np.cumsum(alone[by_read]))[read])
    wide = read[1:] - walk > _WIDE
    return {
        "shares": read_place[uses][by],
        "bundle": _starts(np.searchsorted(buffer[first], np.arange(len(by) + 1))),
        "read": _starts(read),
        "walk": _starts(np.where(wide, walk, read[1:])),
        "wide": _starts(np.where(wide, np.cumsum(wide) - 1, -1)),
        "payload": payload[first],
        "reader": f.read_by[by_read],
    }


def _times(problem: Problem, s: Schedule, ticks: Ints) -> dict[str, Ints]:
    sent, by = adjacency(problem.payloads, s.sent_payload)
    return {
        "begin": _position(ticks, s.start),
        "gone": _beyond(ticks, s.finish),
        "after": _position(ticks, s.finish),
        "sent": sent,
        "sent_to": s.sent_to[by],
        "sent_begin": _position(ticks, s.sent_start[by]),
        "sent_gone": _beyond(ticks, s.sent_finish[by]),
        "fresh": _beyond(ticks, s.finish[problem.producer] + mean_transfer(problem)),
        "ticks": ticks,
    }


def mean_transfer(problem: Problem) -> Ints:
    """Return [p] ticks of each payload, mean over all pairs of locations."""
    if problem.locations < 2:
        return np.zeros(problem.payloads, dtype=np.int64)
    pairs = problem.path_class[~np.eye(problem.locations, dtype=bool)]
    share = np.bincount(pairs, minlength=problem.transfer.shape[1]) / len(pairs)
    return np.rint(problem.transfer @ share).astype(np.int64)


def bytes_at(problem: Problem, footprint: Footprint, schedule: Schedule, ticks: Ints) -> Ints:
    """[l, k] bytes alive at each location at each position of `ticks`, static ones included; exact where all fit."""
    rows = spans(problem, footprint, schedule)
    change = np.zeros((problem.locations, len(ticks) + 1), dtype=np.int64)
    lives = np.flatnonzero((rows.end > rows.begin) & (rows.size > 0))
    here, size = rows.location[lives], rows.size[lives]
    np.add.at(change, (here, _position(ticks, rows.begin[lives])), size)
    np.add.at(change, (here, _beyond(ticks, rows.end[lives])), -size)
    np.add.at(change[:, 0], problem.location[schedule.device], footprint.static)
    return np.cumsum(change, axis=1)[:, :-1]


def axis(s: Schedule) -> Ints:
    """Return [k] the tick of each position."""
    ticks = np.unique(np.concatenate([[0], s.start, s.sent_start]))
    return ticks[:: -(-len(ticks) // _POSITIONS)]


def _position(ticks: Ints, tick: Ints) -> Ints:
    return np.searchsorted(ticks, tick, side="right") - 1


def _beyond(ticks: Ints, tick: Ints) -> Ints:
    return np.searchsorted(ticks, tick, side="left").astype(np.int64)


def _starts(values: Ints) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int64)
