"""Run a job from begin to end, in this process or as a worker's; whatever happens, it ends in one `Done`."""

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from pesto.choosing.comparison.contest import MethodEntry
from pesto.choosing.whatif.points import Sweep, no_plan_error
from pesto.core.errors import Exit, UsageError, describe_error
from pesto.core.executing.worker import WorkerChannel
from pesto.core.files.disk import confine_to, file_sha256, make_folder
from pesto.core.files.json import encode_json
from pesto.core.graph import Graph
from pesto.core.plans.plan_file import dumps
from pesto.core.quantities import duration
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.load import load_shapes
from pesto.planning.solving.interrupt import hold, install, received
from pesto.reporting.explaining.explanation_text import explanation_object
from pesto.reporting.show import drawing
from pesto.reporting.show.comparison_page import comparison_object, comparison_page, draw_comparison
from pesto.reporting.show.facts import PATTERN
from pesto.reporting.show.screen import one_line
from pesto.reporting.show.sweep_page import draw_sweep, progress_line, sweep_object, sweep_page
from pesto.reporting.show.trace import gzip_bytes, trace
from pesto.split.typed_graph import TypedGraph
from pesto.verbs.api import explain, simulate
from pesto.verbs.artifacts import UNUSED, GivenStep, kind_of, load_artifact, load_plan, report, verify
from pesto.verbs.jobs.checks import checked, compare_options, given_settings, split_options, sweep_options
from pesto.verbs.jobs.job_events import Done, encode
from pesto.verbs.jobs.job_progress import Tell, Telling, logged
from pesto.verbs.jobs.request import PLAN, REPORT, SPLIT, JobRequest, Kind, Order
from pesto.verbs.jobs.work import Given, Work, given
from pesto.verbs.plan_step import Solved, choose_kind, compare_step, plan_step, split_step, sweep_step
from pesto.verbs.requests import CompareRequest, SolveRequest, SplitRequest, SweepRequest, read_step


def split_job(work: Work) -> dict[str, Any]:
    """Do what `pesto split` does: cut every tensor of a step, and time that where a cluster is named."""
    given = work.given
    cut = split_step(
        SplitRequest(source=given.source, cluster=given.cluster, options=split_options(work.request)), work
    )  # fmt: skip
    hold()
    out = work.shown_out(SPLIT)
    work.answer(cut.as_object(out), cut.page(out))
    cut.check_fits()
    return cut.summary()


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
        graph = read_step(source, work)
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
        split=work.request.cuts, settings=Settings(**given_settings(work.request)),
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


def sweep_job(work: Work) -> dict[str, Any]:
    """Do what `pesto sweep` does: solve every point; after each what there is so far is written."""
    given = work.given
    request = SweepRequest(
        source=given.source, cluster=given.cluster or "", costs=given.costs, options=sweep_options(work.request)
    )  # fmt: skip

    def hear(points: Sweep) -> None:
        work.answer(sweep_object(points), sweep_page(points))
        work.telling.log(progress_line(points))

    points = sweep_step(request, work, hear)
    hold()
    work.answer(sweep_object(points), sweep_page(points))
    if drawing.available() and points.rows:
        work.keep("chart.svg", draw_sweep(points, "svg"))
    if not points.interrupted and all(row.plan is None for row in points.rows):
        raise no_plan_error(points)
    return {"points": len(points.rows), "ops": points.graph.ops, "interrupted": points.interrupted}


def compare_job(work: Work) -> dict[str, Any]:
    """Do what `pesto compare` does; each plan is written as it comes, and the best as plan.json at the end."""
    given, saved = work.given, dict[str, Path]()
    request = CompareRequest(
        source=given.source, cluster=given.cluster or "", costs=given.costs, options=compare_options(work.request)
    )  # fmt: skip

    def hear(entry: MethodEntry) -> None:
        if entry.plan is not None and entry.split is None:
            name = f"{entry.method}.plan.json"
            work.keep(name, dumps(entry.plan))
            saved[entry.method] = Path(name)
        step = f"{entry.status}: {entry.detail}" if entry.makespan_s is None else duration(entry.makespan_s)
        work.telling.log(f"{entry.method}: {step}")

    contest = compare_step(request, work, hear)
    hold()
    shown = comparison_page(contest, Path("plans") if saved else None)
    work.answer(comparison_object(contest, saved), shown)
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


def answer(data: bytes, line: WorkerChannel) -> bytes:
    """Do a job, telling its events, and answer with its `Done`: Ctrl-C and SIGTERM interrupt it as they do a verb.

    The process is retired after a bug, and after an interruption before anything was written: what it was loading or
    setting up then may be broken.
    """
    order = msgspec.json.decode(data, type=Order)
    try:
        install()
        came = line.interrupted()
        if came is not None:  # before anybody else looked to signals
            signal.raise_signal(came)
        blobs, out = Path(line.here(order.blobs)), Path(line.here(order.out))
        done = run(order.request, blobs, out, lambda event: line.tell(encode(event)))
        with suppress(KeyboardInterrupt, OSError):  # what is written is kept, without digests then
            done = msgspec.structs.replace(done, digests={name: file_sha256(out / name) for name in done.files})
    except KeyboardInterrupt as error:
        failure = describe_error(error, received())
        done = Done(exit_code=failure.exit_code, error=failure.error, remedy=failure.remedy or None)
    if done.exit_code == Exit.BUG or (done.exit_code in (Exit.INTERRUPTED, Exit.TERMINATED) and not done.files):
        line.retire()
    return msgspec.json.encode(done)
