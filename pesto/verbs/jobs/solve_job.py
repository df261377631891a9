"""A solve as a job: what `pesto solve` does, with its report, trace and explanation beside the plan."""

from pathlib import Path
from typing import Any

from pesto.core.files.json import encode_json
from pesto.reporting.explaining.explanation_object import explanation_object
from pesto.reporting.show.trace import gzip_bytes, trace
from pesto.verbs.api import explain, simulate
from pesto.verbs.jobs.checks import asked_settings
from pesto.verbs.jobs.result_names import PLAN, REPORT, SPLIT
from pesto.verbs.jobs.work import Work
from pesto.verbs.plan_step import Solved, choose_kind, plan_step
from pesto.verbs.requests import SolveRequest

TRACE, EXPLANATION = "trace.json.gz", "explain.json"


def solve_job(work: Work) -> dict[str, Any]:
    """Find a plan, or the shortest of plans and splits, and write it with what is told of it; errors as of the verb.

    After an interruption the best plan is written, with what the verb prints and its page, and no more.
    """
    given = work.given
    request = SolveRequest(
        source=given.source, cluster=given.cluster or "", costs=given.costs, start=given.start, beside=given.beside,
        split=work.request.cuts, settings=asked_settings(work.request),
    )  # fmt: skip
    if request.split is not None:
        chosen = choose_kind(request, work)
        out = work.shown_out(PLAN if chosen.is_plan else SPLIT)
        work.answer(chosen.as_object(out), chosen.page(work.named(), out))
        return chosen.summary()
    solved = plan_step(request, work)
    _say(work, solved)
    if not solved.interrupted:
        _explain(work, solved)
    return solved.summary()


def _say(work: Work, solved: Solved) -> None:
    """What the verb prints, and the page."""
    work.telling.begins("report")
    for remark in solved.outcome.remarks:
        work.telling.log(remark, "warning")
    if solved.failure is not None:
        work.telling.log(solved.failure, "warning")
    out = work.shown_out(PLAN)
    work.answer(solved.as_object(out), solved.page(work.named(), out))
    work.keep(REPORT, solved.html(out.name))


def _explain(work: Work, solved: Solved) -> None:
    """The step for trace viewers, and why it takes as long as it does."""
    costs: Path | None = work.given.costs
    plan, graph, machine = solved.outcome.plan, solved.graph, solved.cluster
    work.keep(TRACE, gzip_bytes(trace(plan, simulate(plan, graph, cluster=machine, costs=costs))))
    said = explain(plan, graph, cluster=machine, costs=costs)
    work.keep(EXPLANATION, encode_json(explanation_object(said)))
