"""One job as it is done: what it is given, where its results go, and who hears of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pesto.core.errors import InputError
from pesto.core.files.disk import write_atomic
from pesto.core.files.json import encode_json
from pesto.core.quantities import plural
from pesto.planning.solving.background_compiler import shared_compiler
from pesto.verbs.cut_step import CutStep
from pesto.verbs.jobs.given_files import Given
from pesto.verbs.jobs.incumbent_file import IncumbentFile
from pesto.verbs.jobs.request import ANSWER, PAGE, PLAN, SPLIT, BlobFile, JobRequest
from pesto.verbs.jobs.telling import Telling
from pesto.verbs.plan_step import Chosen, Named, Solved
from pesto.verbs.requests import Context, Step


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
