"""Jobs of a plan: what `pesto check` and `pesto report` do."""

from pathlib import Path
from typing import Any

from pesto.core.errors import UsageError
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import format_of
from pesto.core.plans.plan_file import load, loads
from pesto.inputs.load import load_shapes, plan_source, split_source
from pesto.reporting.show.report.html_report import html_report
from pesto.split.files.split_file import KIND as SPLIT
from pesto.split.files.split_file import loads_split
from pesto.verbs.api import check
from pesto.verbs.jobs.checked_pattern import CheckedPattern
from pesto.verbs.jobs.checked_plan import CheckedPlan, reported
from pesto.verbs.jobs.checked_split import CheckedSplit
from pesto.verbs.jobs.result_names import REPORT
from pesto.verbs.jobs.work import Work
from solvers.pipelining.pattern_json import KIND as PATTERN


def check_job(work: Work) -> dict[str, Any]:
    """Verify a plan on its graph, a split on its step, or a pattern; errors as of the verb."""
    file = _file(work)
    data = read_bytes(file)
    return _CHECKS.get(format_of(data, file.name), _check_plan)(work, data, file.name)


def report_job(work: Work) -> dict[str, Any]:
    """Write a plan, and others of its graph, as one page; all are verified first."""
    plans = [(file.name, load(file)) for file in (_file(work), *work.given.against)]
    graph = work.graph(plan_source(plans[0][1], work.given.source))
    work.telling.begins("report")
    shown = [reported(name, found, graph, work.given.cluster, work.given.costs) for name, found in plans]
    work.keep(REPORT, html_report(graph, shown))
    return {"plans": len(plans), "makespan_s": plans[0][1].makespan_s, "ops": graph.ops, "interrupted": False}


def _check_plan(work: Work, data: bytes, called: str) -> dict[str, Any]:
    plan = loads(data, called)
    graph = work.graph(plan_source(plan, work.given.source))
    cluster, costs = work.given.cluster, work.given.costs
    work.telling.begins("check")
    left = check(plan, graph, cluster=cluster, costs=costs)
    checked, certificate = CheckedPlan.of(plan, graph, left, cluster, costs), work.request.certificate
    said = checked.as_object(Path(called), certificate=certificate)
    work.answer(said, checked.page(Path(called), certificate=certificate))
    return {"valid": True, "makespan_s": plan.makespan_s, "ops": graph.ops, "interrupted": False}


def _check_split(work: Work, data: bytes, called: str) -> dict[str, Any]:
    _refuse(work, "a split is of no cluster and of no costs", "cluster", "costs")
    split = loads_split(data, called)
    work.begin_reading()
    shaped = work.within(load_shapes(split_source(split, work.given.source)))
    work.telling.begins("check")
    checked = CheckedSplit.of(split, shaped, certificate=work.request.certificate)
    work.answer(checked.as_object(), checked.page())
    return {"valid": True, "ops": shaped.ops, "bytes": split.bytes, "interrupted": False}


def _check_pattern(work: Work, data: bytes, called: str) -> dict[str, Any]:
    _refuse(work, "a pattern has its chain and devices within it", "source", "cluster", "costs")
    work.telling.begins("check")
    checked = CheckedPattern.of(data, called, certificate=work.request.certificate)
    work.answer(checked.as_object(), checked.page())
    return {"valid": True, "layers": checked.pattern.of.chain.layers, "interrupted": False}


_CHECKS = {SPLIT.format: _check_split, PATTERN.format: _check_pattern}
"""By the format that the file names; a plan's otherwise, which refuses what is none."""


def _refuse(work: Work, why: str, *names: str) -> None:
    """UsageError where the request has a field that says nothing here."""
    for name in names:
        if getattr(work.request, name) is not None:
            raise UsageError(f"{why} - leave out {name}")


def _file(work: Work) -> Path:
    if work.given.plan is None:
        raise UsageError("no plan is given - give one")
    return work.given.plan
