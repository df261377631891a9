"""What if launches were ops of their own: a step with Pesto's kernel ops (3.2.1), in its placement and order."""

from dataclasses import dataclass

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs.launches import LaunchTimes
from pesto.core.problem import TICK_S, add_launches
from pesto.core.quantities import duration, percent, plural
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from solvers import Problem, Schedule
from solvers.arrays import Ints
from solvers.timing.replay import replay


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchedStep:
    """A step whose launches run on the host, one at a time for each accelerator, ahead of the kernels; modelled."""

    problem: Problem
    """Inside: the step with a task for each launch, behind its ops."""
    schedule: Schedule
    """Inside: when each op and launch runs, in ticks."""
    busiest_s: float
    """Seconds of all launches for the accelerator that takes the most."""
    inside_s: float
    """Seconds of the step with launches inside the ops' own times."""
    count: int
    """Ops that are launched."""
    source: str
    """Where the times of launches come from."""

    @property
    def makespan_s(self) -> float:
        """Seconds of the step."""
        return self.schedule.makespan * TICK_S

    def __str__(self) -> str:
        """Describe the predicted step time and its cause in one line."""
        change = self.makespan_s / self.inside_s - 1.0 if self.inside_s else 0.0
        busy = percent(self.busiest_s / self.makespan_s) if self.makespan_s else "0%"
        return (
            f"{duration(self.makespan_s)} ({change:+.2%}), modelled: {plural(self.count, 'op')} launched "
            f"({self.source}), which takes the host up to {duration(self.busiest_s)} for one device, {busy} of the step"
        )


def simulate_launches(bench: CandidateEvaluator, cluster: Cluster, run: Candidate, apart: LaunchTimes) -> LaunchedStep:
    """The step of a candidate with launches apart; for each accelerator they run in the order of its ops."""
    problem, op = add_launches(bench.problem, bench.graph, cluster, apart)
    device = launch_lanes(problem, op, run.timeline.schedule.device)
    schedule = replay(problem, device, np.concatenate([2 * run.rank + 1, 2 * run.rank[op]]))
    took = (schedule.finish - schedule.start)[bench.problem.tasks :]
    busy = np.bincount(device[bench.problem.tasks :], weights=took, minlength=problem.devices)
    return LaunchedStep(
        problem=problem, schedule=schedule, busiest_s=float(busy.max()) * TICK_S, inside_s=run.timeline.makespan_s,
        count=len(op), source=apart.source,
    )  # fmt: skip


def launch_lanes(problem: Problem, op: Ints, device: Ints) -> Ints:
    """[n + k] `device` [n] of the ops, then of their launches: the last device at the location of each."""
    last = np.zeros(problem.locations, dtype=np.int64)
    last[problem.location] = np.arange(problem.devices)
    return np.concatenate([device, last[problem.location[device[op]]]])
