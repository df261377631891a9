"""Split: cut every tensor of a step into parts for several workers, and time that step where a cluster is named."""

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from pesto.choosing.strategy_choice.timed_split import (
    TimedSplit,
    accelerators_for,
    check_objective,
    refuse_short,
    rules_for,
    time_split,
)
from pesto.core.cluster import Cluster
from pesto.core.settings import Settings
from pesto.inputs.load import load_cluster, load_shaped, load_shapes
from pesto.reporting.show.split_page import split_object, split_page
from pesto.split.division import refuse_undescribed, undescribed_types
from pesto.split.files.split_file import dumps_split, save_split
from pesto.split.program import Rules
from pesto.split.split_search import Split, divide_with_or_without_halo, parse_factors
from pesto.split.typed_graph import TypedGraph
from pesto.verbs.requests import Context, SplitRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStep:
    """A split that was found, with everything that is said of it."""

    request: SplitRequest
    shaped: TypedGraph
    split: Split
    timed: TimedSplit | None = None
    """The step on the cluster of the request; None where it names none."""
    cluster: Cluster | None = None

    is_plan = False
    """Whether the result is a placement."""

    def dumps(self) -> bytes:
        """Return the bytes of the split's file."""
        return dumps_split(self.shaped, self.split, time_limit_s=self.request.options.time_limit_s)

    def save(self, path: Path) -> None:
        """Write the split."""
        save_split(self.shaped, self.split, path, time_limit_s=self.request.options.time_limit_s)

    def as_object(self, out: Path | None) -> dict[str, Any]:
        """Return what --json prints."""
        return split_object(self.shaped, self.split, undescribed_types(self.shaped), out, self.timed)

    def page(self, out: Path | None) -> str:
        """Return what is printed for people."""
        return split_page(self.shaped, self.split, undescribed_types(self.shaped), out, self.timed)

    def summary(self) -> dict[str, Any]:
        """Return the figures of the result of a job."""
        split = self.split
        return {"ops": self.shaped.ops, "bytes": split.moved_bytes, "method": split.method, "interrupted": False}

    def check_fits(self) -> None:
        """Raise InfeasibleError or NothingFoundError where the timed step does not fit the cluster's memory."""
        if self.timed is not None and self.cluster is not None and not self.timed.candidate.fits:
            refuse_short(self.timed, self.cluster)


def split_step(request: SplitRequest, context: Context) -> CutStep:
    """Cut the tensors of a step; errors as of `load_shapes` and `divide`, and UsageError for op types without rules.

    Each better split is kept by the context, as the process may be killed while a shorter one is looked for.
    """
    options, source = request.options, request.source.checked()
    factors = parse_factors(options.workers)
    workers = prod(factors)
    rules = Rules(replicate=options.replicate, memory_bytes=options.memory_bytes, halo=options.halo)
    machine = None
    if request.cluster is not None:
        machine = accelerators_for(workers, load_cluster(request.cluster), source)
    check_objective(options.objective, rules, machine)
    context.begin_reading()
    graph, shaped = (None, load_shapes(source)) if machine is None else load_shaped(source, quiet=True)
    context.accept(shaped)
    if not options.whole:
        refuse_undescribed(shaped, "accept that with whole")
    context.begin_search("cuts")

    def keep(split: Split) -> None:
        context.keep_result(CutStep(request=request, shaped=shaped, split=split))

    rules = rules_for(rules, options.objective, (graph, machine), workers)
    split = divide_with_or_without_halo(
        shaped, factors, options.method, rules, seconds=options.time_limit_s, on_split=keep
    )
    keep(split)
    timed = None
    if graph is not None and machine is not None:
        timed = time_split(graph, shaped, split, machine, Settings())
    return CutStep(request=request, shaped=shaped, split=split, timed=timed, cluster=machine)
