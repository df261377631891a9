"""One job while it runs: the files it was given, the folder of its results, and the listener to its events."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pesto.core.errors import FileError, InputError, UsageError
from pesto.core.files.disk import file_sha256, write_atomic
from pesto.core.files.json import encode_json
from pesto.core.quantities import plural
from pesto.core.source import Source
from pesto.planning.solving.background_compiler import shared_compiler
from pesto.verbs.jobs.checks import PRESET, named_source
from pesto.verbs.jobs.job_progress import IncumbentFile, Telling
from pesto.verbs.jobs.request import ANSWER, PAGE, PLAN, SPLIT, BlobFile, JobRequest, JobSource, PlanFile
from pesto.verbs.plan_step import Chosen, CutStep, Named, Solved
from pesto.verbs.requests import Context, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a request names, as a verb gets it; the files are there as long as `given` goes on."""

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
    """Where all of them lie."""

    def named(self, text: str) -> str:
        """A text that names files as their sender does, without the folders that they lie in here."""
        return re.sub(rf"{re.escape(str(self.folder))}/\d+/", "", text)


@contextmanager
def given(request: JobRequest, blobs: Path, out: Path) -> Iterator[Given]:
    """The files of a request, as links below `out` to `blobs`/SHA-256; FileError for one that is not there."""
    with TemporaryDirectory(prefix=".given-", dir=out) as folder:
        links = _Links(blobs, Path(folder))
        yield Given(
            source=Source() if request.source is None else links.source(request.source),
            cluster=links.cluster(request),
            costs=None if request.costs is None else links.file(request.costs, "profile.json"),
            plan=None if request.plan is None else links.plan(request.plan),
            start=None if request.start is None else links.plan(request.start),
            beside=None if request.beside is None else links.plan(request.beside),
            against=tuple(map(links.plan, request.against)),
            folder=Path(folder),
        )


class _Links:
    """Makes links, each in a folder of its own: two files of a request may have one name."""

    def __init__(self, blobs: Path, folder: Path) -> None:
        self._blobs, self._folder, self._made = blobs.absolute(), folder, 0

    def file(self, file: BlobFile, otherwise: str) -> Path:
        return self._link(file.blob, file.name or otherwise)

    def source(self, source: JobSource) -> Source:
        file = None if source.blob is None else self._link(source.blob, source.name or "graph.json")
        return named_source(source, file)

    def cluster(self, request: JobRequest) -> str | None:
        if isinstance(request.cluster, BlobFile):
            name = request.cluster.name or "cluster.toml"
            return str(self._link(request.cluster.blob, name if name.endswith(".toml") else f"{name}.toml"))
        if request.cluster is None and request.kind in ("solve", "compare", "sweep"):
            return PRESET
        return request.cluster

    def plan(self, plan: PlanFile) -> Path:
        if plan.blob is None:
            raise UsageError.build(f"the plan of job {plan.job} is not at hand", remedy="give its blob")
        return self._link(plan.blob, plan.name or "plan.json")

    def _link(self, sha: str, name: str) -> Path:
        blob = self._blobs / sha
        if not blob.is_file():
            raise FileError.build(f"no blob {sha} is there", where=name, remedy="upload it")
        if file_sha256(blob) != sha:
            raise FileError.build(f"the blob {sha} was changed on the disk", where=name, remedy="upload it again")
        self._made += 1
        link = self._folder / str(self._made) / name
        link.parent.mkdir()
        link.symlink_to(blob)
        return link


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Context):
    """A request with its files, and the folder of its results."""

    request: JobRequest
    given: Given
    folder: Path
    telling: Telling
    written: list[str] = field(default_factory=list)
    """Names of the files that are there, whole."""

    def begin_reading(self) -> None:
        """Say that the graph is being read, while what its solve needs is compiled."""
        self.telling.begins("reading the graph")
        shared_compiler()

    def begin_search(self, stage: str) -> None:
        """Tell of the stage."""
        self.telling.begins(stage)

    def accept(self, graph: Step) -> Step:
        """The graph, or what its ops are, itself; InputError where it has more ops than the job may have."""
        most = self.request.limits.nodes
        if most is not None and graph.ops > most:
            raise InputError.build(
                f"{plural(graph.ops, 'op')}, this job may have {most}",
                where=graph.source,
                remedy="ask for more nodes, or give a smaller step",
            )
        return graph

    def keep(self, name: str, data: bytes) -> None:
        """Write a result, whole or not at all."""
        write_atomic(self.folder / name, data)
        if name not in self.written:
            self.written.append(name)

    @contextmanager
    def watching(self) -> Iterator[Telling]:
        """Tell of a solve that goes on inside, and write its best plan or split so far, until the result is kept."""
        file = IncumbentFile(self.folder)
        self.telling.incumbents = file
        try:
            yield self.telling
        finally:
            file.close()
            file.forget(self.written)

    def keep_result(self, result: Solved | Chosen | CutStep) -> None:
        """Write the plan or split that was found, in place of the best so far."""
        if self.telling.incumbents is not None:
            self.telling.incumbents.close()
        self.keep(PLAN if result.is_plan else SPLIT, result.dumps())

    def answer(self, said: dict[str, Any], page: str) -> None:
        """Write what the verb prints, for programs and for people."""
        self.keep(ANSWER, encode_json(said))
        self.keep(PAGE, page.encode() + b"\n")

    def named(self) -> Named:
        """The inputs as their sender calls them."""
        source, cluster, costs = self.given.source, self.given.cluster or "", self.given.costs
        return Named(
            source=source if source.file is None else replace(source, file=Path(source.file.name)),
            cluster=Path(cluster).name if isinstance(self.request.cluster, BlobFile) else cluster,
            costs=None if costs is None else Path(costs.name),
        )

    def shown_out(self, otherwise: str) -> Path:
        """What the result is called."""
        return Path(self.request.out or otherwise)
