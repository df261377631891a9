"""pesto run --emulate: a plan, and the methods against it, in TensorFlow's executor."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pesto.choosing.comparison.contest import Entrants, MethodEntry, chosen_methods, compete
from pesto.cli.printed import answer, aside
from pesto.core.cluster import Cluster
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.load import load_cluster, load_costs, plan_cluster, planned_step
from pesto.reporting.show.emulation_page import Rival, emulation_object, emulation_page
from pesto.tf.emulate.emulate_options import WHAT, EmulationOptions, check_size
from pesto.verbs import api

if TYPE_CHECKING:
    from pesto.planning.solving.candidates import Candidate
    from pesto.tf.emulate.emulation import EmulationResult
    from pesto.tf.emulate.enforced_graph import PlannedStep

_METHOD_S = 30.0
"""Seconds of each method that searches, as of `pesto compare`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of `pesto run --emulate`."""

    clock: str
    """nominal or wall."""
    scale: float | None
    """Seconds to sleep for a predicted second; None chooses."""
    ties: str
    """planned or reached."""
    way: str | None
    """session, graphdef or function; None takes what the plan's source is."""
    against: str | None
    """Names of methods with commas between; None for no comparison."""
    cluster: str | None
    """The plan's cluster where that came from a file."""
    costs: Path | None
    """The plan's profile."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stage:
    """What all plans are emulated on."""

    graph: Graph
    step: "PlannedStep"
    cluster: Cluster
    how: EmulationOptions

    def run(self, plan: Plan, candidate: "Candidate") -> "EmulationResult":
        """Emulate one plan, which the simulator ran as `candidate`."""
        from pesto.tf.emulate.emulation import emulate, predict_step

        predicted = predict_step(plan, self.graph, self.cluster, candidate.timeline, candidate.rank)
        return emulate(self.step, plan, predicted, self.how)


def emulated(plan: Plan, source: Source, asked: Asked, *, as_json: bool) -> None:
    """Emulate `plan` and the methods against it, and print what came of it."""
    names = chosen_methods(asked.against) if asked.against is not None else ()
    machine = load_cluster(asked.cluster or plan_cluster(plan))
    check_size(plan)
    how = EmulationOptions(clock=asked.clock, scale=asked.scale, ties=asked.ties)
    graph, step = planned_step(source)
    how = replace(how, way=asked.way or step.meant(graph.way))
    whole = api.simulate(plan, graph, cluster=machine, costs=asked.costs)
    stage = _Stage(graph=graph, step=step, cluster=machine, how=how)
    mine = stage.run(plan, whole.run)
    rivals = list(_rivals(stage, asked, mine, names)) if names else []
    if as_json:
        answer(emulation_object(mine, rivals, WHAT))
    else:
        click.echo(emulation_page(mine, rivals, shown(plan.provenance.graph_source), WHAT))


def _rivals(stage: _Stage, asked: Asked, mine: "EmulationResult", names: tuple[str, ...]) -> Iterator[Rival]:
    """The plan, and the plan of each method on the same graph, cluster and costs."""
    yield Rival(method="plan", predicted_s=mine.predicted_s, emulated_s=mine.step_s)
    costs = load_costs(stage.graph, stage.cluster, asked.costs)
    for name in names:
        aside(f"{name}: placing and emulating")
        contest = compete(
            stage.graph, stage.cluster, costs, Settings(time_limit_s=_METHOD_S), _unheard, entrants=Entrants((name,))
        )
        if contest.interrupted:
            raise KeyboardInterrupt
        (entry,) = contest.entries
        if entry.plan is None or entry.candidate is None:
            yield Rival(method=name, predicted_s=None, emulated_s=None, why=entry.detail)
        elif why := stage.how.too_long(entry.candidate.timeline.makespan_s):
            yield Rival(method=name, predicted_s=entry.candidate.timeline.makespan_s, emulated_s=None, why=why)
        else:
            theirs = stage.run(entry.plan, entry.candidate)
            yield Rival(method=name, predicted_s=theirs.predicted_s, emulated_s=theirs.step_s)


def _unheard(entry: MethodEntry) -> None:
    del entry
