"""A rewritten GraphDef held against its plan without running it: TensorFlow places and partitions it, all of it dead.

Partition graphs come only with a run. So the step is run on logical CPUs that stand in for the plan's devices, and
every op that needs nothing first waits for the branch of a Switch that is not taken: TensorFlow then runs no kernel of
the step, and no variable, feed, file or random state is touched. What this cannot see is the machine that will run the
graph: whether it has the devices, and their kernels.
"""

from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from pesto.core.errors import VerificationError
from pesto.core.files.json import shown
from pesto.tf.apply_placement.placement import StepPlacement
from pesto.tf.apply_placement.targets import covers
from pesto.tf.enforce.partitions import ExpectedPlacement, Findings, examine
from pesto.tf.enforce.removed_names import rename_nodes
from pesto.tf.importer.kernels import kernel
from pesto.tf.nodes.needed_nodes import producer
from pesto.tf.nodes.shape_inference import copy_graph_def
from pesto.tf.nodes.signatures import Signatures
from pesto.tf.session_config import disable_optimizers

v1 = tf.compat.v1


def check_without_running(graph_def: Any, expected: ExpectedPlacement) -> Findings:
    """Place and partition a graph that `GraphEdits` were written into, and check it against the plan.

    VerificationError when an op is not on its device, when neighbours of a chain may run the other way round, or when
    TensorFlow refuses the placement. Every op of the graph is placed, but only the step is looked at.
    """
    return examine(partition_without_running(graph_def, expected), expected).checked()


def partition_without_running(graph_def: Any, expected: ExpectedPlacement) -> list[Any]:
    """The partition graphs that TensorFlow makes of the step in a rewritten graph, on the plan's devices by name.

    Nodes whose names begin with `rehearsal` are none of the step's; those of the step have the plan's names, also where
    the graph has others. VerificationError when TensorFlow refuses it.
    """
    # The ends are computed before the dead nodes are added, which belong to no step, and renamed back only in the
    # partitions.
    rehearsed = copy_graph_def(graph_def)
    stand_ins = _assign_logical_cpus(rehearsed, expected.placement)
    _replace_gpu_only_ops(rehearsed)
    ends = _ends(rehearsed, expected)
    _make_dead(rehearsed, _closure(rehearsed, ends))
    cpus = max(len(stand_ins), 1)
    record = v1.RunMetadata()
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.import_graph_def(rehearsed, name="")
        # A run is the only way to obtain partition graphs. Unlike a trace they list control edges, which is what the
        # order consists of.
        with v1.Session(graph=graph, config=logical_cpu_config(cpus)) as session:
            targets = [graph.get_operation_by_name(name) for name in ends]
            session.run(targets, options=v1.RunOptions(output_partition_graphs=True), run_metadata=record)
    except (tf.errors.OpError, ValueError) as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise VerificationError.build(
            f"TensorFlow refuses the graph as placed: {shown(first)}",
            remedy=(
                "plan for devices that all of the program's ops "
                "can be on, or take away the devices and colocations that it asks for itself"
            ),
        ) from error
    partitions = list(record.partition_graphs)
    planned = {name: op for op, name in expected.renamed.items()}
    for part in partitions:
        rename_nodes(part.node, planned)
        for node in part.node:
            node.device = stand_ins.get(tf.DeviceSpec.from_string(node.device).device_index, node.device)
    return partitions


def logical_cpu_config(cpus: int) -> Any:
    """A session's ConfigProto under which TensorFlow leaves a placed and ordered graph as it is, on logical CPUs."""
    return disable_optimizers(v1.ConfigProto(device_count={"CPU": cpus, "GPU": 0}))


def _assign_logical_cpus(graph_def: Any, placement: StepPlacement) -> dict[int, str]:
    """Give every node a logical CPU in its device's stead; {number of the CPU: the device it stands for}.

    Devices that the plan has not are the wishes of other parts of the program: one that may be a device of the plan
    counts as that, a complete name gets a CPU of its own, and what says no type and number says nothing here.
    """
    devices = list(placement.devices)
    # Partitioning needs devices that exist, and the machine at hand may have no GPU. Each device of the plan becomes
    # one logical CPU: the partition graphs have the same sends, receives and control edges.
    number: dict[str, int | None] = {"": None, **{name: k for k, name in enumerate(devices)}}
    for node in graph_def.node:
        if node.device not in number:
            number[node.device] = _number(node.device, devices)
        k = number[node.device]
        node.device = "" if k is None else f"/device:CPU:{k}"
    return dict(enumerate(devices))


def _number(name: str, devices: list[str]) -> int | None:
    spec = tf.DeviceSpec.from_string(name)
    # An incomplete name leaves the choice to TensorFlow, which the dry run does too.
    if spec.device_type is None or spec.device_index is None:
        return None
    for k, known in enumerate(devices):
        if covers(known, spec) or covers(name, tf.DeviceSpec.from_string(known)):
            return k
    devices.append(name)
    return len(devices) - 1


def _replace_gpu_only_ops(graph_def: Any) -> None:
    """Put an op of the same types, which is never run, in the place of each that only GPUs have."""
    foreign = [node for node in graph_def.node if not kernel(node)[0]]
    if not foreign:
        return
    signatures = Signatures({f.signature.name: f for f in graph_def.library.function})
    by_name = {node.name: node for node in graph_def.node}
    types = {}
    for node in foreign:
        # Types are read before any op is replaced, since a producer may be replaced as well.
        read = [text for text in node.input if text[0] != "^"]
        inputs = [signatures.output_types(by_name[producer(t)])[_output(t)] for t in read]
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


def _output(tensor: str) -> int:
    number = tensor.rpartition(":")[2]
    return int(number) if number.isdigit() and ":" in tensor else 0


def _ends(graph_def: Any, expected: ExpectedPlacement) -> list[str]:
    """Ops of the step that nothing in the step waits for: running them runs it whole."""
    members = (node for name in expected.placement.graph.names for node in _members(name, expected))
    # The closure of the ends is the whole step, so a few targets are enough to have all of it partitioned.
    step = {expected.renamed.get(node, node) for node in members}
    leads = {producer(text) for node in graph_def.node if node.name in step for text in node.input}
    return [node.name for node in graph_def.node if node.name in step and node.name not in leads]


def _members(name: str, expected: ExpectedPlacement) -> tuple[str, ...]:
    return expected.loops[name].nodes if name in expected.loops else (name,)


def _closure(graph_def: Any, ends: Collection[str]) -> set[str]:
    by_name: Mapping[str, Any] = {node.name: node for node in graph_def.node}
    closure, stack = set(ends), list(ends)
    while stack:
        for text in by_name[stack.pop()].input:
            name = producer(text)
            if name in by_name and name not in closure:
                closure.add(name)
                stack.append(name)
    return closure


def _make_dead(graph_def: Any, names: Collection[str]) -> None:
    """Make all that `names` can do wait for a branch that is not taken.

    By TensorFlow's rules what has a dead input is dead, a Merge when all of its data are. Only a ControlTrigger would
    come alive again; a NoOp has its shape and does not.
    """
    taken = {node.name for node in graph_def.node}
    base = next(name for name in (f"rehearsal{'_' * k}" for k in range(len(taken) + 1)) if name not in taken)
    no, both, dead = f"{base}/no", f"{base}/switch", f"{base}/dead"
    for node in graph_def.node:
        if node.name in names:
            # A dead tensor makes every op that reads it dead, and Send and Recv pass deadness on across devices. So
            # partitioning happens in full, and no kernel runs.
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
