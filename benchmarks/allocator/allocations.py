"""What TensorFlow's allocator holds on each device while a planned step runs, from full traces.

A full trace wraps the device's allocator around every kernel and writes down each allocation and each release: bytes,
microsecond, and the op that asked (`AllocatorMemoryUsed.allocation_records`; releases are negative). What lives outside
of the step is not in it: variables, and constants, whose kernels keep them as long as the session is open.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.allocator.copies import ReceivedCopy, pin, with_copies
from pesto.core.plans.plan import Plan
from pesto.tf.apply_placement.targets import ApplyOptions, covers, device_targets
from pesto.tf.enforce.partitions import is_duplicate_device
from pesto.tf.enforce.rewrite import rename_nodes, rewrite_with_report
from pesto.tf.enforce.sessions import configure_session
from pesto.tf.nodes.graph_def_bytes import op_name
from pesto.tf.run.runnable import RunnableStep
from pesto.tf.session_config import disable_optimizers
from solvers.arrays import Ints, ints

v1 = tf.compat.v1

LOGICAL = "cpu"
"""The plan's k-th device is logical CPU k."""
WARMUP = 2
"""Steps before the first that counts: TensorFlow makes its kernels in the first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TracedSteps:
    """Some steps by a plan, as TensorFlow wrote them down."""

    steps: tuple[Any, ...]
    """StepStats of each."""
    targets: Mapping[str, str]
    """The plan's device -> TensorFlow's."""
    copies: tuple[ReceivedCopy, ...]
    """What stands for received tensors and feeds."""
    variables: Mapping[str, int]
    """Bytes of each variable of the step as TensorFlow holds it, by the name of its op."""
    assigned: Mapping[str, int]
    """Bytes of the variable to which each op gives a new buffer, by the op's name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldMemory:
    """Bytes that one device held over one step."""

    variables: int
    """Of the variables, which live on."""
    constants: int
    """Of the constants, which their kernels keep."""
    micros: Ints
    """[k] microseconds since the epoch at which something changed, ascending."""
    level: Ints
    """[k] bytes held from each of them on, variables and constants included."""

    @property
    def peak(self) -> int:
        """Most bytes at any time."""
        return max(self.variables + self.constants, int(self.level.max(initial=0)))


def trace(step: RunnableStep, plan: Plan, *, steps: int = 5, pinned: bool = False) -> TracedSteps:
    """Run some steps by `plan` on logical CPUs and trace them; what crosses or is fed is copied (`copies.py`).

    The plan's order is enforced as `pesto run` does, Grappler is off and each op has one core. With `pinned` no
    op starts before what the plan has ended by then on the other devices, so that these keep step as it predicts. What
    `pesto.rewrite` raises when the plan does not fit.
    """
    wanted = device_targets(plan, LOGICAL)
    done = rewrite_with_report(step.graph.as_graph_def(add_shapes=True), plan, ApplyOptions(devices=LOGICAL))
    rename_nodes(done.graph_def.node, {written: name for name, written in done.renamed.items()})
    copies = with_copies(done.graph_def, plan, wanted, done.placement.relays)
    if pinned:
        names = np.array(done.placement.graph.names)
        pin(done.graph_def, plan, frozenset(names[done.placement.chained].tolist()))
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(done.graph_def, name="")
        values = _values(graph, plan.names)
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=max(2, len(wanted)))
    with v1.Session(graph=graph, config=configure_session(disable_optimizers(config), wanted)) as session:
        session.run(graph.get_operation_by_name(step.init))
        size = {name: int(np.asarray(value).nbytes) for name, value in session.run(values).items()}
        result = tuple(_traces(session, step, steps))
    return TracedSteps(
        steps=result, targets=wanted, copies=copies, variables=size, assigned=_assigned(done.graph_def, size)
    )  # fmt: skip


def held(traced: TracedSteps, stats: Any, device: str, *, scratch: bool = True) -> HeldMemory:
    """What the plan's `device` held in one of the traced steps; without `scratch`, kernels' outputs only.

    Releases come before allocations of the same microsecond.
    """
    entries = list(_entries(stats, traced.targets[device]))
    variables = sum(traced.variables.get(e.node_name, 0) for e in entries)
    # A reference variable's kernel keeps its value, too.
    constants = sum(e.memory_stats.persistent_memory_size for e in entries if e.node_name not in traced.variables)
    records = [record for e in entries for record in _records(e, scratch=scratch)]
    # A variable takes over the buffer that it is assigned; the release of its old one, which an earlier step made, is
    # not recorded.
    records += [
        (e.all_start_micros + e.op_end_rel_micros, -traced.assigned[e.node_name])
        for e in entries
        if e.node_name in traced.assigned
    ]
    micros, change = np.array(sorted(records), dtype=np.int64).reshape(-1, 2).T
    return HeldMemory(
        variables=variables,
        constants=constants,
        micros=ints(micros),
        level=ints(variables + constants + np.cumsum(change)),
    )


def _entries(stats: Any, target: str) -> Iterator[Any]:
    for device in stats.dev_stats:
        if not is_duplicate_device(device.device) and covers(target, tf.DeviceSpec.from_string(device.device)):
            yield from device.node_stats


def _records(entry: Any, *, scratch: bool) -> Iterator[tuple[int, int]]:
    """(microsecond, change in bytes) of an op's allocations and releases."""
    records = [(r.alloc_micros, r.alloc_bytes) for m in entry.memory for r in m.allocation_records]
    beside: Counter[int] = Counter()
    if not scratch:
        outputs = Counter(o.tensor_description.allocation_description.requested_bytes for o in entry.output)
        beside = Counter(size for _, size in records if size > 0) - outputs
        beside += Counter({-size: count for size, count in beside.items()})
    for when, change in records:
        if beside[change] > 0:
            beside[change] -= 1
        else:
            yield when, change


def _traces(session: Any, step: RunnableStep, steps: int) -> Iterator[Any]:
    ops = [session.graph.get_operation_by_name(op_name(name)) for name in step.fetches]
    rng = np.random.default_rng(0)
    for k in range(WARMUP + steps):
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        session.run(ops, dict(step.feed(rng)), options=options, run_metadata=metadata)
        if k >= WARMUP:
            yield metadata.step_stats


def _values(graph: Any, names: Iterable[str]) -> dict[str, Any]:
    """The tensor to fetch for the value of each variable among the ops `names`."""
    result = {}
    for op in map(graph.get_operation_by_name, names):
        if op.type in ("VariableV2", "Variable"):
            result[op.name] = op.outputs[0]
        elif op.type == "VarHandleOp":
            with tf.control_dependencies(None):
                result[op.name] = tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=op.get_attr("dtype"))
    return result


def _assigned(graph_def: Any, size: Mapping[str, int]) -> dict[str, int]:
    handle = {node.name: op_name(node.input[0]) for node in graph_def.node if node.op == "AssignVariableOp"}
    return {name: size[variable] for name, variable in handle.items() if variable in size}
