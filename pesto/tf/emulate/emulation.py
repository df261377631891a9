"""An emulation of a planned step: compared with the prediction, with the plan's order, and with a run without order."""

import time
from dataclasses import dataclass

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.errors import UsageError
from pesto.core.graph import Graph
from pesto.core.plans.orders import neighbours
from pesto.core.plans.plan import PER_EDGE, Plan
from pesto.core.problem import TICK_S
from pesto.core.simulator import Timeline
from pesto.tf.emulate.clocks import NominalClock, WallClock
from pesto.tf.emulate.emulate_options import CHOSEN_S, MARGIN, NOMINAL, PROBE_S, SHARE, THREADS, EmulationOptions
from pesto.tf.emulate.enforced_graph import EnforcedStep, PlannedStep, enforce_step
from pesto.tf.emulate.executor_run import execute
from pesto.tf.emulate.partition_work import PredictedStep, build_work, unreserved_ops
from pesto.tf.emulate.reservations import EmulatedWork
from solvers.arrays import Floats, Ints, floats


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
    threads: int
    starved: int
    """Times at which functions could have started and all threads were taken; nominal clock alone."""
    seconds: float
    """Measured: for all of it."""

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

    UsageError for a scale at which it would take more than MOST_S.
    """
    began = time.perf_counter()
    laid = enforce_step(step, plan, way=how.way, order=True)
    run = run_work(build_work(laid, predicted), predicted.timeline.makespan_s, how)
    without = enforce_step(step, plan, way=how.way, order=False)
    # Without an order no op is chained, so the ops beside the processors are taken from the ordered run: both runs then
    # differ in the order alone.
    alike = unreserved_ops(laid, predicted)
    unordered = run_work(build_work(without, predicted, alike), predicted.timeline.makespan_s, how, run.scale)
    starts = drift(run, laid, predicted)
    timeline = predicted.timeline
    planned = set(zip(timeline.schedule.sent_payload.tolist(), timeline.schedule.sent_to.tolist(), strict=True))
    made = {sent for sent in run.work.sent if sent[0] >= 0}
    return EmulationResult(
        how=how, scale=run.scale,
        handed_over=run.handed_over_s / predicted.timeline.makespan_s if predicted.timeline.makespan_s else 0.0,
        predicted_s=predicted.timeline.makespan_s, step_s=run.step_s, unordered_step_s=unordered.step_s,
        ops=sum(op >= 0 for op in run.work.op), unchained=int((~laid.placement.chained).sum()),
        transfers=len(made), unsent=len(planned - made),
        op_inversions=op_inversions(run, laid, predicted), link_inversions=link_inversions(run, predicted),
        drift_max=float(starts.max(initial=0.0)), drift_mean=float(starts.mean()) if len(starts) else 0.0,
        threads=run.threads, starved=run.starved, seconds=time.perf_counter() - began,
    )  # fmt: skip


def run_work(work: EmulatedWork, step_s: float, how: EmulationOptions, scale: float | None = None) -> EmulatedRun:
    """Execute `work`, of a step that is predicted to take `step_s`; `scale` is one that was chosen already."""
    threads = max(1, min(work.functions, THREADS))
    clock: NominalClock | WallClock
    if how.clock == NOMINAL:
        clock = NominalClock(work, threads, how.ties)
    else:
        scale = scale or _scale(work, step_s, how, threads)
        clock = WallClock(work, scale * TICK_S)
    return _execute_work(work, clock, threads, scale)


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


def _scale(work: EmulatedWork, step_s: float, how: EmulationOptions, threads: int) -> float:
    """Seconds to sleep for a predicted second: few enough to wait for, and enough to hide what handing over takes.

    That is measured: in one short step of the same functions, on this machine, as busy as it is.
    """
    if how.scale is None:
        if not step_s:
            return 1.0
        # A scale too small measures Python's thread switching, one too large takes minutes. The share of handover in a
        # short run gives the smallest scale at which it is negligible.
        probe = PROBE_S / step_s
        took_s = _execute_work(work, WallClock(work, probe * TICK_S), threads, probe).handed_over_s * probe
        return min(CHOSEN_S, max(PROBE_S, MARGIN * took_s / SHARE)) / step_s
    if why := how.too_long(step_s):
        raise UsageError(f"emulate: {why}")
    return how.scale


def op_inversions(run: EmulatedRun, laid: EnforcedStep, predicted: PredictedStep) -> tuple[str, ...]:
    """One line for each pair of neighbours in a chain of which the second began before the first had ended."""
    place = {op: k for k, op in enumerate(run.work.op) if op >= 0}
    chained = np.zeros(predicted.graph.ops, dtype=np.bool_)
    chained[_chained(laid, predicted)] = True
    chained[[op for op in range(predicted.graph.ops) if op not in place]] = False
    before, after = neighbours(predicted.timeline.schedule.device, predicted.rank, chained)
    names = predicted.graph.names
    return tuple(
        f"op {names[b]} ran before {names[a]} had ended"
        for a, b in zip(before.tolist(), after.tolist(), strict=True)
        if run.start[place[b]] < run.end[place[a]]
    )


def link_inversions(run: EmulatedRun, predicted: PredictedStep) -> tuple[str, ...]:
    """One line for each pair of neighbours on a link, in the plan, of which the second was served first."""
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


def _chained(laid: EnforcedStep, predicted: PredictedStep) -> list[int]:
    """Ops of the planned graph that are in the chains."""
    index = {name: i for i, name in enumerate(predicted.graph.names)}
    return [index[laid.placement.graph.names[i]] for i in np.flatnonzero(laid.placement.chained)]


def drift(run: EmulatedRun, laid: EnforcedStep, predicted: PredictedStep) -> Floats:
    """[chained ops that ran] distance between emulated and planned start, as a share of the planned step."""
    place = {op: k for k, op in enumerate(run.work.op) if op >= 0}
    ops = [op for op in _chained(laid, predicted) if op in place]
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
