"""The files of a request under the names that the project's readers know them by: each a link to its blob."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pesto.core.errors import FileError, UsageError
from pesto.core.files.disk import file_sha256
from pesto.core.source import Source
from pesto.verbs.jobs.checks import PRESET, named_source
from pesto.verbs.jobs.request import BlobFile, JobRequest, JobSource, PlanFile


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
