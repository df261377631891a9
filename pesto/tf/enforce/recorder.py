"""The training step that a program itself traces, as a graph to plan: no guess at shapes or types."""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pesto.core.errors import InputError
from pesto.core.graph import Graph
from pesto.tf import placement_refusals, private
from pesto.tf.enforce import training
from pesto.tf.importer.importer import build_graph
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.inline_tracing import inline_keras_2
from pesto.tf.sources.sources import capture_func_graph

_OF_DATASETS = "function Dataset_"
"""Prefix of TensorFlow's names for functions made of the body of a loop over a dataset."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSteps:
    """The training functions that were traced while `record` was open."""

    batch: int | None
    """Examples in a batch where the program leaves the first dimension open; None where it does not."""
    captured: list[CapturedStep] = field(default_factory=list)
    """Inside: what was traced, in the order of the traces; a function may be traced more than once."""

    @property
    def graph(self) -> Graph:
        """The graph of the one training step; InputError when there was none or several."""
        names = list(dict.fromkeys(captured.source for captured in self.captured))
        inside = [name for name in names if name.startswith(_OF_DATASETS)]
        if inside:
            around = next((name for name in names if name not in inside), "a function")
            raise placement_refusals.dataset_loop_error(f"record: {around}")
        if len(names) != 1:
            remedy = (
                "record each in a context of its own, and plan the second beside the first plan, "
                "pesto.solve(graph, beside=plan); or make one tf.function that calls them as plain Python functions"
                if names
                else "run a training step"
            )
            listed = ", ".join(names) or "none"
            raise InputError.build(f"record: one training function was to be traced, found {listed}", remedy=remedy)
        made = {graph.fingerprint(): graph for graph in (build_graph(c, batch=self.batch) for c in self.captured)}
        if len(made) != 1:
            sizes = " and ".join(f"{graph.ops} ops ({key[:12]})" for key, graph in made.items())
            raise InputError.build(
                f"record: {names[0]} was traced as {len(made)} different training steps, of {sizes}",
                remedy="run one of them, once, on data of one size",
            )
        return made.popitem()[1]

    def on_graph(self, graph: Any) -> None:
        """Inside: a function was traced; InputError for one that trains and that no plan could be applied to."""
        if private.is_body(graph):
            return
        label = private.label_of(graph)
        training.refuse_gradients_only(graph, label)
        if training.trains(graph):
            placement_refusals.check_graph(graph, label)
            self.captured.append(capture_func_graph(graph, label))

    def on_trace(self, tracing: private.TraceRequest) -> Any:
        """Inside: a function is about to be traced; it is traced as `apply` does."""
        with inline_keras_2(tracing):
            return tracing.create(tracing.signature)


@contextlib.contextmanager
def record(batch: int | None) -> Iterator[RecordedSteps]:
    """Watch what is traced inside; `batch` stands in for an open first dimension. What no plan can hold is refused."""
    placement_refusals.check_process()
    recorded = RecordedSteps(batch=batch)
    with contextlib.ExitStack() as stack:
        stack.enter_context(training.in_functions_only())
        stack.enter_context(private.watch_traces(recorded.on_graph, lambda _: None))
        stack.enter_context(private.intercept_traces(recorded.on_trace))
        stack.enter_context(private.separate_traces(f"pesto record {uuid.uuid4()}"))
        yield recorded
