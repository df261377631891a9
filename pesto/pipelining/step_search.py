"""Steps shorter than the named schedules': devices that share a stage, and orders and homes searched op by op."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from pesto.pipelining.replicas import Replicas, in_flight, place_replicas, run_replicas, stage_divisions
from pesto.pipelining.schedules import REPLICATED, ChainSchedule
from pesto.pipelining.staged_step import MappedSchedule, OncePlacement, StagedStep, op_devices
from pesto.pipelining.unrolled import Unrolled
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.interrupt import hold, release
from solvers.arrays import Ints, ints, rank_of
from solvers.compiled.interruption import struck
from solvers.timing.replay import replay

SEARCH = "search"
"""Name of candidates that search found."""
_BLENDS = (1.0, 0.75, 0.5, 0.25)
"""Shares of the list order in an order between it and the schedule's own; the first that fits the memory is kept."""
_STARTS = 3
"""Schedules that search begins from."""
_HEAVY, _LEAST = 24, 0.004
"""Layers at most whose variables are moved, of at least this share of all their bytes."""


def best_replicated(staged: StagedStep) -> MappedSchedule:
    """Return stages shared by several devices: of each number of stages, in turn or not, the shortest that fits.

    Those that the chain says are no shorter than one that was found to fit are left out; where none fits, the one that
    lacks least.
    """
    chain, tries = staged.chain.chain, list[tuple[Replicas, Unrolled]]()
    for division in stage_divisions(chain, len(staged.fast)):
        for in_turn in (True, False) if division[1].max() > 1 else ():
            shared = place_replicas(chain, division, staged.cluster, staged.fast, in_turn=in_turn)
            tries.append((shared, run_replicas(chain, shared, staged.step.batches)))
    best: MappedSchedule | None = None
    for shared, run in sorted(tries, key=lambda each: each[1].step):
        if best is not None and best.candidate is not None and best.fits and run.step >= best.candidate.makespan:
            break
        schedule = ChainSchedule(
            name=REPLICATED, shared=shared, run=run, period=Fraction(run.step, run.batches),
            in_flight=in_flight(shared, run),
        )  # fmt: skip
        result = staged.map_schedule(schedule)
        best = result if best is None else min(best, result, key=_worth)
    return best or MappedSchedule(schedule=ChainSchedule(name=REPLICATED, why="no stage can have several devices"))


def _worth(mapped: MappedSchedule) -> tuple[bool, int]:
    """Less is better: what fits, then its ticks; else the bytes that it lacks."""
    if mapped.candidate is None:
        return True, np.iinfo(np.int64).max
    return not mapped.fits, mapped.candidate.makespan if mapped.fits else mapped.candidate.short


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchedStep:
    """Result of a search: the best schedule, and the number of tries."""

    mapped: MappedSchedule
    """Its schedule is the one that it began from, with the homes that it found; never longer than the shortest."""
    begun: str
    """The name of that schedule."""
    tried: int
    """Orders and placements that were run, op by op."""
    interrupted: bool
    """True if Ctrl-C ended it."""


def search_step(staged: StagedStep, mapped_schedules: Sequence[MappedSchedule], seconds: float) -> SearchedStep | None:
    """Return a step shorter than all of these that fit, as far as one is found in so many seconds; None where none is.

    Orders first: ready ops first come, by the schedule's order, by the longest way to the end, or weight gradients
    where nothing else is ready; each as far towards that as fits the memory. Then where variables of shared stages
    are, and gradients are added up.
    """
    search = _StepSearch(staged, mapped_schedules, seconds)
    try:
        release()
        search.run()
    except (KeyboardInterrupt, Exception) as error:
        if not struck(error):
            raise
        search.interrupted = True
    hold()
    return search.found()


class _StepSearch:
    def __init__(self, staged: StagedStep, mapped_schedules: Sequence[MappedSchedule], seconds: float) -> None:
        self.staged, self.ends = staged, time.monotonic() + seconds
        fitting = sorted((each for each in mapped_schedules if each.fits), key=_worth)
        self.starts, self.before = fitting[:_STARTS], _worth(fitting[0])[1] if fitting else 0
        self.best: dict[str, MappedSchedule] = {each.schedule.name: each for each in self.starts}
        self.tried, self.interrupted = 0, False

    def run(self) -> None:
        """Search orders, then homes of variables, until the time is over."""
        for start in self.starts:
            if start.candidate is not None:
                self._take(start, _reordered(self.staged, start.candidate))
        for start in self.starts:
            if start.schedule.shared is not None:
                self._rehome(start)

    def found(self) -> SearchedStep | None:
        """Return the shortest, where it is shorter than all that it began from."""
        if not self.best:
            return None
        name, laid = min(self.best.items(), key=lambda each: _worth(each[1]))
        if _worth(laid)[1] >= self.before and not self.interrupted:
            return None
        return SearchedStep(mapped=laid, begun=name, tried=self.tried, interrupted=self.interrupted)

    def _take(self, start: MappedSchedule, candidates: Iterator[Candidate]) -> bool:
        """Keep what is better than the best from the same schedule; whether something was."""
        better, name = False, start.schedule.name
        while time.monotonic() < self.ends:
            candidate = next(candidates, None)
            if candidate is None:
                break
            self.tried += 1
            result = replace(start, candidate=candidate)
            if _worth(result) < _worth(self.best[name]):
                self.best[name], better = result, True
        return better

    def _rehome(self, start: MappedSchedule) -> None:
        """Try sums made elsewhere, then the heaviest layers' variables on other devices of their stage, one by one."""
        shared, chain = start.schedule.shared, self.staged.chain.chain
        if shared is None:
            return
        other = replace(shared, sums=not shared.sums)
        if self._tried(start, other):
            shared = other
        heavy = np.argsort(-chain.weights, kind="stable")[:_HEAVY]
        heavy = heavy[chain.weights[heavy] >= _LEAST * chain.weights.sum()]
        moved = True
        while moved and time.monotonic() < self.ends:
            moved, stage, before = False, shared.stage, shared
            moves = [(layer, device) for layer in heavy.tolist() for device in before.devices[int(stage[layer])]]
            for layer, device in moves:
                if device == before.homes[layer]:
                    continue
                homes = shared.homes.copy()
                homes[layer] = device
                other = replace(shared, homes=ints(homes))
                if self._tried(start, other):
                    shared, moved = other, True

    def _tried(self, start: MappedSchedule, shared: Replicas) -> bool:
        run, candidate, staged = start.schedule.run, start.candidate, self.staged
        if run is None or candidate is None or time.monotonic() >= self.ends:
            return False
        device = op_devices(
            staged.step, staged.parts, staged.chain, (OncePlacement(shared.homes, shared.sums), run), staged.problem,
            staged.fast,
        )  # fmt: skip
        moved = staged.bench.ordered(f"{start.schedule.name}, variables moved", candidate.rule, device, candidate.rank)
        return self._take(replace(start, schedule=replace(start.schedule, shared=shared)), _listed(staged.bench, moved))


def _reordered(staged: StagedStep, start: Candidate) -> Iterator[Candidate]:
    bench, schedule = staged.bench, start.timeline.schedule
    yield from _listed(bench, start)
    longest = bench.placed(SEARCH, "", schedule.device).timeline.schedule.start
    yield from _between(bench, start, longest, "the longest way to the end first")
    apart = staged.chain.weight[staged.step.op] & (staged.step.batch >= 0)
    later = schedule.start + np.where(apart, schedule.makespan // max(1, staged.step.batches), 0)
    rank = rank_of(ints(np.lexsort((bench.topological, later))))
    filled = replay(bench.problem, schedule.device, rank, strict=False, prepared=bench.prepared).start
    yield from _between(bench, start, filled, "weight gradients where devices would wait")


def _listed(bench: CandidateEvaluator, start: Candidate) -> Iterator[Candidate]:
    listed = replay(
        bench.problem, start.timeline.schedule.device, start.rank, strict=False, prepared=bench.prepared
    ).start
    yield from _between(bench, start, listed, "ready ops in its order")


def _between(bench: CandidateEvaluator, start: Candidate, other: Ints, rule: str) -> Iterator[Candidate]:
    """Orders between a candidate's own and another run's, by the mean of their starts, down to the first that fits.

    No op is before one that it waits for in either, so in none between.
    """
    own, device = start.timeline.schedule.start, start.timeline.schedule.device
    for share in _BLENDS:
        moment = share * other + (1 - share) * own
        rank = rank_of(ints(np.lexsort((bench.topological, moment))))
        result = bench.ordered(SEARCH, f"{start.name}, {rule}" + (f" ({share:.0%})" if share < 1 else ""), device, rank)
        yield result
        if result.fits:
            return
