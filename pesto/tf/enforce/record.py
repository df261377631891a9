"""The training step that a program itself traces, as a graph to plan: no guess at shapes or types."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pesto.errors import InputError
from pesto.graph import Graph
from pesto.tf import private
from pesto.tf.captured import Captured
from pesto.tf.enforce import training
from pesto.tf.importer import build
from pesto.tf.sources import capture_func_graph


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """The training functions that were traced while `record` was open."""

    batch: int | None
    captured: dict[str, Captured] = field(default_factory=dict)
    """By name of the function; its last trace."""

    @property
    def graph(self) -> Graph:
        """The graph of the one training step; InputError when there was none or several."""
        if len(self.captured) != 1:
            found = ", ".join(self.captured) or "none"
            raise InputError(f"record: one training function was to be traced, found {found} - run one training step")
        return build(next(iter(self.captured.values())), batch=self.batch)

    def on_graph(self, graph: Any) -> None:
        """A function was traced."""
        if not private.is_body(graph) and training.trains(graph):
            self.captured[graph.name] = capture_func_graph(graph, f"function {graph.name}")


@contextlib.contextmanager
def record(batch: int | None) -> Iterator[Recorded]:
    """Watch what is traced inside; `batch` stands in for an open first dimension."""
    found = Recorded(batch=batch)
    with private.watch_traces(found.on_graph, lambda _: None), private.traced_apart(f"pesto record {id(found)}"):
        yield found
