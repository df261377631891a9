"""A pipeline's pattern as it is kept in a file, and a file's pattern verified from scratch."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pesto.core.errors import VerificationError
from pesto.core.files.json import shown
from pesto.pipelining.pipeline import Pipeline
from pesto.pipelining.schedule_match import matches_schedule
from solvers.pipelining.chain_json import ChainInstance
from solvers.pipelining.pattern_check import check
from solvers.pipelining.pattern_json import PatternInstance
from solvers.pipelining.pipeline_bounds import PeriodBound, best, of_allocation
from solvers.pipelining.unequal.unequal_bounds import of_machines


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternBounds:
    """Bounds on a pattern's period, computed anew."""

    bound: PeriodBound
    """Lower bound on the period of all schedules on any stages, in the memory that the file names."""
    stage_bound: PeriodBound
    """Lower bound on the period of schedules on these stages; if named AT_ONCE, of those that do each half at once."""
    gap: float
    """The pattern's period over `bound`, less 1."""


def chosen_pattern(pipeline: Pipeline, of: ChainInstance) -> PatternInstance:
    """The pattern that was chosen; ValueError where it does not fit the memory, so that there is nothing to keep."""
    chosen, machines = pipeline.chosen, pipeline.request.machines
    memory = None if of.machines is not None or machines.memory is None else int(machines.memory[0])
    if not chosen.fits or chosen.allocation is None or chosen.pattern is None or chosen.peaks is None:
        raise ValueError(f"{chosen.name}: {chosen.why} - give more memory, or another schedule")
    return PatternInstance(
        of=of, allocation=chosen.allocation, pattern=chosen.pattern, memory=memory,
        model=pipeline.request.model, peaks=chosen.peaks, schedule=chosen.name,
    )  # fmt: skip


def verify_pattern(instance: PatternInstance, what: str) -> None:
    """VerificationError where a pattern is no valid schedule, exceeds its memory, or is not what the file claims.

    It claims bytes, and by a name that is one of `schedules.NAMES` how batches follow each other. `what` names it in
    errors.
    """
    machines = instance.machines
    checked = check(instance.of.chain, instance.allocation, instance.pattern, machines.memory, instance.model, machines)
    wrong = f"{checked.refusal}: {checked.text}" if not checked.valid else ""
    if not wrong and (differs := np.flatnonzero(checked.peaks != instance.peaks)).size:
        at = int(differs[0])
        wrong = f"device {at} holds {checked.peaks[at]} bytes at its most, the file says {instance.peaks[at]}"
    seen, name = machines.on(instance.of.chain, instance.allocation), instance.schedule
    if not wrong and not matches_schedule(name, seen, instance.allocation, instance.pattern, checked.in_flight):
        wrong = f"its rows are not those of {name} on these stages"
    if wrong:
        raise VerificationError(f"{shown(what)}: the pattern is invalid: {wrong} - make it anew")


def certify_pattern(instance: PatternInstance) -> PatternBounds:
    """Bounds of a verified pattern."""
    machines = instance.machines
    bound = best(of_machines(instance.of.chain, machines, instance.model))
    gap = float(Fraction(instance.pattern.period) / bound.value) - 1 if bound.value else 0.0
    seen = machines.on(instance.of.chain, instance.allocation)
    stage_bound = best(of_allocation(seen, instance.allocation, machines.memory, instance.model))
    return PatternBounds(bound=bound, stage_bound=stage_bound, gap=gap)
