"""A training step as captured from TensorFlow, before it becomes a `Graph`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pesto.tf.nodes.barriers import bypass_barriers, find_barriers
from pesto.tf.nodes.branch_division import BranchDivision
from pesto.tf.nodes.inline import flatten
from pesto.tf.nodes.shape_inference import copy_graph_def, infer_shapes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CapturedStep:
    """A flat GraphDef and what to fetch from it.

    `graph_def` comes from TensorFlow itself (defaults filled in, `_output_shapes` on every node) and has no calls of
    functions but the bodies of loops and branches; nothing waits at a barrier. `values` are the tensors that the step
    closed over, by the name of the node that stands for each: a VarHandleOp for a variable, a Placeholder for anything
    else.
    """

    graph_def: Any
    fetches: tuple[str, ...]
    """Names of ops."""
    source: str
    values: Mapping[str, Any] = field(default_factory=dict)
    optimizer: str = ""
    """Class of the Keras optimizer that updates the variables; empty where the source does not tell."""
    calls: tuple[str, ...] = ()
    """Names of the tf.functions that it calls, whose ops only `pesto.place` can place."""
    passed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Barriers that the step goes around, and the tensors that each passes (`pesto.tf.nodes.barriers`)."""
    divisions: Mapping[str, BranchDivision] = field(default_factory=dict)
    """Branch ops of the program that have several in their places, by name."""
    feed_shapes: tuple[str, ...] = ()
    """Shapes that were given for feeds and ops whose sizes its program leaves open, each as NAME=16,40."""
    function: bool = False
    """True if the step is a whole tf.function; other programs may share the graph of a v1 session."""


def capture_step(
    program: Any, fetches: tuple[str, ...], source: str, values: Mapping[str, Any] | None = None
) -> CapturedStep:
    """The step that `fetches` run in a GraphDef with `_output_shapes`: calls inlined, barriers gone around."""
    flat = flatten(program)
    graph_def = program if flat is program else infer_shapes(flat)
    passed = find_barriers(graph_def)
    if passed:
        graph_def = copy_graph_def(graph_def) if graph_def is program else graph_def
        bypass_barriers(graph_def, passed)
    return CapturedStep(graph_def=graph_def, fetches=fetches, source=source, values=values or {}, passed=passed)
