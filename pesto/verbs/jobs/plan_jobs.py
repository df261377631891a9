"""Jobs of an artifact: what `pesto check` and `pesto report` do."""

from pathlib import Path
from typing import Any

from pesto.core.errors import UsageError
from pesto.core.graph import Graph
from pesto.core.source import Source
from pesto.inputs.load import load_shapes
from pesto.reporting.show.facts.artifact_keys import PATTERN
from pesto.split.typed_graph import TypedGraph
from pesto.verbs.artifacts import UNUSED, GivenStep, kind_of, load_artifact, load_plan, report, verify
from pesto.verbs.jobs.result_names import REPORT
from pesto.verbs.jobs.work import Work


def check_job(work: Work) -> dict[str, Any]:
    """Verify a plan on its graph, a split on its step, or a pattern; errors as of the verb."""
    file = _file(work)
    artifact = load_artifact(file, file.name)
    why, names = UNUSED[kind_of(artifact)]
    for name in names:
        if getattr(work.request, name) is not None:
            raise UsageError(why, remedy=f"leave out {name}")
    if kind_of(artifact) == PATTERN:
        work.telling.begins("check")
    checked = verify(artifact, _given_step(work, "check"), file.name, certificate=work.request.certificate)
    work.answer(checked.as_object(), checked.page())
    return {**checked.summary(), "interrupted": False}


def report_job(work: Work) -> dict[str, Any]:
    """Write a plan, and others of its graph, as one page; all are verified first."""
    plans = [(file.name, load_plan(file, "report", file.name)) for file in (_file(work), *work.given.against)]
    graph, page = report(plans, _given_step(work, "report"))
    work.keep(REPORT, page)
    return {"plans": len(plans), "makespan_s": plans[0][1].makespan_s, "ops": graph.ops, "interrupted": False}


def _given_step(work: Work, stage: str) -> GivenStep:
    """Return what the request names beside the artifact; the stage begins once the step is read."""

    def read_graph(source: Source) -> Graph:
        graph = work.graph(source)
        work.telling.begins(stage)
        return graph

    def read_shapes(source: Source) -> TypedGraph:
        work.begin_reading()
        shaped = work.accept(load_shapes(source))
        work.telling.begins(stage)
        return shaped

    given = work.given
    return GivenStep(
        source=given.source, cluster=given.cluster, costs=given.costs, read_graph=read_graph, read_shapes=read_shapes
    )


def _file(work: Work) -> Path:
    if work.given.plan is None:
        raise UsageError("no plan is given - give one")
    return work.given.plan
