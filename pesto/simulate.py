"""The reference event simulator: placement and order in, predicted step out (Pesto, 5.4). Plain Python on purpose.

It shares no code with the solvers' compiled event loop, so that each can be held against the other.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pesto.errors import InputError
from pesto.problem import TICK_S
from solvers.arrays import Floats, Ints, floats
from solvers.dag import adjacency
from solvers.problem import Problem
from solvers.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """A simulated step: the schedule in ticks, read in seconds."""

    problem: Problem
    schedule: Schedule

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
        held = p.path_links[source, s.sent_to]
        took = np.broadcast_to((s.sent_finish - s.sent_start)[:, None], held.shape)
        return floats(np.bincount(held[held >= 0], weights=took[held >= 0], minlength=p.links) * TICK_S)


def simulate(problem: Problem, device: Ints, rank: Ints) -> Timeline:
    """Run every device's ops in order of rank, each as early as its inputs allow, links first come first served.

    device: [n] device of each task; rank: [n], ties by index. When a task finishes it requests one transfer of each
    of its payloads to each other location with a consumer (payload, then location, ascending); a request is granted
    at once and holds the links of its path from the moment all are free. Tasks finish in order of (time, rank,
    index). InputError when the order contradicts the precedence, naming a task.
    """
    run = _Run(problem, np.asarray(device), np.asarray(rank))
    run.to_the_end()
    return Timeline(problem=problem, schedule=run.schedule())


class _Run:
    """The state of one simulation: lists, because Python reads them faster than arrays."""

    def __init__(self, problem: Problem, device: Ints, rank: Ints) -> None:
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
        self.chain: list[list[int]] = [order[device[order] == d].tolist() for d in range(p.devices)]
        self.next_of = [0] * p.devices
        self.free_at = [0] * p.devices
        self.link_free = [0] * p.links
        self.location: list[int] = p.location.tolist()
        self.start = [-1] * p.tasks
        self.events: list[tuple[int, int, int]] = []
        self.sent: list[tuple[int, int, int, int]] = []

    def to_the_end(self) -> None:
        for d in range(self.problem.devices):
            self._begin(d)
        done = 0
        while self.events:
            now, _, task = heapq.heappop(self.events)
            done += 1
            d = self.device_list[task]
            self.next_of[d] += 1
            self.free_at[d] = now
            touched = self._release(task, now)
            touched.add(d)
            for each in sorted(touched):
                self._begin(each)
        if done < self.problem.tasks:
            stuck = next(i for i, s in enumerate(self.start) if s < 0)
            raise InputError(f"the order contradicts the precedence: task {stuck} can never start")

    def _begin(self, d: int) -> None:
        """Start the device's next task if its inputs are known."""
        chain, at = self.chain[d], self.next_of[d]
        if at == len(chain):
            return
        task = chain[at]
        if self.missing[task] or self.start[task] >= 0:
            return
        self.start[task] = max(self.free_at[d], self.arrived[task])
        heapq.heappush(self.events, (self.start[task] + self.took[task], self.rank[task], task))

    def _release(self, task: int, now: int) -> set[int]:
        """Send the task's payloads and tell its successors; return the devices that may go on."""
        here = self.location[self.device_list[task]]
        edges = range(self.offset[task], self.offset[task + 1])
        there = [self.location[self.device_list[self.head[k]]] for k in edges]
        wanted = {
            (self.carried[k], to) for k, to in zip(edges, there, strict=True) if self.carried[k] >= 0 and to != here
        }
        arrival = {(payload, to): self._send(payload, here, to, now) for payload, to in sorted(wanted)}
        touched = set()
        for k, to in zip(edges, there, strict=True):
            head = self.head[k]
            self.arrived[head] = max(self.arrived[head], arrival.get((self.carried[k], to), now))
            self.missing[head] -= 1
            if not self.missing[head]:
                touched.add(self.device_list[head])
        return touched

    def _send(self, payload: int, here: int, to: int, now: int) -> int:
        p = self.problem
        held = [k for k in p.path_links[here, to].tolist() if k >= 0]
        begin = max([now, *(self.link_free[k] for k in held)])
        end = begin + int(p.transfer[payload, p.path_class[here, to]])
        for k in held:
            self.link_free[k] = end
        self.sent.append((payload, to, begin, end))
        return end

    def schedule(self) -> Schedule:
        sent = _columns(self.sent)
        start = np.array(self.start, dtype=np.int64)
        return Schedule(
            device=self.device,
            start=start,
            finish=start + np.array(self.took, dtype=np.int64),
            sent_payload=sent[0],
            sent_to=sent[1],
            sent_start=sent[2],
            sent_finish=sent[3],
        )


def _columns(rows: Sequence[tuple[int, int, int, int]]) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(-1, 4).T
