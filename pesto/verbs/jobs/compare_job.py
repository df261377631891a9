"""A comparison as a job: what `pesto compare` does, with the best method's plan beside all others."""

from pathlib import Path
from typing import Any

from pesto.choosing.comparison.contest import Entrants, MethodEntry, chosen_methods, compete
from pesto.choosing.comparison.methods import METHODS
from pesto.core.graph import Graph
from pesto.core.plans.plan_file import dumps
from pesto.core.quantities import duration
from pesto.inputs.load import load_both, load_cluster, load_costs
from pesto.planning.solving.interrupt import hold
from pesto.reporting.show import drawing
from pesto.reporting.show.comparison_page import comparison_object, comparison_page, draw_comparison
from pesto.split.typed_graph import TypedGraph
from pesto.verbs.jobs.checks import asked_settings
from pesto.verbs.jobs.result_names import PLAN
from pesto.verbs.jobs.work import Work


def compare_job(work: Work) -> dict[str, Any]:
    """Run every method that is asked for; each plan is written as it comes, and the best as plan.json at the end."""
    source, machine = work.given.source, load_cluster(work.given.cluster or "")
    names = chosen_methods(work.request.methods or "all", shapes=source.has_shapes)
    graph, entrants = _read(work, names)
    costs, saved = load_costs(graph, machine, work.given.costs), dict[str, Path]()

    def hear(entry: MethodEntry) -> None:
        if entry.plan is not None and entry.split is None:
            name = f"{entry.method}.plan.json"
            work.keep(name, dumps(entry.plan))
            saved[entry.method] = Path(name)
        step = f"{entry.status}: {entry.detail}" if entry.makespan_s is None else duration(entry.makespan_s)
        work.telling.log(f"{entry.method}: {step}")

    work.telling.begins("methods")
    contest = compete(graph, machine, costs, asked_settings(work.request), hear, entrants=entrants)
    hold()
    work.answer(comparison_object(contest, saved), comparison_page(contest, Path("plans") if saved else None))
    if drawing.available():
        work.keep("chart.svg", draw_comparison(contest, "svg"))
    ranked = [entry for entry in contest.ranked() if entry.plan is not None]
    if not contest.interrupted or ranked:
        work.keep(PLAN, dumps(contest.best()))
    best = ranked[0] if ranked else None
    return {
        "method": best and best.method,
        "makespan_s": best and best.makespan_s,
        "lower_bound_s": contest.lower_bound_s,
        "ops": contest.graph.ops,
        "methods": len(contest.entries),
        "interrupted": contest.interrupted,
    }


def _read(work: Work, names: tuple[str, ...]) -> tuple[Graph, Entrants]:
    """The graph, with shapes where a method needs them."""
    if not any(METHODS[name].cuts for name in names):
        return work.graph(), Entrants(names)
    work.begin_reading()
    graph, shapes = load_both(work.given.source, quiet=True)
    entrants = Entrants(names, shapes) if isinstance(shapes, TypedGraph) else Entrants(names, shapeless=shapes)
    return work.accept(graph), entrants
