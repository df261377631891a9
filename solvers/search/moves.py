"""Changes of a choice that know the structure: clusters, balls, families of readers, swaps, and orders."""

import numpy as np

from solvers.compiled.kernels import spliced, subkernel
from solvers.search.simulation import NEVER
from solvers.search.walk_state import CRITICAL, MOVED, SLID, STAMP, Lane, draw, put, slide, uniform
from solvers.search.workspace import MoveClusters, SearchNetwork

NOTHING = -1
CLUSTER, BALL, FAMILY, SWAP, SOONER, SHIFTED = range(6)
KINDS = 6


@spliced
def propose(net: SearchNetwork, clusters: MoveClusters, lane: Lane, kind: int, level: int) -> bool:
    """Make a random change, and note when it first makes a difference; return False where it changes nothing."""
    lane.departs[0] = NEVER
    if kind == SOONER:
        _swap_waiting(net, lane)
    elif kind == SHIFTED:
        _shift_ball(net, clusters, lane)
    else:
        task = _draw_task(net, clusters, lane)
        to = _draw_location(net, lane, task)
        if to == NOTHING:
            return False
        if kind == BALL:
            _move_ball(net, clusters, lane, task, to)
        elif kind == FAMILY:
            _move_family(net, clusters, lane, task, to)
        else:
            label = int(np.int64(clusters.label[level, task]))
            if _move_cluster(net, clusters, lane, (level, label), to) and kind != CLUSTER:
                # In exchange, move another cluster that is where the first now is to where that was.
                back = int(np.int64(lane.origin[0]))
                for _ in range(8):
                    other = draw(lane, clusters.sizes[level])
                    first = clusters.member[level, clusters.first[level, other]]
                    if other != label and lane.choice.at[first] == to and net.device_at[first, back] >= 0:
                        _move_cluster(net, clusters, lane, (level, other), back)
                        break
    return lane.tally[MOVED] + lane.tally[SLID] > 0


@subkernel
def _draw_task(net: SearchNetwork, clusters: MoveClusters, lane: Lane) -> int:
    """Return a task that has a choice: half the time one of the critical chain."""
    # Only tasks of the critical chain can shorten the run at once; the others are drawn too, since moving them makes
    # room for later moves.
    if uniform(lane) < 0.5:
        return lane.critical[draw(lane, lane.tally[CRITICAL])]
    last = len(clusters.sizes) - 1
    unit = net.choice[draw(lane, len(net.choice))]
    return clusters.member[last, clusters.first[last, unit]]


@spliced
def _draw_location(net: SearchNetwork, lane: Lane, task: int) -> int:
    """Return another location for a task: half the time that of a neighbour."""
    at = lane.choice.at
    edges = net.behind[task + 1] - net.behind[task] + net.offset[task + 1] - net.offset[task]
    if uniform(lane) < 0.5 and edges > 0:
        k = draw(lane, edges)
        into = net.behind[task + 1] - net.behind[task]
        if k < into:
            other = np.int64(net.tail_of[net.behind[task] + k])
            if other < 0:
                other = -1 - other
        else:
            other = np.int64(net.head[net.offset[task] + k - into])
        if at[other] != at[task] and net.device_at[task, at[other]] >= 0:
            return at[other]
    places = net.device_at.shape[1]
    # A few blind draws instead of a list of allowed locations: nearly all tasks are allowed nearly everywhere.
    for _ in range(8):
        to = draw(lane, places)
        if to != at[task] and net.device_at[task, to] >= 0:
            return to
    return NOTHING


@subkernel
def _move_cluster(net: SearchNetwork, clusters: MoveClusters, lane: Lane, which: tuple[int, int], to: int) -> bool:
    """Move all of a cluster, or nothing and False where a task of it cannot go."""
    level, cluster = which
    # A first pass looks whether all can go, so that a refused cluster leaves no half of itself to be taken back.
    for k in range(clusters.first[level, cluster], clusters.first[level, cluster + 1]):
        if net.device_at[clusters.member[level, k], to] < 0:
            return False
    for k in range(clusters.first[level, cluster], clusters.first[level, cluster + 1]):
        task = clusters.member[level, k]
        if lane.choice.at[task] != to:
            put(net, lane, task, to)
    return True


@spliced
def _move_family(net: SearchNetwork, clusters: MoveClusters, lane: Lane, task: int, to: int) -> bool:
    """Move a task with all that read one of its payloads."""
    last = len(clusters.sizes) - 1
    if not _move_cluster(net, clusters, lane, (last, int(np.int64(net.unit[task]))), to):
        return False
    k, stop = net.offset[task], net.offset[task + 1]
    if k == stop:
        return True
    payload = net.carried[k + draw(lane, stop - k)]
    for edge in range(k, stop):
        if net.carried[edge] == payload:
            _move_cluster(net, clusters, lane, (last, int(np.int64(net.unit[net.head[edge]]))), to)
    return True


@subkernel
def _gather(net: SearchNetwork, lane: Lane, task: int, size: int) -> int:
    """Collect up to so many tasks around one, over edges, that are where it is; return how many, in `queue`."""
    # A new stamp marks visited tasks, so that no array of n marks has to be cleared for a ball of a few.
    lane.tally[STAMP] += 1
    stamp, at = lane.tally[STAMP], lane.choice.at
    lane.queue[0], lane.stamp[task] = task, stamp
    done, many = 0, 1
    both = uniform(lane)
    while done < many < size:
        here = lane.queue[done]
        done += 1
        if both < 0.8:
            for k in range(net.offset[here], net.offset[here + 1]):
                other = np.int64(net.head[k])
                if many < size and lane.stamp[other] != stamp and at[other] == at[task]:
                    lane.queue[many], lane.stamp[other] = other, stamp
                    many += 1
        if both > 0.2:
            for k in range(net.behind[here], net.behind[here + 1]):
                other = np.int64(net.tail_of[k])
                if other < 0:
                    other = -1 - other
                if many < size and lane.stamp[other] != stamp and at[other] == at[task]:
                    lane.queue[many], lane.stamp[other] = other, stamp
                    many += 1
    return many


@subkernel
def _draw_size(lane: Lane) -> int:
    """Return a size from 1 to a tenth of the tasks, each magnitude as often."""
    # Log-uniform: single tasks and large regions are both needed, at every size of graph.
    most = max(2.0, len(lane.stamp) * 0.1)
    return int(np.exp(uniform(lane) * np.log(most)))


@spliced
def _move_ball(net: SearchNetwork, clusters: MoveClusters, lane: Lane, task: int, to: int) -> bool:
    """Move the surroundings of a task."""
    last = len(clusters.sizes) - 1
    many = _gather(net, lane, task, _draw_size(lane))
    for k in range(many):
        one = lane.queue[k]
        if lane.choice.at[one] != to and net.device_at[one, to] >= 0:
            _move_cluster(net, clusters, lane, (last, int(np.int64(net.unit[one]))), to)
    return True


@subkernel
def _earliest(net: SearchNetwork, lane: Lane, task: int) -> int:
    """Return the first place that a task can have: after all its inputs."""
    place = -1
    for edge in range(net.behind[task], net.behind[task + 1]):
        tail = net.tail_of[edge]
        place = max(place, lane.choice.place[tail if tail >= 0 else -1 - tail])
    return place + 1


@subkernel
def _latest(net: SearchNetwork, lane: Lane, task: int) -> int:
    """Return the last place that a task can have: before all that read it."""
    place = len(lane.choice.order)
    for edge in range(net.offset[task], net.offset[task + 1]):
        place = min(place, lane.choice.place[net.head[edge]])
    return place - 1


@spliced
def _swap_waiting(net: SearchNetwork, lane: Lane) -> None:
    """Run a critical task that waited for its device before one that ran there meanwhile, or that one after it."""
    base, c = lane.base, lane.choice
    task = int(lane.critical[draw(lane, lane.tally[CRITICAL])])
    other, back = int(c.before[task]), draw(lane, 8)
    if other < 0 or base.ready[task] >= base.start[task]:
        return
    while back > 0 and c.before[other] >= 0 and base.end[c.before[other]] > base.ready[task]:
        other = int(c.before[other])
        back -= 1
    if uniform(lane) < 0.5:
        place = max(c.place[other], _earliest(net, lane, task))
        if place < c.place[task]:
            slide(lane, task, place)
    else:
        place = min(c.place[task], _latest(net, lane, other))
        if place > c.place[other]:
            slide(lane, other, place)


@spliced
def _shift_ball(net: SearchNetwork, clusters: MoveClusters, lane: Lane) -> None:
    """Slide a few tasks around one by up to as many places forward, or back."""
    c = lane.choice
    task = _draw_task(net, clusters, lane)
    by = int(np.exp(uniform(lane) * np.log(len(c.order) / 4.0 + 2.0)))
    many = _gather(net, lane, task, min(_draw_size(lane), 1 + 4 * len(c.order) // by))
    places = lane.queue
    for k in range(many):
        places[k] = c.place[places[k]]
    # Sorted in place (Shell 1959, gaps shrunk by 4/9): compiled sorts allocate work arrays, which a kernel must not.
    gap = many
    while gap > 1:
        gap = max(1, gap * 4 // 9)
        for k in range(gap, many):
            value, at = places[k], k
            while at >= gap and places[at - gap] > value:
                places[at] = places[at - gap]
                at -= gap
            places[at] = value
    # Forward from the first place and back from the last: otherwise a task would be stopped by one of its own group
    # that has still to move.
    if uniform(lane) < 0.5:
        for k in range(many):
            one = c.order[places[k]]
            place = max(places[k] - by, _earliest(net, lane, one))
            if place < places[k]:
                slide(lane, one, place)
    else:
        for k in range(many - 1, -1, -1):
            one = c.order[places[k]]
            place = min(places[k] + by, _latest(net, lane, one))
            if place > places[k]:
                slide(lane, one, place)
