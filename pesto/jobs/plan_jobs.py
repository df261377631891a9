"""Jobs of a plan: what `pesto check` and `pesto report` do."""

from pathlib import Path
from typing import Any

from pesto.api import check
from pesto.errors import UsageError
from pesto.graph import Graph
from pesto.inputs.load import plan_source
from pesto.jobs.checked_plan import CheckedPlan, reported
from pesto.jobs.work import REPORT, Work
from pesto.plans.plan import Plan
from pesto.plans.plan_file import load
from pesto.show.report.html_report import html_report


def check_job(work: Work) -> dict[str, Any]:
    """Verify a plan on its graph, errors as of the verb."""
    file, plan, graph = _read(work)
    cluster, costs = work.given.cluster, work.given.costs
    work.telling.begins("check")
    left = check(plan, graph, cluster=cluster, costs=costs)
    checked, certificate = CheckedPlan.of(plan, graph, left, cluster, costs), work.request.certificate
    said = checked.as_object(Path(file.name), certificate=certificate)
    work.answer(said, checked.page(Path(file.name), certificate=certificate))
    return {"valid": True, "makespan_s": plan.makespan_s, "ops": graph.ops, "interrupted": False}


def report_job(work: Work) -> dict[str, Any]:
    """Write a plan, and others of its graph, as one page; all are verified first."""
    file, plan, graph = _read(work)
    plans = [(file.name, plan), *((other.name, load(other)) for other in work.given.against)]
    work.telling.begins("report")
    shown = [reported(name, found, graph, work.given.cluster, work.given.costs) for name, found in plans]
    work.keep(REPORT, html_report(graph, shown))
    return {"plans": len(plans), "makespan_s": plan.makespan_s, "ops": graph.ops, "interrupted": False}


def _read(work: Work) -> tuple[Path, Plan, Graph]:
    """The plan's file, the plan and its graph, which a plan of a built-in model names itself."""
    file = work.given.plan
    if file is None:
        raise UsageError("no plan is given - give one")
    plan = load(file)
    return file, plan, work.graph(plan_source(plan, work.given.source))
