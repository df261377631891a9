"""CPOP: critical path on a processor (Topcuoglu, Hariri, Wu 2002).

The priority of a task is its upward plus its downward rank. From the entry task of highest priority, successors of the
same priority make the critical path, and the processor that runs all of it in the least time is the critical path's.
Of the tasks that are ready, the one of highest priority comes next: on that processor if it is of the critical path,
else where it finishes first; both with insertion as in HEFT.

Ties of priority go by upward rank, and then by topological order; of several successors of the path's priority the
first that is given is followed. Beyond the source: groups, device kinds, shared payloads and sources of the graph as
`solvers.heuristics.lists.list_schedule` says. The critical path's device is the one that can run most of the path, and
all that in the least time; a task of the path that cannot be there goes where it finishes first. A source has its
guide's priority. Memory plays no part.
"""

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.dag import adjacency
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import routine
from solvers.heuristics.lists import list_schedule
from solvers.heuristics.lists.gaps import Gaps, gaps_of
from solvers.heuristics.lists.heft import insert, soonest
from solvers.heuristics.lists.list_schedule import ListTables, PartialSchedule
from solvers.heuristics.lists.ranks import by_level, downward, mean_weights, upward
from solvers.heuristics.methods import Placement
from solvers.problem import Problem
from solvers.result import Options


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """The schedule's devices and starts. O(e l + n m log n)."""
    weights = mean_weights(problem)
    rank = upward(problem, weights)
    priority = rank + downward(problem, weights)
    tables = list_schedule.tables_of(problem, by_level(problem, rank))
    growing = list_schedule.begin(tables)
    if problem.tasks:
        path = critical_path(problem, priority)
        _run(tables, growing, gaps_of(problem), (priority, path, path_device(problem, path)))
    return list_schedule.placement_of(growing)


def critical_path(problem: Problem, priority: Ints) -> Bools:
    """[n] whether a task is on the critical path, which starts at the entry task of highest priority; n > 0."""
    on_path = np.zeros(problem.tasks, dtype=np.bool_)
    entries = np.flatnonzero(np.bincount(problem.dst, minlength=problem.tasks) == 0)
    offset, edge = adjacency(problem.tasks, problem.src)
    _follow(int(entries[priority[entries].argmax()]), priority, (offset, problem.dst[edge]), on_path)
    return on_path


def path_device(problem: Problem, path: Bools) -> int:
    """The device that runs most tasks of a path, and these in the least time. path: [n], whether a task is on it."""
    allowed = problem.allowed[path]
    ticks = np.where(allowed, problem.duration[path], 0).sum(axis=0)
    return int(np.lexsort((ticks, -np.count_nonzero(allowed, axis=0)))[0])


@routine
def _follow(entry: int, priority: Ints, edges: tuple[Ints, Ints], on_path: Bools) -> None:
    offset, head = edges
    task = entry
    while task >= 0:
        on_path[task] = True
        following = -1
        for k in range(offset[task], offset[task + 1]):
            if priority[head[k]] == priority[entry]:
                following = head[k]
                break
        task = following


@routine
def _run(t: ListTables, s: PartialSchedule, g: Gaps, path: tuple[Ints, Bools, int]) -> None:
    """Place every task; `path` = (priorities, tasks of the critical path, its device)."""
    priority, on_path, home = path
    key, item = np.empty(len(t.order), dtype=np.int64), np.empty(len(t.order), dtype=np.int64)
    size, freed = 0, list_schedule.sources(t, s)
    while size + freed > 0:
        for k in range(freed):
            task = s.freed[k]
            size = push(key, item, size, (-priority[t.guide[task]], t.place[task]))
        task = t.order[item[0]]
        size = drop(key, item, size)
        list_schedule.arrivals(t, s, t.guide[task])
        d = home if on_path[task] and list_schedule.runs_on(t, s, task, home) else soonest(t, s, g, task)
        insert(t, s, g, (task, d))
        freed = list_schedule.release(t, s, task)
