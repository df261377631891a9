"""Requests: the options of each use case, declared once, and what a use case is given of where it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from pesto.core.cluster import Cluster
from pesto.core.costs.measured import Profile
from pesto.core.graph import Graph
from pesto.core.option import option
from pesto.core.plans.plan import Plan
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import as_plan
from pesto.planning.solving.flow import EarlierPlans
from pesto.planning.solving.tracker import Watch
from pesto.split.typed_graph import TypedGraph
from pesto.verbs.verb_options import CompareOptions, PipelineOptions, SplitOptions, SweepOptions

Step = TypeVar("Step", Graph, TypedGraph)


class StepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A step, and the machine that it is to run on."""

    source: Source | Graph
    cluster: str | Path | Cluster = "v100x2-nvlink"
    costs: str | Path | Profile | None = None


class SolveRequest(StepRequest, frozen=True, kw_only=True):
    """A solve: the step, the machine, and the options of the search (`settings`)."""

    start: Annotated[
        Path | str | Plan | None,
        option(
            "Begin the search from this plan: of this step or one like it, for this cluster or another.",
            "Input", metavar="PLAN",
        ),
    ] = None  # fmt: skip
    beside: Annotated[
        Path | str | Plan | None,
        option(
            "Keep variables that this step shares with another step where the plan of that step has them.",
            "Input", metavar="PLAN",
        ),
    ] = None  # fmt: skip
    split: Annotated[
        str | None,
        option("Also cut tensors so, and choose the shortest step.", "Search", metavar="auto|2x2,4"),
    ] = None  # fmt: skip
    settings: Settings = Settings()

    def opened(self) -> "OpenedRequest":
        """Return the request with the cluster and the plans in place of their names; errors as of `pesto.load_plan`."""
        return OpenedRequest(
            source=self.source,
            cluster=load_cluster(self.cluster),
            costs=self.costs,
            earlier=EarlierPlans(
                start=None if self.start is None else as_plan(self.start, "start"),
                beside=None if self.beside is None else as_plan(self.beside, "beside"),
            ),
            split=self.split,
            settings=self.settings,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRequest:
    """A solve whose cluster and plans are read."""

    source: Source | Graph
    cluster: Cluster
    costs: str | Path | Profile | None
    earlier: EarlierPlans
    """Plans that the solve begins from and keeps to."""
    split: str | None
    """Cuts to try as well, as of `SolveRequest.split`."""
    settings: Settings


class CompareRequest(StepRequest, frozen=True, kw_only=True):
    """A comparison of methods on one step."""

    options: CompareOptions = msgspec.field(default_factory=CompareOptions)


class SweepRequest(StepRequest, frozen=True, kw_only=True):
    """Solves of one step on a grid of changed clusters."""

    options: SweepOptions


class SplitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Cuts of a step's tensors for several workers."""

    source: Source
    cluster: Annotated[
        str | None,
        option(
            "Also time its step there: a preset (pesto clusters) or a file.", "Machine", metavar="NAME|FILE",
            completes="clusters",
        ),
    ] = None  # fmt: skip
    options: SplitOptions


class PipelineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline of a training step on a cluster, or of a chain of layers on devices."""

    source: Source | Graph = Source()
    cluster: str | Path | Cluster = "v100x2-nvlink"
    micro_batches: int | None = None
    """Repetitions of a graph; None: it loops itself, or is repeated 8 times."""
    chain: Path | None = None
    """The file of a chain, in place of a step."""
    devices: Annotated[
        int | None, option("Of a chain: so many equal devices, if its file names none.", "Machine", ge=1, le=4096)
    ] = None
    memory: Annotated[
        int | None, option("Of a chain: bytes of each device that has no limit yet.", "Machine", ge=0)
    ] = None  # fmt: skip
    memory_model: Annotated[
        Literal["paper", "received"],
        option("What counts as held: the paper's count, or also what is received and on its way.", "Machine"),
    ] = "received"
    options: PipelineOptions = msgspec.field(default_factory=PipelineOptions)

    def step(self) -> Source | Graph:
        """Return the step, with the micro-batches of an update; UsageError as of `Source.checked`."""
        if isinstance(self.source, Graph):
            return self.source
        return replace(self.source, every=self.options.updates_each or 1).checked()


class Context:
    """Where a use case runs; this one is silent and keeps nothing. The command line and jobs override its methods."""

    quiet = True
    """True where TensorFlow and its libraries are kept from writing to the terminal."""

    def begin_reading(self) -> None:
        """Report that the step is being read."""

    def spell(self, option: str) -> str:
        """Return what an option is called in a remedy."""
        return option

    def begin_search(self, stage: str) -> None:
        """Report that the step is read, and that a stage of the search begins."""

    def accept(self, step: Step) -> Step:
        """Return the step that was read; PestoError where it may not be planned here."""
        return step

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Give the watch that hears of better plans and stages while the search goes on."""
        yield lambda _: None

    def keep_result(self, result: Any) -> None:
        """Store the plan or split of a result, before `watching` ends."""

    def startup_s(self) -> float | None:
        """Return seconds that the process has used before the request; None where they do not count."""
        return None

    def counted_s(self, started_s: float, settings: Settings) -> float:  # noqa: ARG002
        """Return the seconds of the time limit that `started_s` seconds of starting use up."""
        return 0.0
