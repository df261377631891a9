"""One job from begin to end, in this process or as a worker's: its files, what it does and tells, and its `Done`."""

import logging
import math
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import msgspec

from pesto.choosing.comparison.contest import MethodEntry
from pesto.choosing.whatif.points import Sweep, no_plan_error
from pesto.core.errors import Exit, FileError, InputError, UsageError, describe_error
from pesto.core.executing.worker import WorkerChannel
from pesto.core.files import graph_file
from pesto.core.files.disk import confine_to, file_sha256, make_folder, write_atomic
from pesto.core.files.json import encode_json
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.plans.plan_file import dumps
from pesto.core.quantities import duration, plural
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs, load_shapes
from pesto.planning.solving.background_compiler import LAST, compiled_parts, shared_compiler
from pesto.planning.solving.flow import solve
from pesto.planning.solving.interrupt import hold, install, received
from pesto.planning.solving.tracker import Incumbent
from pesto.reporting.explaining.explanation_text import explanation_object
from pesto.reporting.show import drawing
from pesto.reporting.show.comparison_page import comparison_object, comparison_page, draw_comparison
from pesto.reporting.show.facts import PATTERN
from pesto.reporting.show.html_report import html_report, report_solve
from pesto.reporting.show.screen import one_line
from pesto.reporting.show.solve_report import InputNames, solve_object, solve_page
from pesto.reporting.show.sweep_page import draw_sweep, progress_line, sweep_object, sweep_page
from pesto.reporting.show.trace import gzip_bytes, trace
from pesto.split.typed_graph import TypedGraph
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs.api import explain, simulate
from pesto.verbs.artifacts import UNUSED, GivenStep, kind_of, load_artifact, load_plan, report, verify
from pesto.verbs.jobs.checks import PRESET, compare_options, named_source, split_options, sweep_options
from pesto.verbs.jobs.incumbent_file import IncumbentFile
from pesto.verbs.jobs.job_events import Bound, Done, Event, IncumbentEvent, Log, Stage, encode
from pesto.verbs.jobs.request import (
    ANSWER,
    PAGE,
    PLAN,
    REPORT,
    SPLIT,
    BlobFile,
    JobRequest,
    Kind,
    Order,
    PlanFile,
)
from pesto.verbs.plan_step import (
    Chosen,
    CutStep,
    Solved,
    choose_kind,
    compare_step,
    plan_step,
    read_step,
    split_step,
    sweep_step,
)
from pesto.verbs.requests import CompareRequest, Context, SolveRequest, SplitRequest, Step, SweepRequest

Tell = Callable[[Event], None]


def answer(data: bytes, line: WorkerChannel) -> bytes:
    """Do a job, telling its events, and answer with its `Done`: Ctrl-C and SIGTERM interrupt it as they do a verb.

    The process is retired after a bug, and after an interruption before anything was written: what it was loading or
    setting up then may be broken.
    """
    order = msgspec.json.decode(data, type=Order)
    try:
        install()
        if (early := line.interrupted()) is not None:  # a signal that came before the handlers
            signal.raise_signal(early)
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


def run(request: JobRequest, blobs: Path, out: Path, tell: Tell) -> Done:
    """Do what the verb of the request's kind does; its results go into the folder `out`, each whole or not at all.

    The request has passed `checks.checked` when it was submitted; whatever it names, no file but `blobs`/SHA-256 is
    read. tell: is called with each event, by several threads, but not with the `Done` that is returned. Signals are as
    `pesto.planning.solving.interrupt` has them once it is installed: an interruption ends the search, and the best plan
    is written.
    """
    written: list[str] = []
    try:
        make_folder(out)
        with linked_files(request, blobs, out) as files, confine_to(files.folder):
            job = JobContext(request, files, out, tell, written)
            handler, logger = _LogHandler(job), logging.getLogger("pesto")
            logger.addHandler(handler)
            try:
                result = _DO[request.kind](job)
            except (Exception, KeyboardInterrupt) as error:
                return _failed(error, written, files.sender_text)
            finally:
                logger.removeHandler(handler)
                hold()
    except (Exception, KeyboardInterrupt) as error:
        return _failed(error, written, str)
    # 0, or the code of the interruption that ended the search.
    code = received() or (Exit.INTERRUPTED if result.get("interrupted") else Exit.OK)
    return Done(exit_code=code, result=result, files=tuple(written))


def _failed(error: BaseException, written: list[str], sender_text: Callable[[str], str]) -> Done:
    """Return the end of a job that failed, with the words of the command line and the names of its sender."""
    failure = describe_error(error, received())
    message, where, remedy = (one_line(sender_text(text)) for text in (failure.error, failure.where, failure.remedy))
    return Done(
        exit_code=failure.exit_code, error=message, where=where or None, remedy=remedy or None, files=tuple(written)
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFiles:
    """The inputs of a request, as a verb takes them; files exist as long as the `linked_files` block."""

    source: Source
    """`Source()` where the plan is to name it."""
    cluster: str | None
    """A preset or a file; None where the plan is to name it."""
    costs: Path | None
    plan: Path | None
    start: Path | None
    beside: Path | None
    against: tuple[Path, ...]
    folder: Path
    """Folder of all files."""

    def sender_text(self, text: str) -> str:
        """Return a text with the sender's names of files, without the folders that they lie in here."""
        return re.sub(rf"{re.escape(str(self.folder))}/\d+/", "", text)


@contextmanager
def linked_files(request: JobRequest, blobs: Path, out: Path) -> Iterator[JobFiles]:
    """Link the files of a request below `out` to `blobs`/SHA-256; FileError for one that is missing or changed."""

    def link(sha: str, name: str) -> Path:
        blob = blobs.absolute() / sha
        if not blob.is_file():
            raise FileError.build(f"no blob {sha} is there", where=name, remedy="upload it")
        if file_sha256(blob) != sha:
            raise FileError.build(f"the blob {sha} was changed on the disk", where=name, remedy="upload it again")
        path = folder / str(next(numbers)) / name  # a folder each: two files of a request may have one name
        path.parent.mkdir()
        path.symlink_to(blob)
        return path

    def link_plan(plan: PlanFile) -> Path:
        if plan.blob is None:
            raise UsageError.build(f"the plan of job {plan.job} is not at hand", remedy="give its blob")
        return link(plan.blob, plan.name or PLAN)

    with TemporaryDirectory(prefix=".given-", dir=out) as made:
        folder, numbers, source, cluster = Path(made), count(1), Source(), request.cluster
        if request.source is not None:
            sha, name = request.source.blob, request.source.name or "graph.json"
            source = named_source(request.source, None if sha is None else link(sha, name))
        if isinstance(cluster, BlobFile):
            cluster = str(link(cluster.blob, f"{(cluster.name or 'cluster').removesuffix('.toml')}.toml"))
        elif cluster is None and request.kind in ("solve", "compare", "sweep"):
            cluster = PRESET
        yield JobFiles(
            source=source,
            cluster=cluster,
            costs=None if request.costs is None else link(request.costs.blob, request.costs.name or "profile.json"),
            plan=None if request.plan is None else link_plan(request.plan),
            start=None if request.start is None else link_plan(request.start),
            beside=None if request.beside is None else link_plan(request.beside),
            against=tuple(map(link_plan, request.against)),
            folder=folder,
        )


class JobContext(Context):
    """A running job: its request and files, the folder of its results, and what it tells; also the watch of its solve.

    The watch is called by several threads (`StageWatch`, `PlanWatch` of `pesto.planning.solving.tracker`).
    """

    def __init__(self, request: JobRequest, files: JobFiles, folder: Path, tell: Tell, written: list[str]) -> None:
        """`folder`: of results; `tell`: is called with each event; `written`: names of the results that are whole."""
        self.request, self.files, self.folder, self.written = request, files, folder, written
        self._tell, self._best_s, self._stage, self._lock = tell, math.inf, "", threading.Lock()
        self._incumbents = IncumbentFile(folder)

    def begins(self, stage: str) -> None:
        """Tell that a stage begins."""
        if stage != self._stage:
            self._stage = stage
            self._tell(Stage(name=stage))

    def log(self, text: str, level: str = "info") -> None:
        """Tell a line for people."""
        self._tell(Log(level=level, text=one_line(self.files.sender_text(text))))

    def __call__(self, incumbent: Incumbent) -> None:
        """Tell of a better plan, or of a better bound beside the same plan."""
        best_s, bound_s, seconds = incumbent.makespan_s, incumbent.lower_bound_s, incumbent.seconds
        gap = (best_s - bound_s) / best_s if best_s else 0.0
        with self._lock:
            better, self._best_s = best_s != self._best_s, best_s
        if better:
            self._tell(IncumbentEvent(best_s=best_s, bound_s=bound_s, gap=gap, by=incumbent.name, seconds=seconds))
        else:
            self._tell(Bound(bound_s=bound_s, gap=gap, seconds=seconds))

    def take_plan(self, made: Callable[[], Plan]) -> None:
        """Have a better plan written."""
        self._incumbents.take(made)

    def take_split(self, makespan_s: float, encoded: Callable[[], bytes]) -> None:
        """Have a better split written."""
        self._incumbents.take_split(makespan_s, encoded)

    def begin_reading(self) -> None:
        """Tell that the graph is being read."""
        self.begins("reading the graph")

    def begin_search(self, stage: str) -> None:
        """Tell of the stage."""
        self.begins(stage)

    def accept(self, step: Step) -> Step:
        """Return the step; InputError where it has more ops than the job may have."""
        limit = self.request.limits.nodes
        if limit is not None and step.ops > limit:
            raise InputError.build(
                f"{plural(step.ops, 'op')}, this job may have {limit}",
                where=step.source,
                remedy="ask for more nodes, or give a smaller step",
            )
        return step

    @contextmanager
    def watching(self) -> Iterator[Self]:
        """Tell of the solve inside, and write its best plan or split so far until the result is kept."""
        try:
            yield self
        finally:
            self._incumbents.close()
            self._incumbents.forget(self.written)

    def keep_result(self, result: Solved | Chosen | CutStep) -> None:
        """Write the plan or split that was found, in place of the best so far."""
        self._incumbents.close()
        self.keep(PLAN if result.is_plan else SPLIT, result.dumps())

    def keep(self, name: str, data: bytes) -> None:
        """Write a result, whole or not at all."""
        write_atomic(self.folder / name, data)
        if name not in self.written:
            self.written.append(name)

    def answer(self, content: dict[str, Any], page: str) -> None:
        """Write what the verb prints, for programs and for people."""
        self.keep(ANSWER, encode_json(content))
        self.keep(PAGE, page.encode() + b"\n")

    def named(self) -> InputNames:
        """Return the inputs as their sender calls them."""
        source, cluster, costs = self.files.source, self.files.cluster or "", self.files.costs
        return InputNames(
            source=source if source.file is None else replace(source, file=Path(source.file.name)),
            cluster=Path(cluster).name if isinstance(self.request.cluster, BlobFile) else cluster,
            costs=None if costs is None else Path(costs.name),
        )

    def out(self, default: str) -> Path:
        """Return what the sender calls the result."""
        return Path(self.request.out or default)


class _LogHandler(logging.Handler):
    """Tells what the project logs while a job runs."""

    def __init__(self, job: JobContext) -> None:
        super().__init__()
        self._job = job

    def emit(self, record: logging.LogRecord) -> None:
        """Tell a record as a line."""
        self._job.log(self.format(record), record.levelname.lower())


TRACE, EXPLANATION = "trace.json.gz", "explain.json"


def solve_job(job: JobContext) -> dict[str, Any]:
    """Do what `pesto solve` does, with its report, trace and explanation beside the plan; errors as of the verb.

    After an interruption the best plan is written, with what the verb prints and its page, and no more.
    """
    files = job.files
    request = SolveRequest(
        source=files.source, cluster=files.cluster or "", costs=files.costs, start=files.start, beside=files.beside,
        split=job.request.cuts, settings=Settings(**job.request.settings.given()),
    )  # fmt: skip
    if request.split is not None:
        chosen = choose_kind(request.opened(), job)
        out = job.out(PLAN if chosen.is_plan else SPLIT)
        job.answer(chosen.as_object(out), chosen.page(job.named(), out))
        return chosen.summary()
    solved = plan_step(request.opened(), job)
    job.begins("report")
    for remark in (*solved.outcome.remarks, *filter(None, [solved.failure])):
        job.log(remark, "warning")
    out = job.out(PLAN)
    job.answer(solved.as_object(out), solved.page(job.named(), out))
    job.keep(REPORT, solved.html(out.name))
    if not solved.interrupted:
        plan, graph, cluster = solved.outcome.plan, solved.graph, solved.cluster
        job.keep(TRACE, gzip_bytes(trace(plan, simulate(plan, graph, cluster=cluster, costs=files.costs))))
        explanation = explain(plan, graph, cluster=cluster, costs=files.costs)
        job.keep(EXPLANATION, encode_json(explanation_object(explanation)))
    return solved.summary()


def split_job(job: JobContext) -> dict[str, Any]:
    """Do what `pesto split` does: cut every tensor of a step, and time that where a cluster is named."""
    files = job.files
    request = SplitRequest(source=files.source, cluster=files.cluster, options=split_options(job.request))
    cut = split_step(request, job)
    hold()
    out = job.out(SPLIT)
    job.answer(cut.as_object(out), cut.page(out))
    cut.check_fits()
    return cut.summary()


def sweep_job(job: JobContext) -> dict[str, Any]:
    """Do what `pesto sweep` does: solve every point; after each the points so far are written."""
    files = job.files
    request = SweepRequest(
        source=files.source, cluster=files.cluster or "", costs=files.costs, options=sweep_options(job.request)
    )  # fmt: skip

    def write(points: Sweep) -> None:
        job.answer(sweep_object(points), sweep_page(points))
        job.log(progress_line(points))

    points = sweep_step(request, job, write)
    hold()
    job.answer(sweep_object(points), sweep_page(points))
    if drawing.available() and points.rows:
        job.keep("chart.svg", draw_sweep(points, "svg"))
    if not points.interrupted and all(row.plan is None for row in points.rows):
        raise no_plan_error(points)
    return {"points": len(points.rows), "ops": points.graph.ops, "interrupted": points.interrupted}


def compare_job(job: JobContext) -> dict[str, Any]:
    """Do what `pesto compare` does; each plan is written as it comes, and the best as plan.json at the end."""
    files, saved = job.files, dict[str, Path]()
    request = CompareRequest(
        source=files.source, cluster=files.cluster or "", costs=files.costs, options=compare_options(job.request)
    )  # fmt: skip

    def write(entry: MethodEntry) -> None:
        if entry.plan is not None and entry.split is None:
            name = f"{entry.method}.plan.json"
            job.keep(name, dumps(entry.plan))
            saved[entry.method] = Path(name)
        step = f"{entry.status}: {entry.detail}" if entry.makespan_s is None else duration(entry.makespan_s)
        job.log(f"{entry.method}: {step}")

    contest = compare_step(request, job, write)
    hold()
    page = comparison_page(contest, Path("plans") if saved else None)
    job.answer(comparison_object(contest, saved), page)
    if drawing.available():
        job.keep("chart.svg", draw_comparison(contest, "svg"))
    ranked = [entry for entry in contest.ranked() if entry.plan is not None]
    if not contest.interrupted or ranked:
        job.keep(PLAN, dumps(contest.best()))
    best = ranked[0] if ranked else None
    return {
        "method": best and best.method,
        "makespan_s": best and best.makespan_s,
        "lower_bound_s": contest.lower_bound_s,
        "ops": contest.graph.ops,
        "methods": len(contest.entries),
        "interrupted": contest.interrupted,
    }


def check_job(job: JobContext) -> dict[str, Any]:
    """Verify a plan on its graph, a split on its step, or a pattern; errors as of the verb."""
    file = _plan_file(job)
    artifact = load_artifact(file, file.name)
    why, names = UNUSED[kind_of(artifact)]
    for name in names:
        if getattr(job.request, name) is not None:
            raise UsageError.build(why, remedy=f"leave out {name}")
    if kind_of(artifact) == PATTERN:
        job.begins("check")
    verified = verify(artifact, _given_step(job, "check"), file.name, certificate=job.request.certificate)
    job.answer(verified.as_object(), verified.page())
    return {**verified.summary(), "interrupted": False}


def report_job(job: JobContext) -> dict[str, Any]:
    """Write a plan, and others of its graph, as one page; all are verified first."""
    plans = [(file.name, load_plan(file, "report", file.name)) for file in (_plan_file(job), *job.files.against)]
    graph, page = report(plans, _given_step(job, "report"))
    job.keep(REPORT, page)
    return {"plans": len(plans), "makespan_s": plans[0][1].makespan_s, "ops": graph.ops, "interrupted": False}


def _plan_file(job: JobContext) -> Path:
    if job.files.plan is None:
        raise UsageError.build("no plan is given", remedy="give one")
    return job.files.plan


def _given_step(job: JobContext, stage: str) -> GivenStep:
    """Return the step that the request names beside the artifact; the stage begins once the step is read."""

    def read_graph(source: Source) -> Graph:
        graph = read_step(source, job)
        job.begins(stage)
        return graph

    def read_shapes(source: Source) -> TypedGraph:
        job.begin_reading()
        shaped = job.accept(load_shapes(source))
        job.begins(stage)
        return shaped

    files = job.files
    return GivenStep(
        source=files.source, cluster=files.cluster, costs=files.costs, read_graph=read_graph, read_shapes=read_shapes
    )


_DO: dict[Kind, Callable[[JobContext], dict[str, Any]]] = {
    "solve": solve_job, "compare": compare_job, "sweep": sweep_job, "split": split_job, "check": check_job,
    "report": report_job,
}  # fmt: skip


_STEP = b"""{"format": "pesto-graph", "format_version": 1, "source": "ready", "ops": [
{"name": "a", "outputs": [1024], "time_s": {"gpu": 1e-5}},
{"name": "b", "inputs": ["a"], "outputs": [1024], "time_s": {"gpu": 1e-5}},
{"name": "c", "inputs": ["a", "b"], "time_s": {"gpu": 1e-5}}]}"""


def prepare_worker() -> None:
    """Solve a step of three ops, unless this machine has still to compile, and load TensorFlow; write nothing."""
    shared_compiler()  # starts what is still to be compiled: a job that waits for it can be cancelled, this could not
    if LAST in compiled_parts():
        # Solve the step and show it as a job does, which loads the compiled functions.
        graph, cluster = graph_file.loads(_STEP, "ready"), load_cluster(PRESET)
        settings = Settings(solver="list", search=False, time_limit_s=0)
        outcome = solve(graph, cluster, load_costs(graph, cluster, None), settings, lambda _: None)
        out, stages_s = Path("ready"), outcome.stages_s
        dumps(outcome.plan)
        encode_json(solve_object(outcome, stages_s, out))
        solve_page(outcome, stages_s, out, InputNames(source=Source(file=out), cluster=PRESET))
        html_report(graph, [report_solve(outcome, cluster, out.name, stages_s)])
        gzip_bytes(trace(outcome.plan, simulate(outcome.plan, graph, cluster=cluster)))
        encode_json(explanation_object(explain(outcome.plan, graph, cluster=cluster)))
    load_tensorflow()
