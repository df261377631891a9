"""A planned step run on stock TensorFlow, and held against a reference without a plan: where, in which order, what.

Every run that places ops orders them too, so that a logical CPU is one serial stream as a GPU is.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError, MismatchError
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan, refuse_another_graph
from pesto.tf.apply_placement.targets import check_devices_exist, covers, device_targets
from pesto.tf.enforce import context, partitions
from pesto.tf.enforce.apply_options import ApplyOptions
from pesto.tf.enforce.partitions import ExpectedPlacement, Findings
from pesto.tf.enforce.steps import configure_session
from pesto.tf.feed_values import FeedValues
from pesto.tf.run.input_sources import BatchesEndedError, explain_failure
from pesto.tf.run.run_options import CPU, GPU, STOCK, UNPLACED, RunOptions
from pesto.tf.run.runnable import RunnableStep
from pesto.tf.run.step_runs import RunRecord, StepDriver, differing_names, relative_distances
from pesto.tf.run.user_batch import use_batch
from pesto.tf.session_config import prevent_onednn_merging
from pesto.tf.tensorflow_start import onednn_enabled

v1 = tf.compat.v1
T = TypeVar("T")

CPU_NOTE = (
    "logical CPUs: transfers copy nothing and devices share the machine's cores, so these times check the order, not "
    "the plan's speed"
)
GPU_NOTE = "ops run deterministically, so that results can be compared; without that some kernels are faster"


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
    """Description of the reference, for people: TensorFlow's settings in it."""
    losses_equal: bool | None
    """True if each fetched tensor equalled the reference's in every step, bit for bit."""
    variables_equal: bool | None
    """True if every variable equalled the reference's at the end, bit for bit."""
    different: tuple[str, ...]
    """Names of the tensors and variables that were not; none against STOCK, where numbers may differ."""
    losses_distance: float | None
    """Against STOCK, the largest relative difference of a fetched tensor (`stepping.distances`)."""
    variables_distance: float | None
    """Against STOCK, the largest relative difference of a variable at the end."""
    furthest: str | None
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
    """All ops on one device, in the plan's order; on GPUs, host ops stay on the host."""
    unordered_step_s: float | None
    """The plan's placement without its order."""
    steps: int
    traced_steps: int
    """Steps at the start whose traces were held against the plan."""
    devices: dict[str, str]
    """Plan's device -> TensorFlow's."""
    ops: int
    chain_edges: int
    """Control edges that were added for the order."""
    predicted_step_s: float | None
    """The plan's own; None where its order was left out."""
    costs: str
    """Basis of the prediction: measured costs, modelled ones, or the share of each."""
    inject_s: float
    """Seconds that placing and ordering the graph added to opening the session."""
    verify_s: float
    """Seconds of holding the partition graphs and traces against the plan."""
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
    process from then on. MismatchError when the plan is for another graph,
    InputError when the step does not run, its results differ from run to run, or devices are missing.
    """
    if plan.provenance.graph_fingerprint != graph.fingerprint():
        refuse_another_graph(plan, graph)
    devices = how.devices or _default_devices(plan)
    wanted = device_targets(plan, devices)
    drive = StepDriver.of(
        use_batch(step, how.feeds),
        steps=how.steps,
        threads=len(wanted),
        gpu=devices == GPU,
        keep=how.reference == STOCK,
    )
    try:
        return _run_and_compare(plan, graph, drive, ApplyOptions(devices=wanted, order=how.order))
    except (tf.errors.OpError, BatchesEndedError) as error:
        raise explain_failure("run", graph.source, error) from error


def _default_devices(plan: Plan) -> str:
    """GPU when the plan names GPUs and this process has as many; CPU otherwise."""
    names = [name for name in dict.fromkeys(plan.lane_device) if name.startswith("gpu:")]
    return GPU if names and len(tf.config.list_physical_devices("GPU")) >= len(names) else CPU


def _run_and_compare(plan: Plan, graph: Graph, drive: StepDriver, options: ApplyOptions) -> PlannedRunResult:
    wanted = device_targets(plan, options.devices)
    with v1.Session(
        graph=tf.Graph(), config=configure_session(drive.config, wanted)
    ) as first:  # starts the devices, too
        check_devices_exist(wanted, [d.name for d in first.list_devices()])
    if drive.gpu:
        # Some GPU kernels add in the order in which threads finish. Without determinism two equal runs differ in the
        # last bits, and nothing could be said of a plan.
        tf.config.experimental.enable_op_determinism()
    reference = _unless_too_large(lambda: _reference(drive))
    planned, expected, findings = _run_by_plan(plan, drive, options)
    seen = _check_traces(planned, expected, findings)
    # The same ops in the same order on one device: if results differ from the plan's, the placement is at fault, not
    # the order.
    single = _unless_too_large(lambda: _run_by_plan(_on_single_device(plan, wanted), drive, options)[0])
    unordered = _unless_too_large(lambda: _run_by_plan(plan, drive, ApplyOptions(devices=wanted, order=False))[0])
    held = _compare_with_reference(graph, drive, planned, reference)
    bits = None if drive.keep else reference
    predicted = plan.makespan_s if options.order or plan.placement_only else None
    return PlannedRunResult(
        moves=seen.moves, inversions=seen.inversions, chain_edges=seen.chain_edges, verify_s=seen.verify_s,
        reference=STOCK if drive.keep else UNPLACED, reference_is=_describe_reference(drive),
        losses_equal=held.losses_equal, variables_equal=held.variables_equal, different=held.different,
        losses_distance=held.losses_distance, variables_distance=held.variables_distance, furthest=held.furthest,
        finite=planned.finite, single_equal=_equal(single, bits), unordered_equal=_equal(unordered, bits),
        step_s=statistics.median(planned.seconds),
        unplaced_step_s=_median(reference), single_step_s=_median(single), unordered_step_s=_median(unordered),
        steps=drive.steps, traced_steps=len(planned.traced), devices=wanted, ops=graph.ops,
        predicted_step_s=predicted, costs=plan.provenance.costs_basis,
        inject_s=max(0.0, planned.opened_s - drive.stock_open_s()),
        note=GPU_NOTE if drive.gpu else CPU_NOTE, feeds=drive.step.feed_values,
    )  # fmt: skip


def _reference(drive: StepDriver) -> RunRecord:
    """The run without a plan: all rewrites off where bits are to be compared, all on where the numbers are kept."""
    if drive.keep:
        return replace(drive, config=v1.ConfigProto()).run()
    with prevent_onednn_merging(drive.step.graph):
        return drive.run()


def _describe_reference(drive: StepDriver) -> str:
    kernels = f"oneDNN's kernels {'on' if onednn_enabled() else 'off'}"
    if drive.keep:
        return f"the step without a plan as TensorFlow runs it by itself (Grappler on, {kernels}, threads as it likes)"
    return f"the step without a plan, its graph not rewritten (Grappler off, {kernels}, one thread an op)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReferenceComparison:
    """Comparison of the planned run with the reference; fields are None or empty where it does not apply."""

    losses_equal: bool | None = None
    variables_equal: bool | None = None
    different: tuple[str, ...] = ()
    losses_distance: float | None = None
    variables_distance: float | None = None
    furthest: str | None = None


def _compare_with_reference(
    graph: Graph, drive: StepDriver, planned: RunRecord, reference: RunRecord | None
) -> _ReferenceComparison:
    if reference is None:
        return _ReferenceComparison()
    if drive.keep:
        losses, variables = relative_distances(planned, reference)
        furthest = max({"": 0.0, **losses, **variables}.items(), key=lambda pair: pair[1])[0]
        return _ReferenceComparison(
            losses_distance=max(losses.values(), default=0.0),
            variables_distance=max(variables.values(), default=0.0),
            furthest=furthest or None,
        )
    unlike, changed = differing_names(planned, reference)
    if unlike or changed:
        _same_twice(graph, drive, reference)
    return _ReferenceComparison(losses_equal=not unlike, variables_equal=not changed, different=(*unlike, *changed))


@dataclass(frozen=True, slots=True, kw_only=True)
class _TraceFindings:
    """Findings of partition graphs and traces on the planned run."""

    moves: tuple[str, ...]
    inversions: tuple[str, ...]
    chain_edges: int
    verify_s: float


def _run_by_plan(
    plan: Plan, drive: StepDriver, options: ApplyOptions
) -> tuple[RunRecord, ExpectedPlacement, list[Findings]]:
    """A run by a plan, what is expected of it, and what the enforcement found in it."""
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


def _check_traces(record: RunRecord, expected: ExpectedPlacement, findings: list[Findings]) -> _TraceFindings:
    began = time.perf_counter()
    findings_of_run = [*findings, partitions.examine(record.traced[0].partition_graphs, expected)]
    findings_of_run += [partitions.examine_times(metadata.step_stats, expected) for metadata in record.traced]
    strays = [line for metadata in record.traced for line in _misplaced_ops(metadata.step_stats, expected)]
    verify_s = time.perf_counter() - began
    return _TraceFindings(
        moves=tuple(dict.fromkeys([line for f in findings_of_run for line in f.moves] + strays)),
        inversions=tuple(dict.fromkeys(line for f in findings_of_run for line in f.inversions)),
        chain_edges=len(expected.placement.before),
        verify_s=verify_s,
    )


def _misplaced_ops(stats: Any, expected: ExpectedPlacement) -> list[str]:
    """One line for each op that a trace saw on other devices than the plan's alone.

    An op runs on one device. What else is traced under its name is of the body of a function, whose names are its own.
    """
    placement = expected.placement
    index = {name: i for i, name in enumerate(placement.graph.names)}
    wrong, at_home = dict[int, str](), set[int]()
    for device in stats.dev_stats:
        if partitions.is_duplicate_device(device.device):
            continue
        here = tf.DeviceSpec.from_string(device.device)
        right = [covers(target, here) for target in placement.devices]
        for entry in device.node_stats:
            i = index.get(entry.node_name)
            if i is not None and right[placement.device[i]]:
                at_home.add(i)
            elif i is not None:
                wrong[i] = f"op {entry.node_name} ran on {device.device}, planned on {placement.device_of(i)}"
    return [line for i, line in wrong.items() if i not in at_home]


def _on_single_device(plan: Plan, wanted: dict[str, str]) -> Plan:
    """The plan's order on a single device: GPUs become the first of them, and on CPUs everything is on the first."""
    kinds = [tf.DeviceSpec.from_string(wanted[name]).device_type for name in plan.lane_device]
    fast = np.array([kind == "GPU" for kind in kinds]) if "GPU" in kinds else np.ones(len(kinds), dtype=np.bool_)
    lane = np.where(fast, int(np.flatnonzero(fast)[0]), np.arange(len(kinds)))
    return replace(plan, schedule=replace(plan.schedule, device=lane[plan.schedule.device]))


def _unless_too_large(drive: Callable[[], T]) -> T | None:
    """Return the run's record; None when a device has too little memory, as one GPU may have for a step of two."""
    try:
        return drive()
    except tf.errors.ResourceExhaustedError:
        return None


def _same_twice(graph: Graph, drive: StepDriver, reference: RunRecord) -> None:
    """InputError when not even two runs without a plan agree: then nothing can be said of a plan."""
    losses, variables = differing_names(_reference(drive), reference)
    if losses or variables:
        raise InputError.build(
            f"run: {graph.source} gives other results each time it runs, such as "
            f"{(*losses, *variables)[0]}, so no "
            "plan can be held against it",
            remedy="seed its random ops and order its updates",
        )


def _equal(record: RunRecord | None, other: RunRecord | None) -> bool | None:
    return None if record is None or other is None else not any(differing_names(record, other))


def _median(record: RunRecord | None) -> float | None:
    return None if record is None else statistics.median(record.seconds)
