"""The training steps in a v1 graph: found by their plans' names, and placed."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError, MismatchError, UsageError
from pesto.core.files.json import shown
from pesto.core.plans.plan import Plan
from pesto.tf.apply_placement.fetch_closure import find_update, ops_outside_chains
from pesto.tf.apply_placement.placement import FED
from pesto.tf.apply_placement.relays import place_with_relays
from pesto.tf.apply_placement.step_graph import StepTrace, trace_step
from pesto.tf.apply_placement.targets import device_targets
from pesto.tf.enforce.apply_options import ApplyOptions
from pesto.tf.enforce.edits import GraphEdits, apply_edits, compute_edits, merge_edits
from pesto.tf.enforce.partitions import ExpectedPlacement
from pesto.tf.nodes.inline_tracing import CALLS
from pesto.tf.plan_matching.mismatch_diagnosis import describe_larger_batch
from pesto.tf.session_config import disable_optimizers
from pesto.tf.sources.feed_shapes import use_planned_shapes
from pesto.tf.sources.sources import capture_v1

v1 = tf.compat.v1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedStep:
    """One step of a v1 graph under its plan."""

    source: str
    """The source of the plan's graph."""
    trace: StepTrace
    """The step in the graph."""
    expected: ExpectedPlacement
    edits: GraphEdits
    targets: Mapping[str, str]
    """Plan's device -> TensorFlow's."""
    limits: Mapping[str, int]
    """Most examples in a batch, by the name of each placeholder that leaves that open."""

    @property
    def chained(self) -> frozenset[str]:
        """Names of the ops that have a place in a chain."""
        placement = self.expected.placement
        return frozenset(placement.graph.names[i] for i in placement.chained.nonzero()[0].tolist())


def place_graph(
    graph: Any, plans: Sequence[Plan], options: ApplyOptions
) -> tuple[tuple[PlacedStep, ...], Callable[[], None]]:
    """Edit the v1 graph that some of `plans` are for, by what its ops are called; the callable undoes it.

    Nothing is placed when it is none of theirs. What `lay` raises when the names are a plan's and the ops are not;
    UsageError when two plans want different things of one op.
    """
    # Names alone do not identify a plan: two plans may be for one model at two batch sizes. The fingerprint decides
    # among those whose ops exist.
    fitting = _matching_traces(graph, plans)
    nodes = graph.as_graph_def().node if fitting else ()
    placed = tuple(_place_step(graph, nodes, plan, traced, options) for plan, traced in fitting)
    for k, one in enumerate(placed):
        for other in placed[:k]:
            _refuse_overlap(one, other)
    return placed, apply_edits(graph, merge_edits([p.edits for p in placed]))


def _matching_traces(graph: Any, plans: Sequence[Plan]) -> list[tuple[Plan, StepTrace]]:
    """The plans for steps of `graph`, with what they are for; one that only has its names, when no other has more."""
    traced, why = [], None
    for plan in plans_for_graph(graph, plans):
        try:
            step = use_planned_shapes(capture_v1(graph, plan.names, source="the session's graph"), plan)
            traced.append((plan, trace_step(step, plan.provenance.graph_batch)))
        except InputError as error:
            why = why or error
    if why and not traced:
        raise why
    fitting = [(plan, t) for plan, t in traced if plan.provenance.graph_fingerprint == t.graph.fingerprint()]
    return fitting or traced[:1]


def _place_step(graph: Any, nodes: Iterable[Any], plan: Plan, traced: StepTrace, options: ApplyOptions) -> PlacedStep:
    wanted = device_targets(plan, options.devices)
    placement = place_with_relays(plan, traced, wanted, ops_outside_chains(graph, traced), order=options.order)
    return PlacedStep(
        source=plan.provenance.graph_source,
        trace=traced,
        expected=ExpectedPlacement(placement=placement, loops=traced.loops),
        edits=compute_edits(placement, traced, nodes),
        targets=wanted,
        limits=_limits(graph, traced),
    )


def _limits(graph: Any, traced: StepTrace) -> dict[str, int]:
    batch, ops = traced.graph.batch, (graph.get_operation_by_name(node.name) for node in traced.nodes.defs)
    feeds = [op.outputs[0] for op in ops if op.type in FED] if batch is not None else []
    return {t.op.name: batch or 0 for t in feeds if t.shape.rank and t.shape[0] is None}


def _refuse_overlap(one: PlacedStep, other: PlacedStep) -> None:
    """UsageError when two steps share an op that either orders, or that they have on different devices."""
    a, b = one.edits, other.edits
    # Two steps may share variables and input ops if they agree on the device. An op that either orders cannot be
    # shared, since its chain would run with both steps.
    ordered = one.chained | other.chained | a.waits.keys() | b.waits.keys()
    for name, device in a.device.items():
        if name in b.device and (name in ordered or b.device[name] != device):
            raise UsageError.build(
                f"two plans ({shown(one.source)} and {shown(other.source)}) hold op {shown(name)} of one "
                "graph and "
                "would place or order it twice",
                remedy=("fetch both training ops in one step and plan that, or give each a graph of its own"),
            )


def plans_for_graph(graph: Any, plans: Sequence[Plan]) -> list[Plan]:
    """The plans all of whose ops `graph` has."""
    names = {op.name for op in graph.get_operations()}
    return [plan for plan in plans if names.issuperset(plan.names)]


def refuse_fed(placed: PlacedStep, fed: Collection[str]) -> None:
    """UsageError when one of the tensors `fed` is what an op of a chain computes: the chain would lose a link.

    So it is for what a barrier passes, whose readers are led around it.
    """
    # A fed op does not run, and TensorFlow removes its control edges, so everything before it in the chain would no
    # longer be waited for.
    members = placed.chained | placed.edits.passed.keys()
    for tensor in fed:
        if tensor.partition(":")[0] in members:
            raise UsageError.build(
                f"feeding {shown(tensor.partition(':')[0])}, which the ordered step computes, would break its order",
                remedy="feed placeholders, or run outside pesto.apply",
            )


def fed_copies(graph: Any, placed: PlacedStep, feeds: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """(tensor, value) of each copy of a constant that is fed, by the constant's reference."""
    given = {key.deref().op.name: value for key, value in feeds.items()}
    for copy in placed.edits.copies:
        if copy.constant in given:
            yield graph.get_operation_by_name(copy.name).outputs[0], given[copy.constant]


def refuse_larger_batch(placed: PlacedStep, feeds: Iterable[tuple[Any, Any]]) -> None:
    """MismatchError when a batch that is fed, of (tensor, value), is larger than planned."""
    for tensor, value in feeds:
        limit = placed.limits.get(tensor.op.name)
        if limit is not None and len(value) > limit:
            raise MismatchError(f"feeding {shown(tensor.op.name)}: {describe_larger_batch(len(value), limit)}")


def refuse_unplanned(
    graph: Any, fetched: Sequence[Any], fed: Collection[str], plans: Sequence[Plan], placed: Sequence[PlacedStep]
) -> None:
    """Refuse a run that would train without a plan; `placed` are the steps for which the session's graph was edited.

    UsageError when the graph is a plan's, but the session came first; MismatchError when the update is of no plan.
    """
    variables = {v.op.name for v in graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)}
    planned = {node for p in placed for node in p.edits.device}
    update = find_update(fetched, fed, variables, planned) if variables else None
    if update is None:
        return
    if placed:
        raise MismatchError.build(
            f"{shown(update.name)} trains a variable, but is in no plan for this graph ({_sources(placed)})",
            remedy=("give a plan for each training op to one pesto.apply, or plan a step that fetches all of them"),
        )
    if plans_for_graph(graph, plans):
        raise UsageError.build(
            "this session was opened before pesto.apply, or before its graph was complete, and TensorFlow "
            "ignores "
            "edits of a graph that a session has run",
            remedy="open it inside the context, behind the model",
        )
    raise MismatchError(f"{shown(update.name)} trains a variable, but {_why_not(graph, plans)}")


def configure_session(config: Any, wanted: Mapping[str, str]) -> Any:
    """A session's ConfigProto under a plan: Grappler off, logical CPUs as many as are needed.

    InputError for soft placement and XLA's automatic clustering, which would undo a plan.
    """
    made = v1.ConfigProto()
    if config is not None:
        made.CopyFrom(config)
    if made.allow_soft_placement:
        raise InputError.build(
            "the session's config has allow_soft_placement=True, by which TensorFlow moves ops unasked",
            remedy="leave it out",
        )
    if made.graph_options.optimizer_options.global_jit_level > 0:
        raise InputError.build(
            "the session's config turns XLA's automatic clustering on, which fuses ops over a plan",
            remedy="leave it out",
        )
    disable_optimizers(made)
    specs = [tf.DeviceSpec.from_string(target) for target in wanted.values()]
    cpus = [s.device_index for s in specs if s.device_type == "CPU" and s.job is None]
    if cpus:
        # Logical CPUs of a session are separate devices with a thread pool each; the count has to cover the largest
        # number in the plan.
        made.device_count["CPU"] = max(max(cpus) + 1, made.device_count.get("CPU", 1))
    return made


def _sources(placed: Sequence[PlacedStep]) -> str:
    return ", ".join(dict.fromkeys(p.source for p in placed))


def _why_not(graph: Any, plans: Sequence[Plan]) -> str:
    names = {op.name for op in graph.get_operations()}
    plan = max(plans, key=lambda p: sum(n in names for n in p.names))
    lacking = [n for n in plan.names if n not in names]
    what = f"{len(lacking)} of the {len(plan.names)} ops of the plan ({plan.provenance.graph_source})"
    if any(op.type in CALLS for op in graph.get_operations()):
        return (
            f"the graph lacks {what}, such as {shown(lacking[0])}: ops inside tf.functions that a v1 graph calls "
            "cannot be placed in a session - use pesto.rewrite or pesto apply on its GraphDef"
        )
    return (
        f"the graph lacks {what}, such as {shown(lacking[0])}: it is another graph, or an older trace whose ops had "
        "other names - plan this one, or train it outside pesto.apply"
    )
