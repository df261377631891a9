"""A framework's own scheduler, emulated: the ready queues of ParDNN (Qararyah et al. 2020), section 4.1.2.

Every device has a queue, filled at first with the tasks without predecessors. The queue is served first in, first
out; a task that finishes takes one from what each successor waits for, and a successor that waits for nothing more
joins its queue. As in TensorFlow, and in the times that the source takes from profiles, an input from another
location is there when its transfer ends, and the task joins its queue only then.

The source counts a transfer for each edge and knows no contention; here a payload crosses once to each location and
holds the links of its path, first come, first served, as everywhere in `solvers.timing.replay`.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, offsets
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import routine
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.loop import ARRIVALS, EVENTS, FREED, LinkState, Prepared, begin_task, finish_task, state_for
from solvers.timing.replay import prepare, schedule_of, validated


class _EmulatorQueues(NamedTuple):
    """The devices' queues, and the tasks in the order in which they came to wait for nothing but arrivals."""

    first: Ints
    """[m + 1] where each device's queue starts in `line`."""
    line: Ints
    """[n] numbers of tasks, as they joined."""
    head: Ints
    """[m] the next place of each queue to serve."""
    tail: Ints
    """[m] the end of each queue."""
    busy: Bools
    task: Ints
    """[n] task of each number."""
    arrival_time: Ints
    arrival_number: Ints


def emulate(problem: Problem, device: Ints, *, prepared: Prepared | None = None) -> Schedule:
    """The schedule that first-in, first-out ready queues make of a placement; deterministic, and always complete.

    device: [n] device of each task. `prepared`: what `solvers.timing.replay.prepare(problem)` returned, to save that
    work. Tasks that become ready in one tick join in the order in which their last predecessors finished; the
    successors of one task by payload, then as their edges are given; tasks without predecessors by index. No device
    waits while its queue holds a task. ValueError, naming a task: a device out of range or forbidden. Memory and groups
    play no part. O((n + e) log(m + transfers under way)).
    """
    device, _ = validated(problem, device, device)
    g = prepare(problem) if prepared is None else prepared
    state = state_for(g, device)
    devices = problem.devices
    n = len(device)
    first = offsets(np.bincount(device, minlength=devices))
    lines = _EmulatorQueues(
        first=first, line=np.empty(n, dtype=np.int64), head=first[:-1].copy(), tail=first[:-1].copy(),
        busy=np.zeros(devices, dtype=np.bool_), task=np.empty(n, dtype=np.int64),
        arrival_time=np.empty(n, dtype=np.int64), arrival_number=np.empty(n, dtype=np.int64),
    )  # fmt: skip
    _run(g, state, lines, device)
    return schedule_of(device, state)


@routine
def _run(g: Prepared, s: LinkState, q: _EmulatorQueues, device: Ints) -> None:
    """The event loop: within a tick finishes, then arrivals, then starts."""
    # Arrays are taken out of their tuples before the loop: each look into a tuple counts a reference.
    length, freed, ready, events = s.length, s.freed, s.ready, s.event_time
    line, head, tail, busy, tasks = q.line, q.head, q.tail, q.busy, q.task
    times, numbers = q.arrival_time, q.arrival_number
    for task in range(len(device)):
        if s.waiting[task] == 0:
            freed[length[FREED]] = task
            length[FREED] += 1
    now, numbered = int(np.int64(0)), 0
    while True:
        while length[EVENTS] > 0 and events[0] == now:
            task = tasks[s.event_place[0]]
            length[EVENTS] = drop(events, s.event_place, length[EVENTS])
            busy[device[task]] = False
            finish_task(g, s, task, now)
        # The tasks that wait for no predecessor any more get numbers, and join when their inputs have arrived.
        for at in range(length[FREED]):
            task = freed[at]
            tasks[numbered] = task
            length[ARRIVALS] = push(times, numbers, length[ARRIVALS], (ready[task], int(np.int64(numbered))))
            numbered += 1
        length[FREED] = 0
        while length[ARRIVALS] > 0 and times[0] <= now:
            number = numbers[0]
            length[ARRIVALS] = drop(times, numbers, length[ARRIVALS])
            d = device[tasks[number]]
            line[tail[d]] = number
            tail[d] += 1
        for d in range(len(head)):
            if head[d] < tail[d] and not busy[d]:
                number = line[head[d]]
                begin_task(s, (tasks[number], number), now)
                head[d] += 1
                busy[d] = True
        if length[EVENTS] == 0 and length[ARRIVALS] == 0:
            return
        now = events[0] if length[EVENTS] > 0 else times[0]
        if length[ARRIVALS] > 0:
            now = min(now, times[0])
