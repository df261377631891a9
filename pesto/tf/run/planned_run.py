"""A planned step run on stock TensorFlow, and compared with a reference without a plan: devices, order and results.

Every run that places ops orders them too, so that a logical CPU is one serial stream as a GPU is.
"""

import hashlib
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError, MismatchError
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan, refuse_another_graph
from pesto.tf.apply_placement.targets import ApplyOptions, check_devices_exist, covers, device_targets
from pesto.tf.enforce import context, partitions
from pesto.tf.enforce.partitions import ExpectedPlacement, Findings
from pesto.tf.enforce.sessions import configure_session
from pesto.tf.feed_values import FeedValues
from pesto.tf.run.run_options import CPU, GPU, STOCK, UNPLACED, RunOptions
from pesto.tf.run.runnable import (
    BatchesEndedError,
    RunnableStep,
    detect_batch_end,
    explain_failure,
    start_batch,
    use_batch,
)
from pesto.tf.session_config import disable_optimizers, prevent_onednn_merging
from pesto.tf.tensorflow_start import onednn_enabled

WARMUP = 3
"""Untimed steps at the start; they are the traced ones, and their results are compared as all others are."""
SEED = 0
_RESOURCES = ("resource", "variant")
T = TypeVar("T")

CPU_NOTE = (
    "logical CPUs: transfers copy nothing and devices share the machine's cores, so these times check the order, not "
    "the plan's speed"
)
GPU_NOTE = "ops run deterministically, so that results can be compared; without that some kernels are faster"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Record of a run of `WARMUP` and further steps from the initial variables."""

    losses: tuple[Mapping[str, bytes], ...]
    """Digest of each fetched tensor, for each step."""
    variables: Mapping[str, bytes]
    """Digest of each variable at the end."""
    finite: bool
    """True if no number in either was infinite or NaN."""
    seconds: tuple[float, ...]
    """Seconds of each step after the warm-up."""
    opened_s: float
    """Seconds of opening the session."""
    traced: tuple[Any, ...]
    """RunMetadata of the warm-up steps, if they were traced."""
    kept: tuple[Mapping[str, Any], ...] = ()
    """Fetched tensors of each step, and last the variables, where they were kept."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepDriver:
    """A step with the number and settings of its runs; see `of`."""

    step: RunnableStep
    steps: int
    gpu: bool
    config: Any
    tensors: Mapping[str, Any]
    """Tensors that a step fetches, by name."""
    updates: tuple[Any, ...]
    """Ops that a step runs."""
    values: Mapping[str, Any]
    """Tensor that holds each variable's value."""
    keep: bool = False
    """True keeps the numbers themselves, to compute distances between two runs."""

    @staticmethod
    def of(step: RunnableStep, *, steps: int, threads: int, gpu: bool, keep: bool = False) -> "StepDriver":
        """Return a driver of `step` with Grappler off, one core an op and at least `threads` ops at a time.

        The step's graph gets an op that reads each resource variable.
        """
        config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=max(2, threads))
        disable_optimizers(config)
        ops = [step.graph.as_graph_element(name.partition(":")[0]) for name in step.fetches]
        values = {}
        with step.graph.as_default(), tf.control_dependencies(None):
            for op in step.graph.get_operations():
                if op.type in ("VariableV2", "Variable"):
                    values[op.name] = op.outputs[0]
                elif op.type == "VarHandleOp":
                    values[op.name] = tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=op.get_attr("dtype"))
        # A reference may be written to while it is fetched; its value is compared at the end.
        tensors = {
            t.name: t
            for op in ops
            for t in op.outputs
            if t.dtype == t.dtype.base_dtype and t.dtype.name not in _RESOURCES
        }
        return StepDriver(
            step=step, steps=steps, gpu=gpu, keep=keep, config=config, updates=tuple(ops), values=values,
            tensors=tensors,
        )  # fmt: skip

    def run(self, *, traced: bool = False) -> RunRecord:
        """Return the record of all steps from the initial variables; equal calls see equal values and batches."""
        began = time.perf_counter()
        with v1.Session(graph=self.step.graph, config=self.config) as session:
            opened_s = time.perf_counter() - began
            session.run(self.step.graph.get_operation_by_name(self.step.init))
            rng = np.random.default_rng(SEED)
            losses, seconds, metadata, fetched_values, finite = [], [], [], [], True
            for k in range(WARMUP + self.steps):
                extra = {}
                if traced and k < WARMUP:
                    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
                    extra = {"options": options, "run_metadata": v1.RunMetadata()}
                feed = start_batch(session, self.step, rng)
                began = time.perf_counter()
                with detect_batch_end(k, WARMUP, (self.steps, "steps")):
                    fetched, _ = session.run((dict(self.tensors), self.updates), feed, **extra)
                seconds.append(time.perf_counter() - began)
                # Digests instead of tensors: all steps of all runs are compared bit for bit without keeping their
                # numbers.
                losses.append(_hash_values(fetched))
                fetched_values += [fetched] if self.keep else []
                finite = finite and _is_finite(fetched)
                metadata += [extra["run_metadata"]] if extra else []
            values = session.run(dict(self.values))
        return RunRecord(
            losses=tuple(losses), variables=_hash_values(values), finite=finite and _is_finite(values),
            seconds=tuple(seconds[WARMUP:]), opened_s=opened_s, traced=tuple(metadata),
            kept=(*fetched_values, values) if self.keep else (),
        )  # fmt: skip

    def stock_open_s(self) -> float:
        """Return the seconds of opening a session without a plan, with the devices started already."""
        began = time.perf_counter()
        with v1.Session(graph=self.step.graph, config=self.config):
            return time.perf_counter() - began


def differing_names(one: RunRecord, other: RunRecord | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the fetched tensors and of the variables that differ between two runs in any bit."""
    if other is None:
        return (), ()
    losses = {
        name: None
        for a, b in zip(one.losses, other.losses, strict=True)
        for name, digest in a.items()
        if b[name] != digest
    }
    return tuple(losses), tuple(name for name, digest in one.variables.items() if other.variables[name] != digest)


def relative_distances(one: RunRecord, other: RunRecord) -> tuple[dict[str, float], dict[str, float]]:
    """Return relative distances between two runs that kept their numbers: of each fetched tensor and of each variable.

    It is the largest difference between two numbers of a tensor over the largest magnitude in it; infinite where a
    number is finite or a text is given in one run alone.
    """
    losses: dict[str, float] = {}
    for a, b in zip(one.kept[:-1], other.kept[:-1], strict=True):
        for name, value in a.items():
            losses[name] = max(losses.get(name, 0.0), relative_distance(np.asarray(value), np.asarray(b[name])))
    last = other.kept[-1]
    return losses, {name: relative_distance(np.asarray(v), np.asarray(last[name])) for name, v in one.kept[-1].items()}


def relative_distance(one: Any, other: Any) -> float:
    """Return the largest difference between two numbers of two tensors over the largest magnitude in either."""
    if one.dtype.kind in "OSU":
        return 0.0 if np.array_equal(one, other) else math.inf
    kind = np.complex128 if one.dtype.kind == "c" else np.float64
    a, b = one.astype(kind), other.astype(kind)
    unlike = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not unlike.any():
        return 0.0
    if not (np.isfinite(a[unlike]).all() and np.isfinite(b[unlike]).all()):
        return math.inf
    magnitudes = np.abs(np.concatenate([a.ravel(), b.ravel()]))
    return float(np.abs(a - b)[unlike].max() / magnitudes[np.isfinite(magnitudes)].max())


def _is_finite(values: Mapping[str, Any]) -> bool:
    arrays = [np.asarray(value) for value in values.values()]
    return all(np.isfinite(array).all() for array in arrays if array.dtype.kind in "fc")


def _hash_values(values: Mapping[str, Any]) -> dict[str, bytes]:
    """Hash type, shape and bits of each, so that 0.0 differs from -0.0; all NaNs are equal."""
    digests = {}
    for name, value in values.items():
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
        content = repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
        digests[name] = hashlib.sha256(f"{array.dtype} {array.shape}\n".encode() + content).digest()
    return digests


v1 = tf.compat.v1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRunResult:
    """Result of running a step by its plan. A time or comparison is None where a run did not fit the memory."""

    moves: tuple[str, ...]
    """One line for each op that was not on its planned device."""
    inversions: tuple[str, ...]
    """One line for each pair of neighbours in a chain that could run, or ran, the other way round."""
    reference: str
    """UNPLACED or STOCK."""
    reference_is: str
    """Description of the reference for messages: TensorFlow's settings in it."""
    losses_equal: bool | None = None
    """True if each fetched tensor equalled the reference's in every step, bit for bit."""
    variables_equal: bool | None = None
    """True if every variable equalled the reference's at the end, bit for bit."""
    different: tuple[str, ...] = ()
    """Names of the tensors and variables that were not; none against STOCK, where numbers may differ."""
    losses_distance: float | None = None
    """Against STOCK, the largest relative difference of a fetched tensor (`relative_distances`)."""
    variables_distance: float | None = None
    """Against STOCK, the largest relative difference of a variable at the end."""
    furthest: str | None = None
    """Against STOCK, the tensor or variable with the largest difference; None where all are equal."""
    finite: bool
    """True if all compared numbers were finite: NaN equals NaN and says little."""
    single_equal: bool | None
    """True if the run on a single device equalled the reference, bit for bit; None against STOCK."""
    unordered_equal: bool | None
    """True if the run of the plan's placement without its order equalled the reference; None against STOCK."""
    step_s: float
    """Median seconds of a step by the plan."""
    unplaced_step_s: float | None
    """Median seconds of a step of the reference, which has no plan."""
    single_step_s: float | None
    """Median seconds of a step with all ops on one device, in the plan's order; host ops of GPUs stay on the host."""
    unordered_step_s: float | None
    """Median seconds of a step by the plan's placement without its order."""
    steps: int
    traced_steps: int
    """Steps at the start whose traces were compared with the plan."""
    devices: dict[str, str]
    """Plan's device -> TensorFlow's."""
    ops: int
    chain_edges: int
    """Control edges that were added for the order."""
    predicted_step_s: float | None
    """Seconds of a step by the plan; None where its order was left out."""
    costs: str
    """Basis of the prediction: measured costs, modelled ones, or the share of each."""
    inject_s: float
    """Seconds that placing and ordering the graph added to opening the session."""
    verify_s: float
    """Seconds of comparing the partition graphs and traces with the plan."""
    note: str
    """Caveat on the times."""
    feeds: tuple[FeedValues, ...]
    """Values that each feed was given in all runs."""

    @property
    def as_planned(self) -> bool:
        """True if no op moved, no pair was out of order and no result differed."""
        return not (self.moves or self.inversions or self.different)


def run_planned(plan: Plan, graph: Graph, step: RunnableStep, how: RunOptions) -> PlannedRunResult:
    """Run `step`, whose op names are `graph`'s, as the reference, by `plan`, on a single device and without order.

    All runs start from the same variables and see the same batches. On GPUs, ops run deterministically in the whole
    process from then on. Raise MismatchError when the plan is for another graph, InputError when the step does not run,
    its results differ from run to run, or devices are missing.
    """
    if plan.provenance.graph_fingerprint != graph.fingerprint():
        refuse_another_graph(plan, graph)
    devices = how.devices or choose_devices(plan)
    wanted = device_targets(plan, devices)
    fed, keep = use_batch(step, how.feeds), how.reference == STOCK
    drive = StepDriver.of(fed, steps=how.steps, threads=len(wanted), gpu=devices == GPU, keep=keep)
    try:
        return _run_and_compare(plan, graph, drive, ApplyOptions(devices=wanted, order=how.order))
    except (tf.errors.OpError, BatchesEndedError) as error:
        raise explain_failure("run", graph.source, error) from error


def choose_devices(plan: Plan) -> str:
    """Return GPU when the plan names GPUs and this process has as many; CPU otherwise."""
    names = [name for name in dict.fromkeys(plan.lane_device) if name.startswith("gpu:")]
    return GPU if names and len(tf.config.list_physical_devices("GPU")) >= len(names) else CPU


def _run_and_compare(plan: Plan, graph: Graph, drive: StepDriver, options: ApplyOptions) -> PlannedRunResult:
    wanted = device_targets(plan, options.devices)
    config = configure_session(drive.config, wanted)
    with v1.Session(graph=tf.Graph(), config=config) as first:  # starts the devices, too
        check_devices_exist(wanted, [d.name for d in first.list_devices()])
    if drive.gpu:
        # Some GPU kernels add in the order in which threads finish. Without determinism two equal runs differ in the
        # last bits, and nothing could be said of a plan.
        tf.config.experimental.enable_op_determinism()
    reference = _run_unless_too_large(lambda: _run_reference(drive))
    planned, expected, findings = _run_by_plan(plan, drive, options)
    trace_fields = check_traces(planned, expected, findings)
    # The same ops in the same order on one device: if results differ from the plan's, the placement is at fault, not
    # the order.
    single = _run_unless_too_large(lambda: _run_by_plan(move_to_single_device(plan, wanted), drive, options)[0])
    unordered = _run_unless_too_large(lambda: _run_by_plan(plan, drive, ApplyOptions(devices=wanted, order=False))[0])
    compared = _compare_with_reference(graph, drive, planned, reference)
    bits = None if drive.keep else reference
    predicted = plan.makespan_s if options.order or plan.placement_only else None
    kernels = f"oneDNN's kernels {'on' if onednn_enabled() else 'off'}"
    reference_is = f"the step without a plan, its graph not rewritten (Grappler off, {kernels}, one thread an op)"
    if drive.keep:
        reference_is = (
            f"the step without a plan as TensorFlow runs it by itself (Grappler on, {kernels}, threads as it likes)"
        )
    return PlannedRunResult(
        **trace_fields,
        **compared,
        reference=STOCK if drive.keep else UNPLACED, reference_is=reference_is,
        finite=planned.finite, single_equal=_is_equal(single, bits), unordered_equal=_is_equal(unordered, bits),
        step_s=statistics.median(planned.seconds),
        unplaced_step_s=_median(reference), single_step_s=_median(single), unordered_step_s=_median(unordered),
        steps=drive.steps, traced_steps=len(planned.traced), devices=wanted, ops=graph.ops,
        predicted_step_s=predicted, costs=plan.provenance.costs_basis,
        inject_s=max(0.0, planned.opened_s - drive.stock_open_s()),
        note=GPU_NOTE if drive.gpu else CPU_NOTE, feeds=drive.step.feed_values,
    )  # fmt: skip


def _run_reference(drive: StepDriver) -> RunRecord:
    # All rewrites are off where bits are to be compared, all on where the numbers are kept.
    if drive.keep:
        return replace(drive, config=v1.ConfigProto()).run()
    with prevent_onednn_merging(drive.step.graph):
        return drive.run()


def _compare_with_reference(
    graph: Graph, drive: StepDriver, planned: RunRecord, reference: RunRecord | None
) -> dict[str, Any]:
    """Return the fields of `PlannedRunResult` that compare with the reference, those that apply."""
    if reference is None:
        return {}
    if drive.keep:
        of_losses, of_variables = relative_distances(planned, reference)
        furthest = max({"": 0.0, **of_losses, **of_variables}.items(), key=lambda pair: pair[1])[0]
        return {
            "losses_distance": max(of_losses.values(), default=0.0),
            "variables_distance": max(of_variables.values(), default=0.0),
            "furthest": furthest or None,
        }
    unlike, changed = differing_names(planned, reference)
    if unlike or changed:
        # When not even two runs without a plan agree, nothing can be said of a plan.
        losses, variables = (list(names) for names in differing_names(_run_reference(drive), reference))
        if losses or variables:
            raise InputError.build(
                f"run: {graph.source} gives other results each time it runs, such as {(*losses, *variables)[0]}, so no "
                "plan can be held against it",
                remedy="seed its random ops and order its updates",
            )
    return {"losses_equal": not unlike, "variables_equal": not changed, "different": (*unlike, *changed)}


def _run_by_plan(
    plan: Plan, drive: StepDriver, options: ApplyOptions
) -> tuple[RunRecord, ExpectedPlacement, list[Findings]]:
    """Return the record of a run by a plan, its expected placement, and the findings of the enforcement."""
    with context.apply((plan,), options) as applied:
        record = drive.run(traced=True)
        if drive.step.graph not in applied.sessions.placed:
            raise MismatchError.build(
                "the ops of this trace have other names than the plan's",
                where=plan.provenance.graph_source,
                remedy="trace the step first in its process, as when it was planned",
            )
        (placed,) = applied.sessions.placed[drive.step.graph]
        return record, placed.expected, applied.findings


def check_traces(record: RunRecord, expected: ExpectedPlacement, findings: list[Findings]) -> dict[str, Any]:
    """Return the fields of `PlannedRunResult` that tell how the planned run kept to the plan."""
    began = time.perf_counter()
    findings_of_run = [*findings, partitions.examine(record.traced[0].partition_graphs, expected)]
    findings_of_run += [partitions.examine_times(metadata.step_stats, expected) for metadata in record.traced]
    strays = [line for metadata in record.traced for line in _find_misplaced_ops(metadata.step_stats, expected)]
    verify_s = time.perf_counter() - began
    return {
        "moves": tuple(dict.fromkeys([line for f in findings_of_run for line in f.moves] + strays)),
        "inversions": tuple(dict.fromkeys(line for f in findings_of_run for line in f.inversions)),
        "chain_edges": len(expected.placement.before),
        "verify_s": verify_s,
    }


def _find_misplaced_ops(stats: Any, expected: ExpectedPlacement) -> list[str]:
    """Return one line for each op that a trace saw on other devices than the plan's alone."""
    # An op runs on one device. What else is traced under its name is of the body of a function, which may reuse it.
    placement = expected.placement
    index = {name: i for i, name in enumerate(placement.graph.names)}
    wrong, at_home = dict[int, str](), set[int]()
    for device in stats.dev_stats:
        if partitions.is_duplicate_device(device.device):
            continue
        actual = tf.DeviceSpec.from_string(device.device)
        right = [covers(target, actual) for target in placement.devices]
        for entry in device.node_stats:
            i = index.get(entry.node_name)
            if i is not None and right[placement.device[i]]:
                at_home.add(i)
            elif i is not None:
                wrong[i] = f"op {entry.node_name} ran on {device.device}, planned on {placement.device_of(i)}"
    return [line for i, line in wrong.items() if i not in at_home]


def move_to_single_device(plan: Plan, wanted: dict[str, str]) -> Plan:
    """Return the plan with its order on a single device: the first of its GPUs, or the first CPU where it has none."""
    kinds = [tf.DeviceSpec.from_string(wanted[name]).device_type for name in plan.lane_device]
    fast = np.array([kind == "GPU" for kind in kinds]) if "GPU" in kinds else np.ones(len(kinds), dtype=np.bool_)
    lane = np.where(fast, int(np.flatnonzero(fast)[0]), np.arange(len(kinds)))
    return replace(plan, schedule=replace(plan.schedule, device=lane[plan.schedule.device]))


def _run_unless_too_large(drive: Callable[[], T]) -> T | None:
    """Return the run's record; None when a device has too little memory, as one GPU may have for a step of two GPUs."""
    try:
        return drive()
    except tf.errors.ResourceExhaustedError:
        return None


def _is_equal(record: RunRecord | None, other: RunRecord | None) -> bool | None:
    return None if record is None or other is None else not any(differing_names(record, other))


def _median(record: RunRecord | None) -> float | None:
    return None if record is None else statistics.median(record.seconds)
