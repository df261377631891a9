"""A problem by who waits for whom, and a schedule as a network of activities: what neighbourhoods are cut from."""

from dataclasses import dataclass

import numpy as np

from solvers.compiled.dag import topological_order
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.structure.units import units_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProblemTables:
    """The tables of a problem as lists, for code that looks at a few tasks at a time."""

    problem: Problem
    unit: list[int]
    """Unit of each task."""
    position: list[int]
    """Place of each task in a topological order."""
    members: list[list[int]]
    """By unit: its tasks."""
    places: list[list[int]]
    """By unit: the locations where the unit can be."""
    held: list[int]
    """By unit: the bytes that its tasks hold."""
    inputs: list[list[tuple[int, int]]]
    """By task: every predecessor with the payload that it sends, -1 for none."""
    outputs: list[list[tuple[int, int]]]
    """By task: every successor with the payload that it reads, -1 for none."""
    readers: list[list[int]]
    """By payload: its consumers."""
    producer: list[int]
    duration: list[list[int]]
    """By task and device: ticks, -1 where the device cannot run the task."""
    devices: list[list[int]]
    """By task: the devices that can run it."""
    location: list[int]
    """By device: the location whose memory it uses."""
    path: list[list[tuple[int, ...]]]
    """By source and target: the links of a transfer."""

    def ticks(self, payload: int, source: int, to: int) -> int:
        """Ticks of a payload from one location to another."""
        p = self.problem
        return int(p.transfer[payload, p.path_class[source, to]])


def network_of(problem: Problem) -> ProblemTables:
    """Return the tables of a problem. O(n m + e + l^2)."""
    units, n = units_of(problem), problem.tasks
    members: list[list[int]] = [[] for _ in range(len(units.memory))]
    for task, unit in enumerate(units.unit.tolist()):
        members[unit].append(task)
    inputs: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    outputs: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    readers: list[list[int]] = [[] for _ in range(problem.payloads)]
    # An edge may be given twice.
    edges = list(zip(problem.src.tolist(), problem.dst.tolist(), problem.payload.tolist(), strict=True))
    for tail, head, payload in sorted(set(edges)):
        inputs[head].append((tail, payload))
        outputs[tail].append((head, payload))
        if payload >= 0:
            readers[payload].append(head)
    return ProblemTables(
        problem=problem, unit=units.unit.tolist(),
        position=np.argsort(topological_order(n, problem.src, problem.dst)).tolist(), members=members,
        places=[np.flatnonzero(row).tolist() for row in units.allowed], held=units.memory.tolist(), inputs=inputs,
        outputs=outputs, readers=readers, producer=problem.producer.tolist(), duration=problem.duration.tolist(),
        devices=[np.flatnonzero(row).tolist() for row in problem.allowed], location=problem.location.tolist(),
        path=[[tuple(sorted({link for link in to if link >= 0})) for to in row] for row in problem.holds.tolist()],
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActivityTimeline:
    """A valid schedule whose activities, the n tasks and then the transfers, know what is left after they start."""

    network: ProblemTables
    schedule: Schedule
    makespan: int
    device: list[int]
    """By task: its device."""
    at: list[int]
    """By task: its location."""
    start: list[int]
    """By activity: the tick at which it starts."""
    finish: list[int]
    """By activity: the tick at which it ends."""
    tail: list[int]
    """By activity: the ticks of the longest path from its start, along precedence and the orders of the schedule."""
    sent: dict[tuple[int, int], int]
    """The activity of each transfer, by payload and target."""
    links: list[tuple[int, ...]]
    """By transfer: the links that it holds."""

    @property
    def tasks(self) -> int:
        """Number of tasks: the index of the first transfer."""
        return len(self.device)

    def rank(self, task: int) -> tuple[int, int, int]:
        """By which tasks are in time: none is before one that it waits for."""
        return self.start[task], self.finish[task], self.network.position[task]

    @property
    def critical(self) -> list[int]:
        """The tasks that cannot be later without delaying the schedule's end, as long as all orders stay."""
        return [i for i in range(self.tasks) if self.start[i] + self.tail[i] == self.makespan]


def timeline_of(network: ProblemTables, schedule: Schedule) -> ActivityTimeline:
    """Return the timeline of a schedule that is valid for the network's problem. O((n + e + t) log n)."""
    device, n = schedule.device.tolist(), len(schedule.device)
    at = [network.location[d] for d in device]
    crossings = list(zip(schedule.sent_payload.tolist(), schedule.sent_to.tolist(), strict=True))
    links = [network.path[at[network.producer[payload]]][to] for payload, to in crossings]
    start = [*schedule.start.tolist(), *schedule.sent_start.tolist()]
    finish = [*schedule.finish.tolist(), *schedule.sent_finish.tolist()]
    sent = {crossing: n + k for k, crossing in enumerate(crossings)}
    # By activity: what waits for it, orders aside.
    after: list[list[int]] = [[] for _ in start]
    for task, outputs in enumerate(network.outputs):
        for head, payload in outputs:
            crosses = payload >= 0 and at[head] != at[task]
            after[sent[payload, at[head]] if crosses else task].append(head)
    for (payload, _), activity in sent.items():
        after[network.producer[payload]].append(activity)
    # The activities by (start, finish); those of no time that tie, so that none precedes what it waits for.
    position = [(place, 0) for place in network.position]
    position += [(network.position[network.producer[payload]], 1) for payload, _ in crossings]
    order = sorted(range(len(start)), key=lambda a: (start[a], finish[a], position[a]))
    # The orders on devices and links: each activity is followed by the next that holds what it held.
    last: dict[int, int] = {}
    holds = [*((d,) for d in device), *(tuple(-1 - link for link in held) for held in links)]
    for activity in order:
        for resource in holds[activity]:
            if resource in last:
                after[last[resource]].append(activity)
            last[resource] = activity
    tail = [f - s for s, f in zip(start, finish, strict=True)]
    for activity in reversed(order):
        tail[activity] += max([tail[follower] for follower in after[activity]], default=0)
    return ActivityTimeline(
        network=network, schedule=schedule, makespan=schedule.makespan, device=device, at=at, start=start,
        finish=finish, tail=tail, sent=sent, links=links,
    )  # fmt: skip
