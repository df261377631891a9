"""A plan as it stands: its run, first come, first served, and what is left after each task and transfer of it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints, offsets, rank_of
from solvers.compiled.dag import topological_order
from solvers.compiled.kernels import inlined, kernel
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.search.workspace import network_of
from solvers.structure.units import placeable_units
from solvers.timing.loop import Prepared
from solvers.timing.replay import prepare, replay


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StandingTables:
    """Tables for the analysis of any plan of one problem."""

    problem: Problem
    prepared: Prepared
    unit: Ints
    """[n] unit of each task."""
    size: Ints
    """[u] tasks of each unit."""
    memory: Ints
    """[u] bytes of each unit."""
    device_at: Ints
    """[n, l] the device that a task gets at a location that it moves to, -1 where its unit cannot be."""
    topological: Ints
    """[n] position of each task in a topological order."""
    behind: Ints
    """[n + 1] where the edges into each task begin in `into`."""
    into: Ints
    """[e] edges, by the tasks that they lead to."""
    ahead: Ints
    """[n + 1] where the edges out of each task begin in `out`."""
    out: Ints
    """[e] edges, by the tasks that they leave."""

    def run(self, device: Ints, order: Ints) -> Schedule:
        """Run a placement and an order; ValueError if the order contradicts the precedence."""
        return replay(self.problem, device, rank_of(order), prepared=self.prepared)


def tables_of(problem: Problem) -> StandingTables:
    """Everything that does not depend on a plan; ValueError when a unit can be nowhere. O(e log e + n (m + l))."""
    units, n = placeable_units(problem), problem.tasks
    network = network_of(problem, units)
    return StandingTables(
        problem=problem,
        prepared=prepare(problem),
        unit=units.unit,
        size=np.bincount(units.unit),
        memory=units.memory,
        device_at=ints(np.where(network.device_at >= 0, network.used[network.device_at], -1)),
        topological=rank_of(topological_order(n, problem.src, problem.dst)),
        behind=offsets(np.bincount(problem.dst, minlength=n)),
        into=ints(np.argsort(problem.dst, kind="stable")),
        ahead=offsets(np.bincount(problem.src, minlength=n)),
        out=ints(np.argsort(problem.src, kind="stable")),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """A plan's run, and the longest path from the start of each of its activities to its end, all orders kept."""

    tables: StandingTables
    schedule: Schedule
    at: Ints
    """[n] location of each task."""
    held: Ints
    """[l] bytes that the tasks hold."""
    order: Ints
    """[n] tasks by start, finish and topological position."""
    tail: Ints
    """[n + t] ticks from the start of each task, then of each transfer, to the end."""
    crossing: Ints
    """[p, l] transfer of a payload to a location, -1 for none."""
    turns: tuple[Ints, ...]
    """By device: places in `order` of its tasks, rising."""

    @property
    def makespan(self) -> int:
        """Ticks of the run."""
        return self.schedule.makespan

    @property
    def critical(self) -> Ints:
        """The tasks that cannot be later without delaying the end."""
        s = self.schedule
        return np.flatnonzero(s.start + self.tail[: len(s.start)] == s.makespan)


def standing_of(tables: StandingTables, device: Ints, order: Ints) -> Standing:
    """A placement and an order of all tasks as they stand. O((n + e + t) log n)."""
    p, s = tables.problem, tables.run(device, order)
    at = p.location[s.device]
    crossing = np.full((p.payloads, p.locations), -1)
    crossing[s.sent_payload, s.sent_to] = np.arange(len(s.sent_payload))
    by = np.lexsort((tables.topological, s.finish, s.start))
    position = np.concatenate([2 * tables.topological, 2 * tables.topological[p.producer[s.sent_payload]] + 1])
    start, finish = np.concatenate([s.start, s.sent_start]), np.concatenate([s.finish, s.sent_finish])
    tail = np.zeros(len(start), dtype=np.int64)
    run = _StandingRun(
        s.device, at, ints(crossing), tables.ahead, tables.out, p.dst, p.payload, s.sent_payload, s.sent_to, p.producer,
        p.holds, np.zeros(p.devices, dtype=np.int64), np.zeros(p.links + 1, dtype=np.int64),
    )  # fmt: skip
    _tails(run, np.lexsort((position, finish, start)), finish - start, tail)
    held = np.zeros(p.locations, dtype=np.int64)
    np.add.at(held, at, p.memory)
    there = s.device[by]
    return Standing(
        tables=tables,
        schedule=s,
        at=at,
        held=held,
        order=ints(by),
        tail=ints(tail),
        crossing=ints(crossing),
        turns=tuple(np.flatnonzero(there == d) for d in range(p.devices)),
    )


class _StandingRun(NamedTuple):
    """A run and its graph, for compiled code."""

    device: Ints
    at: Ints
    crossing: Ints
    ahead: Ints
    out: Ints
    head: Ints
    carried: Ints
    payload: Ints
    """[t] payload of each transfer."""
    to: Ints
    producer: Ints
    holds: Ints
    on_device: Ints
    """[m] zeros: what is left after the start of the last activity that was looked at there."""
    on_link: Ints
    """[links + 1] the same for links, and a zero for none."""


@kernel
def _tails(run: _StandingRun, order: Ints, took: Ints, tail: Ints) -> None:
    """Fill in `tail`, of all activities in the order of their starts, from the last."""
    n = len(run.device)
    for place in range(len(order) - 1, -1, -1):
        activity = order[place]
        if activity < n:
            device = run.device[activity]
            tail[activity] = took[activity] + max(run.on_device[device], _after_task(run, activity, tail))
            run.on_device[device] = tail[activity]
            continue
        sent = activity - n
        left = _after_transfer(run, sent, tail)
        here, to = run.at[run.producer[run.payload[sent]]], run.to[sent]
        for k in range(run.holds.shape[2]):
            left = max(left, run.on_link[run.holds[here, to, k]])
        tail[activity] = took[activity] + left
        for k in range(run.holds.shape[2]):
            if run.holds[here, to, k] >= 0:
                run.on_link[run.holds[here, to, k]] = tail[activity]


@inlined
def _after_task(run: _StandingRun, task: int, tail: Ints) -> int:
    """Ticks after a task, of what reads from it."""
    left = 0
    for k in range(run.ahead[task], run.ahead[task + 1]):
        edge = run.out[k]
        reader, what = run.head[edge], run.carried[edge]
        crosses = what >= 0 and run.at[reader] != run.at[task]
        left = max(left, tail[len(run.device) + run.crossing[what, run.at[reader]] if crosses else reader])
    return left


@inlined
def _after_transfer(run: _StandingRun, sent: int, tail: Ints) -> int:
    """Ticks after a transfer, of what reads it."""
    left, task = 0, run.producer[run.payload[sent]]
    for k in range(run.ahead[task], run.ahead[task + 1]):
        edge = run.out[k]
        if run.carried[edge] == run.payload[sent] and run.at[run.head[edge]] == run.to[sent]:
            left = max(left, tail[run.head[edge]])
    return left
