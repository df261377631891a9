"""The points of a sweep, solved one after the other, each from the plan of the nearest that is done."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from pesto.choosing.whatif.grid import AXES, ClusterPoint, SweepGrid, scale_cluster
from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.errors import InfeasibleError, InputError, NothingFoundError, PestoError, SolverError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.notebook import html_table
from pesto.core.plans.plan import Plan
from pesto.core.problem import TICK_S
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import Candidate
from pesto.planning.solving.flow import EarlierPlans, SolveOutcome, solve
from solvers.compiled.interruption import struck

SOLVED = "solved"
_STATUS = ((InfeasibleError, "infeasible"), (NothingFoundError, "no plan"), (InputError, "refused"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedStep:
    """A step by one method."""

    seconds: float
    """Predicted seconds of the step."""
    fits: bool
    """True if the step fits the memory."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SweepRow:
    """Result of one point."""

    point: ClusterPoint
    """The changed cluster."""
    status: str
    """solved; infeasible (proven), no plan (none that fits was found), refused (no such cluster) or failed."""
    detail: str
    """How the plan was made, or why there is none."""
    plan: Plan | None
    """The verified plan; None where there is none."""
    expert: PlacedStep | None
    """The step as the Expert rule places it; None where nothing was placed."""
    single: PlacedStep | None
    """The step with everything on one device; None where nothing was placed."""
    start: ClusterPoint | None
    """The point whose plan the search began from."""
    seconds: float
    """Measured seconds of the solve."""

    @property
    def reduction(self) -> float | None:
        """Share of Expert's step time that the plan saves (Pesto, Fig 8a); None unless both fit the memory."""
        if self.plan is None or self.expert is None or not self.expert.fits or not self.expert.seconds:
            return None
        return 1 - self.plan.makespan_s / self.expert.seconds

    @property
    def saved(self) -> float | None:
        """Share that the plan saves of the shorter of Expert and one device, of those that fit; None if none does."""
        known = [step.seconds for step in (self.expert, self.single) if step is not None and step.fits]
        if self.plan is None or not known or not min(known):
            return None
        return 1 - self.plan.makespan_s / min(known)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """All rows that were finished, in the order in which they were solved."""

    graph: Graph
    """The step that was solved at every point."""
    cluster: Cluster
    """The cluster that the points change."""
    grid: SweepGrid
    """The values of each axis, and the points that they make."""
    rows: tuple[SweepRow, ...]
    """One for each point that is done."""
    interrupted: bool
    """True if Ctrl-C ended it early."""
    costs_note: str = ""
    """Omissions of the base's op times, as `Costs.said` has them."""

    def __repr__(self) -> str:
        """One line, without the rows."""
        done = f"{len(self.rows)} of {len(self.grid.points())} points"
        return f"Sweep({done} on {', '.join(self.grid.values)} around {shown(self.cluster.name, 24)})"

    def _repr_html_(self) -> str:
        """Return the result of each point, in the order of the solves, as a table for notebooks."""
        rows = [
            (
                row.point.text(self.grid.values), row.status,
                "-" if row.plan is None else f"{row.plan.makespan_s * 1e3:.2f}",
                "-" if row.reduction is None else f"{row.reduction:.1%}",
            )
            for row in self.rows
        ]  # fmt: skip
        return html_table(f"{self!r} of {self.graph.source}", ("point", "status", "step ms", "below expert"), rows)

    def on(self, axis: str) -> list[SweepRow]:
        """Return the rows at which no other axis differs from the base, by the axis's value; all of them in a cross."""

        def alone(point: ClusterPoint) -> bool:
            at = getattr(point, axis)
            return at in self.grid.values.get(axis, ()) and replace(self.grid.base, **{axis: at}) == point

        rows = [row for row in self.rows if self.grid.cross or alone(row.point)]
        return sorted(rows, key=lambda row: getattr(row.point, axis))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SweepTask:
    """The inputs of a sweep."""

    graph: Graph
    cluster: Cluster
    costs: Callable[[Cluster], Costs]
    """Op times on a changed cluster."""
    settings: Settings
    """Settings of every point's solve."""
    grid: SweepGrid


def sweep(task: SweepTask, hear: Callable[[Sweep], None]) -> Sweep:
    """Solve the points, near the base first; `hear` is told after each. Ctrl-C ends it with the rows that there are.

    A point that cannot be solved is a row that says why.
    """
    rows: list[SweepRow] = []
    interrupted, note = False, ""
    with suppress(PestoError):  # which the row of the base tells
        note = task.costs(task.cluster).said

    def done() -> Sweep:
        return Sweep(
            graph=task.graph, cluster=task.cluster, grid=task.grid, rows=tuple(rows), interrupted=interrupted,
            costs_note=note,
        )  # fmt: skip

    try:
        for point in task.grid.points():
            row, interrupted = _row(task, point, rows)
            rows.append(row)
            hear(done())
            if interrupted:
                break
    except (KeyboardInterrupt, Exception) as error:
        if not struck(error):
            raise
        interrupted = True
    return done()


def _row(task: SweepTask, point: ClusterPoint, rows: list[SweepRow]) -> tuple[SweepRow, bool]:
    """Return the row of a point, and whether its solve was interrupted."""
    solved = [row for row in rows if row.plan is not None]
    near = min(solved, key=lambda row: row.point.far(point), default=None)
    began = time.perf_counter()
    outcome, status, detail = None, SOLVED, ""
    try:
        cluster = scale_cluster(task.cluster, point)
        if point != task.grid.base:
            words = point.text(axis for axis in AXES if getattr(point, axis) != getattr(task.grid.base, axis))
            cluster = replace(cluster, name=f"{cluster.name} with {words}")
        costs = task.costs(cluster)
        before = EarlierPlans(start=near.plan if near else None)
        outcome = solve(task.graph, cluster, costs, task.settings, lambda _: None, before)
        detail = f"{outcome.plan.provenance.chosen}: {outcome.plan.provenance.rule}"
    except PestoError as error:
        status = next((word for kind, word in _STATUS if isinstance(error, kind)), "failed")
        detail = str(error)
    row = SweepRow(
        point=point, status=status, detail=detail,
        plan=outcome.plan if outcome else None, expert=_step(outcome, "expert"), single=_step(outcome, "single"),
        start=near.point if near else None, seconds=time.perf_counter() - began,
    )  # fmt: skip
    return row, outcome is not None and outcome.interrupted


def _step(outcome: SolveOutcome | None, name: str) -> PlacedStep | None:
    result: Candidate | None = outcome.candidates.get(name) if outcome else None
    return None if result is None else PlacedStep(seconds=result.makespan * TICK_S, fits=result.fits)


_ENDS = {"infeasible": InfeasibleError, "no plan": NothingFoundError, "refused": InputError}


def no_plan_error(found: Sweep) -> PestoError:
    """Return the error of a sweep without any plan: what kept the first point from one."""
    row = found.rows[0]
    return _ENDS.get(row.status, SolverError)(f"no point has a plan: {row.point.text(AXES)}: {row.detail}")
