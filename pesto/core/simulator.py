"""The reference event simulator: placement and order in, predicted step out (Pesto, 5.4). Plain Python on purpose.

It shares no code with the solvers' compiled event loop, so that each can be held against the other.
"""

import bisect
import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pesto.core.errors import InputError
from pesto.core.problem import TICK_S
from solvers import Problem, Schedule
from solvers.arrays import Bools, Floats, Ints, floats
from solvers.compiled.dag import adjacency


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """A simulated step: the schedule in ticks, read in seconds."""

    problem: Problem
    """The step as tasks and payloads, in ticks."""
    schedule: Schedule
    """When each op and transfer runs, in ticks."""

    @property
    def makespan_s(self) -> float:
        """Seconds of the whole step."""
        return self.schedule.makespan * TICK_S

    @property
    def busy_s(self) -> Floats:
        """[m] seconds that each device computes."""
        took = self.schedule.finish - self.schedule.start
        return floats(np.bincount(self.schedule.device, weights=took, minlength=self.problem.devices) * TICK_S)

    @property
    def link_busy_s(self) -> Floats:
        """[links] seconds that each link carries something."""
        s, p = self.schedule, self.problem
        source = p.location[s.device[p.producer[s.sent_payload]]]
        held = p.holds[source, s.sent_to]
        took = np.broadcast_to((s.sent_finish - s.sent_start)[:, None], held.shape)
        return floats(np.bincount(held[held >= 0], weights=took[held >= 0], minlength=p.links) * TICK_S)


def simulate(
    problem: Problem,
    device: Ints,
    rank: Ints,
    *,
    send_rank: Ints | None = None,
    free: Bools | None = None,
    beside: Bools | None = None,
) -> Timeline:
    """Run every device's ops in order of rank, each as early as its inputs allow.

    device: [n] device of each task; rank: [n], ties by index. When a task finishes it requests one transfer of each
    of its payloads to each other location with a consumer (payload, then location, ascending). Tasks finish in order
    of (time, rank, index). Raise InputError when the order contradicts the precedence, naming a task.

    Links are first come, first served: a request is granted at once and holds the links of its path from the moment
    all are free. With send_rank, [p], they are scheduled instead: requests wait, and after all finishes of a tick,
    of tasks and transfers, each that finds all its links free starts, in order of (send rank, payload, target),
    whoever else still waits; those of zero ticks finish at once, and if tasks finish by this within the tick, that
    is repeated.

    free: [n] tasks that have no place in their device's order, as ops in TensorFlow that are in no chain. When its
    inputs are there each asks for its device, and so does the next in the order: who asks first is first, of those that
    ask at once by rank. beside: [n] those that do not need their device, by default all that are free: they start when
    their inputs are there, in the order at their place, and keep nobody from it. The schedule then has overlaps on a
    device.
    """
    out = np.zeros(problem.tasks, bool) if free is None else free
    run = _Simulation(problem, np.asarray(device), np.asarray(rank), out, ~(out if beside is None else beside))
    if send_rank is None:
        run.to_the_end()
    else:
        run.to_the_end_by_priority(np.asarray(send_rank).tolist())
    return Timeline(problem=problem, schedule=run.schedule())


class _Simulation:
    """The state of one simulation: lists, because Python reads them faster than arrays."""

    def __init__(self, problem: Problem, device: Ints, rank: Ints, free: Bools, asking: Bools) -> None:
        p = self.problem = problem
        self.device = device
        self.device_list = device.tolist()
        self.rank = rank.tolist()
        took = p.duration[np.arange(p.tasks), device]
        if (took < 0).any():
            raise InputError(f"task {int(np.flatnonzero(took < 0)[0])} is placed on a device that cannot run it")
        self.took: list[int] = took.tolist()
        offset, edge = adjacency(p.tasks, p.src)
        self.offset, self.head = offset.tolist(), p.dst[edge].tolist()
        self.carried = p.payload[edge].tolist()
        self.missing: list[int] = np.bincount(p.dst, minlength=p.tasks).tolist()
        self.arrived = [0] * p.tasks
        order = np.lexsort((np.arange(p.tasks), rank))
        self.free, self.asking = free.tolist(), asking.tolist()
        # Where a device is asked for, its chain asks, too; elsewhere what is next starts as soon as it is known when.
        self.asked: list[bool] = np.isin(np.arange(p.devices), device[free & asking]).tolist()
        self.waits: set[int] = set()
        self.taken = [0] * p.devices
        order = order[~free[order]]
        self.chain: list[list[int]] = [order[device[order] == d].tolist() for d in range(p.devices)]
        self.next_of, self.free_at = [0] * p.devices, [0] * p.devices
        self.link_free = [0] * p.links
        self.location: list[int] = p.location.tolist()
        self.start = [-1] * p.tasks
        self.producer: list[int] = p.producer.tolist()
        self.told: set[int] = set()
        self.events: list[tuple[int, int, int]] = []
        self.sent: list[tuple[int, int, int, int]] = []
        self.done = 0

    def to_the_end(self) -> None:
        self._begin_all()
        while self.events:
            now, task = self._finish()
            wanted = sorted(self._wanted(task))
            arrival = {(payload, to): self._send(payload, to, now) for payload, to in wanted}
            self._release(task, arrival, now)
            self._begin(self.device_list[task])
        self._all_ran()

    def to_the_end_by_priority(self, send_rank: list[int]) -> None:
        self._begin_all()
        waiting: list[tuple[int, int, int]] = []
        ends: list[int] = []
        while self.events or ends:
            now = min([*(event[0] for event in self.events[:1]), *ends[:1]])
            while self.events and self.events[0][0] == now:
                _, task = self._finish()
                for payload, to in self._wanted(task):
                    bisect.insort(waiting, (send_rank[payload], payload, to))
                self._release(task, {}, now)
                self._begin(self.device_list[task])
            while ends and ends[0] <= now:
                heapq.heappop(ends)
            for request in list(waiting):
                _, payload, to = request
                if any(self.link_free[k] > now for k in self._links(payload, to)):
                    continue
                waiting.remove(request)
                end = self._send(payload, to, now)
                heapq.heappush(ends, end)
                self._release(self.producer[payload], {(payload, to): end}, now)
        self._all_ran()

    def _finish(self) -> tuple[int, int]:
        """The next task to finish, and when; those that ask for their devices until then get them."""
        now, _, task = heapq.heappop(self.events)
        while task < 0:
            d = self.device_list[~task]
            self._start(~task, max(now, self.taken[d]))
            self.taken[d] = self.start[~task] + self.took[~task]
            now, _, task = heapq.heappop(self.events)
        self.done += 1
        if not self.free[task]:
            self.next_of[self.device_list[task]] += 1
            self.free_at[self.device_list[task]] = now
        return now, task

    def _all_ran(self) -> None:
        if self.done < self.problem.tasks:
            stuck = next(i for i, s in enumerate(self.start) if s < 0)
            raise InputError(f"the order contradicts the precedence: task {stuck} can never start")

    def _begin_all(self) -> None:
        for task in range(self.problem.tasks):
            if self.free[task] and not self.missing[task]:
                self._start_free(task)
        for d in range(self.problem.devices):
            self._begin(d)

    def _start(self, task: int, at: int) -> None:
        self.start[task] = at
        heapq.heappush(self.events, (at + self.took[task], self.rank[task], task))

    def _ask(self, task: int, at: int) -> None:
        """Let a task ask for its device."""
        if task not in self.waits:
            self.waits.add(task)
            heapq.heappush(self.events, (at, self.rank[task], ~task))

    def _start_free(self, task: int) -> None:
        """Start a task without a place in the order when its inputs, all known, are there, or let it ask then."""
        if self.asking[task]:
            self._ask(task, self.arrived[task])
        else:
            self._start(task, self.arrived[task])

    def _begin(self, d: int) -> None:
        """Start the device's next task if its inputs are known."""
        chain, at = self.chain[d], self.next_of[d]
        if at == len(chain):
            return
        task = chain[at]
        if self.missing[task] or self.start[task] >= 0:
            return
        at = max(self.free_at[d], self.arrived[task])
        if self.asked[d] and self.asking[task]:
            self._ask(task, at)
        else:
            self._start(task, at)

    def _wanted(self, task: int) -> set[tuple[int, int]]:
        """The (payload, target) that a finished task must send."""
        here = self.location[self.device_list[task]]
        return {(self.carried[k], there) for k, there in self._readers(task) if self.carried[k] >= 0 and there != here}

    def _readers(self, task: int) -> Iterator[tuple[int, int]]:
        """Each edge of a task and the location of its head."""
        for k in range(self.offset[task], self.offset[task + 1]):
            yield k, self.location[self.device_list[self.head[k]]]

    def _release(self, task: int, arrival: dict[tuple[int, int], int], now: int) -> None:
        """Tell successors, once each, when what they read from the task is there, and start what can."""
        here = self.location[self.device_list[task]]
        for k, there in self._readers(task):
            local = self.carried[k] < 0 or there == here
            if k not in self.told and (local or (self.carried[k], there) in arrival):
                self.told.add(k)
                head = self.head[k]
                self.arrived[head] = max(self.arrived[head], now if local else arrival[self.carried[k], there])
                self.missing[head] -= 1
                if self.free[head]:
                    if not self.missing[head]:
                        self._start_free(head)
                else:
                    self._begin(self.device_list[head])

    def _links(self, payload: int, to: int) -> list[int]:
        here = self.location[self.device_list[self.producer[payload]]]
        return [k for k in self.problem.holds[here, to].tolist() if k >= 0]

    def _send(self, payload: int, to: int, now: int) -> int:
        here = self.location[self.device_list[self.producer[payload]]]
        begin = max([now, *(self.link_free[k] for k in self._links(payload, to))])
        end = begin + int(self.problem.transfer[payload, self.problem.path_class[here, to]])
        for k in self._links(payload, to):
            self.link_free[k] = end
        self.sent.append((payload, to, begin, end))
        return end

    def schedule(self) -> Schedule:
        sent = np.array(self.sent, dtype=np.int64).reshape(-1, 4).T
        start = np.array(self.start, dtype=np.int64)
        return Schedule(
            device=self.device, start=start, finish=start + np.array(self.took, dtype=np.int64), sent_payload=sent[0],
            sent_to=sent[1], sent_start=sent[2], sent_finish=sent[3],
        )  # fmt: skip
