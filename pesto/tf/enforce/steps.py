"""The training step in a v1 graph: found by a plan's names, and placed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pesto.documents import shown
from pesto.errors import InputError, MismatchError
from pesto.plan import Plan
from pesto.tf.enforce.apart import apart
from pesto.tf.enforce.edits import Edits, edits, make
from pesto.tf.enforce.options import Options
from pesto.tf.enforce.partitions import Expected
from pesto.tf.enforce.placement import lay
from pesto.tf.enforce.targets import targets
from pesto.tf.enforce.trace import trace
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
    """Edit the v1 graph that one of `plans` is for; None when it is none of theirs and trains nothing.

    MismatchError for a graph that trains variables but is of no plan, and what `lay` raises.
    """
    found = matching(graph, plans)
    if found is None:
        if graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES):
            raise MismatchError(_why_not(graph, plans))
        return None
    captured = capture_v1(graph, found.names, source="the session's graph")
    traced = trace(captured, found.provenance.graph_batch)
    wanted = targets(found, options.devices)
    placement = lay(found, traced.graph, wanted, apart(graph, traced), order=options.order)
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
    what = f"{len(lacking)} of the {len(plan.names)} ops of its plan ({plan.provenance.graph_source})"
    return (
        f"the session's graph trains variables but lacks {what}, such as {shown(lacking[0])}: it is another graph, or "
        "an older trace whose ops had other names - plan this one, or open the session outside pesto.apply"
    )
