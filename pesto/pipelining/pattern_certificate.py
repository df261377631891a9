"""A pipeline's pattern as it is kept in a file, and a file's pattern verified from scratch, also against its name."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pesto.core.errors import VerificationError
from pesto.core.files.json import shown
from pesto.pipelining.pipeline import Pipeline
from pesto.pipelining.schedules import EXACT, FREE, LONGEST_THINNING, NAMES, STAR, THINNED
from solvers.arrays import Ints
from solvers.pipelining.chain import Allocation, Chain, Pattern
from solvers.pipelining.chain_json import ChainInstance
from solvers.pipelining.flushed import gpipe, interleaved, one_f_one_b, zero_bubble
from solvers.pipelining.one_f_one_b_star import thinned
from solvers.pipelining.pattern_check import check
from solvers.pipelining.pattern_json import PatternInstance
from solvers.pipelining.pipeline_bounds import PeriodBound, best, of_allocation, of_machines

_ROUND, _V = "interleaved-2", "zero-bubble-v"
_STEPS = {"gpipe": gpipe, "1f1b": one_f_one_b, _ROUND: interleaved}


def matches_schedule(name: str, seen: Chain, allocation: Allocation, pattern: Pattern, in_flight: Ints) -> bool:
    """Return True if a valid pattern is the named schedule on these stages, or the name prescribes no order of batches.

    seen: the chain as the devices run it. in_flight: most batches of each layer. EXACT claims contiguous stages alone,
    as its search may end before the least; FREE and other programs' names claim nothing.
    """
    if name not in NAMES or name == FREE:
        return True
    stages, devices = allocation.stages[:, 2], allocation.devices
    if name == _ROUND:
        shaped = devices == 1 or np.array_equal(stages, np.tile(np.arange(devices), 2))
    elif name == _V:
        shaped = len(stages) == 2 * devices - 1 and np.array_equal(stages, stages[::-1])
    else:
        shaped = allocation.contiguous
    if name == EXACT or not shaped:
        return name == EXACT and shaped
    own = _sorted(pattern)
    try:
        return any(
            (pattern.k, pattern.T) == (each.k, each.T) and np.array_equal(own, _sorted(each))
            for each in _named_patterns(name, seen, allocation, pattern, in_flight)
        )
    except ValueError:
        return False


def _named_patterns(
    name: str, seen: Chain, allocation: Allocation, pattern: Pattern, in_flight: Ints
) -> Iterable[Pattern]:
    """Return the patterns of that name with as many batches a period; ValueError where these stages have none."""
    k, stages = pattern.k, len(allocation.stages)
    if name in (STAR, THINNED):
        of = [(1, 1)] if name == STAR else [(k, n) for n in range(k, LONGEST_THINNING + 1)]
        return (thinned(seen, allocation, pattern.T // n, (k, n)) for k, n in of if pattern.T % n == 0)
    if name in _STEPS:
        return [_STEPS[name](seen, allocation, k)]
    least = min(max(1, int(in_flight.max())), stages)
    return (zero_bubble(seen, allocation, k, [most] * stages) for most in range(least, stages + 1))


def _sorted(pattern: Pattern) -> Ints:
    """Return [4, r] kind, layer, shift and tick of each row, in an order that copies do not change."""
    columns = np.stack([pattern.kind, pattern.layer, pattern.shift, pattern.t])
    return columns[:, np.lexsort(columns)]


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
    """Return the chosen pattern; ValueError where it does not fit the memory, so that there is nothing to keep."""
    chosen, machines = pipeline.chosen, pipeline.request.machines
    memory = None if of.machines is not None or machines.memory is None else int(machines.memory[0])
    if not chosen.fits or chosen.allocation is None or chosen.pattern is None or chosen.peaks is None:
        raise ValueError(f"{chosen.name}: {chosen.why} - give more memory, or another schedule")
    return PatternInstance(
        of=of, allocation=chosen.allocation, pattern=chosen.pattern, memory=memory,
        model=pipeline.request.model, peaks=chosen.peaks, schedule=chosen.name,
    )  # fmt: skip


def verify_pattern(instance: PatternInstance, what: str) -> None:
    """Raise VerificationError for a pattern that is no valid schedule, exceeds its memory, or is not what it claims.

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
        raise VerificationError.build(f"the pattern is invalid: {wrong}", where=shown(what), remedy="make it anew")


def certify_pattern(instance: PatternInstance) -> PatternBounds:
    """Return bounds of a verified pattern."""
    machines = instance.machines
    bound = best(of_machines(instance.of.chain, machines, instance.model))
    gap = float(Fraction(instance.pattern.period) / bound.value) - 1 if bound.value else 0.0
    seen = machines.on(instance.of.chain, instance.allocation)
    stage_bound = best(of_allocation(seen, instance.allocation, machines.memory, instance.model))
    return PatternBounds(bound=bound, stage_bound=stage_bound, gap=gap)
