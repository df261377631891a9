"""A solve as a job: what `pesto solve` does, with its report, trace and explanation beside the plan."""

import time
from pathlib import Path
from typing import Any

from pesto.core.cluster import Cluster
from pesto.core.files.json import encode_json
from pesto.core.graph import Graph
from pesto.core.plans.plan_file import dumps, load
from pesto.inputs.load import load_cluster, load_costs
from pesto.planning.solving.flow import Earlier, Outcome, solve
from pesto.reporting.explaining.explanation_object import explanation_object
from pesto.reporting.show.report.html_report import html_report
from pesto.reporting.show.report.plan_facts import report_solve
from pesto.reporting.show.solve_report import as_object, following_command, page
from pesto.reporting.show.trace import gzip_bytes, trace
from pesto.verbs.api import explain, simulate
from pesto.verbs.jobs.checks import asked_settings
from pesto.verbs.jobs.cut_job import cut_job
from pesto.verbs.jobs.result_names import PLAN, REPORT
from pesto.verbs.jobs.work import Work
from solvers import FAILED

TRACE, EXPLANATION = "trace.json.gz", "explain.json"


def solve_job(work: Work) -> dict[str, Any]:
    """Find a plan and write it, then what is told of it; PestoError as of the verb.

    After an interruption the best plan is written, with what the verb prints and its page, and no more.
    """
    if work.request.cuts is not None:
        return cut_job(work, work.request.cuts)
    given, settings = work.given, asked_settings(work.request)
    machine = load_cluster(given.cluster or "")
    earlier = Earlier(
        start=None if given.start is None else load(given.start),
        beside=None if given.beside is None else load(given.beside),
    )
    began = time.perf_counter()
    graph = work.graph()
    loaded = time.perf_counter()
    costs = load_costs(graph, machine, given.costs)
    stages_s = {"graph": loaded - began, "costs": time.perf_counter() - loaded}
    with work.keeping_incumbents() as incumbents:
        outcome = solve(graph, machine, costs, settings, work.telling, earlier)
        incumbents.close()
        work.keep(PLAN, dumps(outcome.plan))
    _say(work, outcome, graph, machine, stages_s | outcome.stages_s)
    if not outcome.interrupted:
        _explain(work, outcome, graph, machine)
    return _summary(outcome)


def _say(work: Work, outcome: Outcome, graph: Graph, machine: Cluster, stages_s: dict[str, float]) -> None:
    """What the verb prints, and the page."""
    work.telling.begins("report")
    for remark in outcome.remarks:
        work.telling.log(remark, "warning")
    coarse = outcome.plan.provenance.coarse
    if coarse is not None and coarse.status in FAILED:
        work.telling.log(f"{coarse.solver} {coarse.status}: {coarse.detail} - see pesto doctor", "warning")
    out = work.shown_out(PLAN)
    after = following_command(work.shown_source(), work.shown_cluster(), work.shown_costs(), out)
    work.answer(as_object(outcome, stages_s, out), page(outcome, stages_s, out, after))
    work.keep(REPORT, html_report(graph, [report_solve(outcome, machine, out.name, stages_s)]))


def _explain(work: Work, outcome: Outcome, graph: Graph, machine: Cluster) -> None:
    """The step for trace viewers, and why it takes as long as it does."""
    costs: Path | None = work.given.costs
    work.keep(TRACE, gzip_bytes(trace(outcome.plan, simulate(outcome.plan, graph, cluster=machine, costs=costs))))
    said = explain(outcome.plan, graph, cluster=machine, costs=costs)
    work.keep(EXPLANATION, encode_json(explanation_object(said)))


def _summary(outcome: Outcome) -> dict[str, Any]:
    plan, made = outcome.plan, outcome.plan.provenance
    return {
        "status": plan.status,
        "makespan_s": plan.makespan_s,
        "lower_bound_s": made.lower_bound_ticks * plan.tick_s,
        "gap": plan.gap,
        "ops": len(plan.names),
        "interrupted": outcome.interrupted,
    }
