"""A solve as `pesto solve` names it, as a job, whose files are sent; and the live line of what the job tells."""

import gzip
import math
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pesto.core.errors import UsageError
from pesto.core.files import graph_file
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import cluster_names
from pesto.inputs.load import load_graph
from pesto.planning.solving.tracker import Incumbent
from pesto.reporting.show.status_line import LiveLine
from pesto.service.client.clients import Client
from pesto.verbs.jobs.request import SOURCE_OPTIONS, BlobFile, JobRequest, JobSettings, JobSource, PlanFile
from pesto.verbs.requests import SolveRequest

_NO_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Solve:
    """A solve by the service."""

    request: SolveRequest
    """The request, which names files."""
    source: Source
    """Source of the training step."""
    out: Path
    """File of the plan."""

    @property
    def cluster(self) -> str:
        """Preset or file of the cluster."""
        return str(self.request.cluster)

    @property
    def costs(self) -> Path | None:
        """File of the costs."""
        return _file_of(self.request.costs)


def solve_request(client: Client, solve: Solve, *, quiet: bool) -> JobRequest:
    """The job, with its files sent; `quiet` as of `load_graph`."""
    request = solve.request
    if request.split is not None and solve.source.model is None and solve.source.file is None:
        raise UsageError.build(
            "a service takes no code, and the graph that is sent for it has no shapes to cut by",
            remedy="give a GraphDef, or solve it here",
        )
    preset = solve.cluster in cluster_names()
    return JobRequest(
        kind="solve",
        source=_source(client, solve.source, quiet=quiet),
        cluster=solve.cluster if preset else _file(client, Path(solve.cluster)),
        costs=None if solve.costs is None else _file(client, solve.costs),
        start=_plan(client, _file_of(request.start)),
        beside=_plan(client, _file_of(request.beside)),
        cuts=request.split,
        settings=JobSettings(**{field.name: getattr(request.settings, field.name) for field in fields(Settings)}),
        out=solve.out.name,
        label=_label(solve.source)[:200],
    )


def _file_of(value: object) -> Path | None:
    return None if value is None else Path(str(value))


def _source(client: Client, source: Source, *, quiet: bool) -> JobSource:
    """Models by name, files as they are; functions and SavedModels, which are code, as the graphs that they give."""
    options = {name: getattr(source, name) for name in SOURCE_OPTIONS}
    if source.model is not None:
        return JobSource(**options)
    if source.file is not None:
        return JobSource(blob=client.upload(source.file), name=source.file.name, **options)
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


class RemoteLine(LiveLine):
    """Shows what `LiveLine` shows of a solve at home, and the job's stage before there is a plan."""

    HINT = "Ctrl-C asks"
    _stage = "waiting in the queue"
    _found = False
    _sent_away = False

    def take(self, kind: str, data: dict[str, Any]) -> None:
        """One event of the job."""
        if kind == "stage":
            self._stage = str(data.get("name", ""))
            self._sent_away = self._stage == "queued"
        elif kind == "incumbent":
            self._found = True
            self(_incumbent(data, data.get("best_s")))
        elif kind == "bound" and self._found:
            self(_incumbent(data, self._best))

    def _waits_for(self) -> str:
        """The stage, while it is all that there is."""
        return "" if self._found and not self._sent_away else self._stage


def _incumbent(data: dict[str, Any], best_s: float | None) -> Incumbent:
    seconds, bound_s = float(data.get("seconds", 0.0)), float(data.get("bound_s", 0.0))
    best = math.inf if best_s is None else float(best_s)
    return Incumbent(name=str(data.get("by", "")), makespan_s=best, lower_bound_s=bound_s, seconds=seconds)
