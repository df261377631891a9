"""HEFT: heterogeneous earliest finish time (Topcuoglu, Hariri, Wu 2002).

Tasks by falling upward rank, each to the processor where it finishes first when it may use any idle interval that is
long enough, even one before tasks that are placed already. Ties of rank, which the source breaks at random, are in
topological order; ties of finish go to the device of the lower index. Beyond the source: groups, device kinds, shared
payloads and sources of the graph as `solvers.heuristics.lists.list_schedule` says; mean costs are over the devices that
can run a task, and over all pairs of different locations. Memory plays no part.
"""

from solvers.compiled.kernels import inlined, routine
from solvers.heuristics.lists.gaps import Gaps, find, gaps_of, idle_from, take
from solvers.heuristics.lists.list_schedule import (
    ListTables,
    PartialSchedule,
    arrivals,
    begin,
    placement_of,
    settle,
    tables_of,
)
from solvers.heuristics.lists.ranks import by_level, mean_weights, upward
from solvers.heuristics.methods import Placement
from solvers.problem import Problem
from solvers.result import Options


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """The schedule's devices and starts. O(e l + n m log n)."""
    rank = upward(problem, mean_weights(problem))
    tables = tables_of(problem, by_level(problem, rank))
    growing = begin(tables)
    _run(tables, growing, gaps_of(problem))
    return placement_of(growing)


@routine
def _run(t: ListTables, s: PartialSchedule, g: Gaps) -> None:
    for task in t.order:
        arrivals(t, s, t.guide[task])
        insert(t, s, g, (task, soonest(t, s, g, task)))


@inlined
def soonest(t: ListTables, s: PartialSchedule, g: Gaps, task: int) -> int:
    """The device where a task finishes first when its inputs are there as `s.ready` says; -1 for none."""
    duration, location, arrival = t.duration, t.location, s.ready
    allowed, home = t.allowed[t.unit[task]], s.at[t.unit[task]]
    nodes, root, best, least = g.nodes, g.root, -1, 0
    for d in range(len(location)):
        here, ticks = location[d], duration[task, d]
        if ticks < 0 or not allowed[here] or (home >= 0 and home != here):
            continue
        start = arrival[here]
        if best >= 0 and start + ticks >= least:
            continue
        if start < idle_from(nodes, d):
            _, start = find(nodes, root[d], start, ticks)
        if best < 0 or start + ticks < least:
            best, least = d, start + ticks
    return best


@inlined
def insert(t: ListTables, s: PartialSchedule, g: Gaps, choice: tuple[int, int]) -> None:
    """Place a task into the first idle interval that holds it; `choice` = (task, device)."""
    task, d = choice
    if t.guide[task] != task:
        # It was offered in another's stead; its own inputs say when it can start.
        arrivals(t, s, task)
    ticks = t.duration[task, d]
    gap, start = find(g.nodes, g.root[d], s.ready[t.location[d]], ticks)
    take(g, d, gap, (start, ticks))
    settle(t, s, task, (d, start))
