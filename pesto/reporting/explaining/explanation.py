"""Why a step takes as long as it does, all of it: path, blockers, what would help, ties, and one op if asked for."""

from dataclasses import dataclass

from pesto.core.cluster import Cluster
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.notebook import html_table
from pesto.core.plans.plan import Plan
from pesto.core.problem import TICK_S
from pesto.core.quantities import duration, percent, shorten
from pesto.reporting.explaining.bottlenecks import Bottleneck, find_bottlenecks, split_saves
from pesto.reporting.explaining.explained_step import ExplainedStep, Price
from pesto.reporting.explaining.improvements import Improvement, find_improvements
from pesto.reporting.explaining.name_scopes import NO_SCOPE
from pesto.reporting.explaining.op_facts import OpFacts, describe_op
from pesto.reporting.explaining.path_sums import PathSums, sum_path
from pesto.reporting.explaining.tied_groups import TiedGroup, find_tied_groups
from solvers.bounds import quick_bounds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """Why a plan's step takes as long as it does (docs/guides/explain.md); ticks are of 1 ns."""

    step: ExplainedStep
    """Inside: the plan with its waits and its critical path."""
    path: PathSums
    """The critical path by kind, by what its ops waited for, and by scope."""
    blockers: tuple[Bottleneck, ...]
    """The long ops of the path under which other accelerators idle, most idle time first."""
    split_all_ticks: int
    """How much shorter the step is at most when all of these are split."""
    quick_bound_ticks: int
    """Quick lower bound of the step in ticks, to compare the quick bounds of improvements and ties with."""
    helps: tuple[Improvement, ...]
    """The same plan, and its bound, with one thing changed."""
    ties: tuple[TiedGroup, ...]
    """Groups that hold several variables and much of their bytes, or much work, on one device."""
    op: OpFacts | None
    """Facts of one op; None unless requested."""

    @property
    def step_ticks(self) -> int:
        """The step."""
        return self.step.makespan

    @property
    def bound_ticks(self) -> int:
        """Lower bound of the plan on the step in ticks."""
        return max(self.step.plan.provenance.lower_bound_ticks, self.quick_bound_ticks)

    @property
    def step_s(self) -> float:
        """Seconds of the step."""
        return self.step.makespan * TICK_S

    def __repr__(self) -> str:
        """One line, without arrays."""
        compute = percent(self.path.ticks["compute"] / max(1, self.step_ticks))
        first = f", {shown(shorten(self.blockers[0].op), 80)} holds up most" if self.blockers else ""
        return f"Explanation(step {duration(self.step_s)}, {compute} of its path compute{first})"

    def _repr_html_(self) -> str:
        """All numbers as a table for notebooks."""
        head = ("", "time", "of the step")
        return html_table(f"{self!r} of {self.step.bench.graph.source}", head, self._rows())

    def _rows(self) -> list[tuple[str, str, str]]:
        rows: list[tuple[str, int | None]] = [(f"path: {kind}", t) for kind, t in self.path.ticks.items()]
        rows += [(f"others idle under {blocker.op}", blocker.idle_ticks) for blocker in self.blockers]
        rows += [(f"splitting {blocker.op} saves at most", blocker.split_saves_ticks) for blocker in self.blockers]
        for row in self.helps:
            rows += [(f"{row.change}: the same plan", row.step_ticks), (f"{row.change}: bound", row.bound_ticks)]
        rows += [(f"freeing the group of {tie.op} saves at most", tie.gain_ticks) for tie in self.ties]
        for move in self.op.moves if self.op else ():
            rows += [(f"{self.op.op if self.op else ''} on {move.device}", move.listed_ticks)]
        return [(what, *self._told(ticks)) for what, ticks in rows]

    def _told(self, ticks: int | None) -> tuple[str, str]:
        return ("-", "-") if ticks is None else (duration(ticks * TICK_S), percent(ticks / max(1, self.step_ticks)))


def explain(plan: Plan, graph: Graph, cluster: Cluster, price: Price, *, op: str | None = None) -> Explanation:
    """Explain a plan's step, verified first. price: the costs of `graph` on a cluster. op: name of one to be told of.

    UsageError when there is no such op; MismatchError and VerificationError as of `pesto.core.plans.plan.verify`.
    """
    step = ExplainedStep.of(plan, graph, cluster, price)
    asked = None if op is None else describe_op(step, op)
    sums, result = sum_path(step), find_bottlenecks(step)
    return Explanation(
        step=step,
        path=sums,
        blockers=result,
        split_all_ticks=split_saves(step, [plan.names.index(each.op) for each in result]),
        quick_bound_ticks=quick_bounds.best(step.timeline.problem)[0],
        helps=find_improvements(step, next((name for name in sums.scopes if name != NO_SCOPE), None)),
        ties=find_tied_groups(step),
        op=asked,
    )
