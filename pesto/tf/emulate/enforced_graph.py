"""The graph that one way of running enforces for a plan, as TensorFlow partitions it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.core.graph import SESSION
from pesto.core.plans.execution_modes import GRAPHDEF
from pesto.core.plans.plan import Plan
from pesto.tf.apply_placement.placement import FED, StepPlacement
from pesto.tf.apply_placement.relays import place_with_relays
from pesto.tf.apply_placement.step_graph import StepTrace, trace_step
from pesto.tf.apply_placement.targets import device_targets
from pesto.tf.enforce.apply_options import ApplyOptions
from pesto.tf.enforce.edits import compute_edits, write_edits
from pesto.tf.enforce.functions import order_all_neighbours
from pesto.tf.enforce.partitions import ExpectedPlacement
from pesto.tf.enforce.rewrite import partition_without_running, rewrite_with_report
from pesto.tf.enforce.sessions import place_graph
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.inline import flatten
from pesto.tf.nodes.shape_inference import copy_graph_def


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedStep:
    """A training step and the program around it."""

    captured: CapturedStep
    program: Any
    """GraphDef of the whole program, with what other fetches than the step start from."""

    def meant(self, way: str) -> str:
        """`way`, in which the step is meant to be run; but no session can place what functions are called for."""
        return GRAPHDEF if way == SESSION and flatten(self.program) is not self.program else way


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EnforcedStep:
    """A step with a plan's devices and order in it."""

    trace: StepTrace
    placement: StepPlacement
    partitions: Sequence[Any]
    """GraphDef of each device, its nodes on logical CPUs by the number of the plan's device."""


def enforce_step(step: PlannedStep, plan: Plan, *, way: str, order: bool) -> EnforcedStep:
    """Lay `plan` over `step` as `way` does; without `order` the placement alone.

    Feeds and arguments are put where the plan has them. What `rewrite_with_report`, `place_graph` and `lay` raise.
    """
    options = ApplyOptions(devices="cpu", order=order)
    if way == GRAPHDEF:
        done = rewrite_with_report(step.program, plan, options, step.captured.source)
        return partition_step(done.graph_def, done.trace, done.placement, done.renamed)
    if way == SESSION:
        return _enforce_in_session(step, plan, options)
    traced = trace_step(step.captured, plan.provenance.graph_batch)
    placement = place_with_relays(plan, traced, device_targets(plan, options.devices), order=order)
    placement = order_all_neighbours(placement) if order else placement
    graph_def = copy_graph_def(step.captured.graph_def)
    write_edits(graph_def, compute_edits(placement, traced, graph_def.node))
    return partition_step(graph_def, traced, placement)


def _enforce_in_session(step: PlannedStep, plan: Plan, options: ApplyOptions) -> EnforcedStep:
    """The program as a graph that a session opens on, edited as `pesto.apply` does."""
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(step.program, name="")
    placed, _ = place_graph(graph, [plan], options)
    if not placed:
        raise UsageError.build(
            f"emulate: {shown(step.captured.source)} lacks ops of the plan, as those in functions that a "
            "graph calls, "
            "which no session can place",
            remedy="emulate it as graphdef",
        )
    return partition_step(graph.as_graph_def(), placed[0].trace, placed[0].expected.placement)


def partition_step(
    graph_def: Any, traced: StepTrace, placement: StepPlacement, renamed: Mapping[str, str] | None = None
) -> EnforcedStep:
    """Return TensorFlow's partitions of a GraphDef that `placement` was written into; feeds get their devices in place.

    renamed: what the graph calls some of the placement's ops.
    """
    index = {name: i for i, name in enumerate(placement.graph.names)}
    for node in graph_def.node:
        if node.op in FED and node.name in index:
            node.device = placement.device_of(index[node.name])
    partitions = partition_without_running(
        graph_def, ExpectedPlacement(placement=placement, loops=traced.loops, renamed=renamed or {})
    )
    return EnforcedStep(trace=traced, placement=placement, partitions=partitions)
