"""A divided step run on stock TensorFlow beside the whole step, from the same variables and feeds, and compared."""

import math
import statistics
import time
from collections.abc import Sequence
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
from pesto.tf.partition.partitioned import partition
from pesto.tf.run.planned_run import SEED, relative_distance
from pesto.tf.run.runnable import BatchesEndedError, RunnableStep, detect_batch_end, explain_failure, start_batch
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
    """Largest relative difference of a fetched tensor over all steps; of a variable's value as below."""
    variables_distance: float
    """Largest relative difference of a variable at the end, each part against its part of the whole variable.

    It is relative to no less than NOISE of the largest number of all variables: a gradient that is zero but for
    rounding, as of a bias before batch normalisation, is nothing but the order of sums."""
    furthest: str | None
    """Tensor or variable of the largest difference; None where all are equal, bit for bit."""
    nudged_distance: float | None
    """Relative difference of the whole step from itself after its variables change by NUDGE units in the last place.

    It is measured where a difference exceeds TOLERANCE. Batch normalisation over few numbers, for one, carries a change
    that far."""
    losses: tuple[str, ...]
    """Names of the fetched tensors that were compared."""
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
    """Nodes of the partitioned graph."""
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


@dataclass(frozen=True, slots=True)
class _RunDistances:
    """Distances from the whole step's: the largest of each fetched tensor over all steps, and of each variable."""

    losses: dict[str, float]
    variables: dict[str, float]

    @property
    def furthest(self) -> tuple[float, str]:
        """The largest, and the name of its tensor; 0 without any."""
        return max([(0.0, ""), *((d, name) for name, d in (self.losses | self.variables).items())])


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
    CPUs, GPU, or None for GPUs where there are as many as workers. Raise UsageError for less than one step and other
    devices, InputError when the step does not run.
    """
    if steps < 1 or devices not in (None, CPU, GPU):
        raise UsageError.build(f"run: {steps} steps on {quoted(devices)}", remedy="give at least 1, on cpu or gpu")
    workers, many = division.devices, len(tf.config.list_physical_devices("GPU"))
    devices = devices or (GPU if many >= workers else CPU)
    if devices == GPU and many < workers:
        raise InputError.build(f"run: {workers} workers, and this machine has {many} GPUs", remedy="run it on cpu")
    # Workers on logical CPUs stand beside the host, which is CPU 0.
    where = tuple(f"/device:{devices.upper()}:{k + (devices == CPU)}" for k in range(workers))
    # The ops as they run, with the seeds that they have there; as captured where calls were inlined.
    program = step.graph.as_graph_def()
    if not {node.name for node in program.node}.issuperset(shaped.names):
        program = captured.graph_def
    partitioned = partition(program, shaped, division, captured.fetches, devices=where)
    soft, names = devices == GPU, frozenset(v.name for v in partitioned.variables)
    live = {}
    for node in captured.graph_def.node:
        if node.op == "VarHandleOp" and node.name in names and node.name in captured.values:
            handle = captured.values[node.name]
            with tf.init_scope():
                value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(node.attr["dtype"].type))
            live[node.name] = value.numpy()
    try:
        alone = _RunnableGraph(step.graph, captured.fetches, names, step.init, live, _make_config(1, soft=soft))
        first = _run_graph(alone, step, steps)
        parts, own = frozenset(name for v in partitioned.variables for name in v.parts), partitioned.variables
        split = split_values(own, first.before)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(partitioned.graph_def, name="")
        second = _run_graph(
            _RunnableGraph(graph, partitioned.fetches, parts, None, split, _make_config(workers, soft=soft)),
            step,
            steps,
        )
        apart = _measure_distances(first, second, own)
        far, furthest = apart.furthest
        third = _run_graph(replace(alone, values=_perturb(first.before)), step, steps) if far > TOLERANCE else None
    except (tf.errors.OpError, BatchesEndedError) as error:
        raise explain_failure("run", captured.source, error) from error
    compared = (*first.losses, first.after, *second.losses, second.after)
    numbers = [np.asarray(value) for values in compared for value in values.values()]
    return PartitionRunResult(
        losses_distance=max(apart.losses.values(), default=0.0),
        variables_distance=max(apart.variables.values(), default=0.0), furthest=furthest if far else None,
        nudged_distance=None if third is None else _measure_distances(first, third).furthest[0],
        losses=tuple(apart.losses), variables=len(apart.variables),
        finite=all(np.isfinite(value).all() for value in numbers if value.dtype.kind in "fc"),
        moves=_find_moved_ops(partitioned.graph_def, partitioned.devices, second.traced), steps=len(first.losses),
        step_s=statistics.median(second.seconds), whole_step_s=statistics.median(first.seconds),
        held=partitioned.share, moved_bytes=partitioned.parts.moved_bytes(), nodes=len(partitioned.graph_def.node),
        late=partitioned.late, devices=partitioned.devices, feeds=step.feed_values,
    )  # fmt: skip


def _make_config(workers: int, *, soft: bool) -> Any:
    config = v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=max(2, workers), allow_soft_placement=soft
    )
    config.device_count["CPU"] = workers + 1
    config.gpu_options.allow_growth = True
    return disable_optimizers(config)


def _run_graph(driven: _RunnableGraph, step: RunnableStep, steps: int) -> _GraphRun:
    """Run steps of a graph; the batches are the same every time."""
    graph = driven.graph
    ops = [graph.get_operation_by_name(name) for name in driven.fetches]
    outputs = [t for op in ops for t in op.outputs if t.dtype == t.dtype.base_dtype]
    tensors = {t.name: t for t in outputs if t.dtype.name not in ("resource", "variant")}
    placeholders = {op.name for op in graph.get_operations() if op.type.startswith("Placeholder")}
    read, written = {}, {}
    with graph.as_default(), tf.control_dependencies(None):
        for op in graph.get_operations():
            if op.type == "VarHandleOp" and op.name in driven.names:
                handle, dtype = op.outputs[0], op.get_attr("dtype")
                with tf.device(op.device):
                    read[op.name] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
                    value = v1.placeholder(dtype)
                    written[op.name] = value, tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    rng, losses, seconds, metadata = np.random.default_rng(SEED), [], [], v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.SOFTWARE_TRACE, output_partition_graphs=True)
    with v1.Session(graph=graph, config=driven.config) as session:
        if driven.init is not None:
            session.run(graph.get_operation_by_name(driven.init))
        feeds = [(*written[name], value) for name, value in driven.values.items()]
        session.run([assigned for _, assigned, _ in feeds], {place: value for place, _, value in feeds})
        before = session.run(read)
        for number in range(steps):
            batch = start_batch(session, step, rng)
            feed = {name: value for name, value in batch.items() if name.partition(":")[0] in placeholders}
            traced = {} if number else {"options": options, "run_metadata": metadata}
            began = time.perf_counter()
            with detect_batch_end(number, 0, (steps, "steps")):
                losses.append(session.run((tensors, ops), feed, **traced)[0])
            seconds.append(time.perf_counter() - began)
        after = session.run(read)
    return _GraphRun(
        losses=tuple(losses), before=before, after=after, seconds=tuple(seconds[1:] or seconds), traced=metadata,
        reads=frozenset(name for name, tensor in tensors.items() if tensor.op.type == "ReadVariableOp"),
    )  # fmt: skip


def _perturb(values: Values) -> Values:
    """Change variables by NUDGE units in the last place on average, each all up or all down; no whole numbers."""
    rng, perturbed = np.random.default_rng(SEED), Values()
    for name, value in values.items():
        perturbed[name] = value
        if np.asarray(value).dtype.kind == "f":
            by = rng.choice((-2, 2)) * NUDGE * np.finfo(value.dtype).eps
            perturbed[name] = (value * (1 + by * rng.random(value.shape))).astype(value.dtype)
    return perturbed


def _measure_distances(first: _GraphRun, other: _GraphRun, parts: Sequence[PartVariable] = ()) -> _RunDistances:
    """Return the distances of another run of the whole step, or of a divided one with these variables."""
    floor = NOISE * max((_find_largest(np.asarray(value)) for value in first.after.values()), default=0.0)
    losses = dict[str, float]()
    for one, whole_ in zip(other.losses, first.losses, strict=True):
        for name, value in whole_.items():
            apart = _compute_floored_distance(one[name], value, floor if name in first.reads else 0.0)
            losses[name] = max(losses.get(name, 0.0), apart)
    after = other.after
    if not parts:
        own = {name: _compute_floored_distance(after[name], value, floor) for name, value in first.after.items()}
        return _RunDistances(losses, own)
    variables = {}
    for variable in parts:
        value = first.after[variable.name]
        far = [_compute_floored_distance(join_values((variable,), after)[variable.name], value, floor)]
        cut = variable.cut(value)
        # Several workers may hold copies of a part, of which joining takes the last.
        if len({tuple(box[0]) for box in variable.boxes}) != len(cut):
            far += [_compute_floored_distance(after[name], part, floor) for name, part in cut.items()]
        variables[variable.name] = max(far)
    return _RunDistances(losses, variables)


def _compute_floored_distance(one: Any, other: Any, floor: float) -> float:
    """Return the distance of two tensors, relative to no less than `floor`."""
    one, other = np.asarray(one), np.asarray(other)
    largest = max(_find_largest(one), _find_largest(other))
    return relative_distance(one, other) * (largest / floor if 0 < largest < floor else 1.0)


def _find_largest(value: Any) -> float:
    """Return the largest magnitude of its finite numbers; 0 for what are no numbers."""
    numbers = np.abs(value[np.isfinite(value)]) if value.dtype.kind in "fc" else np.zeros(0)
    return float(numbers.max(initial=0.0))


def _find_moved_ops(graph_def: Any, devices: Sequence[str], metadata: Any) -> tuple[str, ...]:
    """Return one line for each op that TensorFlow put on another device than its worker's."""
    wanted = {node.name: node.device for node in graph_def.node}
    moves = []
    for graph in metadata.partition_graphs:
        for node in graph.node:
            target = wanted.get(node.name)
            actual = tf.DeviceSpec.from_string(node.device)
            host = actual.device_type == "CPU" and not any("CPU" in device for device in devices)
            if target and not covers(target, actual) and not host:  # what no GPU has a kernel for runs on the host
                moves.append(f"op {node.name} was put on {node.device}, its worker is {target}")
    return tuple(moves)
