"""The graph that one way of running enforces for a plan, as TensorFlow partitions it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.core.graph import SESSION
from pesto.core.plans.plan import Plan
from pesto.core.plans.ways import GRAPHDEF
from pesto.tf.enforce.apply_options import Options
from pesto.tf.enforce.edits import edits, write
from pesto.tf.enforce.functions import throughout
from pesto.tf.enforce.partitions import Expected
from pesto.tf.enforce.rehearsal import partitioned
from pesto.tf.enforce.rewrite import rewritten
from pesto.tf.enforce.steps import place_graph
from pesto.tf.laying.placement import FED, Placement
from pesto.tf.laying.relays import laid
from pesto.tf.laying.step_graph import Trace, trace
from pesto.tf.laying.targets import targets
from pesto.tf.nodes.captured import Captured
from pesto.tf.nodes.inference import copied
from pesto.tf.nodes.inline import flatten


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """What is planned: one training step, and the program around it."""

    captured: Captured
    program: Any
    """GraphDef of the whole program, with what other fetches than the step start from."""

    def meant(self, way: str) -> str:
        """`way`, in which the step is meant to be run; but no session can place what functions are called for."""
        return GRAPHDEF if way == SESSION and flatten(self.program) is not self.program else way


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Enforced:
    """A step with a plan's devices and order in it."""

    trace: Trace
    placement: Placement
    partitions: Sequence[Any]
    """GraphDef of each device, its nodes on logical CPUs by the number of the plan's device."""


def enforced(step: Step, plan: Plan, *, way: str, order: bool) -> Enforced:
    """Lay `plan` over `step` as `way` does; without `order` the placement alone.

    Feeds and arguments are put where the plan has them. What `rewritten`, `place_graph` and `lay` raise.
    """
    options = Options(devices="cpu", order=order)
    if way == GRAPHDEF:
        done = rewritten(step.program, plan, options, step.captured.source)
        return partitions_of(done.graph_def, done.trace, done.placement, done.renamed)
    if way == SESSION:
        return _live(step, plan, options)
    traced = trace(step.captured, plan.provenance.graph_batch)
    placement = laid(plan, traced, targets(plan, options.devices), order=order)
    placement = throughout(placement) if order else placement
    graph_def = copied(step.captured.graph_def)
    write(graph_def, edits(placement, traced, graph_def.node))
    return partitions_of(graph_def, traced, placement)


def _live(step: Step, plan: Plan, options: Options) -> Enforced:
    """The program as a graph that a session opens on, edited as `pesto.apply` does."""
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(step.program, name="")
    found, _ = place_graph(graph, [plan], options)
    if not found:
        raise UsageError(
            f"emulate: {shown(step.captured.source)} lacks ops of the plan, as those in functions that a graph calls, "
            "which no session can place - emulate it as graphdef"
        )
    return partitions_of(graph.as_graph_def(), found[0].trace, found[0].expected.placement)


def partitions_of(
    graph_def: Any, traced: Trace, placement: Placement, renamed: Mapping[str, str] | None = None
) -> Enforced:
    """What TensorFlow makes of a GraphDef that `placement` was written into; its feeds are placed here, in place.

    renamed: what the graph calls some of the placement's ops.
    """
    index = {name: i for i, name in enumerate(placement.graph.names)}
    for node in graph_def.node:
        if node.op in FED and node.name in index:
            node.device = placement.device_of(index[node.name])
    partitions = partitioned(graph_def, Expected(placement=placement, loops=traced.loops, renamed=renamed or {}))
    return Enforced(trace=traced, placement=placement, partitions=partitions)
