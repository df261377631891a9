"""Every method on the same graph, costs, links, memory and simulator: proposed, repaired, simulated, checked."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from pesto.choosing.comparison.methods import METHODS, Case, NoProposalError, Proposal
from pesto.choosing.strategy_choice.timed_split import formulate_any, shortfall
from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.errors import InfeasibleError, NothingFoundError, PestoError, SolverError, UsageError
from pesto.core.files.json import shown
from pesto.core.files.toml import suggest
from pesto.core.graph import Graph
from pesto.core.memory import measure
from pesto.core.option import expect
from pesto.core.plans.notebook import html_table
from pesto.core.plans.plan import Plan, verify
from pesto.core.problem import TICK_S, payloads
from pesto.core.quantities import duration, plural
from pesto.core.settings import Settings
from pesto.planning.coarsen import shortest
from pesto.planning.solving.candidates import Candidate
from pesto.planning.solving.quick_candidates import accelerators, cpu_deadline, repair_candidate
from pesto.planning.solving.tracker import SolveRecord, make_plan
from pesto.split.split_search import Split
from pesto.split.typed_graph import TypedGraph
from solvers import Problem, check
from solvers.bounds import quick_bounds
from solvers.bounds.evidence import FullBound
from solvers.compiled.interruption import struck
from solvers.timing.replay import bottom_levels


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """Ratios of a graph's times on one cluster; each op counts on its quickest device."""

    parallelism: float
    """Time of all ops over that of the longest path of ops: the average degree of concurrency; 1 where all is 0."""
    ccr: float | None
    """Transfers of all edges with data, each between two accelerators (mean of their pairs), over the time of all ops.

    Each edge counts, as in the source, though a tensor crosses once. None on one accelerator, and where ops take no
    time.
    """
    batch: int | None
    """Examples in a step, where the graph leaves that open or its model was built for so many; else None."""


def shape_of(graph: Graph, problem: Problem, cluster: Cluster) -> StepShape:
    """Return the ratios of `problem`, which is of `graph` on `cluster`. O(n m + e)."""
    work = int(shortest(problem).sum())
    longest = int(bottom_levels(problem, mean=False, communication=0.0).max(initial=0))
    places = accelerators(problem, cluster)
    classes = [problem.path_class[a, b] for a in places for b in places if a != b and problem.path_class[a, b] >= 0]
    ccr = None
    if classes and work:
        mean = problem.transfer[:, classes].mean(axis=1)
        ccr = float(mean[problem.payload[problem.payload >= 0]].sum() / work)
    named = graph.origin.model
    batch = graph.batch if graph.batch is not None or named is None else named.batch
    return StepShape(parallelism=work / longest if longest else 1.0, ccr=ccr, batch=batch)


ALL = "all"
ALIASES = {"search": "pesto"}
"""Other names of methods."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MethodEntry:
    """Result of one method; all times are modelled, but for `seconds`."""

    method: str
    """Name in the table of methods."""
    status: str
    """fits, oom, refused (memory defeats it), missing (a package is not installed) or failed; `detail` says more."""
    seconds: float
    """Measured: to place and repair, without the simulation and the checks that all share."""
    candidate: Candidate | None = field(repr=False)
    """None where the method has no answer, or none that a device could hold and a repair could mend."""
    plan: Plan | None
    """Verified; None where there is no candidate or it does not fit the memory."""
    detail: str
    """Its rule, with what a repair moved; or why there is no plan."""
    cut_bytes: int
    """Bytes that cross between devices in a step."""
    device_use: float
    """Mean share of the step that the accelerators compute."""
    link_use: float
    """Share of the step that the busiest link carries something."""
    mended: bool = False
    """True if ops were moved, after the method's own answer, to fit the memory."""
    split: Split | None = field(default=None, repr=False)
    """Inside: where tensors are cut, how; the plan is then of the graph of parts."""

    @property
    def makespan_s(self) -> float | None:
        """Predicted seconds of a step, whether it fits or not."""
        return self.candidate.makespan * TICK_S if self.candidate is not None else None

    @property
    def fits(self) -> bool:
        """True if there is an answer, and its peaks are within every device's memory."""
        return self.status == "fits"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """All entries for one graph on one cluster."""

    graph: Graph
    """The step that every method placed."""
    cluster: Cluster
    """Where they placed it."""
    costs: Costs
    """Seconds of each op on each device."""
    shape: StepShape
    """Ratios that say how far several devices can help."""
    lower_bound_s: float
    """Seconds that no plan of the full graph can beat."""
    lower_bound_name: str
    """The argument that gives that bound."""
    proof: str
    """Why no plan can exist; empty when one may."""
    entries: tuple[MethodEntry, ...]
    """One for each method, in the order of the table of methods."""
    interrupted: bool
    """True if Ctrl-C ended it early."""

    def __repr__(self) -> str:
        """One line, without arrays."""
        best = self.ranked()[:1]
        shortest = f", best {duration(best[0].plan.makespan_s)} by {best[0].method}" if best and best[0].plan else ""
        where = f"{plural(self.graph.ops, 'op')} on {shown(self.cluster.name, 24)}"
        return f"Comparison({plural(len(self.entries), 'method')}, {where}{shortest})"

    def _repr_html_(self) -> str:
        """Return every method's step, best first, as a table for notebooks."""
        rows = [
            (e.method, "-" if e.makespan_s is None else duration(e.makespan_s), e.status, f"{e.seconds:.2f}")
            for e in self.ranked()
        ]
        return html_table(f"{self!r} of {self.graph.source}", ("method", "step", "memory", "place s"), rows)

    def ranked(self) -> list[MethodEntry]:
        """Return the entries that fit, by step time; then those that do not; then those without an answer."""

        def key(entry: MethodEntry) -> tuple[bool, bool, float]:
            return (entry.candidate is None, not entry.fits, entry.makespan_s or 0.0)

        return sorted(self.entries, key=key)

    def best(self) -> Plan:
        """Return the shortest plan that fits the memory.

        InfeasibleError with the proof that no whole ops can be placed, where tensors that are cut do not fit either;
        SolverError when no method could run, NothingFoundError when no method's plan fits.
        """
        for entry in self.ranked():
            if entry.plan is not None:
                return entry.plan
        if self.proof:
            raise InfeasibleError(self.proof)
        if self.entries and all(entry.status in ("missing", "failed") for entry in self.entries):
            raise SolverError.build("no method could run", remedy="see above, and pesto doctor")
        raise NothingFoundError.build(
            "no method's plan fits the memory", remedy="use more or larger devices, or a smaller batch"
        )


@dataclass(frozen=True, slots=True)
class Entrants:
    """The methods that compete, and what those that cut tensors need."""

    names: tuple[str, ...]
    shaped: TypedGraph | None = field(default=None, repr=False)
    shapeless: str = ""
    """Why there is no `shaped`, where something is known of that."""


Hear = Callable[[MethodEntry], None]


def chosen_methods(names: str | Iterable[str], *, shapes: bool = False) -> tuple[str, ...]:
    """Return the methods that are asked for, in the table's order; UsageError, with a suggestion, for an unknown one.

    "all" is all that can do with a graph, and with `shapes` those that cut tensors too.
    """
    expect("methods", names, Iterable, f"names of {', '.join((ALL, *METHODS))}")
    words = names.split(",") if isinstance(names, str) else map(str, names)
    asked = {ALIASES.get(word.strip(), word.strip()) for word in words} - {""}
    if not asked:
        raise UsageError.build("no method is named", remedy=suggest("", (ALL, *METHODS)))
    for name in sorted(asked - {ALL}):
        if name not in METHODS:
            raise UsageError.build(f"no method is called {name!r}", remedy=suggest(name, (ALL, *METHODS)))
    return tuple(name for name, row in METHODS.items() if name in asked or (ALL in asked and (shapes or not row.cuts)))


def compete(
    graph: Graph, cluster: Cluster, costs: Costs, settings: Settings, hear: Hear, *, entrants: Entrants
) -> Comparison:
    """Run methods, one after the other; `hear` is told of each. Ctrl-C ends it with what there is.

    `settings.time_limit_s` is for each method that would otherwise not end, and for the exact solver.
    """
    bench, proof = formulate_any(graph, costs, cluster, settings)
    problem = bench.problem
    case = Case(bench=bench, cluster=cluster, costs=costs, alive=problem.memory, settings=settings)
    alone = METHODS["framework-default"].propose(case)
    alive = measure(graph, bench.placed("single", "", alone.device).timeline).alive
    shapeless = entrants.shapeless or case.shapeless
    case = replace(case, alive=alive, shaped=entrants.shaped, shapeless=shapeless)
    bound = FullBound(*quick_bounds.best(problem))
    record = SolveRecord(graph=graph, cluster=cluster, costs=costs, settings=settings, bound=bound)
    entries: list[MethodEntry] = []
    interrupted = False
    try:
        for name in entrants.names:
            entry, interrupted = _entry(name, case, record, proof)
            entries.append(entry)
            hear(entry)
            if interrupted:
                break
    except (KeyboardInterrupt, Exception) as error:
        if not struck(error):
            raise
        interrupted = True
    return Comparison(
        graph=graph, cluster=cluster, costs=costs, shape=shape_of(graph, problem, cluster),
        lower_bound_s=bound.ticks * TICK_S, lower_bound_name=bound.name, proof=proof, entries=tuple(entries),
        interrupted=interrupted,
    )  # fmt: skip


def _entry(name: str, case: Case, record: SolveRecord, proof: str) -> tuple[MethodEntry, bool]:
    """Return a method's entry, and True if it was interrupted."""
    if METHODS[name].memory and proof:
        return _nothing(name, "refused", proof), False
    try:
        proposal = METHODS[name].propose(case)
        if proposal.cut is not None:
            cut = proposal.cut
            case = replace(case, bench=cut.bench, costs=cut.costs)
            bound = FullBound(*quick_bounds.best(cut.bench.problem))
            record = replace(record, graph=cut.bench.graph, costs=cut.costs, bound=bound)
        candidate, seconds, mended = _run_and_repair(name, proposal, case)
        plan = None
        if candidate.fits:
            plan = make_plan(record, candidate, {name: candidate})
            verify(plan, record.graph, case.bench.problem, case.cluster)
    except NoProposalError as none:
        return _nothing(name, none.status, str(none)), False
    except PestoError as error:
        refused = isinstance(error, (InfeasibleError, NothingFoundError))
        return _nothing(name, "refused" if refused else "failed", str(error)), False
    timeline, graph = candidate.timeline, case.bench.graph
    step = max(timeline.makespan_s, TICK_S)
    computing = np.isin(timeline.problem.location, accelerators(case.bench.problem, case.cluster))
    used = payloads(graph, per_edge=False)[1]
    entry = MethodEntry(
        method=candidate.name, status="fits" if plan is not None else "oom", seconds=seconds, candidate=candidate,
        plan=plan,
        detail=candidate.rule if candidate.fits else f"{candidate.rule}; {shortfall(candidate, case.cluster)}",
        cut_bytes=int(graph.tensor_bytes[used[timeline.schedule.sent_payload]].sum()),
        device_use=float(timeline.busy_s[computing].mean() / step),
        link_use=float(timeline.link_busy_s.max(initial=0.0) / step),
    )  # fmt: skip
    split = proposal.cut.split if proposal.cut is not None else None
    return replace(entry, mended=mended and plan is not None, split=split), proposal.interrupted


def _run_and_repair(name: str, proposal: Proposal, case: Case) -> tuple[Candidate, float, bool]:
    """Run a proposal, and repair it where its method knows memory; return its seconds in all, and True if repaired.

    NoProposalError where it is invalid whatever the memory: a group torn apart, say.
    """
    method = METHODS[name]
    if proposal.rank is None:
        candidate = case.bench.placed(name, proposal.rule, proposal.device)
    else:
        candidate = case.bench.ordered(name, proposal.rule, proposal.device, proposal.rank)
    roomy = replace(case.bench.problem, memory=np.zeros_like(case.bench.problem.memory))
    for wrong in check(roomy, candidate.timeline.schedule):
        raise NoProposalError("failed", f"invalid: {wrong.kind}: {wrong.text}")
    if not method.memory or candidate.fits or proposal.interrupted:
        return candidate, proposal.seconds, False
    began = time.perf_counter()
    headroom, timing = case.settings.headroom, method.timing()
    repaired = repair_candidate(case.bench, candidate, name=name, late=cpu_deadline(), headroom=headroom, timing=timing)
    return repaired, proposal.seconds + time.perf_counter() - began, True


def _nothing(name: str, status: str, why: str) -> MethodEntry:
    return MethodEntry(
        method=name, status=status, seconds=0.0, candidate=None, plan=None, detail=why, cut_bytes=0, device_use=0.0,
        link_use=0.0,
    )  # fmt: skip
