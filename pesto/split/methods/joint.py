"""All cuts in one problem: better than cut after cut, with a bound of all of them.

The labels are products of the cuts' labels. The linear program of a thousand ops is too large, so the bound is that of
messages (`solvers.labels.messages`), and so is one start. The other is the cuts made one after the other. From each,
one cut after the other is chosen anew, exactly and over the whole graph, with all other cuts as they are, until none
sends less. The value is never more than that of the cuts one after the other.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pesto.core.errors import UsageError
from pesto.split.methods.cut import CutChoice, CutTask, by_solver, solve_labelling
from pesto.split.methods.tensors import tensors_of
from pesto.split.program import CutProgram
from solvers import Limit, Status
from solvers.arrays import Bools, Ints
from solvers.labels.label_methods import LabelResult
from solvers.labels.labelling import Labelling, judge, narrowed, pinned
from solvers.labels.messages import pass_messages

MOST_LABELS = 4096
"""Maximum number of products of choices of one op, in a problem of all cuts."""


def joint(cut: CutTask) -> CutChoice:
    """All cuts at once; UsageError where an op has too many products of choices.

    In a deterministic cut no clock ends anything: messages pass until the bound stands still, cuts are chosen anew
    until none sends less, each with a share of the seconds as work.
    """
    if len(cut.more) == 1:
        return by_solver(cut, "exact")
    began = time.monotonic()
    first = _one_by_one(cut, cut.seconds / 3)
    made = cut.program()
    most = int(made.problem.labels.max(initial=0))
    if most > MOST_LABELS:
        raise UsageError.build(
            f"an op has {most} ways for all cuts, more than {MOST_LABELS}",
            remedy="give fewer cuts, or the exact method",
        )
    cuts_s = time.monotonic() - began
    passed = pass_messages(made.problem, math.inf if cut.deterministic else (cut.seconds - cuts_s) / 2)
    ends = math.inf if cut.deterministic else began + cut.seconds
    starts = [_labels(cut, made, first, ends)] if first is not None else []
    starts += [passed.labels] if passed.labels is not None else []
    passed_s = time.monotonic() - began - cuts_s
    tried = [_improved(cut, made, start, ends) for start in starts if start is not None]
    best = min(tried, key=lambda labels: judge(made.problem, labels), default=None)
    took = (("cuts", cuts_s), ("messages", passed_s), ("improvement", time.monotonic() - began - cuts_s - passed_s))
    return CutChoice(made, _answer(made.problem, best, passed.bound, took))


def _one_by_one(cut: CutTask, seconds: float) -> list[CutChoice] | None:
    """The cuts made one after the other; None where one finds nothing."""
    made, result = cut.made, list[CutChoice]()
    for k in cut.more:
        result.append(by_solver(replace(cut, made=made, more=(k,), seconds=seconds / len(cut.more)), "exact"))
        labels = result[-1].answer.labels
        if labels is None:
            return None
        made = result[-1].program.division(labels.tolist())
    return result


def _labels(cut: CutTask, cut_program: CutProgram, first: list[CutChoice], ends: float) -> Ints | None:
    """The labels of cuts that were made one after the other; None where the products do not have them."""
    program, answer = first[-1]
    division = program.division([] if answer.labels is None else answer.labels.tolist())
    labels = np.full(tensors_of(cut.shaped, cut_program).count, -1, dtype=np.int64)
    rows: list[tuple[int, Sequence[object], object]] = list(
        zip(cut_program.op, cut_program.ways, division.ways, strict=True)
    )
    rows += zip(cut_program.tie, cut_program.tied, division.variables, strict=True)
    for ats, options, mine in zip(cut_program.tensor, cut_program.layouts, division.kept, strict=True):
        rows += zip(ats, options, mine, strict=True)
    for at, choices, own in rows:
        if at >= 0 and own not in choices:
            return None
        if at >= 0:
            labels[at] = choices.index(own)
    some = pinned(cut_program.problem, labels)
    result = _exactly(cut, some.problem, ends)
    return None if result.labels is None else np.asarray(some.widened(result.labels))


def _improved(cut: CutTask, program: CutProgram, labels: Ints, ends: float) -> Ints:
    """One cut after the other anew, all others as they are, until a round of them brings nothing, or time is over."""
    agree, value, still, at = _Agreeing(cut, program), judge(program.problem, labels), 0, 0
    while still < len(cut.more) and time.monotonic() < ends:
        some = narrowed(program.problem, agree.but(at, labels))
        result = _exactly(cut, some.problem, ends)
        at, still = (at + 1) % len(cut.more), still + 1
        if result.labels is not None and result.value is not None and result.value < value:
            labels, value, still = np.asarray(some.widened(result.labels)), result.value, 1
    return labels


def _exactly(cut: CutTask, problem: Labelling, ends: float) -> LabelResult:
    """Solve one problem of several: in what is left of the time, or with a third of the work for each cut."""
    seconds = cut.seconds / 3 / len(cut.more) if cut.deterministic else ends - time.monotonic()
    return solve_labelling(problem, "exact", seconds, deterministic=cut.deterministic)


class _Agreeing:
    """Which labels are those of a division in all cuts but one."""

    def __init__(self, cut: CutTask, program: CutProgram) -> None:
        self._before = len(program.factors) - len(cut.more)
        self._many = len(program.problem.unary)
        self._first = program.problem.first
        self._cuts: dict[int, list[tuple[object, ...]]] = {}
        for at, ways in zip(program.op, program.ways, strict=True):
            if at >= 0:
                self._cuts[at] = [way.names for way in ways]
        for at, tied in zip(program.tie, program.tied, strict=True):
            self._cuts[at] = list(tied)
        for ats, options in zip(program.tensor, program.layouts, strict=True):
            for at, result in zip(ats, options, strict=True):
                if at >= 0:
                    self._cuts[at] = list(result)

    def but(self, which: int, labels: Ints) -> Bools:
        """[labels] those that agree in all cuts but that one; of what is fetched, all."""
        keep = np.ones(self._many, dtype=np.bool_)
        place = self._before + which
        for v, result in self._cuts.items():
            mine = _without(result[labels[v]], place)
            for k, each in enumerate(result):
                keep[self._first[v] + k] = _without(each, place) == mine
        return keep


def _without(choices: tuple[object, ...], place: int) -> tuple[object, ...]:
    return choices[:place] + choices[place + 1 :]


def _answer(problem: Labelling, labels: Ints | None, bound: int, took: tuple[tuple[str, float], ...]) -> LabelResult:
    if labels is None:
        return LabelResult(
            status=Status.UNKNOWN, method="joint", labels=None, value=None, bound=0, limit=Limit.TIME, seconds=took
        )
    value = judge(problem, labels)
    status = Status.OPTIMAL if bound >= value else Status.FEASIBLE
    limit = Limit.NONE if status is Status.OPTIMAL else Limit.OTHER
    return LabelResult(
        status=status, method="joint", labels=labels, value=value, bound=min(bound, value), limit=limit, seconds=took
    )
