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
from pesto.tf.enforce.apply_options import Options
from pesto.tf.enforce.edits import Edits, edits, write
from pesto.tf.enforce.gone_names import drop, gone_around, kept, rename, renames
from pesto.tf.enforce.partitions import Expected, Findings
from pesto.tf.enforce.rehearsal import rehearse
from pesto.tf.laying.fetch_closure import apart
from pesto.tf.laying.placement import Placement, refuse_older
from pesto.tf.laying.relays import laid, sends
from pesto.tf.laying.step_graph import Trace, trace
from pesto.tf.laying.targets import targets
from pesto.tf.nodes.branch_division import Division, replace_branches
from pesto.tf.nodes.captured import captured
from pesto.tf.nodes.inference import copied, infer
from pesto.tf.nodes.inline import flatten
from pesto.tf.nodes.needed_nodes import RECORDED, producer
from pesto.tf.private import op_def
from pesto.tf.sources.feed_shapes import as_planned
from pesto.tf.variables.divided_branches import divided_program


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rewritten:
    """A program's graph under a plan, and what was done to it."""

    graph_def: Any
    placement: Placement
    edits: Edits
    trace: Trace
    """The step in it."""
    findings: Findings
    """The graphs that TensorFlow made of it, without running it."""
    behind: tuple[str, ...]
    """Reports and ops with state outside of the step that need ordered ops: fetched alone, they run a part of it."""
    renamed: Mapping[str, str]
    """The names of constants with copies in it, by the names that they have in `placement`, `edits` and `trace`."""
    gone: tuple[str, ...]
    """Names of the program that the graph has no more (`pesto.tf.enforce.gone_names`)."""
    kept: tuple[str, ...]
    """Constants that were to keep their names."""
    kept_sent: int
    """Transfers of those to other devices, which the plan does not count."""


def rewrite(graph_def: Any, plan: Plan, options: Options, keep: Iterable[str] = ()) -> Any:
    """A copy of `graph_def` with the plan's devices and order in it: the whole program, function calls inlined.

    Names do not change, so fetches and checkpoints hold; but small constants that another device reads, unless they are
    in `keep`, and barriers have none any more (`pesto.tf.enforce.gone_names`). See `rewritten` for what is refused.
    """
    return rewritten(graph_def, plan, options, keep=keep).graph_def


def rewritten(
    graph_def: Any, plan: Plan, options: Options, source: str = "the GraphDef", *, keep: Iterable[str] = ()
) -> Rewritten:
    """`rewrite`, with what was done; `source` names the graph in errors.

    MismatchError for the plan of another graph, VerificationError when TensorFlow would not place or order the result
    as planned, InputError for a graph that it refuses and UsageError for what is not a GraphDef, or no name to keep.
    """
    _check(graph_def, plan, options)
    wanted = targets(plan, options.devices)
    program, divided = divided_program(infer(graph_def), partial(_is_divided, frozenset(plan.names)))
    _check_names(plan, flatten(program), source)
    step = captured(program, plan.names, source)
    traced = trace(as_planned(step, plan), plan.provenance.graph_batch)
    names = frozenset(node.name for node in graph_def.node)
    held = kept(keep, traced, names)
    out = apart(step.graph_def, traced)
    try:
        placement = laid(plan, traced, wanted, out, order=options.order, keep=held)
    except MismatchError as error:
        _check_shapes(graph_def, plan, traced, error)
        raise
    whole = _whole(graph_def)
    replace_branches(whole, divided)
    done = _edited(whole, placement, traced, names, held)
    return replace(done, gone=(*done.gone, *(name for name in divided if name in names)))


def _is_divided(planned: Collection[str], name: str, division: Division) -> bool:
    """Return True if a plan of these ops has the parts of a branch op in its place."""
    return name not in planned and any(node.name in planned for node in division.nodes)


def _edited(
    graph_def: Any, placement: Placement, traced: Trace, names: Collection[str], held: Collection[str]
) -> Rewritten:
    """`graph_def`, a copy of the program without calls, whose ops were `names`, edited in place and rehearsed."""
    changes, members = edits(placement, traced, graph_def.node), frozenset(node.name for node in traced.nodes.defs)
    barriers, renamed = gone_around(graph_def, traced.passed, members), renames(placement)
    write(graph_def, changes)
    behind = _behind(graph_def, members, placement)
    drop(graph_def, barriers)
    rename(graph_def.node, renamed)
    return Rewritten(
        graph_def=graph_def,
        placement=placement,
        edits=changes,
        trace=traced,
        findings=rehearse(graph_def, Expected(placement=placement, loops=traced.loops, renamed=renamed)),
        behind=behind,
        renamed=renamed,
        gone=tuple(name for name in (*renamed, *barriers) if name in names),
        kept=tuple(sorted(held)),
        kept_sent=sends(placement, traced, held),
    )


def serialized(graph_def: Any, *, text: bool) -> bytes:
    """The bytes of a file that `pesto.tf.sources.graphdefs.read_graph_def` reads, the same for the same graph."""
    if text:
        return text_format.MessageToBytes(graph_def)
    return bytes(graph_def.SerializeToString(deterministic=True))


def _check(graph_def: Any, plan: Plan, options: Options) -> None:
    if not isinstance(graph_def, graph_pb2.GraphDef):
        raise UsageError(f"rewrite: a {type(graph_def).__name__} is no GraphDef - give graph.as_graph_def()")
    if options.trace:
        raise UsageError("rewrite: trace=True, but nothing is run - leave it out")
    refuse_older(plan)


def _check_names(plan: Plan, flat: Any, source: str) -> None:
    names = {node.name for node in flat.node}
    lacking = [name for name in plan.names if name not in names]
    if lacking:
        raise MismatchError(
            f"{source} lacks {len(lacking)} of the {len(plan.names)} ops of the plan ({plan.provenance.graph_source}), "
            f"such as {shown(lacking[0])} - give the graph that was planned, or plan this one: pesto solve --graph"
        )


def _check_shapes(graph_def: Any, plan: Plan, traced: Trace, error: MismatchError) -> None:
    """Say so when what is amiss may be no more than shapes, some of which only the program in memory knows."""
    if set(plan.names) == set(traced.graph.names) and not any("_output_shapes" in n.attr for n in graph_def.node):
        raise MismatchError(
            f"{traced.graph.source} has the plan's ops by name, but of other types, sizes or edges - if it was "
            "planned in memory, export it with as_graph_def(add_shapes=True); else plan it: pesto solve --graph"
        ) from error


def _whole(graph_def: Any) -> Any:
    """A copy of the program without calls, its library as it was."""
    flat = flatten(graph_def)
    if flat is graph_def:
        return copied(graph_def)
    flat.library.CopyFrom(graph_def.library)
    for node in flat.node:
        node.attr.pop(RECORDED, None)  # a note of the inliner's
    return flat


def _behind(graph_def: Any, members: Collection[str], placement: Placement) -> tuple[str, ...]:
    names = placement.graph.names
    found = {names[i] for i, chained in enumerate(placement.chained.tolist()) if chained}
    outside = [node for node in graph_def.node if node.name not in members]
    size = -1
    while len(found) != size:
        size = len(found)
        found.update(node.name for node in outside if any(producer(text) in found for text in node.input))
    return tuple(node.name for node in outside if node.name in found and _matters(node.op))


def _matters(op_type: str) -> bool:
    """Return True if a program may well run such an op for its own sake."""
    definition = op_def(op_type)
    return "Summary" in op_type or (bool(definition and definition.is_stateful) and op_type != "ReadVariableOp")
