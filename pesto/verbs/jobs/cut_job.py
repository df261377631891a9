"""A solve with cuts as a job: what `pesto solve --split` does."""

from typing import Any

from pesto.choosing.weighing.asked_cuts import cuts_of
from pesto.choosing.weighing.choice import Choice, choose
from pesto.core.plans.plan_file import dumps
from pesto.inputs.load import load_both, load_cluster, load_costs
from pesto.planning.solving.interrupt import hold
from pesto.reporting.show.kinds_page import choice_object, choice_page
from pesto.split.files.split_file import save_split
from pesto.split.typed_graph import TypedGraph
from pesto.verbs.jobs.checks import asked_settings
from pesto.verbs.jobs.result_names import PLAN, SPLIT
from pesto.verbs.jobs.work import Work


def cut_job(work: Work, cuts: str) -> dict[str, Any]:
    """Try every kind of plan, and write the shortest: a plan or a split; errors as of the verb."""
    machine = load_cluster(work.given.cluster or "")
    asked, settings = cuts_of(cuts, machine), asked_settings(work.request)
    work.begin_reading()
    step = load_both(work.given.source, quiet=True)
    work.within(step[0])
    costs = load_costs(step[0], machine, None)
    with work.keeping_incumbents() as incumbents:
        choice = choose(step, machine, costs, settings, work.telling, cuts=asked)
        hold()
        incumbents.close()
        name = _written(work, step[1], choice, settings.time_limit_s)
    out = work.shown_out(name)
    said = choice_page(step[1], choice, out, work.shown_source(), work.shown_cluster())
    work.answer(choice_object(step[1], choice, out), said)
    return {
        "kind": choice.chosen.name,
        "lower_bound_s": _bound_s(choice),
        "makespan_s": choice.chosen.makespan_s,
        "ops": step[0].ops,
        "interrupted": choice.interrupted,
    }


def _bound_s(choice: Choice) -> float | None:
    """Return the lower bound of a plan in seconds; None for a split."""
    if choice.chosen.outcome is None:
        return None
    plan = choice.chosen.outcome.plan
    return plan.provenance.lower_bound_ticks * plan.tick_s


def _written(work: Work, shaped: TypedGraph | str, choice: Choice, seconds: float) -> str:
    """The name of the file with the chosen plan or split."""
    if choice.chosen.outcome is not None:
        work.keep(PLAN, dumps(choice.chosen.outcome.plan))
        return PLAN
    if choice.chosen.cut is not None and not isinstance(shaped, str):
        save_split(shaped, choice.chosen.cut.split, work.folder / SPLIT, time_limit_s=seconds)
        work.written.append(SPLIT)
    return SPLIT
