"""The table of methods that are compared: this project's own, the literature's, and what people do by hand."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pesto.choosing.strategy_choice.timed_split import (
    TimedSplit,
    cut_along_batch,
    cut_and_time,
    factorings,
    quickest,
)
from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.errors import NothingFoundError, PestoError, UsageError
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import CandidateEvaluator
from pesto.planning.solving.flow import solve
from pesto.planning.solving.quick_candidates import (
    RulePlacement,
    accelerators,
    estimates,
    expert,
    framework_default,
    layer_balanced,
)
from pesto.split.typed_graph import TypedGraph
from solvers import Limit, Options, Problem, Schedule, Status, api
from solvers.arrays import Ints
from solvers.compiled.interruption import struck
from solvers.heuristics.devices_of_location import devices_at
from solvers.heuristics.methods import PLACERS, NoRoomError, Placer
from solvers.instances.plain import fork


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """The inputs of a method."""

    bench: CandidateEvaluator
    cluster: Cluster
    costs: Costs
    alive: Ints
    """[n] bytes of each op at one device's peak, for planning (`pesto.planning.solving.quick_candidates.estimates`)."""
    settings: Settings
    shaped: TypedGraph | None = None
    """Types and shapes of the ops, for methods that cut tensors; None where nothing says."""
    shapeless: str = "a graph file has no shapes - name the step itself"
    """Why there is no `shaped`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """A method's answer."""

    device: Ints
    """[n] device of each task."""
    rank: Ints | None
    """[n] place of each task in the method's own order; None leaves the order to list scheduling by bottom level."""
    rule: str
    seconds: float
    """Measured seconds to place, without what all methods share (simulation, checks)."""
    interrupted: bool = False
    """True if Ctrl-C ended the method early."""
    cut: TimedSplit | None = None
    """Where tensors are cut: the answer is of this split's step, and of no placement of the graph."""


class NoProposalError(Exception):
    """The method has no answer: one line, why; `status` is "refused" (memory), "missing" (a package) or "failed"."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


Propose = Callable[[Case], Proposal]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonMethod:
    """One row of the table."""

    source: str
    """Where the method is described."""
    propose: Propose
    memory: bool = False
    """True if its source respects a device's memory: then its plans are repaired where they do not fit."""
    timing: Callable[[], Callable[[Problem, Ints], Schedule] | None] = lambda: None
    """Loads what makes the schedules of a repair; None where it keeps the plan's order."""
    cuts: bool = False
    """True if it cuts tensors, and needs to know shapes."""


def _by_scope(rule: Callable[..., RulePlacement]) -> Propose:
    """Return a placement that reads the graph."""

    def propose(case: Case) -> Proposal:
        began = time.perf_counter()
        result = rule(case.bench.graph, case.bench.problem, case.cluster)
        return Proposal(device=result.device, rank=None, rule=result.rule, seconds=time.perf_counter() - began)

    return propose


def _placer(name: str, row: Placer) -> Propose:
    """Return a method of the literature on the full graph, which knows memory as far as its source does."""
    if row.package is not None:
        return _solver(name, memory=row.memory)

    def propose(case: Case) -> Proposal:
        method, why = row.load(), ""
        method(fork(4), Options(seconds=0))  # compiles, or reads what was compiled
        for problem in _problems(case, memory=row.memory):
            began = time.perf_counter()
            try:
                result = method(problem, _options(case))
            except NoRoomError as short:
                why = why or str(short)
                continue
            seconds = time.perf_counter() - began
            return Proposal(device=result.device, rank=result.rank, rule=f"{name} on the full graph", seconds=seconds)
        raise NoProposalError("refused", f"memory: {why}")

    # Whatever one method does, the others go on.
    def safely(case: Case) -> Proposal:
        try:
            return propose(case)
        except (NoProposalError, PestoError):
            raise
        except Exception as error:
            if struck(error):
                raise KeyboardInterrupt from error
            raise NoProposalError("failed", f"{type(error).__name__}: {error}") from error

    return safely


def _solver(name: str, *, memory: bool) -> Propose:
    def propose(case: Case) -> Proposal:
        why = ""
        for problem in _problems(case, memory=memory):
            result = api.solve(problem, name, _options(case))
            stopped = result.limit is Limit.INTERRUPT
            if result.schedule is not None:
                rank = case.bench.order_of(result.schedule)
                return Proposal(
                    device=result.schedule.device, rank=rank, rule=f"{name} on the full graph", seconds=result.seconds,
                    interrupted=stopped,
                )  # fmt: skip
            if stopped:
                raise KeyboardInterrupt
            if result.status not in (Status.UNKNOWN, Status.INFEASIBLE):
                status = "missing" if result.status is Status.MISSING else "failed"
                raise NoProposalError(status, f"{result.status}: {result.detail}")
            why = why or f"{result.status}: {result.detail}"
        raise NoProposalError("refused", why)

    return propose


def _problems(case: Case, *, memory: bool) -> Iterator[Problem]:
    """Yield the problems that a method is given, one after the other, until it finds room for all."""
    if memory:
        yield from estimates(case.bench.problem, case.alive)
    else:
        yield replace(case.bench.problem, memory=np.zeros_like(case.bench.problem.memory))


def _options(case: Case) -> Options:
    settings = case.settings
    return Options(seconds=settings.time_limit_s, seed=settings.seed, deterministic=settings.deterministic)


def _single(case: Case) -> Proposal:
    problem, result, began = case.bench.problem, [], time.perf_counter()
    for location in accelerators(problem, case.cluster):
        device = devices_at(problem, np.full(problem.tasks, location))
        result.append((int(problem.duration[np.arange(problem.tasks), device].sum()), location, device))
    _, location, device = min(result, key=lambda each: each[:2])
    rule = f"everything on {case.cluster.devices[location].name}"
    return Proposal(device=device, rank=None, rule=rule, seconds=time.perf_counter() - began)


def _cut(case: Case) -> Proposal:
    """Cut tensors for all accelerators, by one cut and by one after the other, whichever step is shorter."""
    if case.shaped is None:
        raise NoProposalError("refused", case.shapeless)
    began, result, why = time.perf_counter(), list[TimedSplit](), list[str]()
    cuts_of_all = factorings(len(case.cluster.accelerators))
    for factors in cuts_of_all:
        step, seconds = (case.bench.graph, case.shaped), case.settings.time_limit_s / len(cuts_of_all)
        try:
            *_, cuts = cut_and_time(step, factors, case.cluster, case.settings, seconds=seconds)
            result += cuts
        except (UsageError, NothingFoundError) as none:
            why.append(str(none))
    if not result:
        raise NoProposalError("refused", why[0])
    return _of_split(quickest(result), began)


def _of_split(cut: TimedSplit, began: float) -> Proposal:
    """Return a split's order as an answer; NoProposalError with the proof that it cannot fit the memory."""
    if cut.proof:
        raise NoProposalError("refused", cut.proof)
    best = cut.candidate
    return Proposal(
        device=best.timeline.schedule.device, rank=best.rank, rule=f"{best.name}: {best.rule}; modelled op times",
        seconds=time.perf_counter() - began, cut=cut,
    )  # fmt: skip


def _replicas(case: Case) -> Proposal:
    if case.shaped is None:
        raise NoProposalError("refused", case.shapeless)
    began = time.perf_counter()
    step, seconds = (case.bench.graph, case.shaped), case.settings.time_limit_s
    try:
        cut = cut_along_batch(step, case.cluster, case.settings, seconds=seconds)
    except (UsageError, NothingFoundError) as none:
        raise NoProposalError("refused", str(none)) from none
    return _of_split(cut, began)


def _pesto(case: Case) -> Proposal:
    began = time.perf_counter()
    outcome = solve(case.bench.graph, case.cluster, case.costs, case.settings, lambda _: None)
    plan = outcome.plan
    return Proposal(
        device=plan.schedule.device, rank=plan.rank, rule=f"{plan.provenance.chosen}: {plan.provenance.rule}",
        seconds=time.perf_counter() - began, interrupted=outcome.interrupted,
    )  # fmt: skip


METHODS: dict[str, ComparisonMethod] = {
    "single": ComparisonMethod(source="one device, the lower end of every comparison", propose=_single),
    "framework-default": ComparisonMethod(source="TensorFlow's own placement", propose=_by_scope(framework_default)),
    "layer-balanced": ComparisonMethod(source="contiguous layers of balanced times", propose=_by_scope(layer_balanced)),
    "expert": ComparisonMethod(source="Pesto (Middleware 2021), section 5.2", propose=_by_scope(expert)),
    **{
        name: ComparisonMethod(
            source=row.source, propose=_placer(name, row), memory=row.memory or row.repair, timing=row.timing
        )
        for name, row in PLACERS.items()
    },
    "list": ComparisonMethod(source="this project's list scheduler", propose=_solver("list", memory=True), memory=True),
    "pesto": ComparisonMethod(source="pesto solve: the best of all its candidates", propose=_pesto, memory=True),
    "split": ComparisonMethod(source="tensors cut: Tofu (EuroSys 2019), each cut proven", propose=_cut, cuts=True),
    "data-parallel": ComparisonMethod(
        source="what users do today: a replica a device, gradients summed", propose=_replicas, cuts=True
    ),
}
"""A method of the literature has its row in `solvers.heuristics.methods`; one that reads the graph has it here."""
