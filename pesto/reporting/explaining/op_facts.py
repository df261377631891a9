"""Why an op is where it is: what forbids other devices, what moving it there costs, who waits for whom."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.core.quantities import size
from pesto.planning.solving.candidates import Candidate
from pesto.reporting.explaining.explained_step import ExplainedStep
from pesto.reporting.explaining.path_sums import CAUSES
from solvers.arrays import Ints, ints
from solvers.heuristics.devices_of_location import devices_at
from solvers.timing.replay import replay

_NEAREST = 5
"""Names that are offered in place of an unknown one."""
_LONGEST, _LOOKED_AT = 200, 50_000
"""Characters of a name, and names, up to which near ones are sought by their letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """An op with its group on another device; all ticks are of 1 ns."""

    device: str
    """The other device of the cluster."""
    forbidden: str
    """Why it cannot be there; empty where it can."""
    same_order_ticks: int | None
    """The step with the plan's order as it is; None where it cannot be there."""
    listed_ticks: int | None
    """The step with all ops re-listed: those that are ready served in the plan's order, or by bottom level."""
    short_bytes: int
    """Bytes that some device then lacks, in the shorter of the two; 0 where all fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFacts:
    """One op of a plan; all ticks are of 1 ns."""

    op: str
    """Its name."""
    device: str
    """The device of the cluster that it is on."""
    lane: str
    """The processor."""
    start: int
    """When it starts."""
    finish: int
    """When it ends."""
    slack: int
    """How much later it may end, with all placed and in order as it is, without a longer step."""
    cause: str
    """Cause of the op's start time: begin, data, transfer or device."""
    after: str
    """The op that it waited for; empty at the begin of the step."""
    waited_ticks: int
    """Ticks for which a tensor that the op waited for queued for a link."""
    held_by: str
    """Who sent what held that link; empty where nothing did."""
    followers: tuple[str, ...]
    """Ops that began when it ended, or when what it sent arrived."""
    readers: int
    """Ops that follow it at all."""
    kinds: tuple[str, ...]
    """Kinds of device that have a kernel for it."""
    group: tuple[str, ...]
    """All ops that share its device, itself too; empty where it is in no group."""
    group_bytes: int
    """Bytes of the variables of these ops, or of its own."""
    moves: tuple[Move, ...]
    """To each other device."""


def describe_op(step: ExplainedStep, name: str) -> OpFacts:
    """Describe one op; UsageError, with the nearest names, if the plan has no op of this name."""
    op, names, result = _index(step, name), step.plan.names, step.waits
    s, problem, graph = step.timeline.schedule, step.timeline.problem, step.bench.graph
    group = np.flatnonzero(problem.group == problem.group[op]) if problem.group[op] >= 0 else np.array([op])
    sent, after = int(result.transfer[op]), int(result.after[op])
    held = int(result.held_by[sent]) if sent >= 0 else -1
    return OpFacts(
        op=name,
        device=step.device_of(op),
        lane=step.plan.lanes[int(s.device[op])],
        start=int(s.start[op]),
        finish=int(s.finish[op]),
        slack=int(result.slack[op]),
        cause=CAUSES[int(result.cause[op])],
        after=names[after] if after >= 0 else "",
        waited_ticks=int(s.sent_start[sent] - s.finish[after]) if sent >= 0 else 0,
        held_by=names[int(problem.producer[s.sent_payload[held]])] if held >= 0 else "",
        followers=tuple(names[k] for k in np.flatnonzero(result.after == op).tolist()),
        readers=len(np.unique(problem.dst[problem.src == op])),
        kinds=tuple(kind for k, kind in enumerate(graph.kinds) if graph.runs_on[op, k]),
        group=tuple(names[k] for k in group.tolist()) if len(group) > 1 else (),
        group_bytes=int(graph.param_bytes[group].sum()),
        moves=tuple(_moves(step, op, ints(group))),
    )


def _index(step: ExplainedStep, name: str) -> int:
    names = step.plan.names
    if name in names:
        return names.index(name)
    last = name.rpartition("/")[2]
    near = [n for n in names if name and name in n][:_NEAREST]
    if not near and len(name) <= _LONGEST and len(names) <= _LOOKED_AT:
        near = get_close_matches(name, names, n=_NEAREST) or [n for n in names if n.endswith(f"/{last}")][:_NEAREST]
    known = f"near it are {', '.join(shown(n, 80) for n in near)}" if near else "pesto costs lists the names of a graph"
    raise UsageError.build(f"the plan has no op '{shown(name, 80)}'", remedy=known)


def _moves(step: ExplainedStep, op: int, group: Ints) -> Iterator[Move]:
    """The op with its group at every other device, or why that cannot be."""
    here = int(step.timeline.problem.location[step.timeline.schedule.device[op]])
    for place, device in enumerate(step.cluster.devices):
        if place == here:
            continue
        why = _forbidden(step, op, group, place)
        if why:
            yield Move(device=device.name, forbidden=why, same_order_ticks=None, listed_ticks=None, short_bytes=0)
            continue
        same, listed = _moved(step, group, place)
        best = min((same, listed), key=lambda each: (not each.fits, each.makespan))
        yield Move(
            device=device.name,
            forbidden="",
            same_order_ticks=same.makespan,
            listed_ticks=listed.makespan,
            short_bytes=max(0, best.short),
        )


def _forbidden(step: ExplainedStep, op: int, group: Ints, place: int) -> str:
    """Why an op cannot be at a location: kind, group or memory; empty where it can."""
    problem, graph, kind = step.timeline.problem, step.bench.graph, step.cluster.devices[place].kind
    can = problem.allowed[group][:, problem.location == place].any(axis=1)
    column = [k for k, name in enumerate(graph.kinds) if name == kind]
    unable = group[~graph.runs_on[group][:, column].any(axis=1)]
    if op in unable:
        return f"kind: it has no kernel for a {kind}"
    if len(unable):
        return f"group: {shown(graph.names[unable[0]], 80)}, which shares its device, has no kernel for a {kind}"
    if not can.all():
        return "kind: what can run on an accelerator is planned on one"
    held, most = int(graph.param_bytes[group].sum()), int(problem.capacity[place])
    if held > most:
        return f"memory: variables of {size(held)} are more than its {size(most)}"
    return ""


def _moved(step: ExplainedStep, group: Ints, place: int) -> tuple[Candidate, Candidate]:
    """The plan with a group elsewhere: in its order, and re-listed in the better of two ways."""
    bench, problem, rank = step.bench, step.timeline.problem, step.plan.rank
    device, location = step.timeline.schedule.device.copy(), problem.location[step.timeline.schedule.device]
    location[group] = place
    device[group] = devices_at(problem, ints(location))[group]
    same = bench.ordered("moved", "in the plan's order", ints(device), rank)
    made = replay(problem, device, rank, strict=False, prepared=bench.prepared)
    listed = bench.scheduled("listed", "ready ops in the plan's order", made)
    by_level = bench.placed("listed", "ready ops by bottom level", ints(device))
    return same, min(listed, by_level, key=lambda each: (not each.fits, each.makespan))
