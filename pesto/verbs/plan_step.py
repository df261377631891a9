"""Find the plans and splits of a step: solve it, cut its tensors, compare all methods, or sweep changed clusters."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from pesto.choosing.comparison.contest import Comparison, Entrants, MethodEntry, chosen_methods, compete
from pesto.choosing.comparison.methods import METHODS
from pesto.choosing.strategy_choice.choice import PlacementPlan, StrategyChoice, choose
from pesto.choosing.strategy_choice.timed_split import (
    TimedSplit,
    accelerators_for,
    check_objective,
    cuts_of,
    refuse_short,
    rules_for,
    time_split,
)
from pesto.choosing.whatif.points import Sweep, SweepTask, sweep
from pesto.core.cluster import Cluster
from pesto.core.graph import Graph
from pesto.core.plans.plan_file import dumps, save
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_both, load_costs, load_graph, load_shaped, load_shapes
from pesto.planning.solving.background_compiler import shared_compiler
from pesto.planning.solving.flow import SolveOutcome, solve
from pesto.planning.solving.interrupt import hold
from pesto.reporting.show.html_report import html_report, report_solve
from pesto.reporting.show.solve_report import InputNames, solve_object, solve_page
from pesto.reporting.show.split_page import choice_object, choice_page, split_object, split_page
from pesto.split.division import refuse_undescribed, undescribed_types
from pesto.split.files.split_file import dumps_split, save_split
from pesto.split.program import Rules
from pesto.split.split_search import Split, divide_with_or_without_halo, parse_factors
from pesto.split.typed_graph import TypedGraph
from pesto.verbs.requests import CompareRequest, Context, OpenedRequest, SplitRequest, SweepRequest
from solvers import FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A placement that was found, with everything that is said of it."""

    graph: Graph
    cluster: Cluster
    outcome: SolveOutcome
    stages_s: dict[str, float]
    """Seconds of each stage; the caller adds those of writing."""

    is_plan = True
    """True where the result is a placement."""

    @property
    def interrupted(self) -> bool:
        """True where Ctrl-C ended the search."""
        return self.outcome.interrupted

    @property
    def failure(self) -> str | None:
        """One line on an exact solver that failed; None where it did not."""
        coarse = self.outcome.plan.provenance.coarse
        if coarse is None or coarse.status not in FAILED:
            return None
        return f"{coarse.solver} {coarse.status}: {coarse.detail} - see pesto doctor"

    def dumps(self) -> bytes:
        """Return the bytes of the plan's file."""
        return dumps(self.outcome.plan)

    def save(self, path: Path) -> None:
        """Write the plan."""
        save(self.outcome.plan, path)

    def as_object(self, out: Path, report: Path | None = None) -> dict[str, Any]:
        """Return what --json prints; `out` and `report` are where the plan and its page are."""
        return solve_object(self.outcome, self.stages_s, out, report)

    def page(self, inputs: InputNames, out: Path, report: Path | None = None) -> str:
        """Return what is printed for people."""
        return solve_page(self.outcome, self.stages_s, out, inputs, report)

    def html(self, name: str) -> bytes:
        """Return the plan as a page of HTML, under the name of its file."""
        return html_report(self.graph, [report_solve(self.outcome, self.cluster, name, self.stages_s)])

    def summary(self) -> dict[str, Any]:
        """Return the figures of the result of a job."""
        plan = self.outcome.plan
        return {
            "status": plan.status,
            "makespan_s": plan.makespan_s,
            "lower_bound_s": plan.provenance.lower_bound_ticks * plan.tick_s,
            "gap": plan.gap,
            "ops": len(plan.names),
            "interrupted": self.interrupted,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The shortest of placements and splits, and all that were tried."""

    request: OpenedRequest
    graph: Graph
    choice: StrategyChoice

    @property
    def interrupted(self) -> bool:
        """True where Ctrl-C ended a search."""
        return self.choice.interrupted

    @property
    def is_plan(self) -> bool:
        """True for a placement, False for a split."""
        return isinstance(self.choice.chosen, PlacementPlan)

    def dumps(self) -> bytes:
        """Return the bytes of the file of the plan or split."""
        chosen = self.choice.chosen
        if isinstance(chosen, PlacementPlan):
            return dumps(chosen.outcome.plan)
        return dumps_split(chosen.shaped, chosen.timed.split, time_limit_s=self.request.settings.time_limit_s)

    def save(self, path: Path) -> None:
        """Write the plan or the split."""
        chosen = self.choice.chosen
        if isinstance(chosen, PlacementPlan):
            save(chosen.outcome.plan, path)
        else:
            save_split(chosen.shaped, chosen.timed.split, path, time_limit_s=self.request.settings.time_limit_s)

    def as_object(self, out: Path) -> dict[str, Any]:
        """Return what --json prints."""
        return choice_object(self.choice, out)

    def page(self, inputs: InputNames, out: Path) -> str:
        """Return what is printed for people."""
        return choice_page(self.choice, out, inputs)

    def summary(self) -> dict[str, Any]:
        """Return the figures of the result of a job."""
        chosen = self.choice.chosen
        plan = chosen.outcome.plan if isinstance(chosen, PlacementPlan) else None
        return {
            "kind": chosen.name,
            "lower_bound_s": None if plan is None else plan.provenance.lower_bound_ticks * plan.tick_s,
            "makespan_s": chosen.makespan_s,
            "ops": self.graph.ops,
            "interrupted": self.interrupted,
        }


def plan_step(request: OpenedRequest, context: Context) -> Solved:
    """Find a placement and an order; errors as of `pesto.solve`.

    Ctrl-C ends the search, and the best plan so far is the result.
    """
    started_s, began = context.startup_s(), time.perf_counter()
    graph = read_step(request.source, context)
    loaded = time.perf_counter()
    costs = load_costs(graph, request.cluster, request.costs)
    costed = time.perf_counter()
    spent_s = context.counted_s((started_s or 0.0) + costed - loaded, request.settings)
    stages_s = {} if started_s is None else {"start": started_s}
    stages_s |= {"graph": loaded - began, "costs": costed - loaded}
    with context.watching() as watch:
        earlier = request.earlier._replace(spent_s=spent_s)
        outcome = solve(graph, request.cluster, costs, request.settings, watch, earlier)
        solved = Solved(graph=graph, cluster=request.cluster, outcome=outcome, stages_s=stages_s | outcome.stages_s)
        context.keep_result(solved)
    return solved


def read_step(source: Source | Graph, context: Context) -> Graph:
    """Return the graph of a step, and compile meanwhile what its solve needs; errors as of `load_graph`."""
    if isinstance(source, Graph):
        return source
    shared_compiler()
    context.begin_reading()
    return context.accept(load_graph(source, quiet=context.quiet))


def choose_kind(request: OpenedRequest, context: Context) -> Chosen:
    """Find the shortest of placements and of the splits of `request.split`; errors as of `choose` and `cuts_of`.

    Ctrl-C ends the search, and the shortest so far is the result.
    """
    cluster, settings = request.cluster, request.settings
    cuts = cuts_of(request.split or "", cluster)
    counted_s = context.counted_s(context.startup_s() or 0.0, settings)
    if not isinstance(request.source, Source):
        raise TypeError("a step is cut by its source, not by its graph alone")
    graph, shapes = _read_both(request.source, context)
    costs = load_costs(graph, cluster, None)
    with context.watching() as watch:
        left = replace(settings, time_limit_s=settings.time_limit_s - counted_s)
        choice = choose((graph, shapes), cluster, costs, left, watch, cuts=cuts)
        hold()
        chosen = Chosen(request=request, graph=graph, choice=choice)
        context.keep_result(chosen)
    return chosen


def _read_both(source: Source, context: Context) -> tuple[Graph, TypedGraph | str]:
    """Return the graph of a step and the shapes of its ops, or why there are none; compile as `read_step` does."""
    shared_compiler()
    context.begin_reading()
    graph, shapes = load_both(source, quiet=context.quiet)
    context.accept(graph)
    return graph, shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStep:
    """A split that was found, with everything that is said of it."""

    request: SplitRequest
    shaped: TypedGraph
    split: Split
    timed: TimedSplit | None = None
    """The step on the cluster of the request; None where it names none."""
    cluster: Cluster | None = None

    is_plan = False
    """True where the result is a placement."""

    def dumps(self) -> bytes:
        """Return the bytes of the split's file."""
        return dumps_split(self.shaped, self.split, time_limit_s=self.request.options.time_limit_s)

    def save(self, path: Path) -> None:
        """Write the split."""
        save_split(self.shaped, self.split, path, time_limit_s=self.request.options.time_limit_s)

    def as_object(self, out: Path | None) -> dict[str, Any]:
        """Return what --json prints."""
        return split_object(self.shaped, self.split, undescribed_types(self.shaped), out, self.timed)

    def page(self, out: Path | None) -> str:
        """Return what is printed for people."""
        return split_page(self.shaped, self.split, undescribed_types(self.shaped), out, self.timed)

    def summary(self) -> dict[str, Any]:
        """Return the figures of the result of a job."""
        split = self.split
        return {"ops": self.shaped.ops, "bytes": split.moved_bytes, "method": split.method, "interrupted": False}

    def check_fits(self) -> None:
        """Raise InfeasibleError or NothingFoundError where the timed step does not fit the cluster's memory."""
        if self.timed is not None and self.cluster is not None and not self.timed.candidate.fits:
            refuse_short(self.timed, self.cluster)


def split_step(request: SplitRequest, context: Context) -> CutStep:
    """Cut the tensors of a step; errors as of `load_shapes` and `divide`, and UsageError for op types without rules.

    Each better split is kept by the context, as the process may be killed while a shorter one is looked for.
    """
    options, source = request.options, request.source.checked()
    factors = parse_factors(options.workers)
    workers = prod(factors)
    rules = Rules(replicate=options.replicate, memory_bytes=options.memory_bytes, halo=options.halo)
    machine = None
    if request.cluster is not None:
        machine = accelerators_for(workers, load_cluster(request.cluster), source)
    check_objective(options.objective, rules, machine)
    context.begin_reading()
    graph, shaped = (None, load_shapes(source)) if machine is None else load_shaped(source, quiet=True)
    context.accept(shaped)
    if not options.whole:
        refuse_undescribed(shaped, f"accept that with {context.spell('whole')}")
    context.begin_search("cuts")

    def keep(split: Split) -> None:
        context.keep_result(CutStep(request=request, shaped=shaped, split=split))

    rules = rules_for(rules, options.objective, (graph, machine), workers)
    split = divide_with_or_without_halo(
        shaped, factors, options.method, rules, seconds=options.time_limit_s, on_split=keep
    )
    keep(split)
    timed = None
    if graph is not None and machine is not None:
        timed = time_split(graph, shaped, split, machine, Settings())
    return CutStep(request=request, shaped=shaped, split=split, timed=timed, cluster=machine)


def compare_step(
    request: CompareRequest, context: Context, on_entry: Callable[[MethodEntry], None]
) -> Comparison:  # fmt: skip
    """Place a step by every method that is asked for; `on_entry` hears of each when it is done.

    Errors of reading the step, its cluster and costs. A method without a plan is an entry that says why.
    """
    machine, source = load_cluster(request.cluster), request.source
    names = chosen_methods(request.options.methods, shapes=not isinstance(source, Graph) and source.has_shapes)
    if isinstance(source, Graph) or not any(METHODS[name].cuts for name in names):
        graph, entrants = read_step(source, context), Entrants(names)
    else:
        graph, shapes = _read_both(source, context)
        entrants = Entrants(names, shapes) if isinstance(shapes, TypedGraph) else Entrants(names, shapeless=shapes)
    costs = load_costs(graph, machine, request.costs)
    context.begin_search("methods")
    return compete(graph, machine, costs, request.options.settings(), on_entry, entrants=entrants)


def sweep_step(request: SweepRequest, context: Context, on_point: Callable[[Sweep], None]) -> Sweep:
    """Solve a step on every point of the grid; `on_point` hears of the rows so far.

    Errors of reading the step, its cluster and costs. A point without a plan is a row that says why.
    """
    machine = load_cluster(request.cluster)
    grid = request.options.grid(len(machine.accelerators))
    graph = read_step(request.source, context)
    load_costs(graph, machine, request.costs)  # a profile that is refused ends it here, not in every row
    task = SweepTask(
        graph=graph, cluster=machine, costs=lambda at: load_costs(graph, at, request.costs), grid=grid,
        settings=request.options.settings(),
    )  # fmt: skip
    context.begin_search("points")
    return sweep(task, on_point)
