"""A sweep as a job: what `pesto sweep` does."""

from typing import Any

from pesto.choosing.whatif.grid import ClusterPoint, SweepGrid
from pesto.choosing.whatif.points import Sweep, SweepTask, no_plan_error, sweep
from pesto.choosing.whatif.scaled import accelerators
from pesto.core.errors import UsageError
from pesto.inputs.load import load_cluster, load_costs
from pesto.planning.solving.interrupt import hold
from pesto.reporting.show import drawing, sweep_chart
from pesto.reporting.show.sweep_table import as_object, page, progress_line
from pesto.verbs.jobs.checks import asked_settings, axes_of
from pesto.verbs.jobs.work import Work


def sweep_job(work: Work) -> dict[str, Any]:
    """Solve every point; after each what there is so far is written."""
    axes, given, machine = work.request.sweep, work.given, load_cluster(work.given.cluster or "")
    if axes is None:
        raise UsageError("no axis is swept - give one")
    grid = SweepGrid(base=ClusterPoint(devices=len(accelerators(machine))), values=axes_of(axes), cross=axes.cross)
    graph = work.graph()
    load_costs(graph, machine, given.costs)  # a profile that is refused ends it here, not in every row
    task = SweepTask(
        graph=graph,
        cluster=machine,
        costs=lambda at: load_costs(graph, at, given.costs),
        settings=asked_settings(work.request),
        grid=grid,
    )

    def hear(found: Sweep) -> None:
        work.answer(as_object(found), page(found))
        work.telling.log(progress_line(found))

    work.telling.begins("points")
    found = sweep(task, hear)
    hold()
    work.answer(as_object(found), page(found))
    if drawing.available() and found.rows:
        work.keep("chart.svg", sweep_chart.draw(found, "svg"))
    if not found.interrupted and all(row.plan is None for row in found.rows):
        raise no_plan_error(found)
    return {"points": len(found.rows), "ops": graph.ops, "interrupted": found.interrupted}
