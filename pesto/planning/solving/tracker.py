"""The state of one solve: its time limit, the best candidates and bound, contributions, and the plan of a candidate."""

import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.distribution import VERSION
from pesto.core.graph import Graph
from pesto.core.plans.plan import FCFS, PER_DEVICE, PER_EDGE, CoarseSolve, Plan, Provenance, verify
from pesto.core.plans.shared_variables import OF_PINNED, CompanionPlan, StepVariables
from pesto.core.problem import TICK_S, lanes
from pesto.core.settings import NEAR, Settings
from pesto.planning.solving.background_compiler import FIRST, shared_compiler
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, formulate, shortest_fitting
from pesto.planning.solving.interrupt import keep, received
from solvers import relative_gap
from solvers.bounds import quick_bounds
from solvers.bounds.evidence import FullBound
from solvers.compiled.interruption import struck
from solvers.deadlines import Late, never

CLOCK: Callable[[], float] = time.perf_counter
"""Clock for the time limit, in seconds."""
RIVALS_SHARE, QUICK_SHARE, ENGINES_SHARE = 0.25, 0.5, 0.75
"""Shares of the time limit after which no further method of the literature, and no further size of coarse graph, is
tried, and after which neither repairs nor engines wait for what is still being compiled."""
HURRY_S = 1.0
"""Seconds that quick candidates have at least: they load compiled code for some tenths of them."""
_CLOSING = 0.4
"""Maximum share of the time limit kept for the end after the search: choosing, checking and trusting a plan."""
_LEAST, _LEAST_S = 0.25, 1.0
"""Share of the time limit, and its maximum in seconds, that engines get however long the quick candidates took."""


class BaselineLimits(NamedTuple):
    """Functions that end baselines early, by default never."""

    late: Late = never
    """True once no further candidate is made but `single` and `list`."""
    spent: Late = never
    """True once a plan fits and there is no time: no `list`, and `single` on no further kind of device."""
    list_s: Callable[[], float] = lambda: math.inf
    """Seconds that `list` may take from now on; one of its passes is always made."""


class Deadlines:
    """The time limit of one solve, which begins now, with `spent_s` seconds of it used before.

    No share of it is ever past if work is counted instead of seconds (`deterministic`), or if it is 0.
    """

    fits = False
    """True once a plan fits, so that stages may be left out."""

    def __init__(self, settings: Settings, spent_s: float = 0.0) -> None:
        self._limit_s, self._spent_s, self._began = settings.time_limit_s, spent_s, CLOCK()
        self._clocked = self._limit_s > 0 and not settings.deterministic
        self._ends = self._began + self._limit_s - spent_s
        self._closing_s = 0.0

    @property
    def used_s(self) -> float:
        """Seconds of the time limit that are used: before it began, and since then."""
        return self._spent_s + CLOCK() - self._began

    @property
    def left_s(self) -> float:
        """Seconds until the end of search, 0 from then on."""
        return max(self._ends - CLOCK(), 0.0)

    def past(self, share: float) -> bool:
        """Return True if more than this share of the time limit, and HURRY_S, is used."""
        return self._clocked and self.used_s > max(share * self._limit_s, HURRY_S)

    def spent(self, share: float = 1.0) -> bool:
        """Return True if a plan fits and more than a share of the time limit is used."""
        return self.fits and self.past(share)

    def baseline_limits(self) -> "BaselineLimits":
        """Return the limits of baselines, which leave time to all that follows them."""
        return BaselineLimits(partial(self.past, RIVALS_SHARE), self.spent, self.list_s)

    def list_s(self) -> float:
        """Return the seconds that passes of a list schedule may take from now on; infinite if no clock ends them."""
        if not self._clocked:
            return math.inf
        quick_s = max(QUICK_SHARE * self._limit_s, HURRY_S) - self.used_s
        return max(quick_s, (self._limit_s - self.used_s) / 2, 0.0)

    def measure_closing(self) -> None:
        """Note the seconds until now: the end of a solve takes as long as its baselines on the same busy machine."""
        self._closing_s = CLOCK() - self._began

    def keep_closing(self) -> None:
        """End search so many seconds before the time limit, but leave it `_LEAST` in any case."""
        if self._limit_s > 0:
            least_s = min(_LEAST * self._limit_s, _LEAST_S)
            self._ends -= min(self._closing_s, _CLOSING * self._limit_s, self._ends - CLOCK() - least_s)

    @property
    def is_hurried(self) -> bool:
        """True if less time is left than half of what was kept for the end."""
        return self.past(1.0 - self._closing_s / 2 / max(self._limit_s, self._closing_s, 1e-9))


ENGINES = ("start", "baselines", "list", "repair", "exact", "annealing", "windows", "bounds", "choice")
"""Who contributes: the older plan that a solve began from; baselines and methods of the literature; list schedules of
the graph and of coarser ones; what was moved until it fits; the exact solver on the coarse graph; annealing; exact
windows of the plan; what looks for a better bound beside both; and what became of the best when it was chosen: priced
well, left without an order, or passed over for one of less p90."""
_OF = {
    "start": "start", "list": "list", "levels": "list", "repaired": "repair", "coarse": "exact", "search": "annealing",
    "windows": "windows",
}  # fmt: skip
"""Name of a candidate -> engine; all others are baselines."""
_AT = {
    "start": "start", "baselines": "baselines", "coarsen": "list", "repair": "repair", "solve": "exact",
    "search": "annealing", "verify": "choice",
}  # fmt: skip
"""Name of a stage -> engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """Contribution of one engine to a solve."""

    engine: str
    """A name of `pesto.planning.solving.tracker.ENGINES`."""
    solver: str
    """Solver that it called, a name of `pesto solvers`; "" if it has none."""
    gained: int
    """Ticks that its candidates, each as it came, took off the best plan before. The first plan that fits gains
    nothing: all gains together are what the plan is shorter than that."""
    raised: int
    """Ticks by which it raised the lower bound of the full graph."""
    cpu_s: float
    """CPU seconds, in this process and in those that it started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """The best plan so far, as told to whoever watches."""

    name: str
    """Method that made the plan: a name in `Provenance.candidates_ticks`."""
    makespan_s: float
    """Predicted seconds of a training step."""
    lower_bound_s: float
    """Seconds that no plan of the full graph can be below."""
    seconds: float
    """Seconds since the solve began."""


Watch = Callable[[Incumbent], None]


@runtime_checkable
class StageWatch(Protocol):
    """A watch that hears of stages, too. It may be called from two threads: bounds are looked for beside the rest."""

    def __call__(self, incumbent: Incumbent) -> None:
        """Hear of a better plan, or bound."""
        ...

    def begins(self, stage: str) -> None:
        """Hear of a stage that begins."""
        ...


@runtime_checkable
class PlanWatch(Protocol):
    """A watch that takes better plans, too, which are made only if it asks for them."""

    def __call__(self, incumbent: Incumbent) -> None:
        """Hear of a better plan, or bound."""
        ...

    def take_plan(self, made: Callable[[], Plan]) -> None:
        """Take a better plan: `made` makes and verifies it, also in another thread; PestoError as of the solve."""
        ...


class ContributionLedger:
    """Seconds of each stage, and contributions of each engine, while a solve goes on; `watch` hears of each stage."""

    def __init__(self, watch: Watch) -> None:
        self.began = time.perf_counter()
        self.stages_s: dict[str, float] = {}
        """Seconds of each stage that was run."""
        self.first: int | None = None
        """Ticks of the first plan that fits."""
        self._begins = watch.begins if isinstance(watch, StageWatch) else None
        self._gained, self._cpu_s, self._raised = dict[str, int](), dict[str, float](), dict[str, int]()
        self._bounds_s = 0.0
        self._bounds_clock: tuple[int, float] | None = None
        self._engine, self._since, self._found = "", self._now(), 0

    def found(self, candidate: str, ticks: int) -> None:
        """Note a best plan of so many ticks, which fits; the first is where gains are counted from."""
        if self.first is None:
            self.first = self._found = ticks
        engine = _OF.get(candidate, "baselines")
        self._gained[engine] = self._gained.get(engine, 0) + self._found - ticks
        self._found = ticks

    def raised(self, engine: str, ticks: int) -> None:
        """Note that an engine has made the bound higher by so many ticks."""
        self._raised[engine] = self._raised.get(engine, 0) + ticks

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the seconds inside to the stage's, and CPU seconds to its engine's."""
        if self._begins is not None:
            self._begins(stage)
        began = CLOCK()
        try:
            with self.at(stage):
                yield
        finally:
            self.stages_s[stage] = self.stages_s.get(stage, 0.0) + CLOCK() - began

    @contextmanager
    def at(self, engine: str) -> Iterator[None]:
        """CPU seconds inside are an engine's, or those of the one of a stage of that name, and nobody else's."""
        before = self._turn(_AT.get(engine, engine))
        try:
            yield
        finally:
            self._turn(before)

    @contextmanager
    def bounding(self) -> Iterator[None]:
        """CPU seconds of this thread inside are of `bounds`, whoever's turn it is meanwhile."""
        began = time.thread_time()
        self._bounds_clock = time.pthread_getcpuclockid(threading.get_ident()), began
        try:
            yield
        finally:
            self._bounds_clock, self._bounds_s = None, time.thread_time() - began

    def of(self, plan: int, solvers: Mapping[str, str]) -> tuple[Contribution, ...]:
        """Return the contributions of engines that had a turn to a plan of so many ticks; `solvers` are theirs."""
        self._turn(self._engine)
        gained = self._gained | {"choice": self._found - plan}
        cpu_s = self._cpu_s | {"bounds": self._bounds()}
        return tuple(
            Contribution(
                engine=e,
                solver=solvers.get(e, ""),
                gained=gained.get(e, 0),
                raised=self._raised.get(e, 0),
                cpu_s=cpu_s.get(e, 0.0),
            )
            for e in ENGINES
            if e in gained or e in cpu_s
        )

    def _turn(self, engine: str) -> str:
        """Give the turn to another engine; return the one before."""
        now, before = self._now(), self._engine
        self._cpu_s[before] = self._cpu_s.get(before, 0.0) + max(now - self._since, 0.0)
        self._engine, self._since = engine, now
        return before

    def _bounds(self) -> float:
        clock = self._bounds_clock
        if clock is None:
            return self._bounds_s
        try:
            return time.clock_gettime(clock[0]) - clock[1]
        except OSError:  # the thread has just ended
            return self._bounds_s

    def _now(self) -> float:
        """CPU seconds of this process and of those that it started and that have ended, but for bounds."""
        t = os.times()
        return t.user + t.system + t.children_user + t.children_system - self._bounds()


_ALWAYS = (
    "time_limit_s", "gap", "search", "seed", "coarsen_to", "solver", "formulation", "workers", "deterministic",
    "per_edge", "congestion",
)  # fmt: skip
"""Settings that plans of every version have."""


NO_BOUND = FullBound(0, "none")
UNLIMITED = BaselineLimits()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolveRecord:
    """Inputs of a solve, and its lower bound."""

    graph: Graph
    cluster: Cluster
    costs: Costs
    settings: Settings
    bound: FullBound = NO_BOUND
    """Lower bound of the full graph; with evidence if it is not a quick one."""
    beside: CompanionPlan | None = None
    """The other step's plan whose variables stay in place; None without one."""


def make_plan(
    record: SolveRecord, chosen: Candidate, candidates: dict[str, Candidate], coarse: CoarseSolve | None = None
) -> Plan:
    """Return the chosen candidate as a plan with its provenance; not yet verified.

    coarse: result of the exact solver; None if it did not run.
    """
    graph, cluster, costs = record.graph, record.cluster, record.costs
    processors, devices = lanes(cluster), cluster.devices
    identity = graph.identity()
    # Options added later are recorded only where they differ from their defaults, so that other plans stay equal.
    usual = asdict(Settings())
    options = {k: value for k, value in asdict(record.settings).items() if k in _ALWAYS or value != usual[k]}
    provenance = Provenance(
        graph_fingerprint=identity.fingerprint,
        graph_source=graph.source,
        graph_origin=graph.origin,
        graph_layout=identity.layout,
        graph_listing=identity.listing,
        graph_batch=graph.batch,
        cluster=cluster.name,
        cluster_source=cluster.source,
        cluster_origin=cluster.origin,
        costs=costs.source,
        costs_files=costs.files,
        costs_basis=costs.basis,
        chosen=chosen.name,
        rule=chosen.rule,
        candidates_ticks={c.name: c.makespan for c in candidates.values()},
        candidates_fit={c.name: c.fits for c in candidates.values()},
        lower_bound_ticks=record.bound.ticks,
        lower_bound_name=record.bound.name + ("" if record.beside is None else OF_PINNED + record.beside.pinned),
        lower_bound_evidence=record.bound.evidence,
        links=FCFS,
        transfers=PER_EDGE if record.settings.per_edge else PER_DEVICE,
        coarse=coarse,
        settings=options,
        pesto_version=VERSION,
    )
    return Plan(
        names=graph.names,
        lanes=tuple(name for name, _ in processors),
        lane_device=tuple(devices[d].name for _, d in processors),
        rank=chosen.rank,
        schedule=chosen.timeline.schedule,
        tick_s=TICK_S,
        peak_bytes={d.name: int(p) for d, p in zip(devices, chosen.peak, strict=True)},
        provenance=provenance,
        held=StepVariables.of(graph),
        beside=record.beside,
        feed_shapes=graph.feed_shapes,
    )


T = TypeVar("T")
Stage = Generator[Candidate, None, T]
"""A stage of a solve: yields candidates as they are found and returns what later stages need."""


def run_stage(stage: Stage[T], offer: Callable[[Candidate], None] = lambda _: None) -> T:
    """Return what a stage returns; its candidates are offered as they come, outside of a solve to nobody."""
    with closing(stage):
        while True:
            try:
                offer(next(stage))
            except StopIteration as end:
                returned: T = end.value
                return returned


class Tracker:
    """Keeps the best candidate of each name, evaluated, and tells `watch` of every better plan, or bound."""

    def __init__(
        self,
        evaluator: CandidateEvaluator,
        record: SolveRecord,
        watch: Watch,
        ledger: ContributionLedger,
        deadlines: Deadlines,
    ) -> None:
        self.evaluator, self.record, self.settings = evaluator, record, record.settings
        self.ledger, self.deadlines = ledger, deadlines
        self.bound, self.interrupted = record.bound, False
        self.compiled = True
        """False if the code of engines was not compiled in time, so that they were left out."""
        self.candidates: dict[str, Candidate] = {}
        """The best candidate of each name."""
        self.nearest: Candidate | None = None
        """The candidate with the smallest memory shortfall seen so far, kept even if another candidate of the same name
        replaced it."""
        self._watch = watch

    @property
    def best(self) -> Candidate | None:
        """The shortest candidate that fits the memory."""
        # A copy, as the thread that looks for bounds asks too.
        return shortest_fitting(list(self.candidates.values()))

    @property
    def gap(self) -> float:
        """(makespan - lower bound) / makespan of the best plan, on the full graph; 1 where there is none."""
        best = self.best
        return 1.0 if best is None else relative_gap(best.makespan, self.bound.ticks)

    @property
    def proven(self) -> bool:
        """True if the best plan reaches the lower bound of the full graph: nothing can be better."""
        return self.best is not None and self.best.makespan == self.bound.ticks

    def wait_for(self, parts: Iterable[str], share: float) -> bool:
        """Wait until parts are compiled; return False, and note it, if more than a share of the limit is used first."""
        self.compiled = shared_compiler().need(*parts, late=partial(self.deadlines.spent, share))
        return self.compiled

    def run(self, name: str, stage: Stage[T]) -> T:
        """Offer a stage's candidates as they come, and return what it does; its seconds are kept under `name`."""
        with self.ledger.timed(name):
            return run_stage(stage, self.offer)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C inside ends what is inside, and no more than that once there is a plan to keep.

        So does any error that comes after it: what an interruption breaks off need not tell of it.
        """
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            if self.best is None or not (struck(error) or received()):
                raise
            self.interrupted = True

    def offer(self, candidate: Candidate) -> None:
        """Keep a candidate if it is its name's first, fits where that did not, or is shorter.

        What would be the best is priced first. The others can only be longer than they say.
        """
        known, leader = self.candidates.get(candidate.name), self.best
        least = math.inf if leader is None else leader.makespan
        if candidate.turns is None and candidate.fits and candidate.makespan < least:
            candidate = self.evaluator.priced(candidate, least)
        if self.nearest is None or candidate.short < self.nearest.short:
            self.nearest = candidate
        if known is None or (not candidate.fits, candidate.makespan) < (not known.fits, known.makespan):
            self.candidates[candidate.name] = candidate
        if candidate.fits and candidate.makespan < least:
            keep()
            self.deadlines.fits = True
            self.ledger.found(candidate.name, candidate.makespan)
            self._tell(candidate)
            if isinstance(self._watch, PlanWatch):
                self._watch.take_plan(partial(self._early_plan, candidate))

    def strengthen(self, bound: FullBound, by: str = "bounds") -> None:
        """Take in a lower bound of the full graph, and tell of it beside the best plan."""
        if bound.ticks > self.bound.ticks:
            self.ledger.raised(by, bound.ticks - self.bound.ticks)
            self.bound = bound
            best = self.best
            if best is not None:
                self._tell(best)

    def _tell(self, candidate: Candidate) -> None:
        self._watch(
            Incumbent(
                name=candidate.name,
                makespan_s=candidate.makespan * TICK_S,
                lower_bound_s=self.bound.ticks * TICK_S,
                seconds=time.perf_counter() - self.ledger.began,
            )
        )

    def _early_plan(self, candidate: Candidate) -> Plan:
        unordered = self.settings.placement_only
        return self.verified_plan(self.evaluator.unordered(candidate) if unordered else candidate)

    def verified_plan(self, candidate: Candidate, coarse: CoarseSolve | None = None) -> Plan:
        """Return the plan of a candidate, verified; errors as of `verify`."""
        record = replace(self.record, bound=self.bound)
        plan = make_plan(record, candidate, self.candidates | {candidate.name: candidate}, coarse)
        verify(plan, record.graph, self.evaluator.problem, record.cluster)
        return plan

    def settle(self) -> Candidate | None:
        """Return the best candidate, once whichever of all is best has been priced well."""
        settled: set[str] = set()
        while (best := self.best) is not None and best.name not in settled:
            settled.add(best.name)
            self.candidates[best.name] = self.evaluator.priced_well(best)
        return best

    def near(self) -> list[Candidate]:
        """Return candidates that fit and, priced well, are at most NEAR longer than the best, the shortest first."""

        def nearly_best() -> list[Candidate]:
            best = self.best
            limit = -math.inf if best is None else (1 + NEAR) * best.makespan
            near = [c for c in self.candidates.values() if c.fits and c.makespan <= limit]
            return sorted(near, key=lambda c: c.makespan)

        for candidate in nearly_best():
            self.candidates[candidate.name] = self.evaluator.priced_well(candidate)
        return nearly_best()


def begin_solve(record: SolveRecord, watch: Watch, spent_s: float = 0.0) -> Tracker:
    """Return the tracker of a solve, with its problem and quick bound; errors as of `formulate`.

    What the first plan needs is compiled before the time limit begins, `spent_s` seconds of which were used before.
    """
    ledger, compiler = ContributionLedger(watch), shared_compiler()
    if compiler.lacks(*FIRST):
        with ledger.timed("compiling"):
            compiler.need(*FIRST)
    deadlines = Deadlines(record.settings, spent_s)
    with ledger.timed("problem"):
        pins = {} if record.beside is None else record.beside.variables
        problem = formulate(record.graph, record.costs, record.cluster, record.settings, pins)
        evaluator = CandidateEvaluator.of(record.graph, problem, per_edge=record.settings.per_edge)
        bound = FullBound(*quick_bounds.best(problem))
        return Tracker(evaluator, replace(record, bound=bound), watch, ledger, deadlines)
