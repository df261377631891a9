"""Evidence of a bound of the full graph: few enough numbers to store with a plan and to check by arithmetic."""

from dataclasses import dataclass
from typing import NamedTuple

ANCHORED = "anchored_distances"
"""Name of the bound that has evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Anchors, and what was found to lie between them; `solvers.bounds.certificate` says what follows from it."""

    anchors: tuple[int, ...]
    """[k] tasks, in the order of `solvers.compiled.dag.topological_order`."""
    weights: tuple[tuple[int, ...], ...]
    """[q, m] weights of the devices."""
    claims: tuple[tuple[int, ...], ...]
    """[c, 8] least distances, by `Claim`: by increasing `last`, and then by decreasing `first`."""


class Claim(NamedTuple):
    """The distance between two anchors is at least `ticks`, for one tick less has no room for a set of tasks between.

    The set are those whose least distance from the first anchor is at least `head`, and to the last at least `tail`.
    """

    first: int
    """Number of the first anchor, from 1; 0 is the start of the schedule."""
    last: int
    """Number of the last anchor; k + 1 is the end of the schedule."""
    far: int
    """1 when the anchors are at two locations; 0 when at one, and where one of the two is an end of the schedule."""
    ticks: int
    weight: int
    """Row of `Evidence.weights`."""
    kind: int
    """ALL, HERE, THERE or NONE."""
    head: int
    tail: int


HEAVIEST = 2**14
"""Upper limit of the sum of the devices' weights."""

ALL, HERE, THERE, NONE = range(4)
"""Kinds of sets without room: all tasks of a set, on all devices; those that can only be with the first anchor (or with
both), on the devices of one location; the same with the last anchor; a single task, wherever it is."""


class FullBound(NamedTuple):
    """A lower bound on the makespan of the full graph."""

    ticks: int
    name: str
    """The function of `solvers.bounds.quick_bounds` that finds it, or ANCHORED."""
    evidence: Evidence | None = None
    """None where the bound is `solvers.bounds.quick_bounds.best`."""
