"""One job as it is done: what it is given, where its results go, and who hears of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pesto.core.errors import InputError
from pesto.core.files.disk import write_atomic
from pesto.core.files.json import encode_json
from pesto.core.graph import Graph
from pesto.core.quantities import counted
from pesto.core.source import Source
from pesto.inputs.load import load_graph
from pesto.planning.solving.ahead import beside
from pesto.split.typed_graph import TypedGraph
from pesto.verbs.jobs.given_files import Given
from pesto.verbs.jobs.incumbent_file import IncumbentFile
from pesto.verbs.jobs.request import BlobFile, JobRequest
from pesto.verbs.jobs.result_names import ANSWER, PAGE
from pesto.verbs.jobs.telling import Telling

Step = TypeVar("Step", Graph, TypedGraph)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
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
        beside()

    def graph(self, source: Source | None = None) -> Graph:
        """The step's graph, or that of another source; InputError for one of more ops than the job may have."""
        self.begin_reading()
        return self.within(load_graph(source or self.given.source, quiet=True))

    def within(self, graph: Step) -> Step:
        """The graph, or what its ops are, itself; InputError where it has more ops than the job may have."""
        most = self.request.limits.nodes
        if most is not None and graph.ops > most:
            raise InputError(
                f"{graph.source}: {counted(graph.ops, 'op')}, this job may have {most} - ask for more nodes, "
                "or give a smaller step"
            )
        return graph

    def keep(self, name: str, data: bytes) -> None:
        """Write a result, whole or not at all."""
        write_atomic(self.folder / name, data)
        if name not in self.written:
            self.written.append(name)

    @contextmanager
    def keeping_incumbents(self) -> Iterator[IncumbentFile]:
        """Write the best plan or split so far while a solve goes on inside, until the file is closed."""
        file = IncumbentFile(self.folder)
        self.telling.incumbents = file
        try:
            yield file
        finally:
            file.close()
            file.forget(self.written)

    def answer(self, said: dict[str, Any], page: str) -> None:
        """Write what the verb prints, for programs and for people."""
        self.keep(ANSWER, encode_json(said))
        self.keep(PAGE, page.encode() + b"\n")

    def shown_source(self) -> Source:
        """The source as its sender calls it."""
        source = self.given.source
        return source if source.file is None else replace(source, file=Path(source.file.name))

    def shown_cluster(self) -> str:
        """The cluster as its sender calls it."""
        cluster = self.request.cluster
        return Path(self.given.cluster or "").name if isinstance(cluster, BlobFile) else self.given.cluster or ""

    def shown_costs(self) -> Path | None:
        """The file of costs as its sender calls it."""
        return None if self.given.costs is None else Path(self.given.costs.name)

    def shown_out(self, otherwise: str) -> Path:
        """What the result is called."""
        return Path(self.request.out or otherwise)
