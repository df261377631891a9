"""From devices and a priority order to the earliest-start schedule: the compiled event loop.

Finish events are processed in increasing (time, rank, task); a task enters the queue of events when
the last finish event that it waits for has been processed (predecessors; when strict, also the task before it
on its device), so that a task of zero ticks is processed in the tick of what it waited for, after it. When a
task's finish is processed, each of its payloads (by index) is requested once for each other location with a
consumer (by index).

Links without `send_rank` are first come, first served: a request is granted at once, starts at the maximum of
now and the times at which the links of its path are free, and makes them free at its finish; a path without
links starts now. A transfer of zero ticks waits for its links like any other.

Links with `send_rank` are scheduled, as a runtime could do that sends by priority. Requests wait. Once the queue
holds no more finish event that is due in a tick in which a task or a transfer finished, the waiting transfers
start one by one: always the one of least (send_rank, payload, target) among those whose links are all free,
until there is none. It holds its links until its finish, one of zero ticks not at all; a path without links is
always free. So no transfer waits while its links are free, and one of low priority may start although one of
higher priority still waits for another link of its path. What became ready by this starts as above, and when
tasks of zero ticks finish within the tick, all this is repeated.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from solvers.arrays import Floats, Ints, ints, offsets, rank_of
from solvers.compiled.dag import adjacency, tails, topological_order
from solvers.problem import FORBIDDEN, MOST, Problem, least_ticks, mean_ticks, mean_transfers
from solvers.schedule import Schedule
from solvers.timing.loop import SENT, LinkState, Prepared, order_of, reset, run_tasks, state_for, turned_makespan


def prepare(problem: Problem) -> Prepared:
    """Return the adjacency that `replay` needs, computed once for any number of replays. O(e log e)."""
    by = np.lexsort((problem.payload, problem.src))
    offset = offsets(np.bincount(problem.src, minlength=problem.tasks))
    return Prepared(
        offset=ints(offset),
        head=ints(problem.dst[by]),
        carried=ints(problem.payload[by]),
        indegree=ints(np.bincount(problem.dst, minlength=problem.tasks)),
        duration=problem.duration,
        location=problem.location,
        transfer=problem.transfer,
        path_class=problem.path_class,
        path_links=problem.holds,
        links=problem.links,
        carries=int(np.count_nonzero(problem.payload >= 0)),
    )


def replay(
    problem: Problem,
    device: Ints,
    rank: Ints,
    *,
    strict: bool = True,
    send_rank: Ints | None = None,
    prepared: Prepared | None = None,
) -> Schedule:
    """Run every task on its device and return the resulting schedule; deterministic.

    device: [n] device of each task. rank: [n] priorities, least first, ties by task index. send_rank: [p] priorities
    of the payloads, least first, ties by payload index. `prepared`: what `prepare(problem)` returned, to save that
    work. Memory and groups play no part here.

    strict: each device runs its tasks exactly in increasing (rank, task), each as early as possible: at the maximum
    of the finish of the task before it on the device, of the finishes of its predecessors and of the arrivals of
    the payloads that it reads from other locations.

    not strict: list scheduling with fixed placement. Whenever a device is idle and tasks of its are ready (all
    predecessors finished, all payloads arrived), it starts the one of least (rank, task); no device waits while a
    task of its is ready. Within one tick: all finish events due, then all tasks whose inputs have arrived by now
    become ready, then each idle device starts a task; repeated while tasks of zero ticks finish within the tick.

    Which event comes when within a tick, and who sends when, is in the module's docstring.

    Raise ValueError, naming a task, for a device out of range or forbidden; when strict, an order that contradicts the
    precedence and so deadlocks; or a `send_rank` of a wrong length. O((n + e) log m + transfers * path length) when
    strict; scheduled links add O(log transfers + paths that something waits for) a transfer.
    """
    device, rank = validated(problem, device, rank)
    g = prepare(problem) if prepared is None else prepared
    order = order_of(rank)
    priorities = _priorities(problem, send_rank)
    state, done = run_tasks(g, device, order, rule="strict" if strict else "listed", send_rank=priorities)
    if done < problem.tasks:
        # Name a task that its device must start next, and what it waits for.
        waits = order[state.start[order] < 0]
        first = waits[np.unique(device[waits], return_index=True)[1]]
        task = int(first.min())
        missing = problem.src[(problem.dst == task) & (state.start[problem.src] < 0)]
        deadlock = (
            f"the order contradicts the precedence: device {device[task]} must run task {task} next, "
            f"which waits for task {missing[0]}"
        )
        raise ValueError(deadlock)
    return schedule_of(device, state)


def fifo(
    problem: Problem, device: Ints, *, send_rank: Ints | None = None, prepared: Prepared | None = None
) -> Schedule:
    """Simulate a placement without an enforced order: devices, too, are first come, first served.

    As `replay` with `strict=False` and the task indices as ranks, but that an idle device starts, of its ready tasks,
    the one that became ready first (when its last predecessor finished or its last payload arrived; of least index
    among equals). Arguments and errors as there; always complete.
    """
    return first_come(problem, device, send_rank=send_rank, prepared=prepared)[0]


def first_come(
    problem: Problem, device: Ints, *, send_rank: Ints | None = None, prepared: Prepared | None = None
) -> tuple[Schedule, Ints]:
    """Return (the schedule of `fifo`, [n] rank of each task in the order in which their ends were served).

    A strict `replay` by that rank, links first come, first served, gives the same schedule: each task has its
    predecessors and the task before it on its device before it in that order, so it is queued when its turn comes, and
    is the first of those that end in its tick.
    """
    device, _ = validated(problem, device, device)
    g = prepare(problem) if prepared is None else prepared
    order, priorities = ints(np.arange(problem.tasks)), _priorities(problem, send_rank)
    state, _ = run_tasks(g, device, order, rule="fifo", send_rank=priorities)
    return schedule_of(device, state), rank_of(state.ended)


def makespan(prepared: Prepared, device: Ints, order: Ints, *, state: LinkState | None = None) -> int:
    """Return the makespan of a strict replay, for a search that needs nothing else; -1 when the order deadlocks.

    device: [n] valid, as int64. order: [n] the tasks by rank (a permutation, as int64). state: work arrays of another
    run on `prepared`, to save their allocation; its starts and finishes are not written. Nothing is validated. The
    GIL is released, so threads with a `state` each run side by side.
    """
    device, order = ints(device), ints(order)
    if state is None:
        state = state_for(prepared, device)
    else:
        reset(prepared, state, device)
    return int(turned_makespan(prepared, state, device, order, order))


def _priorities(p: Problem, send_rank: Ints | None) -> Ints | None:
    if send_rank is not None and np.shape(send_rank) != (p.payloads,):
        raise ValueError(f"send_rank {np.shape(send_rank)} must have one entry for each of {p.payloads} payloads")
    return None if send_rank is None else ints(send_rank)


def bottom_levels(
    problem: Problem, *, device: Ints | None = None, mean: bool = True, communication: float = 1.0
) -> Ints:
    """Return [n] ticks of the longest path from the start of each task to the end: HEFT's upward rank.

    (Topcuoglu 2002, 4.1.) A task counts with its mean duration over the devices that it can run on, rounded up, or with
    the least one (`mean=False`); an edge with a payload with `communication` times its mean transfer over all pairs of
    locations. With `device`, [n], the durations there and the transfers between their locations count instead. O(n m +
    e).
    """
    p, ticks, carried = problem, np.zeros(problem.edges, dtype=np.int64), np.flatnonzero(problem.payload >= 0)
    if device is not None:
        at = p.location[device]
        cut = carried[at[p.src[carried]] != at[p.dst[carried]]]
        ticks[cut] = p.transfer[p.payload[cut], p.path_class[at[p.src[cut]], at[p.dst[cut]]]]
        took = p.duration[np.arange(p.tasks), device]
    else:
        ticks[carried] = mean_transfers(p)[p.payload[carried]]
        took = mean_ticks(p) if mean else least_ticks(p)
    offset, edge = adjacency(p.tasks, p.src)
    weight = np.rint(ticks * communication).astype(np.int64)[edge]
    return ints(tails(topological_order(p.tasks, p.src, p.dst), took, (offset, p.dst[edge], weight)))


def validated(p: Problem, device: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """Return both as read-only arrays; raise ValueError, naming a task, for a device out of range or forbidden."""
    device, rank = ints(device), ints(rank)
    if device.shape != (p.tasks,) or rank.shape != (p.tasks,):
        raise ValueError(f"device {device.shape} and rank {rank.shape} must have one entry for each of {p.tasks} tasks")
    outside = np.flatnonzero((device < 0) | (device >= p.devices))
    if len(outside):
        raise ValueError(f"task {outside[0]} is on device {device[outside[0]]}, which does not exist")
    forbidden = np.flatnonzero(p.duration[np.arange(p.tasks), device] == FORBIDDEN)
    if len(forbidden):
        raise ValueError(f"task {forbidden[0]} cannot run on device {device[forbidden[0]]}")
    return device, rank


def schedule_of(device: Ints, state: LinkState) -> Schedule:
    """Return the schedule of a finished run."""
    sent = state.sent[: state.length[SENT]]
    return Schedule(
        device=device,
        start=state.start,
        finish=state.finish,
        sent_payload=sent[:, 0],
        sent_to=sent[:, 1],
        sent_start=sent[:, 2],
        sent_finish=sent[:, 3],
    )


def stretched_makespans(
    prepared: Prepared, runs: Sequence[tuple[Ints, Ints | None]], factors: Iterable[tuple[Floats, Floats]]
) -> Ints:
    """Return [k, r] makespans of r runs under k pairs of factors of their times; links first come, first served.

    runs: (device, rank) of each as a strict `replay` takes them, without a deadlock, or with None for the rank as
    `fifo` does, so that each run has an order of its own; nothing is validated. factors: ([n] of each task's ticks, on
    whichever device, and [p, c] of each payload's on a path of each class); products are rounded to the nearest tick.
    Raise ValueError when the ticks add up to more than 64 bits hold. O(k r (n + e) log m).
    """
    devices = [ints(device) for device, _ in runs]
    if not devices:
        return ints(np.empty((sum(1 for _ in factors), 0), dtype=np.int64))
    tasks = np.arange(len(devices[0]))
    orders = [None if rank is None else order_of(ints(rank)) for _, rank in runs]
    durations = [prepared.duration[tasks, device] for device in devices]
    state = state_for(prepared, devices[0])
    rows: list[list[int]] = []
    for of_task, of_payload in factors:
        sent = np.rint(prepared.transfer * of_payload)
        sending = len(prepared.path_class) * float(sent.max(axis=1, initial=0).sum())
        g = prepared._replace(transfer=ints(_within_64_bits(sent, sending)))
        row: list[int] = []
        for device, order, duration in zip(devices, orders, durations, strict=True):
            reset(g, state, device)
            ticks = np.rint(duration * of_task)
            state.took[:] = _within_64_bits(ticks, sending + float(ticks.sum()))
            if order is not None:
                row.append(int(turned_makespan(g, state, device, order, order)))
            else:
                run_tasks(g, device, ints(tasks), rule="fifo", state=state)
                row.append(int(state.finish.max(initial=0)))
        rows.append(row)
    return ints(np.array(rows, dtype=np.int64).reshape(-1, len(devices)))


def _within_64_bits(ticks: Floats, total: float) -> Ints:
    if total > MOST:
        raise ValueError(f"times add up to {total:.3g} ticks, beyond what 64 bits can add up")
    return ticks.astype(np.int64)


def idle_under(run: Schedule, lanes: Ints, ops: Ints) -> Ints:
    """Return [k] ticks that `lanes` idle, added up, from start to finish of each of `ops`; its own lane counts as busy.

    Tasks of a lane follow each other without overlap.
    """
    took, idle = run.finish[ops] - run.start[ops], np.zeros(len(ops), dtype=np.int64)
    for lane in lanes.tolist():
        mine = np.flatnonzero(run.device == lane)
        mine = mine[np.lexsort((run.finish[mine], run.start[mine]))]
        start, finish = run.start[mine], run.finish[mine]
        busy = _busy_until(start, finish, run.finish[ops]) - _busy_until(start, finish, run.start[ops])
        idle += np.where(run.device[ops] == lane, 0, took - busy)
    return idle


def _busy_until(start: Ints, finish: Ints, at: Ints) -> Ints:
    """Return [k] ticks that a processor, whose ops follow each other, has computed at each of these times."""
    before = offsets(finish - start)
    begun = np.searchsorted(start, at, side="right")
    last = np.maximum(begun - 1, 0)
    over = np.maximum(finish[last] - at, 0) if len(finish) else np.zeros(len(at), dtype=np.int64)
    return before[begun] - np.where(begun > 0, over, 0)
