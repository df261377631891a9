"""Place, split, or as people do today: every kind of plan for one step on one cluster, and the shortest that fits."""

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Protocol, runtime_checkable

from pesto.choosing.strategy_choice.partial_split import Placement, split_partially
from pesto.choosing.strategy_choice.timed_split import (
    TimedSplit,
    cut_along_batch,
    cut_and_time,
    first_board,
    shortfall,
)
from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.errors import InfeasibleError, NothingFoundError, PestoError, UsageError, describe_error
from pesto.core.graph import Graph
from pesto.core.problem import TICK_S
from pesto.core.quantities import duration, percent
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import formulate
from pesto.planning.solving.flow import EarlierPlans, SolveOutcome, solve
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
"""Minimum seconds for placing."""
_NO_PLAN = (InfeasibleError, NothingFoundError, UsageError)
"""Errors that say that a kind has no plan here; all others are failures of the search for it."""
_log = logging.getLogger("pesto")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyPlan:
    """One kind of plan, of a subclass if it may be chosen; all times are modelled, but for `seconds`."""

    name: str
    """place, data-parallel, split with its cuts: split 2x2, or both with how many parts long ops are in: both 4."""
    kind: str
    """PLACE, SPLIT, BOTH or DATA_PARALLEL."""
    seconds: float
    """Measured seconds of the search for it."""
    why: str = ""
    """Reason why there is none, or why it does not fit."""
    proven: bool = False
    """True where that is a proof."""
    error: BaseException | None = field(default=None, repr=False)
    """Error that ended the search for this kind, if one did; KeyboardInterrupt after Ctrl-C."""

    makespan_s: float | None = None
    """Predicted seconds of a step; None where there is no plan of the kind."""
    peak_bytes: int | None = None
    """Most bytes that are alive on one accelerator, or host; None where there is no plan of the kind."""
    fits: bool = False
    """True where there is a plan whose peaks are within every device's memory."""

    @property
    def interrupted(self) -> bool:
        """True where Ctrl-C ended the search for it."""
        return isinstance(self.error, KeyboardInterrupt)

    @property
    def step_s(self) -> float:
        """Predicted seconds of a step; infinite where there is no plan of the kind."""
        return math.inf if self.makespan_s is None else self.makespan_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementPlan(StrategyPlan):
    """A placement of whole ops."""

    placements: tuple[Placement, ...] = field(repr=False)
    """The placement on one board of several that it began from, if any, and the one on the whole cluster."""

    @property
    def outcome(self) -> SolveOutcome:
        """Outcome of the solve on the whole cluster."""
        return self.placements[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitPlan(StrategyPlan):
    """A split, whole or partial, timed on the cluster."""

    shaped: TypedGraph = field(repr=False)
    timed: TimedSplit = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyChoice:
    """All kinds that were tried, and the one that was chosen."""

    kinds: tuple[StrategyPlan, ...]
    chosen: PlacementPlan | SplitPlan
    """The shortest step that fits."""
    reason: str
    """Reason why none of the others was chosen."""

    @property
    def interrupted(self) -> bool:
        """True where Ctrl-C ended a search."""
        return any(kind.interrupted for kind in self.kinds)


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


def choose(
    step: tuple[Graph, TypedGraph | str], cluster: Cluster, costs: Costs, settings: Settings, watch: Watch, *,
    cuts: Sequence[Shape],
) -> StrategyChoice:  # fmt: skip
    """Time the step cut in each of `cuts` and along its batch, then placed in the time that is left, then both; choose.

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
    graph, shapes = step
    search = _StrategySearch(graph, cluster, costs, settings, watch)
    if isinstance(shapes, str):
        search.kinds += [StrategyPlan(name=_split_name(cut), kind=SPLIT, seconds=0.0, why=shapes) for cut in cuts]
        _place(search, share=1.0)
    else:
        for factors in cuts:
            _split(search, shapes, factors, 1 + len(cuts))
        _replicate(search, shapes, 1 + len(cuts))
        _place(search, share=1 - BOTH_SHARE)
        _cut_long_ops(search, shapes)
    if not search.fitting:
        failures = [kind.error for kind in search.kinds if kind.error and not isinstance(kind.error, _NO_PLAN)]
        if failures:
            raise next((error for error in failures if isinstance(error, KeyboardInterrupt)), failures[0])
        error = InfeasibleError if all(kind.proven for kind in search.kinds) else NothingFoundError
        raise error.of("; ".join(f"{kind.name}: {kind.why}" for kind in search.kinds))
    chosen = min(reversed(search.fitting), key=lambda kind: kind.step_s)
    reason = _reason(search, chosen)
    return StrategyChoice(kinds=tuple(search.kinds), chosen=chosen, reason=reason)


class _StrategySearch:
    """The kinds that were searched for so far; none is searched for after Ctrl-C."""

    def __init__(self, graph: Graph, cluster: Cluster, costs: Costs, settings: Settings, watch: Watch) -> None:
        self.graph, self.cluster, self.costs, self.settings, self.watch = graph, cluster, costs, settings, watch
        self.kinds: list[StrategyPlan] = []
        self.bound_s: float | None = None
        """Lower bound on the seconds of all placements; None where there is none, or before placing."""
        self.bound_name = ""
        """Argument that gives the bound."""
        self._began = time.monotonic()

    @property
    def fitting(self) -> list[PlacementPlan | SplitPlan]:
        """The plans so far that fit the memory."""
        return [kind for kind in self.kinds if isinstance(kind, PlacementPlan | SplitPlan) and kind.fits]

    @property
    def interrupted(self) -> bool:
        """True once Ctrl-C has ended a search."""
        return any(kind.interrupted for kind in self.kinds)

    def left_s(self) -> float:
        """Return seconds of the limit that are left; when deterministic all, since cuts seldom take theirs."""
        spent = 0.0 if self.settings.deterministic else time.monotonic() - self._began
        return max(0.0, self.settings.time_limit_s - spent)

    @contextmanager
    def attempt(self, name: str, kind: str) -> Iterator[None]:
        """Add a kind that says why it failed, if an error ends the block before it adds one."""
        began, before = time.monotonic(), len(self.kinds)
        try:
            yield
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

    def offer_splits(self, shaped: TypedGraph, splits: Sequence[TimedSplit]) -> None:
        """Give the shortest of these that fits to a watch that takes splits."""
        fitting = [timed for timed in splits if timed.candidate.fits]
        if fitting and isinstance(self.watch, SplitWatch):
            best = min(fitting, key=lambda timed: timed.candidate.makespan)
            encoded = partial(dumps_split, shaped, best.split, time_limit_s=self.settings.time_limit_s)
            self.watch.take_split(best.candidate.makespan * TICK_S, encoded)

    def split_plan(self, kind: str, shaped: TypedGraph, timed: TimedSplit, seconds: float) -> SplitPlan:
        """Return a timed split as a kind of plan."""
        best, factors = timed.candidate, timed.split.division.factors
        names = {SPLIT: _split_name(factors), BOTH: f"{BOTH} {prod(factors)}"}
        return SplitPlan(
            name=names.get(kind, kind), kind=kind, seconds=seconds,
            why="" if best.fits else timed.proof or shortfall(best, self.cluster), proven=bool(timed.proof),
            makespan_s=timed.makespan_s, peak_bytes=int(best.peak.max()), fits=best.fits, shaped=shaped, timed=timed,
        )  # fmt: skip


def _split_name(factors: Shape) -> str:
    return f"{SPLIT} {'x'.join(map(str, factors))}"


def _split(search: _StrategySearch, shaped: TypedGraph, factors: Shape, cuts: int) -> None:
    """Add the shorter of a split for bytes and one for seconds, and of their first cuts alone."""
    if search.interrupted:
        return
    with search.attempt(_split_name(factors), SPLIT):
        began = time.monotonic()
        seconds = max(LEAST_S, CUTTING_SHARE * search.settings.time_limit_s / cuts)
        result: tuple[TimedSplit, ...] = ()
        try:
            step = search.graph, shaped
            for better in cut_and_time(step, factors, search.cluster, search.settings, seconds=seconds):
                result = better
                search.offer_splits(shaped, better)
        finally:  # also after Ctrl-C, what was found until then is kept
            took = time.monotonic() - began
            search.kinds += [search.split_plan(SPLIT, shaped, timed, took) for timed in result]


def _place(search: _StrategySearch, *, share: float) -> None:
    """Add a placement, in a share of the time that is left; a quick one where a split is shorter than any can be."""
    if search.interrupted:
        return
    with search.attempt(PLACE, PLACE):
        best_s = min((kind.step_s for kind in search.fitting), default=math.inf)
        try:
            problem = formulate(search.graph, search.costs, search.cluster, search.settings)
            bound, search.bound_name = quick_bounds.best(problem)
            search.bound_s = bound * TICK_S
        except PestoError as error:  # placing fails with the same error, and its row says so
            search.bound_name = str(error)
        settings = replace(search.settings, time_limit_s=max(LEAST_S, search.left_s()) * share)
        if search.bound_s is not None and best_s < search.bound_s:
            fixed = settings.deterministic
            settings = replace(settings, time_limit_s=0.0) if fixed else replace(settings, gap=ANY_GAP)
        began = time.monotonic()
        placements = place_from_board(search.graph, search.cluster, search.costs, settings, search.watch)
        outcome = placements[-1][1]
        search.kinds.append(
            PlacementPlan(
                name=PLACE, kind=PLACE, seconds=time.monotonic() - began, placements=tuple(placements),
                makespan_s=outcome.plan.makespan_s, peak_bytes=max(outcome.plan.peak_bytes.values()), fits=True,
                error=KeyboardInterrupt() if outcome.interrupted else None,
            )
        )  # fmt: skip


def place_from_board(graph: Graph, cluster: Cluster, costs: Costs, settings: Settings, watch: Watch) -> list[Placement]:
    """Place on one board, where there are several, and from there on the whole cluster; return both, that one last.

    InfeasibleError, NothingFoundError, SolverError of `pesto.planning.solving.flow.solve`.
    """
    board, there = first_board(cluster, costs), None
    if board is not None:
        some = replace(settings, time_limit_s=BOARD_SHARE * settings.time_limit_s)
        with suppress(InfeasibleError, NothingFoundError):
            there = solve(graph, *board, some, _WithoutPlans(watch))
    if board is None or there is None:
        return [(cluster, solve(graph, cluster, costs, settings, watch))]
    rest = replace(settings, time_limit_s=(1 - BOARD_SHARE) * settings.time_limit_s)
    before = EarlierPlans(start=there.plan, spent_s=math.inf if there.interrupted else 0.0)
    return [(board[0], there), (cluster, solve(graph, cluster, costs, rest, watch, before))]


def _cut_long_ops(search: _StrategySearch, shaped: TypedGraph) -> None:
    """Cut the long ops of the placement, the last kind so far; add nothing unless that is the shortest that fits."""
    left = search.left_s() * (BOTH_SHARE if search.settings.deterministic else 1.0)
    placed = search.kinds[-1]
    if search.interrupted or not isinstance(placed, PlacementPlan) or left == 0 < search.settings.time_limit_s:
        return
    with search.attempt(BOTH, BOTH):
        began = time.monotonic()
        fitting = [kind for kind in search.fitting if isinstance(kind, SplitPlan) and kind.kind == SPLIT]
        whole = sorted(fitting, key=lambda kind: kind.step_s)
        timed = split_partially(
            (search.graph, shaped), search.cluster, replace(search.settings, time_limit_s=left), placed.placements,
            _WithoutPlans(search.watch), [kind.timed.split for kind in whole],
        )  # fmt: skip
        if timed is None:
            return
        search.offer_splits(shaped, [timed])
        both = search.split_plan(BOTH, shaped, timed, time.monotonic() - began)
        if both.step_s < min(kind.step_s for kind in search.fitting):
            search.kinds.append(both)


def _replicate(search: _StrategySearch, shaped: TypedGraph, cuts: int) -> None:
    """Add data parallelism, a split along the batch with whole variables."""
    if search.interrupted:
        return
    with search.attempt(DATA_PARALLEL, DATA_PARALLEL):
        began, step = time.monotonic(), (search.graph, shaped)
        seconds = max(LEAST_S, CUTTING_SHARE * search.settings.time_limit_s / cuts)
        timed = cut_along_batch(step, search.cluster, search.settings, seconds=seconds)
        search.offer_splits(shaped, [timed])
        search.kinds.append(search.split_plan(DATA_PARALLEL, shaped, timed, time.monotonic() - began))


def _reason(search: _StrategySearch, chosen: PlacementPlan | SplitPlan) -> str:
    """Return one line on why the others were not chosen."""
    others = [kind for kind in search.fitting if kind.kind != chosen.kind]
    if not others:
        return "no other kind can be had, or fits the memory"
    other = min(others, key=lambda kind: kind.step_s)
    if isinstance(chosen, SplitPlan) and search.bound_s is not None and chosen.step_s < search.bound_s:
        return f"no placement of whole ops can take less than {duration(search.bound_s)} ({search.bound_name})"
    less = percent(1.0 - chosen.step_s / other.step_s if other.step_s else 0.0)
    return f"{less} less than {duration(other.step_s)}, the best that was found of {other.name}"
