"""The graph that one way of running enforces for a plan, as TensorFlow partitions it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pesto.graph import SESSION
from pesto.plans.plan import Plan
from pesto.tf.enforce.apply_options import Options
from pesto.tf.enforce.edits import edits, write
from pesto.tf.enforce.functions import throughout
from pesto.tf.enforce.partitions import Expected
from pesto.tf.enforce.rehearsal import partitioned
from pesto.tf.enforce.rewrite import rewritten
from pesto.tf.laying.placement import FED, Placement
from pesto.tf.laying.relays import laid
from pesto.tf.laying.step_graph import Trace, trace
from pesto.tf.laying.targets import targets
from pesto.tf.nodes.captured import Captured
from pesto.tf.nodes.inference import copied


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """What is planned: one training step, and the program around it."""

    captured: Captured
    program: Any
    """GraphDef of the whole program, with what other fetches than the step start from."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Enforced:
    """A step with a plan's devices and order in it."""

    trace: Trace
    placement: Placement
    partitions: Sequence[Any]
    """GraphDef of each device, its nodes on logical CPUs by the number of the plan's device."""


def enforced(step: Step, plan: Plan, *, way: str, order: bool) -> Enforced:
    """Lay `plan` over `step` as `way` does; without `order` the placement alone.

    Feeds and arguments are put where the plan has them. What `rewritten` and `lay` raise.
    """
    options = Options(devices="cpu", order=order)
    renamed: Mapping[str, str] = {}
    if way == SESSION:
        done = rewritten(step.program, plan, options, step.captured.source)
        traced, placement, graph_def, renamed = done.trace, done.placement, done.graph_def, done.renamed
    else:
        traced = trace(step.captured, plan.provenance.graph_batch)
        placement = laid(plan, traced, targets(plan, options.devices), order=order)
        placement = throughout(placement) if order else placement
        graph_def = copied(step.captured.graph_def)
        write(graph_def, edits(placement, traced, graph_def.node))
    return partitions_of(graph_def, traced, placement, renamed)


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
