"""A divided step run on stock TensorFlow beside the whole step, from the same variables and feeds, and compared."""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import quoted
from pesto.split.division import Division
from pesto.split.typed_graph import TypedGraph
from pesto.tf.apply_placement.targets import covers
from pesto.tf.feed_values import FeedValues
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.partition.part_variables import PartVariable, join_values, split_values
from pesto.tf.partition.partitioned import Partition, partition
from pesto.tf.run.planned_run import SEED, relative_distance
from pesto.tf.run.runnable import BatchesEndedError, RunnableStep, counting_batches, explain_failure, start_batch
from pesto.tf.session_config import disable_optimizers

v1 = tf.compat.v1

CPU, GPU = "cpu", "gpu"
TOLERANCE = 1e-5
"""Tolerance of losses and variables, relative to the largest number of each: sums of parts round differently."""
NUDGE = 100
"""Units in the last place by which variables are changed to see how far the step carries that: every op rounds once."""
NOISE = 1e-2
"""Share of the largest number of all variables: one whose own is less is compared as if that were its largest."""
Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRunResult:
    """Result of running a divided step beside the whole one."""

    losses_distance: float
    """The largest relative difference of a fetched tensor over all steps; of a variable's value as below."""
    variables_distance: float
    """Ditto of a variable at the end, each part against its part of the whole variable; at least NOISE of the largest
    number of all variables is what it is relative to. A gradient that is zero but for rounding, as of a bias before
    batch normalisation, is nothing but the order of sums."""
    furthest: str | None
    """The tensor or variable that is furthest; None where all are equal, bit for bit."""
    nudged_distance: float | None
    """Where any of these is further than TOLERANCE: how far the whole step is from itself once its variables are
    changed by NUDGE units in the last place. Batch normalisation over few numbers, for one, carries that far."""
    losses: tuple[str, ...]
    """The fetched tensors that were compared."""
    variables: int
    """Number of variables that were compared."""
    finite: bool
    """True if all that was compared was finite in both runs: NaN equals NaN and says little."""
    moves: tuple[str, ...]
    """One line for each op that was not on its worker's device."""
    steps: int
    step_s: float
    """Median seconds of a divided step."""
    whole_step_s: float
    """Median seconds of the whole step, on one device."""
    held: float
    """Share of the variables' elements that the fullest worker holds."""
    moved_bytes: int
    """Bytes that workers send each other in a step."""
    nodes: int
    late: int
    """Tensors that are sent late."""
    devices: tuple[str, ...]
    """TensorFlow's device of each worker."""
    feeds: tuple[FeedValues, ...]
    """Values that each feed was given in both runs."""

    @property
    def as_whole(self) -> bool:
        """True if losses and variables are the whole step's, but for rounding, and all ops ran on their worker.

        They may be further apart than TOLERANCE where the whole step carries a rounding as far. NaN equals NaN; what
        is finite in one run alone is infinitely far.
        """
        far, most = max(self.losses_distance, self.variables_distance), max(TOLERANCE, self.nudged_distance or 0.0)
        return not self.moves and math.isfinite(far) and far <= most


@dataclass(frozen=True, slots=True, kw_only=True)
class _GraphRun:
    """Results of running one graph."""

    losses: tuple[Values, ...]
    """For each step, the fetched tensors by name."""
    before: Values
    """Value of each variable before the first step."""
    after: Values
    seconds: tuple[float, ...]
    traced: Any
    """RunMetadata of the first step."""
    reads: frozenset[str]
    """The fetched tensors that are values of variables."""


def run_parts(
    captured: CapturedStep,
    shaped: TypedGraph,
    division: Division,
    step: RunnableStep,
    *,
    steps: int,
    devices: str | None = CPU,
) -> PartitionRunResult:
    """Run `step`, whose ops are those that `division` divides, whole and in parts.

    Variables start from those of the program that `captured` was traced in, where it has them. devices: CPU for logical
    CPUs, GPU, or None for GPUs where there are as many as workers. UsageError for less than one step and other
    devices, InputError when the step does not run.
    """
    if steps < 1 or devices not in (None, CPU, GPU):
        raise UsageError.build(f"run: {steps} steps on {quoted(devices)}", remedy="give at least 1, on cpu or gpu")
    many = len(tf.config.list_physical_devices("GPU"))
    devices = devices or (GPU if many >= division.devices else CPU)
    if devices == GPU and many < division.devices:
        raise InputError.build(
            f"run: {division.devices} workers, and this machine has {many} GPUs", remedy="run it on cpu"
        )
    made = partition(
        _program(captured, shaped, step), shaped, division, captured.fetches, devices=_workers(division, devices)
    )
    soft, names = devices == GPU, frozenset(v.name for v in made.variables)
    # Return the values of variables in the program that the step was traced in.
    live = {}
    for node in captured.graph_def.node:
        if node.op == "VarHandleOp" and node.name in names and node.name in captured.values:
            handle = captured.values[node.name]
            with tf.init_scope():
                value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(node.attr["dtype"].type))
            live[node.name] = value.numpy()

    try:
        alone = _RunnableGraph(step.graph, captured.fetches, names, step.init, live, _config(1, soft=soft))
        first = _run(alone, step, steps)
        second = _run(_divided(made, first.before, soft=soft), step, steps)
        apart = _run_distances(first, second, made.variables)
        far = apart.furthest[0] > TOLERANCE
        third = _run(replace(alone, values=_perturb(first.before)), step, steps) if far else None
    except (tf.errors.OpError, BatchesEndedError) as error:
        raise explain_failure("run", captured.source, error) from error
    nudged = None if third is None else _run_distances(first, third).furthest[0]
    return replace(_compared(made, first, second, apart, nudged), feeds=step.feed_values)


def _workers(division: Division, devices: str) -> tuple[str, ...]:
    """Workers on logical CPUs stand beside the host, which is CPU 0."""
    first = 1 if devices == CPU else 0
    return tuple(f"/device:{devices.upper()}:{first + k}" for k in range(division.devices))


def _program(captured: CapturedStep, shaped: TypedGraph, step: RunnableStep) -> Any:
    """The step's ops as they run, with the seeds that they have there; as captured where calls were inlined."""
    program = step.graph.as_graph_def()
    names = {node.name for node in program.node}
    return program if names.issuperset(shaped.names) else captured.graph_def


def _config(workers: int, *, soft: bool) -> Any:
    config = v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=max(2, workers), allow_soft_placement=soft
    )
    config.device_count["CPU"] = workers + 1
    config.gpu_options.allow_growth = True
    return disable_optimizers(config)


@dataclass(frozen=True, slots=True)
class _RunnableGraph:
    """A graph, and how its variables begin."""

    graph: Any
    fetches: tuple[str, ...]
    names: frozenset[str]
    """Names of the ops that make handles."""
    init: str | None
    values: Values
    """Values assigned to variables after `init`."""
    config: Any


def _divided(made: Partition, before: Values, *, soft: bool) -> _RunnableGraph:
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(made.graph_def, name="")
    names = frozenset(name for v in made.variables for name in v.parts)
    config = _config(len(made.devices), soft=soft)
    return _RunnableGraph(graph, made.fetches, names, None, split_values(made.variables, before), config)


def _run(driven: _RunnableGraph, step: RunnableStep, steps: int) -> _GraphRun:
    """Run steps of a graph; the batches are the same every time."""
    graph = driven.graph
    ops = [graph.get_operation_by_name(name) for name in driven.fetches]
    tensors = {t.name: t for op in ops for t in op.outputs if _is_value(t.dtype)}
    read, written = _accessors(graph, driven.names)
    rng, losses, seconds, metadata = np.random.default_rng(SEED), [], [], v1.RunMetadata()
    with v1.Session(graph=graph, config=driven.config) as session:
        if driven.init is not None:
            session.run(graph.get_operation_by_name(driven.init))
        given = [(*written[name], value) for name, value in driven.values.items()]
        session.run([assigned for _, assigned, _ in given], {place: value for place, _, value in given})
        before = session.run(read)
        for number in range(steps):
            feed = _fed(graph, start_batch(session, step, rng))
            traced = {} if number else {"options": _tracing(), "run_metadata": metadata}
            began = time.perf_counter()
            with counting_batches(number, 0, (steps, "steps")):
                losses.append(session.run((tensors, ops), feed, **traced)[0])
            seconds.append(time.perf_counter() - began)
        after = session.run(read)
    return _GraphRun(
        losses=tuple(losses), before=before, after=after, seconds=tuple(seconds[1:] or seconds), traced=metadata,
        reads=frozenset(name for name, tensor in tensors.items() if tensor.op.type == "ReadVariableOp"),
    )  # fmt: skip


def _is_value(dtype: Any) -> bool:
    return dtype == dtype.base_dtype and dtype.name not in ("resource", "variant")


def _tracing() -> Any:
    return v1.RunOptions(trace_level=v1.RunOptions.SOFTWARE_TRACE, output_partition_graphs=True)


def _fed(graph: Any, feed: Mapping[str, Any]) -> Values:
    """Return the feeds that the graph has placeholders for."""
    names = {op.name for op in graph.get_operations() if op.type.startswith("Placeholder")}
    return {name: value for name, value in feed.items() if name.partition(":")[0] in names}


def _accessors(graph: Any, names: frozenset[str]) -> tuple[Values, dict[str, tuple[Any, Any]]]:
    """For each variable the tensor of its value, and a placeholder with the op that assigns what it is fed."""
    read, written = {}, {}
    with graph.as_default(), tf.control_dependencies(None):
        for op in graph.get_operations():
            if op.type == "VarHandleOp" and op.name in names:
                dtype = op.get_attr("dtype")
                with tf.device(op.device):
                    read[op.name] = tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=dtype)
                    value = v1.placeholder(dtype)
                    written[op.name] = value, tf.raw_ops.AssignVariableOp(resource=op.outputs[0], value=value)
    return read, written


def _perturb(values: Values) -> Values:
    """Variables changed by NUDGE units in the last place on average, each all up or all down; no whole numbers."""
    rng, perturbed = np.random.default_rng(SEED), Values()
    for name, value in values.items():
        perturbed[name] = value
        if np.asarray(value).dtype.kind == "f":
            by = rng.choice((-2, 2)) * NUDGE * np.finfo(value.dtype).eps
            perturbed[name] = (value * (1 + by * rng.random(value.shape))).astype(value.dtype)
    return perturbed


@dataclass(frozen=True, slots=True)
class _RunDistances:
    """Distances from the whole step's: the largest of each fetched tensor over all steps, and of each variable."""

    losses: dict[str, float]
    variables: dict[str, float]

    @property
    def furthest(self) -> tuple[float, str]:
        """The largest, and of what; 0 of nothing."""
        return max([(0.0, ""), *((d, name) for name, d in (self.losses | self.variables).items())])


def _run_distances(first: _GraphRun, other: _GraphRun, parts: Sequence[PartVariable] = ()) -> _RunDistances:
    """Return the distances of another run of the whole step, or of a divided one with these variables."""
    floor = NOISE * max((_largest(np.asarray(value)) for value in first.after.values()), default=0.0)
    losses = dict[str, float]()
    for one, whole_ in zip(other.losses, first.losses, strict=True):
        for name, value in whole_.items():
            least = floor if name in first.reads else 0.0
            losses[name] = max(
                losses.get(name, 0.0), _floored_distance(np.asarray(one[name]), np.asarray(value), least)
            )
    if parts:
        return _RunDistances(
            losses, {v.name: _variable_distance(v, other.after, first.after[v.name], floor) for v in parts}
        )
    own = {
        name: _floored_distance(np.asarray(other.after[name]), np.asarray(value), floor)
        for name, value in first.after.items()
    }
    return _RunDistances(losses, own)


def _compared(
    made: Partition, first: _GraphRun, second: _GraphRun, apart: _RunDistances, nudged: float | None
) -> PartitionRunResult:
    losses, variables = apart.losses, apart.variables
    far, furthest = apart.furthest
    numbers = [
        np.asarray(value)
        for values in (*first.losses, first.after, *second.losses, second.after)
        for value in values.values()
    ]
    return PartitionRunResult(
        losses_distance=max(losses.values(), default=0.0), variables_distance=max(variables.values(), default=0.0),
        furthest=furthest if far else None, nudged_distance=nudged, losses=tuple(losses), variables=len(variables),
        finite=all(np.isfinite(value).all() for value in numbers if value.dtype.kind in "fc"),
        moves=_moves(made, second.traced), steps=len(first.losses),
        step_s=statistics.median(second.seconds), whole_step_s=statistics.median(first.seconds),
        held=made.share, moved_bytes=made.parts.moved_bytes(), nodes=len(made.graph_def.node),
        late=made.late, devices=made.devices, feeds=(),
    )  # fmt: skip


def _floored_distance(one: Any, other: Any, floor: float) -> float:
    """The distance of two tensors, relative to no less than `floor`."""
    largest = max(_largest(one), _largest(other))
    return relative_distance(one, other) * (largest / floor if 0 < largest < floor else 1.0)


def _largest(value: Any) -> float:
    """The largest magnitude of its finite numbers; 0 of what are no numbers."""
    numbers = np.abs(value[np.isfinite(value)]) if value.dtype.kind in "fc" else np.zeros(0)
    return float(numbers.max(initial=0.0))


def _variable_distance(variable: PartVariable, parts: Values, value: Any, floor: float) -> float:
    """Return the distance of a variable from the whole: assembled, and of each copy that several workers hold."""
    joined = _floored_distance(join_values((variable,), parts)[variable.name], value, floor)
    each = [_floored_distance(np.asarray(parts[name]), part, floor) for name, part in variable.cut(value).items()]
    return joined if len({tuple(box[0]) for box in variable.boxes}) == len(each) else max(joined, *each)


def _moves(made: Partition, metadata: Any) -> tuple[str, ...]:
    """One line for each op that TensorFlow put on another device than its worker's."""
    wanted = {node.name: node.device for node in made.graph_def.node}
    moves = []
    for graph in metadata.partition_graphs:
        for node in graph.node:
            target = wanted.get(node.name)
            here = tf.DeviceSpec.from_string(node.device)
            host = here.device_type == "CPU" and not any("CPU" in device for device in made.devices)
            if target and not covers(target, here) and not host:  # what no GPU has a kernel for runs on the host
                moves.append(f"op {node.name} was put on {node.device}, its worker is {target}")
    return tuple(moves)
