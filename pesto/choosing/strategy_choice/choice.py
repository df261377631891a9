"""Place, split, or as people do today: every kind of plan for one step on one cluster, and the shortest that fits."""

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, runtime_checkable

from pesto.choosing.strategy_choice.data_parallel import DataParallel, data_parallel
from pesto.choosing.strategy_choice.partial_split import split_partially
from pesto.choosing.strategy_choice.timed_split import BoardCluster, TimedSplit, cut_and_time, first_board, shortfall
from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.errors import InfeasibleError, NothingFoundError, PestoError, UsageError, describe_error
from pesto.core.graph import Graph
from pesto.core.problem import TICK_S
from pesto.core.quantities import duration, percent
from pesto.core.settings import Settings
from pesto.planning.solving.flow import EarlierPlans, SolveOutcome, formulate, solve
from pesto.planning.solving.tracker import Incumbent, StageWatch, Watch
from pesto.split.files.split_file import dumps_split
from pesto.split.geometry import Shape
from pesto.split.typed_graph import TypedGraph
from solvers.bounds import quick_bounds
from solvers.compiled.interruption import struck

PLACE, SPLIT, BOTH, DATA_PARALLEL = "place", "split", "both", "data-parallel"
CUTTING_SHARE = 0.5
"""Share of the time limit that cuts may take; they seldom do, and placing has what is left."""
BOTH_SHARE = 0.5
"""Share of what is then left that placing does without, for cutting its long ops and placing the rest again."""
BOARD_SHARE = 0.5
"""Share of placing's time that one board gets first, where there are several."""
ANY_GAP = 0.999
"""A gap that every plan meets, so that no engine is started."""
LEAST_S = 1.0
"""Seconds that placing has at least."""
_NO_PLAN = (InfeasibleError, NothingFoundError, UsageError)
"""Errors that say that a kind has no plan here; all others are failures of the search for it."""
_log = logging.getLogger("pesto")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyPlan:
    """One kind of plan, and what its step comes to; all times are modelled, but for `seconds`."""

    name: str
    """place, data-parallel, split with its cuts: split 2x2, or both with how many parts long ops are in: both 4."""
    kind: str
    """PLACE, SPLIT, BOTH or DATA_PARALLEL."""
    seconds: float
    """Measured: to find it."""
    why: str = ""
    """Why there is none, or why it does not fit."""
    proven: bool = False
    """True where that is a proof."""
    outcome: SolveOutcome | None = field(default=None, repr=False)
    """The solve of a placement."""
    board: tuple[BoardCluster, SolveOutcome] | None = field(default=None, repr=False)
    """For a placement, one board of several, and the placement there that it began from."""
    cut: TimedSplit | None = field(default=None, repr=False)
    """The timed split, whole or partial."""
    rival: DataParallel | None = field(default=None, repr=False)
    """The estimate of data parallelism: shown beside the others, and never chosen, since it is no plan."""
    error: BaseException | None = field(default=None, repr=False)
    """The error that ended the search for this kind, if one did; KeyboardInterrupt after Ctrl-C."""

    @property
    def makespan_s(self) -> float | None:
        """Predicted seconds of a step; None where there is no plan of the kind."""
        if self.outcome is not None:
            return self.outcome.plan.makespan_s
        if self.rival is not None:
            return self.rival.makespan_s
        return self.cut.candidate.makespan * TICK_S if self.cut is not None else None

    @property
    def peak_bytes(self) -> int | None:
        """Most bytes that are alive on one accelerator, or host; None where there is no plan of the kind."""
        if self.outcome is not None:
            return max(self.outcome.plan.peak_bytes.values())
        if self.rival is not None:
            return self.rival.peak_bytes
        return int(self.cut.candidate.peak.max()) if self.cut is not None else None

    @property
    def fits(self) -> bool:
        """True where there is a plan whose peaks are within every device's memory."""
        if self.rival is not None:
            return self.rival.replica.fits
        return self.outcome is not None or (self.cut is not None and self.cut.candidate.fits)

    @property
    def interrupted(self) -> bool:
        """True where Ctrl-C ended the search for it."""
        return isinstance(self.error, KeyboardInterrupt) or (self.outcome is not None and self.outcome.interrupted)


@runtime_checkable
class SplitWatch(Protocol):
    """A watch that takes better splits, too, while others are looked for."""

    def __call__(self, incumbent: Incumbent) -> None:
        """Hear of a better plan, or bound."""
        ...

    def take_split(self, makespan_s: float, encoded: Callable[[], bytes]) -> None:
        """Take a split that fits the memory: `encoded` makes the bytes of its file, also in another thread."""
        ...


class _WithoutPlans:
    """A watch of solves whose plans are not of the whole step, or not of the whole cluster: it takes none of them."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __call__(self, incumbent: Incumbent) -> None:
        """Hear of a better plan, or bound."""
        self._watch(incumbent)

    def begins(self, stage: str) -> None:
        """Hear of a stage that begins."""
        if isinstance(self._watch, StageWatch):
            self._watch.begins(stage)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyChoice:
    """All kinds that were tried, and the one that was chosen."""

    kinds: tuple[StrategyPlan, ...]
    chosen: StrategyPlan
    """The shortest step that fits."""
    reason: str
    """The others, as far as they are known."""

    @property
    def interrupted(self) -> bool:
        """True where Ctrl-C ended a search."""
        return any(kind.interrupted for kind in self.kinds)


def choose(
    step: tuple[Graph, TypedGraph | str], cluster: Cluster, costs: Costs, settings: Settings, watch: Watch, *,
    cuts: Sequence[Shape],
) -> StrategyChoice:  # fmt: skip
    """Time the step cut in each of `cuts`, then placed in what is left of the time limit, then both, and choose.

    Where a cut's step takes less than any placement can, placing is quick: list scheduling and the literature's
    methods, without search. Both is that placement with its long ops cut (`partial_split`), listed
    where its step is shorter than the placement's and every split's, and left out where no time is left. On several
    boards one is placed on first, and the whole cluster from there; either placement's long ops are cut. Of a step that
    cannot be cut, for which `step` has the reason, the cuts' rows say so, and it is placed.

    A kind whose search fails, for whatever reason, is listed with that reason, and the shortest of the others is
    chosen. Ctrl-C ends the search, and the shortest kind so far is chosen. Where no kind fits, the first failure is
    raised, or KeyboardInterrupt; without failures InfeasibleError, if that is proven of all kinds, else
    NothingFoundError, with what lacks.

    A watch that takes plans (`pesto.planning.solving.tracker.PlanWatch`) is given placements of the whole step on the
    whole cluster, one that takes splits (`SplitWatch`) each split that fits.
    """
    began = time.monotonic()
    graph, shapes = step
    to_cut = None if isinstance(shapes, str) else (graph, shapes)
    search = _StrategySearch()
    bound: float | None = None
    known = ""

    def left_s() -> float:
        """Return seconds of the limit that are left; when deterministic all, since cuts seldom take theirs."""
        spent = 0.0 if settings.deterministic else time.monotonic() - began
        return max(0.0, settings.time_limit_s - spent)

    def place() -> Iterator[StrategyPlan]:
        nonlocal bound, known
        best = min((kind.makespan_s or 0.0 for kind in search.kinds if kind.fits), default=None)
        try:
            ticks, known = quick_bounds.best(formulate(graph, costs, cluster, settings))
            bound = ticks * TICK_S
        except PestoError as none:  # placing fails with the same error, and its row says so
            bound, known = None, str(none)
        left = max(LEAST_S, left_s())
        beaten = best is not None and bound is not None and best < bound
        asked = replace(settings, time_limit_s=left if to_cut is None else left * (1 - BOTH_SHARE))
        if beaten:
            asked = replace(asked, time_limit_s=0.0) if settings.deterministic else replace(asked, gap=ANY_GAP)
        starts = time.monotonic()
        outcome, board = place_from_board(graph, cluster, costs, asked, watch)
        seconds = time.monotonic() - starts
        yield StrategyPlan(name=PLACE, kind=PLACE, seconds=seconds, outcome=outcome, board=board)

    def both(step: tuple[Graph, TypedGraph]) -> Iterator[StrategyPlan]:
        left = left_s() * (BOTH_SHARE if settings.deterministic else 1.0)
        if left == 0 < settings.time_limit_s:
            return
        yield from _both(step, cluster, replace(settings, time_limit_s=left), search.kinds, watch)

    for factors in cuts:
        if to_cut is None:
            search.kinds.append(StrategyPlan(name=_split_name(factors), kind=SPLIT, seconds=0.0, why=str(shapes)))
        else:
            cut = partial(_cut, to_cut, cluster, settings, factors, len(cuts), watch)
            search.run(_split_name(factors), SPLIT, cut)
    search.run(PLACE, PLACE, place)
    if to_cut is not None:
        search.run(BOTH, BOTH, partial(both, to_cut))
    fitting = [kind for kind in search.kinds if kind.fits]
    if not fitting:
        raise _nothing(search.kinds)
    chosen = min(reversed(fitting), key=lambda kind: kind.makespan_s or 0.0)
    reason = _reason(chosen, search.kinds, bound, known)
    if to_cut is not None:
        seconds = CUTTING_SHARE * settings.time_limit_s if settings.deterministic else left_s()
        search.run(DATA_PARALLEL, DATA_PARALLEL, partial(_rival, to_cut, cluster, settings, max(LEAST_S, seconds)))
    return StrategyChoice(kinds=tuple(search.kinds), chosen=chosen, reason=reason)


class _StrategySearch:
    """The kinds that were searched for so far; none is searched for after Ctrl-C."""

    def __init__(self) -> None:
        self.kinds: list[StrategyPlan] = []

    def run(self, name: str, kind: str, find: Callable[[], Iterable[StrategyPlan]]) -> None:
        """Add the kinds that `find` gives, or one that says why it failed."""
        if any(each.interrupted for each in self.kinds):
            return
        began, before = time.monotonic(), len(self.kinds)
        try:
            self.kinds += find()
        except (Exception, KeyboardInterrupt) as error:  # whatever it is, the other kinds' plans are kept
            cause = KeyboardInterrupt() if struck(error) else error
            why = "interrupted" if isinstance(cause, KeyboardInterrupt) else describe_error(cause, None).text
            if len(self.kinds) > before:
                self.kinds[-1] = replace(self.kinds[-1], error=cause)
            else:
                proven, seconds = isinstance(cause, InfeasibleError), time.monotonic() - began
                self.kinds.append(
                    StrategyPlan(name=name, kind=kind, seconds=seconds, why=why, proven=proven, error=cause)
                )
            if not isinstance(cause, (PestoError, KeyboardInterrupt)):
                _log.warning("%s: %s", name, why, exc_info=cause if os.environ.get("PESTO_TRACEBACK") else None)


def _nothing(kinds: Sequence[StrategyPlan]) -> BaseException:
    failed = [kind.error for kind in kinds if kind.error is not None and not isinstance(kind.error, _NO_PLAN)]
    if failed:
        return next((error for error in failed if isinstance(error, KeyboardInterrupt)), failed[0])
    error = InfeasibleError if all(kind.proven for kind in kinds) else NothingFoundError
    return error("; ".join(f"{kind.name}: {kind.why}" for kind in kinds))


def _rival(
    step: tuple[Graph, TypedGraph], cluster: Cluster, settings: Settings, seconds: float
) -> Iterator[StrategyPlan]:
    began = time.monotonic()
    result = data_parallel(step, cluster, settings, seconds=seconds)
    why = "" if result.replica.fits else shortfall(result.replica, cluster)
    yield StrategyPlan(name=DATA_PARALLEL, kind=DATA_PARALLEL, seconds=time.monotonic() - began, rival=result, why=why)


def _cut(
    step: tuple[Graph, TypedGraph], cluster: Cluster, settings: Settings, factors: Shape, many: int, watch: Watch
) -> Iterator[StrategyPlan]:
    """Yield the shorter of a split for bytes and one for seconds, and of their first cuts alone."""
    began = time.monotonic()
    seconds = max(LEAST_S, CUTTING_SHARE * settings.time_limit_s / many)
    result: tuple[TimedSplit, ...] = ()
    try:
        for better in cut_and_time(step, factors, cluster, settings, seconds=seconds):
            result = better
            _tell_splits(step[1], better, settings, watch)
    finally:  # also after Ctrl-C, what was found until then is kept
        took = time.monotonic() - began
        for each in result:
            name = _split_name(each.split.division.factors)
            short = "" if each.candidate.fits else each.proof or shortfall(each.candidate, cluster)
            yield StrategyPlan(name=name, kind=SPLIT, seconds=took, cut=each, why=short, proven=bool(each.proof))


def _both(
    step: tuple[Graph, TypedGraph], cluster: Cluster, settings: Settings, kinds: Sequence[StrategyPlan], watch: Watch
) -> Iterator[StrategyPlan]:
    """Cut the long ops of the placement, the last of `kinds`; yield nothing unless that is the shortest that fits."""
    placed = kinds[-1]
    if placed.outcome is None:
        return
    began = time.monotonic()
    placements = [(cluster, placed.outcome)]
    if placed.board is not None:
        placements.insert(0, (placed.board[0].cluster, placed.board[1]))
    whole = sorted(
        (kind for kind in kinds if kind.kind == SPLIT and kind.fits), key=lambda kind: kind.makespan_s or 0.0
    )
    splits = [kind.cut.split for kind in whole if kind.cut is not None]
    best = split_partially(step, cluster, settings, placements, _WithoutPlans(watch), splits)
    if best is None:
        return
    _tell_splits(step[1], [best], settings, watch)
    name, short = (
        f"{BOTH} {best.split.division.workers}",
        "" if best.candidate.fits else shortfall(best.candidate, cluster),
    )
    both = StrategyPlan(name=name, kind=BOTH, seconds=time.monotonic() - began, cut=best, why=short)
    least = min((kind.makespan_s or 0.0 for kind in kinds if kind.fits), default=math.inf)
    if (both.makespan_s or 0.0) < least:
        yield both


def _tell_splits(shaped: TypedGraph, splits: Sequence[TimedSplit], settings: Settings, watch: Watch) -> None:
    """Give the shortest of these that fits to a watch that takes splits."""
    fitting = [each for each in splits if each.candidate.fits]
    if fitting and isinstance(watch, SplitWatch):
        best = min(fitting, key=lambda each: each.candidate.makespan)
        encoded = partial(dumps_split, shaped, best.split, time_limit_s=settings.time_limit_s)
        watch.take_split(best.candidate.makespan * TICK_S, encoded)


def _split_name(factors: Shape) -> str:
    return f"{SPLIT} {'x'.join(map(str, factors))}"


def place_from_board(
    graph: Graph, cluster: Cluster, costs: Costs, settings: Settings, watch: Watch
) -> tuple[SolveOutcome, tuple[BoardCluster, SolveOutcome] | None]:
    """Place on the whole cluster, from a placement on one board where there are several; return both.

    InfeasibleError, NothingFoundError, SolverError of `pesto.planning.solving.flow.solve`.
    """
    board, there = first_board(cluster, costs), None
    if board is not None:
        some = replace(settings, time_limit_s=BOARD_SHARE * settings.time_limit_s)
        with suppress(InfeasibleError, NothingFoundError):
            there = solve(graph, board.cluster, board.costs, some, _WithoutPlans(watch))
    if board is None or there is None:
        return solve(graph, cluster, costs, settings, watch), None
    rest = replace(settings, time_limit_s=(1 - BOARD_SHARE) * settings.time_limit_s)
    before = EarlierPlans(start=there.plan, spent_s=math.inf if there.interrupted else 0.0)
    outcome = solve(graph, cluster, costs, rest, watch, before)
    return outcome, (board, there)


def _reason(chosen: StrategyPlan, kinds: Sequence[StrategyPlan], bound: float | None, known: str) -> str:
    """Return one line on why the others were not chosen."""
    took, others = chosen.makespan_s or 0.0, [k for k in kinds if k.fits and k.kind != chosen.kind]
    if not others:
        return "no other kind can be had, or fits the memory"
    other = min(others, key=lambda kind: kind.makespan_s or 0.0)
    against = other.makespan_s or 0.0
    if chosen.kind in (SPLIT, BOTH) and bound is not None and took < bound:
        return f"no placement of whole ops can take less than {duration(bound)} ({known})"
    less = percent(1.0 - took / against) if against else percent(0.0)
    return f"{less} less than {duration(against)}, the best that was found of {other.name}"
