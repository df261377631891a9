"""Ties of ops: groups that hold several variables or much work on one device, and upper bounds on their cost."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pesto.planning.solving.colocation_ties import LOOPS, find_ties, split_op
from pesto.reporting.explaining.explained_step import ExplainedStep
from solvers import Problem
from solvers.arrays import Ints, ints
from solvers.bounds import quick_bounds

MUCH = 0.05
"""Share of the work of all ops, or of half the bytes of all variables, from which on a group is told of."""
MOST = 5
"""Groups that are told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedGroup:
    """Ops that share a device, whatever a plan would gain otherwise; all ticks are of 1 ns."""

    op: str
    """Its op that takes longest; the branch or loop that ties it, where there is one."""
    device: str
    """Where the plan has it."""
    ops: int
    """How many ops."""
    variables: int
    """How many variables these hold."""
    bytes: int
    """Bytes of these variables."""
    ticks: int
    """Ticks that its ops compute on that device."""
    work_share: float
    """Share of the compute ticks of all ops."""
    free_bound_ticks: int
    """Lower bound in ticks if each op of the group were free; for a branch, if each variable had a piece of it."""
    gain_ticks: int
    """How much shorter than this plan the step could be then at most, by that bound."""
    remedy: str
    """Remedy; empty where no general one exists."""


def find_tied_groups(step: ExplainedStep) -> tuple[TiedGroup, ...]:
    """The groups that hold several variables and much of their bytes, or much work; most work first, MOST at most."""
    graph, problem = step.bench.graph, step.timeline.problem
    whole = {graph.names.index(tie.op): tie for tie in find_ties(graph, problem, step.makespan, timed=False)}
    result = []
    for member in _large(step):
        op = next((k for k in whole if k in member), int(member[np.argmax(step.took[member])]))
        tie = whole.get(op)
        freed = split_op(graph, problem, op) if tie and tie.type not in LOOPS else _freed(problem, member)
        result.append(_told(step, member, op, (freed, tie.remedy if tie else "")))
    return tuple(result)


def _large(step: ExplainedStep) -> Iterator[Ints]:
    """The members of each group that is told of."""
    group, graph = step.timeline.problem.group, step.bench.graph
    inside = np.flatnonzero(group >= 0)
    count = int(group.max(initial=-1)) + 1
    held, work, variables = (np.zeros(count, dtype=np.int64) for _ in range(3))
    np.add.at(held, group[inside], graph.param_bytes[inside])
    np.add.at(work, group[inside], step.took[inside])
    np.add.at(variables, group[inside], graph.param_bytes[inside] > 0)
    size = np.bincount(group[inside], minlength=count)
    much = work >= max(1.0, MUCH * float(step.took.sum()))
    many = (variables > 1) & (2 * held >= max(1, int(graph.param_bytes.sum())))
    told = np.flatnonzero((size > 1) & (much | many))
    for k in told[np.lexsort((told, -held[told], -work[told]))][:MOST].tolist():
        yield np.flatnonzero(group == k)


def _freed(problem: Problem, member: Ints) -> Problem:
    """The problem with each of these ops wherever it likes."""
    group = problem.group.copy()
    group[member] = -1
    return replace(problem, group=ints(group))


def _told(step: ExplainedStep, member: Ints, op: int, freed: tuple[Problem, str]) -> TiedGroup:
    graph, ticks = step.bench.graph, int(step.took[member].sum())
    bound = quick_bounds.best(freed[0])[0]
    return TiedGroup(
        op=graph.names[op],
        device=step.device_of(op),
        ops=len(member),
        variables=int((graph.param_bytes[member] > 0).sum()),
        bytes=int(graph.param_bytes[member].sum()),
        ticks=ticks,
        work_share=ticks / max(1, int(step.took.sum())),
        free_bound_ticks=bound,
        gain_ticks=max(0, step.makespan - bound),
        remedy=freed[1],
    )
