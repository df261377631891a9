"""The training step in a v1 graph: found by a plan's names, and placed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pesto.documents import shown
from pesto.errors import InputError, MismatchError, UsageError
from pesto.plan import Plan
from pesto.tf.enforce.apart import apart
from pesto.tf.enforce.branches import conditional
from pesto.tf.enforce.closures import updated
from pesto.tf.enforce.edits import Edits, edits, make
from pesto.tf.enforce.options import Options
from pesto.tf.enforce.partitions import Expected
from pesto.tf.enforce.placement import lay
from pesto.tf.enforce.targets import targets
from pesto.tf.enforce.trace import trace
from pesto.tf.flat import CALLS
from pesto.tf.sources import capture_v1

v1 = tf.compat.v1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placed:
    """One v1 graph under a plan."""

    expected: Expected
    edits: Edits
    undo: Callable[[], None]
    targets: Mapping[str, str]
    """Plan's device -> TensorFlow's."""


def place(graph: Any, plans: Sequence[Plan], options: Options) -> Placed | None:
    """Edit the v1 graph that one of `plans` is for, by what its ops are called; None when it is none of theirs.

    What `lay` raises when the names are a plan's and the ops are not.
    """
    found = matching(graph, plans)
    if found is None:
        return None
    captured = capture_v1(graph, found.names, source="the session's graph")
    traced = trace(captured, found.provenance.graph_batch)
    wanted = targets(found, options.devices)
    out = apart(graph, traced) | conditional(traced)
    placement = lay(found, traced.graph, wanted, out, order=options.order)
    changes = edits(placement, traced, graph.as_graph_def().node)
    return Placed(
        expected=Expected(placement=placement, loops=traced.loops),
        edits=changes,
        undo=make(graph, changes),
        targets=wanted,
    )


def matching(graph: Any, plans: Sequence[Plan]) -> Plan | None:
    """The first plan all of whose ops `graph` has."""
    names = {op.name for op in graph.get_operations()}
    return next((plan for plan in plans if names.issuperset(plan.names)), None)


def refuse_fed(placed: Placed, fed: Collection[str]) -> None:
    """UsageError when one of the tensors `fed` is what an op of a chain computes: the chain would lose a link."""
    placement = placed.expected.placement
    members = {placement.graph.names[i] for i in placement.chained.nonzero()[0].tolist()}
    for tensor in fed:
        if tensor.partition(":")[0] in members:
            raise UsageError(
                f"feeding {shown(tensor.partition(':')[0])}, which the ordered step computes, would break its order - "
                "feed placeholders, or run outside pesto.apply"
            )


def refuse_unplanned(graph: Any, fetched: Sequence[Any], fed: Collection[str], plans: Sequence[Plan]) -> None:
    """Refuse a run that would train without a plan, in a session whose graph was not edited.

    UsageError when the graph is a plan's, but the session came first; MismatchError when it is of no plan.
    """
    variables = {v.op.name for v in graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)}
    update = updated(fetched, fed, variables) if variables else None
    if update is None:
        return
    if matching(graph, plans):
        raise UsageError(
            "this session was opened before pesto.apply, or before its graph was complete, and TensorFlow ignores "
            "edits of a graph that a session has run - open it inside the context, behind the model"
        )
    raise MismatchError(f"{shown(update.name)} trains a variable, but {_why_not(graph, plans)}")


def configured(config: Any, wanted: Mapping[str, str]) -> Any:
    """A session's ConfigProto under a plan: Grappler off, logical CPUs as many as are needed.

    InputError for soft placement and XLA's automatic clustering, which would undo a plan.
    """
    made = v1.ConfigProto()
    if config is not None:
        made.CopyFrom(config)
    if made.allow_soft_placement:
        raise InputError(
            "the session's config has allow_soft_placement=True, by which TensorFlow moves ops unasked - leave it out"
        )
    if made.graph_options.optimizer_options.global_jit_level > 0:
        raise InputError(
            "the session's config turns XLA's automatic clustering on, which fuses ops over a plan - leave it out"
        )
    made.graph_options.rewrite_options.disable_meta_optimizer = True
    made.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    specs = [tf.DeviceSpec.from_string(target) for target in wanted.values()]
    cpus = [s.device_index for s in specs if s.device_type == "CPU" and s.job is None]
    if cpus:
        made.device_count["CPU"] = max(max(cpus) + 1, made.device_count.get("CPU", 1))
    return made


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
