"""A step divided among workers, cut by cut; each cut is one labelling problem over the whole graph."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from pesto.core.errors import NothingFoundError, UsageError
from pesto.split.division import Division, moved_bytes, step_bytes
from pesto.split.geometry import PARTIAL, Shape
from pesto.split.methods.cut import CutChoice, CutTask, solve_pinned
from pesto.split.methods.cut_methods import METHODS
from pesto.split.op_strategy import NO_CUT, OpStrategy, cut_ops
from pesto.split.program import CutGain, Rules, build_program
from pesto.split.typed_graph import TypedGraph
from solvers import Limit, Status
from solvers.labels.label_methods import LabelResult

MOST_WORKERS = 1024
PARTIAL_METHOD = "partial"
"""The method of splits that cut some ops alone (`divide_partly`)."""
PARTIAL_RULES = Rules(partial=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Objective of a split for seconds: modelled seconds of the mean accelerator plus those of the mean link."""

    value_s: float
    bound_s: float
    """Lower bound on the seconds of the last cut, after those before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A division, with its bytes and bounds."""

    method: str
    division: Division
    cuts: tuple[LabelResult, ...]
    """The answer of each cut's problem, outermost first; values and bounds in bytes of all cuts so far."""
    moved_bytes: int
    """Bytes that all workers receive in a step."""
    parameter_bytes: int
    """Bytes of all variables with their slots that one worker holds."""
    seconds: float
    rules: Rules
    """Rules by which it was made."""
    objective: Objective | None = None
    """Objective of all cuts together; None unless the split is for seconds."""

    @property
    def status(self) -> str:
        """Status of the worst cut: optimal if every cut is proven, else feasible."""
        return "optimal" if all(cut.status == "optimal" for cut in self.cuts) else "feasible"

    @property
    def counted_bytes(self) -> int:
        """Bytes as the program counts: each layout of a tensor received on its own, so never fewer than are moved."""
        return self.cuts[-1].value or 0

    @property
    def bound_bytes(self) -> int:
        """Lower bound on `counted_bytes` of the last cut after those before it, of all divisions if it is one cut.

        0 if none is known.
        """
        return self.cuts[-1].bound


def parse_factors(workers: str) -> Shape:
    """Return the cuts that `8` or `2x2x2` asks for, outermost first; raise UsageError for anything else."""
    if not re.fullmatch(r"[0-9]{1,4}(x[0-9]{1,4})*", workers):
        raise UsageError.build(f"workers {workers!r}", remedy="give a number, or numbers joined by x: 8, 2x2x2")
    result = tuple(map(int, workers.split("x")))
    if min(result) < 2 or prod(result) > MOST_WORKERS:
        raise UsageError.build(
            f"workers {workers}", remedy=f"give parts of 2 or more that come to at most {MOST_WORKERS} workers"
        )
    return result


def divide(
    shaped: TypedGraph, factors: Shape, method: str, rules: Rules, *, seconds: float, deterministic: bool = False
) -> Split:
    """Divide a step by one cut for each factor, outermost first.

    `seconds` limit all cuts together. If `deterministic` they stand for work, shared equally among the cuts, whatever
    the clock says; the joint method, Tofu's and a limit of memory still look at it. Raise UsageError for a factor that
    divides nothing, NothingFoundError if the time is too short, InfeasibleError if a worker would hold more than it
    may, SolverError if HiGHS fails.
    """
    began, division, cuts, answer = time.monotonic(), None, list[LabelResult](), None
    row = METHODS[method]
    if rules.prices is not None and not row.priced:
        able = ", ".join(name for name, other in METHODS.items() if other.priced)
        raise UsageError.build(
            f"the method {method} counts bytes alone", remedy=f"use {able}, or leave the objective at bytes"
        )
    if rules.memory_bytes is not None and not row.limited:
        able = ", ".join(name for name, other in METHODS.items() if other.limited)
        raise UsageError.build(
            f"the method {method} keeps to no limit of memory", remedy=f"use {able}, or leave the limit out"
        )
    groups = row.cuts(factors)
    for number, more in enumerate(groups):
        gone = seconds * number / len(groups) if deterministic else time.monotonic() - began
        left = (seconds - gone) / (len(groups) - number)
        ruled = row.ruled(rules).before(factors[number + 1 :])
        choice = row.choose(
            CutTask(
                shaped=shaped, before=division, more=more, rules=ruled, seconds=max(0.1, left),
                deterministic=deterministic,
            )
        )  # fmt: skip
        division, answer = _division(shaped, more, choice, rules), choice.answer
        cuts.append(answer if rules.prices is None else _unbounded(answer, moved_bytes(shaped, division)))
    if division is None or answer is None:
        raise UsageError.build("no workers", remedy="give at least 2")
    objective, value = None, answer.value or 0
    if rules.prices is not None:
        unit_s = rules.prices.unit_s
        objective = Objective(value_s=value * unit_s, bound_s=min(value, answer.bound) * unit_s)
    sent, held = step_bytes(shaped, division)
    return Split(
        method=method, division=division, cuts=tuple(cuts), moved_bytes=sent, parameter_bytes=held,
        seconds=time.monotonic() - began, rules=rules, objective=objective,
    )  # fmt: skip


def _division(shaped: TypedGraph, more: Shape, choice: CutChoice, rules: Rules) -> Division:
    """Translate a method's labels; raise NothingFoundError without labels, UsageError if they cut nothing."""
    if choice.answer.labels is None:
        detail = choice.answer.detail
        raise NothingFoundError.build(
            f"no way to cut it in {'x'.join(map(str, more))}{'' if detail else ' within the time'}",
            where=shaped.source,
            remedy=f"{detail}; use another method" if detail else "give more",
        )
    division = choice.program.division(choice.answer.labels.tolist())
    if all(strategy.names[-1] in NO_CUT for strategy in division.strategies):
        if rules.prices is not None:
            raise UsageError.build(
                f"no cut in {more[-1]} saves modelled seconds",
                where=shaped.source,
                remedy="leave the objective at bytes",
            )
        raise UsageError.build(
            f"nothing in it can be cut in {more[-1]}", where=shaped.source, remedy="give workers that divide its shapes"
        )
    return division


def _unbounded(answer: LabelResult, sent: int) -> LabelResult:
    """Return the answer without a bound, for cuts that were chosen for another objective."""
    return replace(answer, status=Status.FEASIBLE, value=sent, bound=0, limit=Limit.OTHER)


def divide_with_or_without_halo(
    shaped: TypedGraph, factors: Shape, method: str, rules: Rules, *, seconds: float,
    on_split: Callable[[Split], None] = lambda _: None,
) -> Split:  # fmt: skip
    """Divide a step with and without a halo and return the split that sends fewer bytes; of equals that without.

    Each cut is the best for the cuts before it alone, so a first cut of windows can cost the later ones more than it
    saves. The one without a halo gets half of the seconds, the other what is left. `on_split` is called with the one
    without a halo before the other is looked for. Raise the errors of `divide`.
    """
    if not rules.halo:
        return divide(shaped, factors, method, rules, seconds=seconds)
    began = time.monotonic()
    without = divide(shaped, factors, method, replace(rules, halo=False), seconds=seconds / 2)
    on_split(without)
    left = seconds - (time.monotonic() - began)
    if left <= 0:
        return without
    halo = divide(shaped, factors, method, rules, seconds=left)
    return halo if halo.moved_bytes < without.moved_bytes else without


def divide_partly(
    shaped: TypedGraph, workers: int, gain: CutGain, *, start: Division | None = None, seconds: float,
    deterministic: bool = False,
) -> Split | None:  # fmt: skip
    """Return the split of one cut that sends least, less what the ops that it cuts are worth; None if it cuts nothing.

    `gain` says what cutting each op is worth; what is cut beside these saves bytes, all else is whole. `start` is a
    division of one cut for as many workers, whose cut ops are cut as they are there. Bytes are counted as if all that
    is whole were on the first worker; no bound is known. If `deterministic` the seconds stand for work. Return None
    too if the time is too short; raise SolverError if HiGHS fails.
    """
    began = time.monotonic()
    program = build_program(shaped, None, (workers,), PARTIAL_RULES, gain=gain)
    labels = np.full(program.problem.variables, -1, dtype=np.int64)  # of the ops that `start` cuts, -1 for all others
    for op, strategy in enumerate(start.strategies if start else ()):
        if program.op[op] >= 0 and not NO_CUT.intersection(strategy.names) and strategy in program.strategies[op]:
            labels[program.op[op]] = program.strategies[op].index(strategy)
    answer = solve_pinned(program.problem, labels, seconds, deterministic=deterministic)
    if answer.labels is None:
        return None
    division = program.division(answer.labels.tolist())
    if not any(cut_ops(division.strategies)):
        return None
    sent, held = step_bytes(shaped, division)
    return Split(
        method=PARTIAL_METHOD, division=division, cuts=(replace(_unbounded(answer, sent), method=PARTIAL_METHOD),),
        moved_bytes=sent, parameter_bytes=held, seconds=time.monotonic() - began, rules=PARTIAL_RULES,
    )  # fmt: skip


def first_cuts(shaped: TypedGraph, split: Split, cuts: int) -> Split:
    """Return the split for fewer workers that the outermost `cuts` of a split make, if they were made one by one."""
    whole = split.division
    strategies = []
    for strategy in whole.strategies:
        if strategy.rims:
            raise ValueError("windows of fewer parts are others: split once more")
        gives = tuple(layouts[:cuts] for layouts in strategy.gives)
        partial = any(PARTIAL in layouts for layouts in gives)
        strategies.append(
            OpStrategy(
                names=strategy.names[:cuts],
                needs=tuple(layouts[:cuts] for layouts in strategy.needs),
                gives=gives,
                reducer=strategy.reducer if partial else "",
                scaled=strategy.scaled and partial,
            )
        )
    division = Division(
        factors=whole.factors[:cuts],
        strategies=tuple(strategies),
        kept=tuple(tuple(layouts[:cuts] for layouts in row) for row in whole.kept),
        variables=tuple(layouts[:cuts] for layouts in whole.variables),
    )
    sent, held = step_bytes(shaped, division)
    return replace(
        split, division=division, cuts=split.cuts[:cuts], moved_bytes=sent, parameter_bytes=held, objective=None
    )
