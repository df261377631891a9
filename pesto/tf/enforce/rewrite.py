"""A plan written into a GraphDef, for another program to run, and the dry run that checks the result.

Partition graphs come only with a run. So the step is run on logical CPUs that stand in for the plan's devices, and
every op that needs nothing first waits for the branch of a Switch that is not taken: TensorFlow then runs no kernel of
the step, and no variable, feed, file or random state is touched. This cannot see the machine that will run the graph:
whether it has the devices, and their kernels.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2

from pesto.core.errors import InputError, MismatchError, UsageError, VerificationError
from pesto.core.files.json import quoted, shown
from pesto.core.plans.plan import Plan
from pesto.tf.apply_placement.placement import (
    StepPlacement,
    StepTrace,
    count_sends,
    find_small_constants,
    find_unchained_ops,
    place_with_relays,
    trace_step,
)
from pesto.tf.apply_placement.targets import ApplyOptions, covers, device_targets, refuse_old_plan
from pesto.tf.enforce.edits import GraphEdits, compute_edits, write_edits
from pesto.tf.enforce.partitions import ExpectedPlacement, Findings, verify_run
from pesto.tf.importer.kernels import kernel
from pesto.tf.nodes.captured import BranchDivision, capture_step, replace_branches, use_planned_shapes
from pesto.tf.nodes.graph_def_bytes import op_name
from pesto.tf.nodes.inline import flatten
from pesto.tf.nodes.needed_nodes import COPY, RECORDED, Signatures, producer
from pesto.tf.nodes.shape_inference import copy_graph_def, infer_shapes
from pesto.tf.placement_refusals import OpenSizeError
from pesto.tf.private import op_def
from pesto.tf.session_config import disable_optimizers
from pesto.tf.variables.divided_branches import divide_program

_COLOCATED = "loc:@"
_OWN = f"{COPY}own"

v1 = tf.compat.v1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewrittenGraph:
    """A program's graph under a plan, and a record of the changes."""

    graph_def: Any
    placement: StepPlacement
    edits: GraphEdits
    trace: StepTrace
    """The step in it."""
    findings: Findings
    """Comparison of TensorFlow's partition graphs of a dry run with the plan."""
    behind: tuple[str, ...]
    """Reports and ops with state outside of the step that need ordered ops: fetched alone, they run a part of it."""
    renamed: Mapping[str, str]
    """Name in `placement`, `edits` and `trace` -> new name, of constants that have copies."""
    gone: tuple[str, ...]
    """Names of the program that the graph has no more: feeding them would no longer reach all readers."""
    kept: tuple[str, ...]
    """Constants that were to keep their names."""
    kept_sent: int
    """Transfers of those to other devices, which the plan does not count."""


def rewrite(graph_def: Any, plan: Plan, options: ApplyOptions, keep: Iterable[str] = ()) -> Any:
    """Return a copy of `graph_def` with the plan's devices and order in it: the whole program, function calls inlined.

    Names do not change, so fetches and checkpoints hold. Exceptions are small constants that another device reads,
    unless they are in `keep`, and barriers: feeding or fetching their names is TensorFlow's own error. Raise as
    `rewrite_with_report`.
    """
    return rewrite_with_report(graph_def, plan, options, keep=keep).graph_def


def rewrite_with_report(
    graph_def: Any, plan: Plan, options: ApplyOptions, source: str = "the GraphDef", *, keep: Iterable[str] = ()
) -> RewrittenGraph:
    """Return `rewrite`'s graph with a record of the changes; `source` names the graph in errors.

    Raise MismatchError for the plan of another graph, VerificationError when TensorFlow would not place or order the
    result as planned, InputError for a graph that it refuses, and UsageError for an object that is no GraphDef, or a
    name that cannot be kept.
    """
    if not isinstance(graph_def, graph_pb2.GraphDef):
        raise UsageError.build(
            f"rewrite: a {type(graph_def).__name__} is no GraphDef", remedy="give graph.as_graph_def()"
        )
    if options.trace:
        raise UsageError.build("rewrite: trace=True, but nothing is run", remedy="leave it out")
    refuse_old_plan(plan)
    targets, planned = device_targets(plan, options.devices), frozenset(plan.names)

    def is_divided(name: str, division: BranchDivision) -> bool:
        return name not in planned and any(node.name in planned for node in division.nodes)

    # Shapes are inferred first: dividing branches compares tensor sizes, and a GraphDef from a file has none.
    program, divided = divide_program(infer_shapes(graph_def), is_divided)
    flat = {node.name for node in flatten(program).node}
    lacking = [name for name in plan.names if name not in flat]
    if lacking:
        raise MismatchError.build(
            f"{source} lacks {len(lacking)} of the {len(plan.names)} ops of the plan "
            f"({plan.provenance.graph_source}), such as {shown(lacking[0])}",
            remedy="give the graph that was planned, or plan this one: pesto solve --graph",
        )
    step = capture_step(program, plan.names, source)
    try:
        traced = trace_step(use_planned_shapes(step, plan), plan.provenance.graph_batch)
    except OpenSizeError as error:
        # Shapes and a batch are given to a solve, and the plan keeps them: this plan is of a graph with other sizes.
        remedy = f"plan this graph with pesto solve, where its sizes are given: {error.remedy}"
        fault = f"{error.message}; the plan has no size for it"
        raise InputError.build(fault, where=error.where, remedy=remedy) from error
    names = frozenset(node.name for node in graph_def.node)
    kept_constants = _find_constants_to_keep(keep, traced, names)
    out = find_unchained_ops(step.graph_def, traced)
    try:
        placement = place_with_relays(plan, traced, targets, out, order=options.order, keep=kept_constants)
    except MismatchError as error:
        # A GraphDef without _output_shapes loses shapes that only Python knew. The fingerprint then differs although
        # the ops are the planned ones, which deserves a clearer error.
        if set(plan.names) == set(traced.graph.names) and not any("_output_shapes" in n.attr for n in graph_def.node):
            raise MismatchError.build(
                f"{traced.graph.source} has the plan's ops by name, but of other types, sizes or edges",
                remedy="if it was planned in memory, export it with as_graph_def(add_shapes=True); else plan it: "
                "pesto solve --graph",
            ) from error
        raise
    whole = flatten(graph_def)
    if whole is graph_def:
        whole = copy_graph_def(graph_def)
    else:
        # Loops and branches outside of the step still call functions of the library.
        whole.library.CopyFrom(graph_def.library)
        for node in whole.node:
            node.attr.pop(RECORDED, None)  # a note of the inliner's
    replace_branches(whole, divided)
    done = _edit_and_check(whole, placement, traced, names, kept_constants)
    return replace(done, gone=(*done.gone, *(name for name in divided if name in names)))


def serialize_graph_def(graph_def: Any, *, text: bool) -> bytes:
    """Return the file contents that `pesto.tf.sources.sources.read_graph_def` reads, equal for equal graphs."""
    if text:
        return text_format.MessageToBytes(graph_def)
    return bytes(graph_def.SerializeToString(deterministic=True))


def _edit_and_check(
    graph_def: Any, placement: StepPlacement, traced: StepTrace, names: Collection[str], kept_constants: Collection[str]
) -> RewrittenGraph:
    """Edit `graph_def`, a flat copy of the program whose ops were `names`, in place, and check it by a dry run."""
    edits = compute_edits(placement, traced, graph_def.node)
    members = frozenset(node.name for node in traced.nodes.defs)
    # A barrier is bypassed; where the step itself fetches it, it stays. On its own device a copied constant is one more
    # copy, under a new name.
    read = {producer(text) for node in graph_def.node for text in node.input}
    barriers = tuple(name for name in traced.passed if name in read and name not in members)
    renamed = {copy.constant: f"{copy.constant}{_OWN}" for copy in placement.copies}
    write_edits(graph_def, edits)
    behind = _find_outside_ops(graph_def, members, placement)
    # Deletion from a repeated field shifts later indices, hence from the end.
    for k in reversed([k for k, node in enumerate(graph_def.node) if node.name in barriers]):
        del graph_def.node[k]
    rename_nodes(graph_def.node, renamed)
    expected = ExpectedPlacement(placement=placement, loops=traced.loops, renamed=renamed)
    return RewrittenGraph(
        graph_def=graph_def,
        placement=placement,
        edits=edits,
        trace=traced,
        findings=check_without_running(graph_def, expected),
        behind=behind,
        renamed=renamed,
        gone=tuple(name for name in (*renamed, *barriers) if name in names),
        kept=tuple(sorted(kept_constants)),
        kept_sent=count_sends(placement, traced, kept_constants),
    )


def _find_outside_ops(graph_def: Any, members: Collection[str], placement: StepPlacement) -> tuple[str, ...]:
    """Return the names of ops outside of the step that need ordered ops and may well be run for their own sake."""
    names = placement.graph.names
    behind = {names[i] for i, chained in enumerate(placement.chained.tolist()) if chained}
    outside = [node for node in graph_def.node if node.name not in members]
    size = -1
    # Fixed point over the ops outside of the step: an op is behind a chain if any of its inputs is.
    while len(behind) != size:
        size = len(behind)
        behind.update(node.name for node in outside if any(producer(text) in behind for text in node.input))
    definitions = [(node, op_def(node.op)) for node in outside if node.name in behind]
    return tuple(
        node.name
        for node, definition in definitions
        if "Summary" in node.op or (definition and definition.is_stateful and node.op != "ReadVariableOp")
    )


# Names: a small constant has a copy on each device that reads it, and the readers of a barrier are led around it. A
# program that feeds, maps or fetches such a name in the written graph must get an error, and no other result.


def _find_constants_to_keep(wanted: Iterable[str], trace: StepTrace, names: Collection[str]) -> frozenset[str]:
    """Return the ops that `wanted` names, by op or tensor: small constants of the step that stay one node each.

    names: all of the program's ops. Raise UsageError for another name.
    """
    # Feeding a constant replaces its value for all readers. With copies on several devices a feed would reach one of
    # them only, so the name is removed unless the user keeps it.
    small, names_to_keep = find_small_constants(trace), set()
    for text in wanted:
        name = op_name(text)
        if text.startswith("^"):
            raise UsageError.build(
                f"keep: {shown(text)} names an op to wait for, no tensor to feed, map or fetch",
                remedy=f"give {shown(name)}",
            )
        if name in small:
            names_to_keep.add(name)
        elif name in trace.passed:
            through = ", ".join(shown(tensor) for tensor in trace.passed[name][:4])
            raise UsageError.build(
                f"keep: {shown(name)} passes tensors on, and its readers are led around it",
                remedy=f"feed or fetch these: {through}",
            )
        elif name in names:
            raise UsageError.build(
                f"keep: {shown(name)} is no constant that a plan copies, so its name stays", remedy="leave it out"
            )
        else:
            near = difflib.get_close_matches(name, small, n=1, cutoff=0.5)
            remedy = f"did you mean {quoted(near[0])}?" if near else "name a constant of the step, of at most 128 bytes"
            raise UsageError.build(f"keep: no op is named {quoted(name)}", remedy=remedy)
    return frozenset(names_to_keep)


def rename_nodes(nodes: Iterable[Any], names: Mapping[str, str]) -> None:
    """Rename nodes in place: as nodes, as inputs, and in the colocations of others."""

    def renamed(text: str) -> str:
        name = producer(text)
        return text.replace(name, names[name], 1) if name in names else text

    for node in nodes:
        node.name = names.get(node.name, node.name)
        if any(producer(text) in names for text in node.input):
            node.input[:] = [renamed(text) for text in node.input]
        if "_class" in node.attr:
            tied = node.attr["_class"].list.s
            for k, place in enumerate(tied):
                name = place.decode(errors="replace").removeprefix(_COLOCATED)
                if name in names:
                    tied[k] = f"{_COLOCATED}{names[name]}".encode()


# The dry run.


def check_without_running(graph_def: Any, expected: ExpectedPlacement) -> Findings:
    """Place and partition a graph that `GraphEdits` were written into, and return its comparison with the plan.

    Every op of the graph is placed, but only the step is compared. Raise VerificationError when an op is not on its
    device, when neighbours of a chain may run the other way round, or when TensorFlow refuses the placement.
    """
    return verify_run(partition_without_running(graph_def, expected), expected)


def partition_without_running(graph_def: Any, expected: ExpectedPlacement) -> list[Any]:
    """Return TensorFlow's partition graphs of the step in a rewritten graph, on the plan's devices by name.

    Nodes of the step have the plan's names, also where the graph has others; nodes whose names begin with `rehearsal`
    are not of the step. Raise VerificationError when TensorFlow refuses the graph.
    """
    rehearsed = copy_graph_def(graph_def)
    stand_ins = _assign_logical_cpus(rehearsed, expected.placement)
    _replace_gpu_only_ops(rehearsed)
    # The closure of the ends, ops that nothing in the step waits for, is the whole step, so running them has all of it
    # partitioned. They are computed before the dead nodes are added, which belong to no step.
    step = set[str]()
    for name in expected.placement.graph.names:
        loop = expected.loops.get(name)
        step.update(expected.renamed.get(node, node) for node in (loop.nodes if loop else (name,)))
    leads = {producer(text) for node in rehearsed.node if node.name in step for text in node.input}
    ends = [node.name for node in rehearsed.node if node.name in step and node.name not in leads]
    _make_dead(rehearsed, ends)
    record = v1.RunMetadata()
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.import_graph_def(rehearsed, name="")
        # A run is the only way to obtain partition graphs. Unlike a trace they list control edges, which is what the
        # order consists of.
        with v1.Session(graph=graph, config=logical_cpu_config(max(len(stand_ins), 1))) as session:
            targets = [graph.get_operation_by_name(name) for name in ends]
            session.run(targets, options=v1.RunOptions(output_partition_graphs=True), run_metadata=record)
    except (tf.errors.OpError, ValueError) as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise VerificationError.build(
            f"TensorFlow refuses the graph as placed: {shown(first)}",
            remedy="plan for devices that all of the program's ops can be on, or take away the devices and colocations "
            "that it asks for itself",
        ) from error
    partitions = list(record.partition_graphs)
    planned = {name: op for op, name in expected.renamed.items()}
    for part in partitions:
        rename_nodes(part.node, planned)
        for node in part.node:
            node.device = stand_ins.get(tf.DeviceSpec.from_string(node.device).device_index, node.device)
    return partitions


def logical_cpu_config(cpus: int) -> Any:
    """Return a ConfigProto for logical CPUs under which TensorFlow keeps a placed and ordered graph as it is."""
    return disable_optimizers(v1.ConfigProto(device_count={"CPU": cpus, "GPU": 0}))


def _assign_logical_cpus(graph_def: Any, placement: StepPlacement) -> dict[int, str]:
    """Give every node a logical CPU in its device's stead; return {number of the CPU: the device it stands for}."""
    devices = list(placement.devices)
    # Partitioning needs devices that exist, and the machine at hand may have no GPU. Each device of the plan becomes
    # one logical CPU: the partition graphs have the same sends, receives and control edges. Devices that the plan has
    # not are the wishes of other parts of the program: one that may be a device of the plan counts as that, a complete
    # name gets a CPU of its own, and an incomplete name leaves the choice to TensorFlow, here too.
    number: dict[str, int | None] = {"": None, **{name: k for k, name in enumerate(devices)}}
    for node in graph_def.node:
        name = node.device
        if name not in number:
            spec = tf.DeviceSpec.from_string(name)
            number[name] = None
            if spec.device_type is not None and spec.device_index is not None:
                same = (covers(d, spec) or covers(name, tf.DeviceSpec.from_string(d)) for d in devices)
                number[name] = next((k for k, fits in enumerate(same) if fits), len(devices))
                if number[name] == len(devices):
                    devices.append(name)
        node.device = "" if number[name] is None else f"/device:CPU:{number[name]}"
    return dict(enumerate(devices))


def _replace_gpu_only_ops(graph_def: Any) -> None:
    """Replace each op that only GPUs have by an op of the same types, which is never run."""
    foreign = [node for node in graph_def.node if not kernel(node)[0]]
    if not foreign:
        return
    signatures = Signatures({f.signature.name: f for f in graph_def.library.function})
    by_name = {node.name: node for node in graph_def.node}
    types = {}
    for node in foreign:
        # Types are read before any op is replaced, since a producer may be replaced as well.
        inputs = []
        for text in node.input:
            if text[0] != "^":
                number = text.rpartition(":")[2] if ":" in text else ""
                outputs = signatures.output_types(by_name[producer(text)])
                inputs.append(outputs[int(number) if number.isdigit() else 0])
        types[node.name] = inputs, signatures.output_types(node)
    for node in foreign:
        inputs, outputs = types[node.name]
        # PyFunc takes and returns any types and has a CPU kernel. Its token is empty, so it could not run, and it never
        # does: its input is dead.
        node.op = "PyFunc"
        for attr in list(node.attr):
            if attr != "_class":
                del node.attr[attr]
        node.attr["token"].s = b""
        node.attr["Tin"].list.type.extend(inputs)
        node.attr["Tout"].list.type.extend(outputs)


def _make_dead(graph_def: Any, ends: Collection[str]) -> None:
    """Make all that running `ends` can do wait for a branch that is not taken."""
    by_name: Mapping[str, Any] = {node.name: node for node in graph_def.node}
    names, stack = set(ends), list(ends)
    while stack:
        for text in by_name[stack.pop()].input:
            name = producer(text)
            if name in by_name and name not in names:
                names.add(name)
                stack.append(name)
    base = next(name for name in (f"rehearsal{'_' * k}" for k in range(len(by_name) + 1)) if name not in by_name)
    no, both, dead = f"{base}/no", f"{base}/switch", f"{base}/dead"
    for name in names:
        # A dead tensor makes every op that reads it dead, a Merge when all of its data are, and Send and Recv pass
        # deadness on across devices. So partitioning happens in full, and no kernel runs. Only a ControlTrigger would
        # come alive again; a NoOp has its shape and does not.
        node = by_name[name]
        if node.op == "ControlTrigger":
            node.op = "NoOp"
        if not node.input:
            node.input.append(f"^{dead}")
    boolean = tf.bool.as_datatype_enum
    # Switch(False) has a live output 0 and a dead output 1; the Identity on output 1 is dead in every run.
    constant = graph_def.node.add(name=no, op="Const", device="/device:CPU:0")
    constant.attr["dtype"].type = boolean
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(False))
    graph_def.node.add(name=both, op="Switch", input=[no, no], device="/device:CPU:0").attr["T"].type = boolean
    graph_def.node.add(name=dead, op="Identity", input=[f"{both}:1"], device="/device:CPU:0").attr["T"].type = boolean
