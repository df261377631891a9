"""The critical path in numbers: ticks by kind, what its ops waited for, and which scopes it leads through."""

from dataclasses import dataclass

import numpy as np

from pesto.reporting.explaining.explained_step import ExplainedStep
from pesto.reporting.explaining.waits import KINDS

CAUSES = ("begin", "data", "transfer", "device")
"""Causes of waits in words, by the values of `pesto.reporting.explaining.waits.Waits.cause`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSums:
    """Sums over the critical path; all ticks are of 1 ns."""

    ticks: dict[str, int]
    """Ticks by kind: compute, transfer, link wait and begin; they sum to the step."""
    legs: dict[str, int]
    """How many ops compute, and how many transfers are on their way, or hold a link that the path waits for."""
    waited: dict[str, tuple[int, int]]
    """(ops, ticks that these compute) by what the path's ops waited for: begin, data, transfer or device."""
    scopes: dict[str, int]
    """Ticks of compute by scope, the most first."""


def sum_path(step: ExplainedStep) -> PathSums:
    """Add up the critical path of a step."""
    ticks, legs = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for leg in step.path:
        ticks[leg.kind] += leg.end - leg.begin
        legs[leg.kind] += 1
    ops, took = step.path_ops, step.took
    cause = step.waits.cause[ops]
    waited = {name: (int((cause == k).sum()), int(took[ops][cause == k].sum())) for k, name in enumerate(CAUSES)}
    by_scope = np.zeros(len(step.scopes), dtype=np.int64)
    np.add.at(by_scope, step.scope_of[ops], took[ops])
    scopes = {step.scopes[k]: int(by_scope[k]) for k in np.argsort(-by_scope, kind="stable").tolist() if by_scope[k]}
    return PathSums(ticks=ticks, legs=legs, waited=waited, scopes=scopes)
