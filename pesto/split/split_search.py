"""A step divided among workers, cut by cut; each cut is one labelling problem over the whole graph."""

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from pesto.core.errors import NothingFoundError, UsageError
from pesto.core.quantities import plural
from pesto.split.division import Division, moved_bytes, parameter_bytes
from pesto.split.geometry import Shape
from pesto.split.methods.cut import CutChoice, CutTask, solve_labelling
from pesto.split.methods.cut_methods import METHODS, CutMethod
from pesto.split.op_strategy import ONCE_WAY, WHOLE_WAY, cut_ops
from pesto.split.ops.op_types import coverage
from pesto.split.prices import Prices
from pesto.split.program import CutGain, Rules, build_joint_program
from pesto.split.typed_graph import TypedGraph
from solvers import Limit, Status
from solvers.labels.label_methods import LabelResult
from solvers.labels.labelling import pinned

MOST_WORKERS = 1024
PARTIAL = "partial"
"""The method of splits that cut some ops alone (`divide_partly`)."""
PARTIAL_RULES = Rules(partial=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Objective of a split for seconds: modelled seconds of the mean accelerator plus those of the mean link."""

    value_s: float
    bound_s: float
    """No way to make the last cut, after those before it, takes less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A division, and what is known of it."""

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
    """By which it was made."""
    objective: Objective | None = None
    """Objective of all cuts together; None unless the split is for seconds."""

    @property
    def status(self) -> str:
        """Status of the worst cut: optimal if every cut is proven, else feasible."""
        return "optimal" if all(cut.status == "optimal" for cut in self.cuts) else "feasible"

    @property
    def counted_bytes(self) -> int:
        """As the program counts: each layout of a tensor received on its own, though two may be one part to a worker.

        What is moved is no more.
        """
        return self.cuts[-1].value or 0

    @property
    def bound_bytes(self) -> int:
        """No way to make the last cut, after those before it, counts less; of one cut, or all at once, no way at all.

        0 where none is known.
        """
        return self.cuts[-1].bound


def parse_factors(workers: str) -> Shape:
    """The cuts that `8` or `2x2x2` asks for, outermost first; UsageError for anything else."""
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

    seconds: what all cuts may take. deterministic: they stand for work, shared equally among the cuts, whatever the
    clock says; the joint method, Tofu's and a limit of memory still look at it.
    UsageError where a factor divides nothing, NothingFoundError where the time is too short, InfeasibleError where a
    worker would hold more than it may, SolverError where HiGHS fails.
    """
    began, made, cuts, answers = time.monotonic(), None, list[LabelResult](), list[LabelResult]()
    row = _row(method, rules)
    for number, more in enumerate(row.cuts(factors)):
        gone = seconds * number / len(row.cuts(factors)) if deterministic else time.monotonic() - began
        left = (seconds - gone) / (len(row.cuts(factors)) - number)
        ruled = row.ruled(rules).before(factors[number + 1 :])
        cut = CutTask(
            shaped=shaped, made=made, more=more, rules=ruled, seconds=max(0.1, left), deterministic=deterministic
        )
        result = row.choose(cut)
        made = _made(shaped, more, result, rules)
        answers.append(result.answer)
        cuts.append(result.answer if rules.prices is None else _unbounded(result.answer, moved_bytes(shaped, made)))
    if made is None:
        raise UsageError.build("no workers", remedy="give at least 2")
    return Split(
        method=method,
        division=made,
        cuts=tuple(cuts),
        moved_bytes=moved_bytes(shaped, made),
        parameter_bytes=int(parameter_bytes(shaped, made).sum()),
        seconds=time.monotonic() - began,
        rules=rules,
        objective=None if rules.prices is None else _objective(answers[-1], rules.prices),
    )


def divide_with_or_without_halo(
    shaped: TypedGraph, factors: Shape, method: str, rules: Rules, *, seconds: float,
    on_split: Callable[[Split], None] = lambda _: None,
) -> Split:  # fmt: skip
    """`divide`: of a halo and of none what sends fewer bytes, and of equals none.

    Each cut is the best for the cuts before it alone, so a first cut of windows can cost the later ones more than it
    saves. The one without a halo gets half of the seconds, the other what is left. Errors as of `divide`.

    found: hears of the one without a halo before the other is looked for.
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
    """The split of one cut that sends least, less what the ops that it cuts are worth; None where it cuts nothing.

    gain: what cutting each op is worth; what is cut beside these saves bytes, all else is whole. start: a division of
    one cut for as many workers, whose cut ops are cut as they are there. deterministic: the seconds stand for work.
    Bytes are counted as if all that is whole were on the first worker. Nothing is known of better ones. None too where
    the time is too short; SolverError where HiGHS fails.
    """
    began = time.monotonic()
    made = build_joint_program(shaped, None, (workers,), PARTIAL_RULES, gain=gain)
    # [variables of ties, tensors and ops] labels of the ops that `start` cuts, -1 for all others.
    labels = np.full(made.problem.variables, -1, dtype=np.int64)
    for op, way in enumerate(start.ways if start else ()):
        if made.op[op] >= 0 and not {WHOLE_WAY, ONCE_WAY}.intersection(way.names) and way in made.ways[op]:
            labels[made.op[op]] = made.ways[op].index(way)
    some = pinned(made.problem, labels)
    answer = solve_labelling(some.problem, "exact", seconds, deterministic=deterministic)
    if answer.labels is None:
        return None
    division = made.division(some.widened(answer.labels).tolist())
    if not any(cut_ops(division.ways)):
        return None
    sent = moved_bytes(shaped, division)
    known = replace(_unbounded(answer, sent), method=PARTIAL)
    return Split(
        method=PARTIAL, division=division, cuts=(known,), moved_bytes=sent,
        parameter_bytes=int(parameter_bytes(shaped, division).sum()), seconds=time.monotonic() - began,
        rules=PARTIAL_RULES,
    )  # fmt: skip


def _made(shaped: TypedGraph, more: Shape, choice: CutChoice, rules: Rules) -> Division:
    """Translate a method's labels to a division; NothingFoundError without labels, UsageError if they cut nothing."""
    if choice.answer.labels is None:
        detail = choice.answer.detail
        why = f" - {detail}; use another method" if detail else " within the time - give more"
        raise NothingFoundError(f"{shaped.source}: no way to cut it in {'x'.join(map(str, more))}{why}")
    made = choice.program.division(choice.answer.labels.tolist())
    if all(way.names[-1] in (WHOLE_WAY, ONCE_WAY) for way in made.ways):
        if rules.prices is not None:
            raise UsageError.build(
                f"no cut in {more[-1]} saves modelled seconds",
                where=shaped.source,
                remedy="leave the objective at bytes",
            )
        raise UsageError.build(
            f"nothing in it can be cut in {more[-1]}", where=shaped.source, remedy="give workers that divide its shapes"
        )
    return made


def _unbounded(answer: LabelResult, sent: int) -> LabelResult:
    """Return the answer without a bound, for cuts that were chosen for another objective."""
    return replace(answer, status=Status.FEASIBLE, value=sent, bound=0, limit=Limit.OTHER)


def _objective(answer: LabelResult, prices: Prices) -> Objective:
    value = answer.value or 0
    return Objective(value_s=value * prices.unit_s, bound_s=min(value, answer.bound) * prices.unit_s)


def _row(method: str, rules: Rules) -> CutMethod:
    """The method; UsageError where it keeps to no limit of memory, and there is one, or counts bytes alone."""
    if rules.prices is not None and not METHODS[method].priced:
        able = ", ".join(name for name, row in METHODS.items() if row.priced)
        raise UsageError.build(
            f"the method {method} counts bytes alone", remedy=f"use {able}, or leave the objective at bytes"
        )
    if rules.memory_bytes is not None and not METHODS[method].limited:
        able = ", ".join(name for name, row in METHODS.items() if row.limited)
        raise UsageError.build(
            f"the method {method} keeps to no limit of memory", remedy=f"use {able}, or leave the limit out"
        )
    return METHODS[method]


def undescribed_types(shaped: TypedGraph) -> list[str]:
    """Op types of a step without a description: every worker does them whole."""
    types = {signature.type for signature in shaped.signatures}
    return [row.type for row in coverage(types) if not row.kind]


def strategies_by_type(shaped: TypedGraph, split: Split) -> list[tuple[str, int, str]]:
    """Op type, how many there are, and how they are cut: the commonest first."""
    result: dict[str, Counter[str]] = {}
    for op, way in enumerate(split.division.ways):
        result.setdefault(shaped.signature(op).type, Counter())[" ".join(way.names)] += 1
    rows = [(op_type, sum(ways.values()), _listed(ways)) for op_type, ways in result.items()]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def strategies_by_class(shaped: TypedGraph, split: Split) -> list[tuple[str, int, int]]:
    """Class of op types, how many ops there are, and how many of them some cut divides: the commonest first."""
    kinds = {row.type: row.kind or "none" for row in coverage({s.type for s in shaped.signatures})}
    ops, cut = Counter[str](), Counter[str]()
    for op, way in enumerate(split.division.ways):
        kind = kinds[shaped.signature(op).type]
        ops[kind] += 1
        cut[kind] += not {*way.names} <= {WHOLE_WAY, ONCE_WAY}
    return [(kind, many, cut[kind]) for kind, many in sorted(ops.items(), key=lambda row: (-row[1], row[0]))]


def _listed(ways: Counter[str], limit: int = 3) -> str:
    told = [f"{name} {many}" for name, many in ways.most_common(limit)]
    return ", ".join([*told, *([plural(len(ways) - limit, "other way")] if len(ways) > limit else [])])
