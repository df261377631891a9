"""Solve: place and order the ops of a training step, or cut its tensors, and choose the shortest step that fits."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pesto.choosing.strategy_choice.choice import StrategyChoice, choose
from pesto.choosing.strategy_choice.timed_split import cuts_of
from pesto.core.cluster import Cluster
from pesto.core.graph import Graph
from pesto.core.plans.plan_file import dumps, save
from pesto.core.source import Source
from pesto.inputs.load import as_costs, load_both
from pesto.planning.solving.flow import SolveOutcome, solve
from pesto.planning.solving.interrupt import hold
from pesto.reporting.show.html_report import html_report, report_solve
from pesto.reporting.show.solve_report import following_command, solve_object, solve_page
from pesto.reporting.show.split_page import choice_object, choice_page
from pesto.split.files.split_file import dumps_split, save_split
from pesto.split.typed_graph import TypedGraph
from pesto.verbs.requests import Context, SolveRequest, read_step
from solvers import FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The inputs as the user calls them, for the commands that a page names."""

    source: Source
    cluster: str
    """Preset or file of the cluster."""
    costs: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A placement that was found, with everything that is said of it."""

    request: SolveRequest
    graph: Graph
    cluster: Cluster
    outcome: SolveOutcome
    stages_s: dict[str, float]
    """Seconds of each stage; the caller adds those of writing."""

    is_plan = True
    """Whether the result is a placement."""

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

    def page(self, named: Named, out: Path, report: Path | None = None) -> str:
        """Return what is printed for people."""
        after = following_command(named.source, named.cluster, named.costs, out, report)
        return solve_page(self.outcome, self.stages_s, out, after, report)

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

    request: SolveRequest
    graph: Graph
    shapes: TypedGraph | str
    """Shapes of the step's ops, or why there are none."""
    choice: StrategyChoice

    @property
    def interrupted(self) -> bool:
        """True where Ctrl-C ended a search."""
        return self.choice.interrupted

    @property
    def is_plan(self) -> bool:
        """True for a placement, False for a split."""
        return self.choice.chosen.outcome is not None

    def dumps(self) -> bytes:
        """Return the bytes of the file of the plan or split."""
        chosen = self.choice.chosen
        if chosen.outcome is not None:
            return dumps(chosen.outcome.plan)
        if chosen.cut is None or isinstance(self.shapes, str):
            raise ValueError("neither a plan nor a split was chosen")
        return dumps_split(self.shapes, chosen.cut.split, time_limit_s=self.request.settings.time_limit_s)

    def save(self, path: Path) -> None:
        """Write the plan or the split."""
        chosen = self.choice.chosen
        if chosen.outcome is not None:
            save(chosen.outcome.plan, path)
        elif chosen.cut is not None and not isinstance(self.shapes, str):
            save_split(self.shapes, chosen.cut.split, path, time_limit_s=self.request.settings.time_limit_s)

    def as_object(self, out: Path) -> dict[str, Any]:
        """Return what --json prints."""
        return choice_object(self.shapes, self.choice, out)

    def page(self, named: Named, out: Path) -> str:
        """Return what is printed for people."""
        return choice_page(self.shapes, self.choice, out, named.source, named.cluster)

    def summary(self) -> dict[str, Any]:
        """Return the figures of the result of a job."""
        chosen = self.choice.chosen
        plan = None if chosen.outcome is None else chosen.outcome.plan
        return {
            "kind": chosen.name,
            "lower_bound_s": None if plan is None else plan.provenance.lower_bound_ticks * plan.tick_s,
            "makespan_s": chosen.makespan_s,
            "ops": self.graph.ops,
            "interrupted": self.interrupted,
        }


def plan_step(request: SolveRequest, context: Context) -> Solved:
    """Find a placement and an order; errors as of `pesto.solve`.

    Ctrl-C ends the search, and the best plan so far is the result.
    """
    request, started_s = request.opened(), context.startup_s()
    began = time.perf_counter()
    graph = read_step(request.source, context)
    loaded = time.perf_counter()
    cluster = _cluster(request)
    costs = as_costs(graph, cluster, request.costs)
    costed = time.perf_counter()
    spent_s = context.counted_s((started_s or 0.0) + costed - loaded, request.settings)
    before = request.earlier()._replace(spent_s=spent_s)
    stages_s = {} if started_s is None else {"start": started_s}
    stages_s |= {"graph": loaded - began, "costs": costed - loaded}
    with context.watching() as watch:
        outcome = solve(graph, cluster, costs, request.settings, watch, before)
        found = Solved(
            request=request, graph=graph, cluster=cluster, outcome=outcome, stages_s=stages_s | outcome.stages_s
        )
        context.keep_result(found)
    return found


def choose_kind(request: SolveRequest, context: Context) -> Chosen:
    """Find the shortest of placements and of the splits of `request.split`; errors as of `choose` and `cuts_of`.

    Ctrl-C ends the search, and the shortest so far is the result.
    """
    cluster, settings = _cluster(request.opened()), request.settings
    cuts = cuts_of(request.split or "", cluster)
    counted_s = context.counted_s(context.startup_s() or 0.0, settings)
    if not isinstance(request.source, Source):
        raise TypeError("a step is cut by its source, not by its graph alone")
    context.begin_reading()
    graph, shapes = load_both(request.source, quiet=context.quiet)
    context.accept(graph)
    costs = as_costs(graph, cluster, None)
    with context.watching() as watch:
        left = replace(settings, time_limit_s=settings.time_limit_s - counted_s)
        choice = choose((graph, shapes), cluster, costs, left, watch, cuts=cuts)
        hold()
        found = Chosen(request=request, graph=graph, shapes=shapes, choice=choice)
        context.keep_result(found)
    return found


def _cluster(request: SolveRequest) -> Cluster:
    """Return the cluster of a request that is opened."""
    if not isinstance(request.cluster, Cluster):
        raise TypeError("the request is not opened")
    return request.cluster
