"""When tasks run: the columns of time, and the inequalities of the paths between tasks."""

from dataclasses import dataclass

import numpy as np

from solvers.milp.linear import LinearBuilder
from solvers.milp.tight.places import Places
from solvers.milp.tight.time_windows import RestrictedProblem

Terms = tuple[tuple[int, float], ...]
"""Columns and their coefficients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineSum:
    """An affine expression."""

    terms: Terms
    constant: float = 0.0

    def plus(self, terms: Terms, constant: float = 0.0) -> "AffineSum":
        """The expression and some more."""
        return AffineSum(terms=self.terms + terms, constant=self.constant + constant)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProgramDraft:
    """The program in the making: the columns of places and times, in units of `unit` ticks."""

    rows: LinearBuilder
    windows: RestrictedProblem
    places: Places
    unit: float
    makespan: int
    start: list[int]
    """Columns S, the start of each task."""
    finish: list[AffineSum]
    """Expressions S + p, the finish of each task."""

    def after(self, later: AffineSum, earlier: AffineSum) -> None:
        """Later >= earlier."""
        terms = [*later.terms, *((c, -a) for c, a in earlier.terms)]
        self.rows.row(terms, at_least=earlier.constant - later.constant)


def alone(column: int) -> AffineSum:
    """A column as an expression."""
    return AffineSum(terms=((column, 1.0),))


def draft_of(rows: LinearBuilder, windows: RestrictedProblem, places: Places, least: int, unit: float) -> ProgramDraft:
    """C and S[i] with, for heads r, tails q and i before j,

    sum over l of r[i,l] x[i,l] <= S[i]          S[j] >= S[i] + p[i]          p[i] = sum over d of p[i,d] y[i,d]
    S[i] + p[i] + sum over l of q[i,l] x[i,l] <= C
    """
    p, paths = windows.problem, windows.paths
    makespan = rows.column(min(least, windows.most) / unit, windows.most / unit, cost=1.0)
    start, finish = [], []
    for task, here in enumerate(places.at):
        took = {d: int(p.duration[task, d]) for d in places.on[task]}
        latest = windows.most - min(took[d] + int(paths.tail[task, p.location[d]]) for d in took)
        start.append(rows.column(float(windows.earliest[task]) / unit, latest / unit))
        finish.append(_chosen(start[-1], [(places.on[task][d], took[d] / unit) for d in took]))
        head = _chosen(start[-1], [(x, -float(paths.head[task, place]) / unit) for place, x in here.items()])
        if len(head.terms) > 1:
            rows.row(head.terms, at_least=0.0)
        tail = _chosen(makespan, [(x, -float(paths.tail[task, place]) / unit) for place, x in here.items()])
        last = finish[-1]
        rows.row([*tail.terms, *((c, -a) for c, a in last.terms)], at_least=last.constant - tail.constant)
    made = ProgramDraft(
        rows=rows, windows=windows, places=places, unit=unit, makespan=makespan, start=start, finish=finish
    )
    for before, then in np.argwhere(_reduced(windows.after)).tolist():
        made.after(alone(start[then]), finish[before])
    return made


def _chosen(column: int, choices: list[tuple[int, float]]) -> AffineSum:
    """The column and the coefficient of the one choice that is made: a constant where all agree."""
    if len({value for _, value in choices}) == 1:
        return AffineSum(terms=((column, 1.0),), constant=choices[0][1])
    return AffineSum(terms=((column, 1.0), *choices))


def _reduced(after: np.ndarray) -> np.ndarray:
    """The transitive reduction of a transitive relation."""
    dense = after.astype(np.float32)
    return after & (dense @ dense == 0)
