"""A plan written into a GraphDef, for another program to run."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2

from pesto.core.errors import MismatchError, UsageError
from pesto.core.files.json import shown
from pesto.core.plans.plan import Plan
from pesto.tf.apply_placement.fetch_closure import ops_outside_chains
from pesto.tf.apply_placement.placement import StepPlacement, refuse_older
from pesto.tf.apply_placement.relays import count_sends, place_with_relays
from pesto.tf.apply_placement.step_graph import StepTrace, trace_step
from pesto.tf.apply_placement.targets import device_targets
from pesto.tf.enforce.apply_options import ApplyOptions
from pesto.tf.enforce.dry_run import check_without_running
from pesto.tf.enforce.edits import GraphEdits, compute_edits, write_edits
from pesto.tf.enforce.partitions import ExpectedPlacement, Findings
from pesto.tf.enforce.removed_names import (
    bypassed_barriers,
    constant_renames,
    constants_to_keep,
    remove_nodes,
    rename_nodes,
)
from pesto.tf.nodes.branch_division import BranchDivision, replace_branches
from pesto.tf.nodes.captured import capture_step
from pesto.tf.nodes.inline import flatten
from pesto.tf.nodes.needed_nodes import RECORDED, producer
from pesto.tf.nodes.shape_inference import copy_graph_def, infer_shapes
from pesto.tf.private import op_def
from pesto.tf.sources.feed_shapes import use_planned_shapes
from pesto.tf.variables.divided_branches import divide_program


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewrittenGraph:
    """A program's graph under a plan, and what was done to it."""

    graph_def: Any
    placement: StepPlacement
    edits: GraphEdits
    trace: StepTrace
    """The step in it."""
    findings: Findings
    """The graphs that TensorFlow made of it, without running it."""
    behind: tuple[str, ...]
    """Reports and ops with state outside of the step that need ordered ops: fetched alone, they run a part of it."""
    renamed: Mapping[str, str]
    """The names of constants with copies in it, by the names that they have in `placement`, `edits` and `trace`."""
    gone: tuple[str, ...]
    """Names of the program that the graph has no more (`pesto.tf.enforce.removed_names`)."""
    kept: tuple[str, ...]
    """Constants that were to keep their names."""
    kept_sent: int
    """Transfers of those to other devices, which the plan does not count."""


def rewrite(graph_def: Any, plan: Plan, options: ApplyOptions, keep: Iterable[str] = ()) -> Any:
    """A copy of `graph_def` with the plan's devices and order in it: the whole program, function calls inlined.

    Names do not change, so fetches and checkpoints hold; but small constants that another device reads, unless they are
    in `keep`, and barriers have none any more (`pesto.tf.enforce.removed_names`). Errors as of `rewrite_with_report`.
    """
    return rewrite_with_report(graph_def, plan, options, keep=keep).graph_def


def rewrite_with_report(
    graph_def: Any, plan: Plan, options: ApplyOptions, source: str = "the GraphDef", *, keep: Iterable[str] = ()
) -> RewrittenGraph:
    """`rewrite`, with what was done; `source` names the graph in errors.

    MismatchError for the plan of another graph, VerificationError when TensorFlow would not place or order the result
    as planned, InputError for a graph that it refuses and UsageError for what is not a GraphDef, or no name to keep.
    """
    if not isinstance(graph_def, graph_pb2.GraphDef):
        raise UsageError.build(
            f"rewrite: a {type(graph_def).__name__} is no GraphDef", remedy="give graph.as_graph_def()"
        )
    if options.trace:
        raise UsageError.build("rewrite: trace=True, but nothing is run", remedy="leave it out")
    refuse_older(plan)
    wanted = device_targets(plan, options.devices)
    # Shapes are inferred first: dividing branches compares tensor sizes, and a GraphDef from a file has none.
    program, divided = divide_program(infer_shapes(graph_def), partial(_is_divided, frozenset(plan.names)))
    _check_names(plan, flatten(program), source)
    step = capture_step(program, plan.names, source)
    traced = trace_step(use_planned_shapes(step, plan), plan.provenance.graph_batch)
    names = frozenset(node.name for node in graph_def.node)
    held = constants_to_keep(keep, traced, names)
    out = ops_outside_chains(step.graph_def, traced)
    try:
        placement = place_with_relays(plan, traced, wanted, out, order=options.order, keep=held)
    # A GraphDef without _output_shapes loses shapes that only Python knew. The fingerprint then differs although the
    # ops are the planned ones.
    except MismatchError as error:
        # Raise a clearer error when only shapes may differ, some of which only the program in memory knows.
        if set(plan.names) == set(traced.graph.names) and not any("_output_shapes" in n.attr for n in graph_def.node):
            raise MismatchError.build(
                f"{traced.graph.source} has the plan's ops by name, but of other types, sizes or edges",
                remedy=(
                    "if it was "
                    "planned in memory, export it with as_graph_def(add_shapes=True); else plan it: "
                    "pesto solve --graph"
                ),
            ) from error
        raise
    whole = _flat_copy(graph_def)
    replace_branches(whole, divided)
    done = _edit_and_check(whole, placement, traced, names, held)
    return replace(done, gone=(*done.gone, *(name for name in divided if name in names)))


def _is_divided(planned: Collection[str], name: str, division: BranchDivision) -> bool:
    """Return True if a plan of these ops has the parts of a branch op in its place."""
    return name not in planned and any(node.name in planned for node in division.nodes)


def _edit_and_check(
    graph_def: Any, placement: StepPlacement, traced: StepTrace, names: Collection[str], held: Collection[str]
) -> RewrittenGraph:
    """`graph_def`, a copy of the program without calls, whose ops were `names`, edited in place and rehearsed."""
    changes, members = (
        compute_edits(placement, traced, graph_def.node),
        frozenset(node.name for node in traced.nodes.defs),
    )
    barriers, renamed = bypassed_barriers(graph_def, traced.passed, members), constant_renames(placement)
    write_edits(graph_def, changes)
    behind = _outside_ops_behind_chains(graph_def, members, placement)
    remove_nodes(graph_def, barriers)
    rename_nodes(graph_def.node, renamed)
    return RewrittenGraph(
        graph_def=graph_def,
        placement=placement,
        edits=changes,
        trace=traced,
        findings=check_without_running(
            graph_def, ExpectedPlacement(placement=placement, loops=traced.loops, renamed=renamed)
        ),
        behind=behind,
        renamed=renamed,
        gone=tuple(name for name in (*renamed, *barriers) if name in names),
        kept=tuple(sorted(held)),
        kept_sent=count_sends(placement, traced, held),
    )


def serialized(graph_def: Any, *, text: bool) -> bytes:
    """The bytes of a file that `pesto.tf.sources.graphdefs.read_graph_def` reads, the same for the same graph."""
    if text:
        return text_format.MessageToBytes(graph_def)
    return bytes(graph_def.SerializeToString(deterministic=True))


def _check_names(plan: Plan, flat: Any, source: str) -> None:
    names = {node.name for node in flat.node}
    lacking = [name for name in plan.names if name not in names]
    if lacking:
        raise MismatchError.build(
            f"{source} lacks {len(lacking)} of the {len(plan.names)} ops of the plan "
            f"({plan.provenance.graph_source}), "
            f"such as {shown(lacking[0])}",
            remedy="give the graph that was planned, or plan this one: pesto solve --graph",
        )


def _flat_copy(graph_def: Any) -> Any:
    """A copy of the program without calls, its library as it was."""
    flat = flatten(graph_def)
    if flat is graph_def:
        return copy_graph_def(graph_def)
    # Loops and branches outside of the step still call functions of the library.
    flat.library.CopyFrom(graph_def.library)
    for node in flat.node:
        node.attr.pop(RECORDED, None)  # a note of the inliner's
    return flat


def _outside_ops_behind_chains(graph_def: Any, members: Collection[str], placement: StepPlacement) -> tuple[str, ...]:
    names = placement.graph.names
    behind = {names[i] for i, chained in enumerate(placement.chained.tolist()) if chained}
    outside = [node for node in graph_def.node if node.name not in members]
    size = -1
    # Fixed point over the ops outside of the step: an op is behind a chain if any of its inputs is.
    while len(behind) != size:
        size = len(behind)
        behind.update(node.name for node in outside if any(producer(text) in behind for text in node.input))
    return tuple(node.name for node in outside if node.name in behind and _matters(node.op))


def _matters(op_type: str) -> bool:
    """Return True if a program may well run such an op for its own sake."""
    definition = op_def(op_type)
    return "Summary" in op_type or (bool(definition and definition.is_stateful) and op_type != "ReadVariableOp")
