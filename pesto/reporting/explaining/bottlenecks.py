"""The ops that hold everybody up: long ones of the critical path under which other accelerators idle."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pesto.reporting.explaining.explained_step import ExplainedStep
from solvers import FORBIDDEN
from solvers.arrays import Ints, floats, ints
from solvers.timing.replay import idle_under

LONG = 0.005
"""Share of the step from which on an op of the path is long."""
MOST = 10
"""Blockers that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """A long op of the critical path; all ticks are of 1 ns."""

    op: str
    """Its name."""
    device: str
    """The device that it is on."""
    ticks: int
    """How long it takes."""
    idle_ticks: int
    """How long the other accelerators, all together, do nothing meanwhile."""
    parts: int
    """Over how many devices it could be split: accelerators that can run it, or processors of the host where none can.
    """
    split_saves_ticks: int
    """How much shorter the step is at most when it is split over these, everything else as it is (simulated)."""


def find_bottlenecks(step: ExplainedStep) -> tuple[Bottleneck, ...]:
    """The long ops of the path under which others idle, most idle time first; MOST of them at most."""
    ops = step.path_ops
    ops = ops[step.took[ops] >= max(1, LONG * step.makespan)]
    idle = idle_under(step.timeline.schedule, step.accelerator_lanes, ops)
    order = np.lexsort((ops, -step.took[ops], -idle))[:MOST]
    return tuple(_blocker(step, int(ops[k]), int(idle[k])) for k in order.tolist() if idle[k] > 0)


def split_saves(step: ExplainedStep, ops: Iterable[int]) -> int:
    """Ticks that the step is shorter at most when all of these ops are split over the devices that can run them.

    Each takes the time of its largest part when parts are as its devices are fast, and the other parts take nothing
    where they are: so no way to split them with everything else as it is saves more.
    """
    g, lanes = step.bench.prepared, step.timeline.schedule.device
    duration = step.timeline.problem.duration.copy()
    saved = 0
    for op in ops:
        whole = duration[op, lanes[op]]
        duration[op, lanes[op]] = _part(duration[op, _able(step, op)])
        saved += int(whole - duration[op, lanes[op]])
    return max(0, min(saved, step.makespan - step.timed(g._replace(duration=ints(duration)))))


def _blocker(step: ExplainedStep, op: int, idle: int) -> Bottleneck:
    return Bottleneck(
        op=step.plan.names[op],
        device=step.device_of(op),
        ticks=int(step.took[op]),
        idle_ticks=idle,
        parts=len(_able(step, op)),
        split_saves_ticks=split_saves(step, [op]),
    )


def _able(step: ExplainedStep, op: int) -> Ints:
    """The accelerators' processors that can run an op; where none can, all that can."""
    can = np.flatnonzero(step.timeline.problem.duration[op] != FORBIDDEN)
    fast = np.intersect1d(can, step.accelerator_lanes)
    return fast if len(fast) else can


def _part(ticks: Ints) -> int:
    """Ticks of an op in parts that end together: as long as all its devices take for it side by side."""
    if (ticks == 0).any():
        return 0
    return int(np.ceil(1.0 / (1.0 / floats(ticks)).sum() - 1e-6))
