"""A job done from begin to end in the process that calls it: whatever happens, it ends in one `Done`."""

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

from pesto.choosing.strategy_choice.timed_split import (
    accelerators_for,
    check_objective,
    refuse_short,
    rules_for,
    time_split,
)
from pesto.choosing.whatif.grid import ClusterPoint, SweepGrid, accelerators
from pesto.choosing.whatif.points import Sweep, SweepTask, no_plan_error, sweep
from pesto.core.errors import Exit, UsageError, describe_error
from pesto.core.files.disk import confine_to, make_folder
from pesto.core.files.json import encode_json
from pesto.core.graph import Graph
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.load import load_cluster, load_costs, load_shaped, load_shapes
from pesto.planning.solving.interrupt import hold, received
from pesto.reporting.explaining.explanation_text import explanation_object
from pesto.reporting.show import drawing
from pesto.reporting.show.facts import PATTERN
from pesto.reporting.show.screen import one_line
from pesto.reporting.show.split_page import split_object, split_page
from pesto.reporting.show.sweep_page import draw_sweep, progress_line, sweep_object, sweep_page
from pesto.reporting.show.trace import gzip_bytes, trace
from pesto.split.files.split_file import dumps_split
from pesto.split.program import Rules
from pesto.split.split_search import Split, divide_with_or_without_halo, parse_factors, undescribed_types
from pesto.split.typed_graph import TypedGraph
from pesto.split.undescribed_ops import refuse_undescribed
from pesto.verbs.api import explain, simulate
from pesto.verbs.artifacts import UNUSED, GivenStep, kind_of, load_artifact, load_plan, report, verify
from pesto.verbs.jobs.checks import asked_settings, axes_of, checked
from pesto.verbs.jobs.compare_job import compare_job
from pesto.verbs.jobs.given_files import Given, given
from pesto.verbs.jobs.job_events import Done
from pesto.verbs.jobs.request import JobRequest, Kind
from pesto.verbs.jobs.result_names import PLAN, REPORT, SPLIT
from pesto.verbs.jobs.telling import Tell, Telling, logged
from pesto.verbs.jobs.work import Work
from pesto.verbs.plan_step import Solved, choose_kind, plan_step
from pesto.verbs.requests import SolveRequest

# A split as a job: what `pesto split` does.


def split_job(work: Work) -> dict[str, Any]:
    """Cut every tensor of a step, and time that where a cluster is named; errors as of the verb."""
    options, source, cluster = work.request.split, work.given.source, work.given.cluster
    if options is None:
        raise UsageError.build("how many workers?", remedy="give split")
    factors = parse_factors(options.workers)
    machine = None if cluster is None else accelerators_for(prod(factors), load_cluster(cluster), source)
    memory = None if options.memory_gib is None else int(options.memory_gib * 2**30)
    rules, seconds = (
        Rules(replicate=options.replicate, memory_bytes=memory, halo=options.halo),
        asked_settings(work.request).time_limit_s,
    )
    check_objective(options.objective, rules, machine)
    work.begin_reading()
    graph, shaped = (None, load_shapes(source)) if machine is None else load_shaped(source, quiet=True)
    work.accept(shaped)
    if not options.whole:
        refuse_undescribed(shaped, "accept that with whole")
    work.telling.begins("cuts")
    rules = rules_for(rules, options.objective, (graph, machine), prod(factors))

    def save(split: Split) -> None:
        """Write a split: the worker may be killed while a shorter one is looked for, or this one is timed."""
        work.keep(SPLIT, dumps_split(shaped, split, time_limit_s=seconds))

    found = divide_with_or_without_halo(shaped, factors, options.method, rules, seconds=seconds, on_split=save)
    save(found)
    clocked = (
        time_split(graph, shaped, found, machine, Settings()) if graph is not None and machine is not None else None
    )
    hold()
    left, out = undescribed_types(shaped), work.shown_out(SPLIT)
    said = split_object(shaped, found, left, out, clocked)
    work.answer(said, split_page(shaped, found, left, out, clocked))
    if clocked is not None and machine is not None and not clocked.candidate.fits:
        refuse_short(clocked, machine)
    return {"ops": shaped.ops, "bytes": found.moved_bytes, "method": found.method, "interrupted": False}


# Jobs of an artifact: what `pesto check` and `pesto report` do.


def check_job(work: Work) -> dict[str, Any]:
    """Verify a plan on its graph, a split on its step, or a pattern; errors as of the verb."""
    file = _file(work)
    artifact = load_artifact(file, file.name)
    why, names = UNUSED[kind_of(artifact)]
    for name in names:
        if getattr(work.request, name) is not None:
            raise UsageError.build(why, remedy=f"leave out {name}")
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
        raise UsageError.build("no plan is given", remedy="give one")
    return work.given.plan


# A solve as a job: what `pesto solve` does, with its report, trace and explanation beside the plan.

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
        # The step for trace viewers, and why it takes as long as it does.
        costs: Path | None = work.given.costs
        plan, graph, machine = solved.outcome.plan, solved.graph, solved.cluster
        work.keep(TRACE, gzip_bytes(trace(plan, simulate(plan, graph, cluster=machine, costs=costs))))
        said = explain(plan, graph, cluster=machine, costs=costs)
        work.keep(EXPLANATION, encode_json(explanation_object(said)))
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


# A sweep as a job: what `pesto sweep` does.


def sweep_job(work: Work) -> dict[str, Any]:
    """Solve every point; after each what there is so far is written."""
    axes, given, machine = work.request.sweep, work.given, load_cluster(work.given.cluster or "")
    if axes is None:
        raise UsageError.build("no axis is swept", remedy="give one")
    grid = SweepGrid(base=ClusterPoint(devices=len(accelerators(machine))), values=axes_of(axes), cross=axes.cross)
    graph = work.graph()
    load_costs(graph, machine, given.costs)  # a profile that is refused ends it here, not in every row
    task = SweepTask(
        graph=graph,
        cluster=machine,
        costs=lambda at: load_costs(graph, at, given.costs),
        settings=asked_settings(work.request),
        grid=grid,
    )

    def hear(found: Sweep) -> None:
        work.answer(sweep_object(found), sweep_page(found))
        work.telling.log(progress_line(found))

    work.telling.begins("points")
    found = sweep(task, hear)
    hold()
    work.answer(sweep_object(found), sweep_page(found))
    if drawing.available() and found.rows:
        work.keep("chart.svg", draw_sweep(found, "svg"))
    if not found.interrupted and all(row.plan is None for row in found.rows):
        raise no_plan_error(found)
    return {"points": len(found.rows), "ops": graph.ops, "interrupted": found.interrupted}


_DO: dict[Kind, Callable[[Work], dict[str, Any]]] = {
    "solve": solve_job, "compare": compare_job, "sweep": sweep_job, "split": split_job, "check": check_job,
    "report": report_job,
}  # fmt: skip


def run(request: JobRequest, blobs: Path, out: Path, tell: Tell) -> Done:
    """Do what the verb of the request's kind does; its results go into the folder `out`, each whole or not at all.

    blobs: where uploaded files lie under their SHA-256. tell: hears of each event, from several threads, but not of the
    `Done` that is returned. Signals are as `pesto.planning.solving.interrupt` has them once it is installed: an
    interruption ends the search, and what was found is written.
    """
    written: list[str] = []
    try:
        checked(request)
        make_folder(out)
        with given(request, blobs, out) as files, confine_to(files.folder):
            try:
                result = _done(request, files, Telling(tell, files.named), out, written)
            except (Exception, KeyboardInterrupt) as error:
                return _failed(error, written, files.named)
            finally:
                hold()
    except (Exception, KeyboardInterrupt) as error:
        return _failed(error, written, str)
    # 0, or the code of the interruption that ended the search.
    interrupted = bool(result.get("interrupted"))
    code = received() or (Exit.INTERRUPTED if interrupted else Exit.OK)
    return Done(exit_code=code, result=result, files=tuple(written))


def _done(request: JobRequest, files: Given, telling: Telling, out: Path, written: list[str]) -> dict[str, Any]:
    """The work itself; what it wrote is in `written`, also where it fails."""
    with logged(telling):
        return _DO[request.kind](Work(request=request, given=files, folder=out, telling=telling, written=written))


def _failed(error: BaseException, written: list[str], named: Callable[[str], str]) -> Done:
    """Return the end of a job that failed, with the words of the command line and the names of its sender."""
    failure = describe_error(error, received())
    what, where, remedy = (one_line(named(text)) for text in (failure.error, failure.where, failure.remedy))
    return Done(
        exit_code=failure.exit_code, error=what, where=where or None, remedy=remedy or None, files=tuple(written)
    )  # fmt: skip
