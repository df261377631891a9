"""An emulation of a planned step: compared with the prediction, with the plan's order, and with a run without order.

Its functions are ops of a graph of their own, which TensorFlow's executor runs once.
"""

import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.cluster import Cluster
from pesto.core.errors import UsageError, VerificationError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.plan import PER_EDGE, Plan, neighbours
from pesto.core.problem import TICK_S
from pesto.core.simulator import Timeline
from pesto.tf.emulate.clocks import EmulatedWork, FunctionClock, NominalClock, WallClock
from pesto.tf.emulate.emulate_options import CHOSEN_S, MARGIN, NOMINAL, PROBE_S, SHARE, THREADS, EmulationOptions
from pesto.tf.emulate.enforced_graph import (
    EnforcedStep,
    PlannedStep,
    PredictedStep,
    build_work,
    enforce_step,
    find_unreserved_ops,
)
from pesto.tf.enforce.rewrite import logical_cpu_config
from solvers.arrays import Floats, Ints, floats

v1 = tf.compat.v1
_LOOK_S = 0.2
"""Seconds after which Ctrl-C is seen at the latest."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmulatedRun:
    """Times of one emulated step, in predicted seconds."""

    work: EmulatedWork
    start: Floats
    """[functions] seconds, from the beginning; -1 for one that did not run."""
    end: Floats
    scale: float | None
    """Seconds slept for each predicted second; None for the nominal clock."""
    threads: int
    starved: int
    """Times at which functions could have started and all threads were taken; nominal clock alone."""
    handed_over_s: float
    """Seconds of handover between functions on the critical path of the step; 0 for the nominal clock."""

    @property
    def step_s(self) -> float:
        """Seconds of the step."""
        return float(self.end.max(initial=0.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmulationResult:
    """A plan's step in TensorFlow's executor, and without the plan's order; all but `seconds` are emulated."""

    how: EmulationOptions
    scale: float | None
    """Seconds slept for each predicted second; None for the nominal clock."""
    handed_over: float
    """Measured: share of the predicted step that handing over took; 0 for the nominal clock."""
    predicted_s: float
    """Seconds of the step as the plan says."""
    step_s: float
    unordered_step_s: float
    """Seconds of the step under the plan's placement alone: processors and links serve first come, first served."""
    ops: int
    unchained: int
    """Ops out of the chains, which begin when their inputs are there, beside their processor's chain."""
    transfers: int
    unsent: int
    """Transfers of the plan that TensorFlow does not make."""
    op_inversions: tuple[str, ...]
    """One line for each pair of neighbours in a chain of which the second began before the first had ended."""
    link_inversions: tuple[str, ...]
    """One line for each pair of neighbours on a link, in the plan, of which the second was served first."""
    drift_max: float
    """Largest distance between emulated and planned starts of chained ops, as a share of the planned step."""
    drift_mean: float
    """Mean of these distances, as a share of the planned step."""
    threads: int
    starved: int
    """Times at which functions could have started and all threads were taken; nominal clock alone."""
    seconds: float
    """Measured seconds of the whole emulation."""

    @property
    def error(self) -> float:
        """Relative error: (emulated - predicted) / predicted step time."""
        return self.step_s / self.predicted_s - 1.0 if self.predicted_s else 0.0

    @property
    def gain(self) -> float:
        """Share of the time without the order that the order saves."""
        return 1.0 - self.step_s / self.unordered_step_s if self.unordered_step_s else 0.0


def emulate(step: PlannedStep, plan: Plan, predicted: PredictedStep, how: EmulationOptions) -> EmulationResult:
    """Run the step of `plan` in TensorFlow's executor on logical CPUs, with its order and without.

    Raise UsageError for a scale at which it would take more than MOST_S seconds.
    """
    began = time.perf_counter()
    enforced = enforce_step(step, plan, way=how.way, order=True)
    run = run_work(build_work(enforced, predicted), predicted.timeline.makespan_s, how)
    without = enforce_step(step, plan, way=how.way, order=False)
    # Without an order no op is chained, so the ops beside the processors are taken from the ordered run: both runs then
    # differ in the order alone.
    alike = find_unreserved_ops(enforced, predicted)
    unordered = run_work(build_work(without, predicted, alike), predicted.timeline.makespan_s, how, run.scale)
    starts = drift(run, enforced, predicted)
    timeline = predicted.timeline
    planned = set(zip(timeline.schedule.sent_payload.tolist(), timeline.schedule.sent_to.tolist(), strict=True))
    own_sends = {sent for sent in run.work.sent if sent[0] >= 0}
    return EmulationResult(
        how=how, scale=run.scale,
        handed_over=run.handed_over_s / predicted.timeline.makespan_s if predicted.timeline.makespan_s else 0.0,
        predicted_s=predicted.timeline.makespan_s, step_s=run.step_s, unordered_step_s=unordered.step_s,
        ops=sum(op >= 0 for op in run.work.op), unchained=int((~enforced.placement.chained).sum()),
        transfers=len(own_sends), unsent=len(planned - own_sends),
        op_inversions=op_inversions(run, enforced, predicted), link_inversions=link_inversions(run, predicted),
        drift_max=float(starts.max(initial=0.0)), drift_mean=float(starts.mean()) if len(starts) else 0.0,
        threads=run.threads, starved=run.starved, seconds=time.perf_counter() - began,
    )  # fmt: skip


def run_work(work: EmulatedWork, step_s: float, how: EmulationOptions, scale: float | None = None) -> EmulatedRun:
    """Execute `work`, of a step that is predicted to take `step_s`; `scale` is one that was chosen already.

    Raise UsageError for a scale at which it would take too long.
    """
    threads = max(1, min(work.functions, THREADS))
    if how.clock == NOMINAL:
        return _execute_work(work, NominalClock(work, threads, how.ties), threads, scale)
    if not scale and how.scale is not None:
        scale = how.scale
        if (error := how.too_long(step_s)) is not None:
            raise UsageError.of(error, where="emulate")
    elif not scale and step_s:
        # A scale too small measures Python's thread switching, one too large takes minutes. The share of handover in a
        # short run, on this machine, as busy as it is, gives the smallest scale at which it is negligible.
        probe = PROBE_S / step_s
        took_s = _execute_work(work, WallClock(work, probe * TICK_S), threads, probe).handed_over_s * probe
        scale = min(CHOSEN_S, max(PROBE_S, MARGIN * took_s / SHARE)) / step_s
    scale = scale or 1.0
    return _execute_work(work, WallClock(work, scale * TICK_S), threads, scale)


def _execute_work(
    work: EmulatedWork, clock: NominalClock | WallClock, threads: int, scale: float | None
) -> EmulatedRun:
    execute(work, clock, threads)
    times = np.array(clock.times(), dtype=np.float64).reshape(-1, 2)
    ran = times[:, 0] >= 0
    return EmulatedRun(
        work=work, start=floats(np.where(ran, times[:, 0] * TICK_S, -1.0)),
        end=floats(np.where(ran, times[:, 1] * TICK_S, -1.0)), scale=scale, threads=threads,
        starved=clock.starved if isinstance(clock, NominalClock) else 0,
        handed_over_s=clock.handed_over() * TICK_S if isinstance(clock, WallClock) else 0.0,
    )  # fmt: skip


def execute(work: EmulatedWork, clock: FunctionClock, threads: int) -> None:
    """Run each function once, on its logical CPU, when what it waits for has ended.

    A tensor of one number stands for each that an op makes and for each that arrives elsewhere. Raise VerificationError
    when TensorFlow fails.
    """

    def pass_by(k: int, *read: Any) -> Any:
        del read
        return np.float64(clock.pass_by(k))

    graph, outputs, waited = tf.Graph(), list[Any](), set[int]()
    with graph.as_default():
        for k in range(work.functions):
            reads, waits = [outputs[p] for p in work.data[k]], [outputs[p].op for p in work.controls[k]]
            waited.update(work.data[k], work.controls[k])
            with graph.device(f"/device:CPU:{work.cpu[k]}"), graph.control_dependencies(waits):
                # numpy_function is stateful, so TensorFlow neither merges nor folds these ops, and each runs exactly
                # once.
                outputs.append(tf.numpy_function(partial(pass_by, k), reads, tf.float64))
    ends = [tensor.op for k, tensor in enumerate(outputs) if k not in waited]
    config = logical_cpu_config(max(work.cpu, default=0) + 1)
    # A function that waits for its processor blocks a thread of the executor, so there must be a thread for each
    # function that can wait at once.
    config.inter_op_parallelism_threads, config.intra_op_parallelism_threads = threads, 1
    config.use_per_session_threads = True
    try:
        with v1.Session(graph=graph, config=config) as session:
            # Run the ops `ends` in a thread of its own, since Ctrl-C reaches none that is inside TensorFlow.
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(session.run, ends)
                try:
                    while not running.done():
                        wait([running], timeout=_LOOK_S)
                except BaseException:
                    clock.stop()
                    raise
            running.result()
    except tf.errors.OpError as error:
        raise VerificationError.build(
            f"the emulation failed in TensorFlow: {shown(error)}", remedy="run pesto doctor"
        ) from error


def op_inversions(run: EmulatedRun, enforced: EnforcedStep, predicted: PredictedStep) -> tuple[str, ...]:
    """Return one line for each pair of neighbours in a chain of which the second began before the first had ended."""
    place = {op: k for k, op in enumerate(run.work.op) if op >= 0}
    chained = np.zeros(predicted.graph.ops, dtype=np.bool_)
    chained[_find_chained_ops(enforced, predicted)] = True
    chained[[op for op in range(predicted.graph.ops) if op not in place]] = False
    before, after = neighbours(predicted.timeline.schedule.device, predicted.rank, chained)
    names = predicted.graph.names
    return tuple(
        f"op {names[b]} ran before {names[a]} had ended"
        for a, b in zip(before.tolist(), after.tolist(), strict=True)
        if run.start[place[b]] < run.end[place[a]]
    )


def link_inversions(run: EmulatedRun, predicted: PredictedStep) -> tuple[str, ...]:
    """Return one line for each pair of neighbours on a link, in the plan, of which the second was served first."""
    schedule, problem, names = predicted.timeline.schedule, predicted.timeline.problem, predicted.graph.names
    place = {sent: k for k, sent in enumerate(run.work.sent) if sent[0] >= 0}
    last: dict[int, tuple[int, int]] = {}
    inversions = []
    for row in np.lexsort((schedule.sent_to, schedule.sent_payload, schedule.sent_start)).tolist():
        sent = int(schedule.sent_payload[row]), int(schedule.sent_to[row])
        for link in run.work.holds[place[sent]] if sent in place else ():
            earlier = last.get(link)
            if earlier is not None and run.start[place[sent]] < run.start[place[earlier]]:
                a, b = (names[problem.producer[payload]] for payload in (earlier[0], sent[0]))
                inversions.append(f"a link sends what {b} made before what {a} made")
            last[link] = sent
    return tuple(inversions)


def _find_chained_ops(enforced: EnforcedStep, predicted: PredictedStep) -> list[int]:
    """Return the ops of the planned graph that are in the chains."""
    index = {name: i for i, name in enumerate(predicted.graph.names)}
    return [index[enforced.placement.graph.names[i]] for i in np.flatnonzero(enforced.placement.chained)]


def drift(run: EmulatedRun, enforced: EnforcedStep, predicted: PredictedStep) -> Floats:
    """Return [chained ops that ran] the distance between emulated and planned start, as a share of the planned step."""
    place = {op: k for k, op in enumerate(run.work.op) if op >= 0}
    ops = [op for op in _find_chained_ops(enforced, predicted) if op in place]
    emulated = run.start[[place[op] for op in ops]]
    planned = predicted.timeline.schedule.start[ops] * TICK_S
    return floats(np.abs(emulated - planned) / max(predicted.timeline.makespan_s, TICK_S))


def predict_step(plan: Plan, graph: Graph, cluster: Cluster, timeline: Timeline, rank: Ints) -> PredictedStep:
    """Build the prediction that gives an emulation its times; `timeline` and `rank` are the plan's own on `cluster`."""
    index = {device.name: k for k, device in enumerate(cluster.devices)}
    return PredictedStep(
        graph=graph,
        timeline=timeline,
        rank=rank,
        location=tuple(index.get(name, -1) for name in dict.fromkeys(plan.lane_device)),
        per_edge=plan.provenance.transfers == PER_EDGE,
    )
