"""Candidates that would run out of memory, with ops moved until they fit: memory is a hard limit."""

import time
from collections.abc import Callable
from functools import partial

from pesto.core.memory import footprint
from pesto.core.settings import Settings
from pesto.planning.solving.background_compiler import shared_compiler
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.tracker import SoFar, Stage
from solvers import Problem, Schedule
from solvers.arrays import Ints
from solvers.deadlines import Late, after, never
from solvers.heuristics.overflow.relief import relieve

SECONDS = 30.0
"""Of the processor for one repair where no plan fits, about: the largest training steps take a few, what no repair can
fit would take minutes."""
_LEAST_S = 1.0
"""For one repair at least, about, where no time is left."""
_TRIES = 3
"""Candidates to repair at most, shortest first."""


def repairs(bench: CandidateEvaluator, so_far: SoFar, settings: Settings, late: Late = never) -> Stage[None]:
    """`repaired`: of the candidates that do not fit and are shorter than the best that does.

    But not `single`, of which a repair would have to move the most and gain the least. Where a plan fits, all of them
    have what is left of the time at most, else SECONDS of the processor each, so that a busy machine finds one, too.
    With deterministic settings none looks at a clock.

    late: whether nothing is to be compiled for it any more.
    """
    best = so_far.best
    over = [c for c in so_far.candidates.values() if not c.fits and c.name != "single"]
    over = [c for c in over if best is None or c.makespan < best.makespan]
    if over and not shared_compiler().need("repair", late=late):
        return
    for candidate in sorted(over, key=lambda c: c.makespan)[:_TRIES]:
        ends = never if settings.deterministic else cpu_deadline()
        if so_far.best is not None and not settings.deterministic:
            ends = after(min(SECONDS, max(so_far.left_s, _LEAST_S)), time.perf_counter)
        yield repair_candidate(bench, candidate, name="repaired", late=ends, headroom=settings.headroom)


def cpu_deadline() -> Late:
    """Return what is late after SECONDS of this thread's processor."""
    return after(SECONDS, time.thread_time)


def repair_candidate(
    bench: CandidateEvaluator,
    candidate: Candidate,
    *,
    name: str,
    late: Late = never,
    headroom: float,
    timing: Callable[[Problem, Ints], Schedule] | None = None,
) -> Candidate:
    """The candidate with units moved off full devices (ParDNN, step 2), whether or not it then fits.

    Named `name`; its rule says what was done. It gives up once it is `late`. `headroom`: the share of each
    memory that is spared at first. `timing`: what makes the schedules, in place of the candidate's order.
    """
    relief = relieve(
        bench.problem,
        footprint(bench.graph, per_edge=bench.per_edge),
        candidate.timeline.schedule.device,
        order=candidate.rank if timing is None else partial(timing, bench.problem),
        late=late,
        headroom=headroom,
    )
    rank = relief.rank if relief.rank is not None else bench.order_of(relief.schedule)
    if not relief.fits:
        done = "no repair found"
    elif relief.moved:
        done = f"{relief.moved} ops or groups moved to fit the memory"
    else:
        done = "run in an order that frees memory early"
    whose = "" if name == candidate.name else f"{candidate.name}: "
    return bench.ordered(name, f"{whose}{candidate.rule}; {done}", relief.device, rank)
