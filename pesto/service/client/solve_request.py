"""A solve as `pesto solve` names it, as a job: files are sent, and what cannot be sent is read here first."""

import gzip
import re
from dataclasses import dataclass, fields
from pathlib import Path

from pesto.core.errors import UsageError
from pesto.core.files import graph_file
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import cluster_names
from pesto.inputs.load import load_graph
from pesto.service.client.sync_client import Client
from pesto.verbs.jobs.request import BlobFile, JobRequest, JobSettings, JobSource, PlanFile

_NO_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Solve:
    """A solve with all its options."""

    source: Source
    cluster: str
    """A preset or a file."""
    costs: Path | None
    start: Path | None
    beside: Path | None
    """The plan of another step that keeps shared variables where it has them."""
    settings: Settings
    cuts: str | None
    """Also cut tensors so; None for placements alone."""
    out: Path


def solve_request(client: Client, solve: Solve, *, quiet: bool) -> JobRequest:
    """The job, with its files sent; `quiet` as of `load_graph`."""
    if solve.cuts is not None and solve.source.model is None and solve.source.file is None:
        raise UsageError(
            "a service takes no code, and the graph that is sent for it has no shapes to cut by - give a GraphDef, or "
            "solve it here"
        )
    preset = solve.cluster in cluster_names()
    return JobRequest(
        kind="solve",
        source=_source(client, solve.source, quiet=quiet),
        cluster=solve.cluster if preset else _file(client, Path(solve.cluster)),
        costs=None if solve.costs is None else _file(client, solve.costs),
        start=_plan(client, solve.start),
        beside=_plan(client, solve.beside),
        cuts=solve.cuts,
        settings=JobSettings(**{field.name: getattr(solve.settings, field.name) for field in fields(Settings)}),
        out=solve.out.name,
        label=_label(solve.source)[:200],
    )


def _source(client: Client, source: Source, *, quiet: bool) -> JobSource:
    """Models by name, files as they are; functions and SavedModels, which are code, as the graphs that they give."""
    if source.model is not None:
        return JobSource(
            model=source.model, variant=source.variant, batch=source.batch, micro_batches=source.micro_batches
        )
    if source.file is not None:
        sha = client.upload(source.file)
        return JobSource(
            blob=sha, name=source.file.name, fetch=source.fetch, batch=source.batch,
            micro_batches=source.micro_batches, shape=source.shape,
        )  # fmt: skip
    data = gzip.compress(graph_file.dumps(load_graph(source, quiet=quiet)), mtime=0)
    return JobSource(blob=client.upload(data), name=f"{_label(source)}.json.gz")


def _plan(client: Client, path: Path | None) -> PlanFile | None:
    return None if path is None else PlanFile(blob=client.upload(path), name=path.name)


def _file(client: Client, path: Path) -> BlobFile:
    return BlobFile(blob=client.upload(path), name=path.name)


def _label(source: Source) -> str:
    """Return the name of a job in lists, as far as a file may have it."""
    if source.model is not None:
        return source.model if source.variant is None else f"{source.model} {source.variant}"
    named = source.file or source.saved_model
    return _NO_NAME.sub("-", source.function or (named.absolute().name if named else "step"))[:100]
