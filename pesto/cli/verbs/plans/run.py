"""pesto run: run a step by its plan or split and compare it with the same step without one, or emulate it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pesto.choosing.comparison.contest import Entrants, chosen_methods, compete
from pesto.cli.options import (
    SOURCE_NAMES,
    Existing,
    cluster_option,
    costs_option,
    feeds_option,
    first_given,
    json_option,
    refuse,
    source_options,
)
from pesto.cli.printed import answer, aside, finite_facts, finite_or_none
from pesto.core.cluster import Cluster
from pesto.core.errors import UsageError, VerificationError
from pesto.core.files.json import shown
from pesto.core.graph import FUNCTION, SESSION, Graph
from pesto.core.plans.execution_modes import GRAPHDEF
from pesto.core.plans.plan import Plan
from pesto.core.plans.statements import NOT_CHECKED
from pesto.core.quantities import duration, percent, plural, size
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs, plan_cluster, plan_source, planned_step, run_plan, run_split, split_source
from pesto.reporting.show.emulation_page import Rival, emulation_object, emulation_page
from pesto.reporting.show.lines import fact, paragraph
from pesto.split.files.split_file import SplitFile
from pesto.tf.emulate.emulate_options import WHAT, EmulationOptions, check_size
from pesto.tf.run.run_options import RunOptions
from pesto.verbs.artifacts import load_artifact, refusal, simulate_plan

if TYPE_CHECKING:
    from pesto.planning.solving.candidates import Candidate
    from pesto.tf.emulate.emulation import EmulationResult
    from pesto.tf.emulate.enforced_graph import PlannedStep
    from pesto.tf.partition.partition_run import PartitionRunResult
    from pesto.tf.run.planned_run import PlannedRunResult

_METHOD_S = 30.0
"""Seconds of each method that searches, as of `pesto compare`."""
_MOST_FEEDS = 8
"""Feeds that a page names; the JSON object has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationRequest:
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
    """Step, cluster and options that all emulated plans share."""

    graph: Graph
    step: "PlannedStep"
    cluster: Cluster
    how: EmulationOptions

    def run(self, plan: Plan, candidate: "Candidate") -> "EmulationResult":
        """Emulate one plan, which the simulator ran as `candidate`."""
        from pesto.tf.emulate.emulation import emulate, predict_step

        predicted = predict_step(plan, self.graph, self.cluster, candidate.timeline, candidate.rank)
        return emulate(self.step, plan, predicted, self.how)


def emulated(plan: Plan, source: Source, request: EmulationRequest, *, as_json: bool) -> None:
    """Emulate `plan` and the methods against it, and print the result."""
    names = chosen_methods(request.against) if request.against is not None else ()
    machine = load_cluster(request.cluster or plan_cluster(plan))
    check_size(plan)
    how = EmulationOptions(clock=request.clock, scale=request.scale, ties=request.ties)
    graph, step = planned_step(source)
    how = replace(how, way=request.way or step.meant(graph.way))
    whole = simulate_plan(plan, graph, cluster=machine, costs=request.costs)
    stage = _Stage(graph=graph, step=step, cluster=machine, how=how)
    mine = stage.run(plan, whole.run)
    rivals = list(_rivals(stage, request.costs, mine, names)) if names else []
    if as_json:
        answer(emulation_object(mine, rivals, WHAT))
    else:
        click.echo(emulation_page(mine, rivals, shown(plan.provenance.graph_source), WHAT))


def _rivals(stage: _Stage, times: Path | None, mine: "EmulationResult", names: tuple[str, ...]) -> Iterator[Rival]:
    """Yield the plan, and the plan of each method on the same graph, cluster and costs."""
    yield Rival(method="plan", predicted_s=mine.predicted_s, emulated_s=mine.step_s)
    costs, settings = load_costs(stage.graph, stage.cluster, times), Settings(time_limit_s=_METHOD_S)
    for name in names:
        aside(f"{name}: placing and emulating")
        contest = compete(
            stage.graph, stage.cluster, costs, settings, lambda _: None, entrants=Entrants((name,))
        )  # fmt: skip
        if contest.interrupted:
            raise KeyboardInterrupt
        (entry,) = contest.entries
        if entry.plan is None or entry.candidate is None:
            yield Rival(method=name, predicted_s=None, emulated_s=None, why=entry.detail)
        elif (error := stage.how.too_long(entry.candidate.timeline.makespan_s)) is not None:
            yield Rival(method=name, predicted_s=entry.candidate.timeline.makespan_s, emulated_s=None, why=str(error))
        else:
            theirs = stage.run(entry.plan, entry.candidate)
            yield Rival(method=name, predicted_s=theirs.predicted_s, emulated_s=theirs.step_s)


def run_divided(
    split: SplitFile, source: Source, *, steps: int, devices: str | None, feeds: Path | None, as_json: bool
) -> None:
    """Run a split's step whole and in parts; VerificationError unless both compute the same."""
    ran = run_split(split, source, steps=steps, devices=devices, feeds=feeds)
    if as_json:
        answer({
            "split": split.what,
            "workers": len(ran.devices),
            "devices": list(ran.devices),
            "as_whole": ran.as_whole,
            "losses": list(ran.losses),
            "losses_distance": finite_or_none(ran.losses_distance),
            "variables": ran.variables,
            "variables_distance": finite_or_none(ran.variables_distance),
            "furthest": ran.furthest,
            "nudged_distance": finite_or_none(ran.nudged_distance),
            "finite": ran.finite,
            "moves": len(ran.moves),
            "steps": ran.steps,
            "step_s": ran.step_s,
            "whole_step_s": ran.whole_step_s,
            "variables_share": ran.held,
            "bytes": ran.moved_bytes,
            "nodes": ran.nodes,
            "late": ran.late,
            "feeds": [feed.as_object() for feed in ran.feeds],
        })  # fmt: skip
    else:
        click.echo(_divided_page(ran, split.what))
    if not ran.as_whole:
        far = max(ran.losses_distance, ran.variables_distance)
        apart = f"{far:.1e}" if math.isfinite(far) else "infinitely far"
        wrong = ran.moves[0] if ran.moves else f"{ran.furthest} is {apart} from the whole step's"
        raise VerificationError.build(
            f"the divided step does not run as the whole one: {wrong}", remedy="report it with pesto doctor"
        )


def _divided_page(ran: "PartitionRunResult", what: str) -> str:
    """Return a page of the run of a split for people; `what` names its step."""
    where = ", ".join(ran.devices)
    more = f" and {plural(len(ran.losses) - 3, 'other')}" if len(ran.losses) > 3 else ""
    names = f"{', '.join(map(shown, ran.losses[:3])) or 'nothing'}{more}"
    far = max(ran.losses_distance, ran.variables_distance)
    least = f"; {shown(ran.furthest)} is furthest" if ran.furthest else ""
    facts = {
        "losses": f"{names} of {plural(ran.steps, 'step')}: at most {ran.losses_distance:.1e} from the whole "
        "step's, relative to its largest number",
        **finite_facts("the whole step", finite=ran.finite, alike=math.isfinite(far)),
    }
    if ran.nudged_distance is not None:
        explains = "which explains it" if ran.as_whole else "which does not explain it"
        moved = f"move the whole step's own by {ran.nudged_distance:.1e}, {explains}"
        facts["rounding"] = f"variables changed in their last two digits {moved}"
    facts |= {
        "variables": f"{plural(ran.variables, 'variable')} at the end: at most {ran.variables_distance:.1e}{least}",
        "held": f"{percent(ran.held)} of all variables on the fullest worker",
        "sent": f"{size(ran.moved_bytes)} a step; {plural(ran.late, 'tensor')} late, shortly before their use",
        "devices": f"{plural(len(ran.moves), 'op')} moved, in the partition graphs of the first step",
        "step time": f"{duration(ran.step_s)} in parts, {duration(ran.whole_step_s)} whole (medians); workers on "
        "logical CPUs share this machine, and say nothing of speed",
    }
    head = paragraph(f"{what}: {plural(ran.nodes, 'node')} on {where}", 2)
    return "\n".join([head, *(fact(label, text) for label, text in facts.items()), *_fed_lines(ran.feeds)])


def _fed_lines(feeds: Sequence[object]) -> list[str]:
    """Return one fact for each feed, and the number of those beyond _MOST_FEEDS."""
    lines = [fact("fed", str(feed)) for feed in feeds[:_MOST_FEEDS]]
    more = len(feeds) - _MOST_FEEDS
    return [*lines, fact("fed", f"and {plural(more, 'other')}")] if more > 0 else lines


_OF_RUNS = ("steps", "feeds", "devices", "reference", "placement_only")
_OF_EMULATIONS = ("clock", "scale", "ties", "way", "against", "cluster", "costs")


@click.command("run")
@click.argument("plan", metavar="PLAN|SPLIT", type=Existing())
@source_options
@click.option("--steps", type=click.IntRange(1), default=20, show_default=True, help="Timed steps of each run.")
@click.option(
    "--devices",
    type=click.Choice(("cpu", "gpu")),
    help="cpu: logical CPUs stand for the plan's devices; gpu: its own. Default: gpu if this machine has the plan's.",
)
@click.option(
    "--reference",
    type=click.Choice(("unplaced", "stock")),
    default="unplaced",
    show_default=True,
    help="What is compared with. unplaced: no plan, no rewrites of the graph, bit for bit; stock: as fit or a session "
    "runs by itself, Grappler and oneDNN on, by the largest relative difference.",
)
@click.option("--placement-only", is_flag=True, help="Place ops by the plan, and leave their order to TensorFlow.")
@feeds_option()
@click.option("--emulate", is_flag=True, help="Run functions that take the predicted times in place of the ops.")
@click.option(
    "--clock",
    type=click.Choice(("nominal", "wall")),
    default="nominal",
    show_default=True,
    help="With --emulate. nominal: handing over from function to function costs nothing; wall: functions sleep.",
)
@click.option("--scale", type=float, metavar="S", help="With --clock wall: seconds to sleep for a predicted second.")
@click.option(
    "--ties",
    type=click.Choice(("planned", "reached")),
    default="planned",
    show_default=True,
    help="With --clock nominal: what is asked for at one instant is served as simulated or as the executor reached it.",
)
@click.option(
    "--as",
    "way",
    type=click.Choice((SESSION, GRAPHDEF, FUNCTION)),
    help="With --emulate: as what the step is enforced. Default: what its source is.",
)
@click.option("--against", metavar="METHODS", help="With --emulate: also emulate these methods' plans (pesto compare).")
@cluster_option(default=None)
@costs_option()
@json_option()
def run_command(
    *, plan: Path, source: Source, steps: int, devices: str | None, reference: str, placement_only: bool, emulate: bool,
    feeds: Path | None, clock: str, scale: float | None, ties: str, way: str | None, against: str | None,
    cluster: str | None, costs: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Run a training step by PLAN or SPLIT on stock TensorFlow; exit 6 unless it runs as planned and computes the same.

    The step runs four times from the same variables on the same batches: without a plan (the reference), by the plan,
    on a single device, and by the plan's placement without its order. Where each op ran and in which order is read from
    TensorFlow's partition graphs and traces; losses and variables are compared with the reference's, bit for bit. A
    reference whose graph TensorFlow rewrites, stock, computes other last digits: then the differences are reported, and
    are no failure.

    Every run sees the same random values. Whole numbers are drawn from the range that the step's ops imply, such as
    classes or rows of a table, and the page says which; --feeds gives a batch of your own instead.

    A SPLIT is run whole and in parts from the same variables on the same batches: the losses of each step may differ by
    1e-5, since sums of parts have another order; how far variables are is reported.

    With --emulate functions that take the predicted times run in place of ops and transfers, on logical CPUs: evidence
    about order, overlap and links, none about hardware or costs. --cluster and --costs are those of the plan.

    \b
    pesto solve --model rnnlm --variant tiny --cluster cpux2 -o plan.json
    pesto run plan.json
    pesto run plan.json --emulate --against expert,single
    """
    # Options of emulations go with --emulate, those of runs without it.
    if flag := first_given(*(_OF_RUNS if emulate else _OF_EMULATIONS)):
        remedy = "leave it out, or run without --emulate" if emulate else "add --emulate, or leave it out"
        what = "a run on this machine" if emulate else "an emulation"
        raise UsageError.build(f"{flag} is for {what}", remedy=remedy)
    artifact = load_artifact(plan)
    if isinstance(artifact, SplitFile):
        refuse(
            "a split has no order, and is run on this machine",
            but=("steps", "devices", "feeds", "as_json", *SOURCE_NAMES),
        )
        run_divided(
            artifact, split_source(artifact, source), steps=steps, devices=devices, feeds=feeds, as_json=as_json
        )
        return
    if not isinstance(artifact, Plan):
        raise refusal(artifact, "run", str(plan), "a plan or a split")
    named = plan_source(artifact, source)
    if emulate:
        request = EmulationRequest(
            clock=clock, scale=scale, ties=ties, way=way, against=against, cluster=cluster, costs=costs
        )
        emulated(artifact, named, request, as_json=as_json)
        return
    how = RunOptions(steps=steps, devices=devices, order=not placement_only, reference=reference, feeds=feeds)
    ran = run_plan(artifact, named, how)
    if as_json:
        answer(as_object(ran))
    else:
        click.echo(page(ran, shown(artifact.provenance.graph_source)))
    if not ran.as_planned:
        wrong = [*ran.moves, *ran.inversions, *(f"{name} differs" for name in ran.different)]
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise VerificationError.build(
            f"the step does not run as planned: {'; '.join(wrong[:3])}{more}", remedy="report it with pesto doctor"
        )


def as_object(ran: "PlannedRunResult") -> dict[str, Any]:
    """Return the keys of `pesto run --json`; None where a run did not fit the memory."""
    return {
        "moves": len(ran.moves),
        "inversions": len(ran.inversions),
        "reference": ran.reference,
        "reference_is": ran.reference_is,
        "losses_equal": ran.losses_equal,
        "variables_equal": ran.variables_equal,
        "losses_distance": finite_or_none(ran.losses_distance),
        "variables_distance": finite_or_none(ran.variables_distance),
        "furthest": ran.furthest,
        "finite": ran.finite,
        "single_equal": ran.single_equal,
        "unordered_equal": ran.unordered_equal,
        "step_s": ran.step_s,
        "unplaced_step_s": ran.unplaced_step_s,
        "single_step_s": ran.single_step_s,
        "unordered_step_s": ran.unordered_step_s,
        "steps": ran.steps,
        "traced_steps": ran.traced_steps,
        "devices": ran.devices,
        "ops": ran.ops,
        "chain_edges": ran.chain_edges,
        "predicted_step_s": ran.predicted_step_s,
        "costs": ran.costs,
        "inject_s": ran.inject_s,
        "verify_s": ran.verify_s,
        "note": ran.note,
        "feeds": [feed.as_object() for feed in ran.feeds],
    }


def page(ran: "PlannedRunResult", source: str) -> str:
    """Return a page of the run of a plan for people; `source` names its graph."""
    where = ", ".join(f"{name} = {target}" for name, target in ran.devices.items())
    after = f" after {plural(ran.traced_steps + ran.steps, 'step')}"
    if ran.losses_distance is not None and ran.variables_distance is not None:
        least = f"; {shown(ran.furthest)} is furthest" if ran.furthest else ""
        results = (
            f"losses differ from the reference's by at most {ran.losses_distance:.1e}, variables by "
            f"{ran.variables_distance:.1e}{after}, relative to the largest number of each{least}"
        )
    else:
        results = (
            f"losses {_same(ran.losses_equal)}, variables {_same(ran.variables_equal)}{after}, bit for bit, against "
            f"the reference; a single device {_same(ran.single_equal)}, without the order {_same(ran.unordered_equal)}"
        )
    predicted = "the plan predicts its order; without it, pesto simulate --as placement does"
    if ran.predicted_step_s is not None:
        predicted = f"{duration(ran.predicted_step_s)} (costs {shown(ran.costs)}; {NOT_CHECKED})"
    facts = {
        "order": f"{plural(len(ran.moves), 'op')} moved, {plural(len(ran.inversions), 'pair')} out of order, in the "
        f"partition graphs and the traces of {plural(ran.traced_steps, 'step')}; "
        f"{plural(ran.chain_edges, 'control edge')} added",
        "results": results,
        **finite_facts("the reference", finite=ran.finite, alike=alike(ran)),
        "reference": ran.reference_is,
        "step time": f"{_ms(ran.step_s)} by the plan; {_ms(ran.unplaced_step_s)} without a plan, "
        f"{_ms(ran.single_step_s)} on a single device, {_ms(ran.unordered_step_s)} without the order "
        f"(medians of {ran.steps})",
        "predicted": predicted,
        "overhead": f"{ran.inject_s:.2f} s once to place and order the graph, {ran.verify_s:.2f} s to verify",
        "note": ran.note,
    }
    head = paragraph(f"{source}: {plural(ran.ops, 'op')} on {where}", 2)
    return "\n".join([head, *(fact(label, text) for label, text in facts.items()), *_fed_lines(ran.feeds)])


def alike(ran: "PlannedRunResult") -> bool:
    """True if the run by the plan has NaN and infinite numbers just where the reference has."""
    far = [d for d in (ran.losses_distance, ran.variables_distance) if d is not None]
    return all(map(math.isfinite, far)) if far else bool(ran.losses_equal and ran.variables_equal)


def _same(equal: bool | None) -> str:
    return "not compared (out of memory)" if equal is None else "equal" if equal else "DIFFERENT"


def _ms(seconds: float | None) -> str:
    return "out of memory" if seconds is None else duration(seconds)
