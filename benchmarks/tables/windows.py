"""What windows of the plan are worth: solves with and without them in the same time, and what each engine contributed.

The clock ends these solves, not counted stretches: what either side gets of a busy machine, the line below the table
says.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from unittest import mock

from benchmarks.tables.steps import CLUSTERS
from pesto.core.settings import Settings
from pesto.planning.solving.exact import WINDOW_SHARE
from pesto.planning.solving.flow import solve
from pesto.reporting.show.lines import head, ms, row
from pesto.research.reproduction.cached_cells import PAPER, CellResult, CellSettings, Found, Key, WorkCell, step

WITH, WITHOUT = "with", "without"
_SECONDS = 8.0
"""Of a solve, for each second that is asked for: windows come after the exact solver and annealing."""

_COLUMNS = (
    "step ms", "without, ms", "less", "by windows: ms, CPU s", "by annealing: ms, CPU s", "without windows: ms, CPU s"
)  # fmt: skip


def cells() -> list[WorkCell]:
    """Two solves for each variant, one after the other, so that they meet the same load."""
    return [WorkCell("windows", (model, CLUSTERS[0], how), solved) for model in PAPER for how in (WITH, WITHOUT)]


def solved(key: Key, cell_settings: CellSettings) -> Found:
    """The step, and what engines contributed to it; seconds."""
    graph, machine, costs = step(key[0], key[1], cell_settings)
    settings = Settings(time_limit_s=_SECONDS * cell_settings.seconds, solver="cpsat")
    with mock.patch("pesto.planning.solving.exact.WINDOW_SHARE", WINDOW_SHARE if key[2] == WITH else 0.0):
        outcome = solve(graph, machine, costs, settings, lambda _: None)
    tick = outcome.plan.tick_s
    return {
        "step_s": outcome.plan.makespan_s,
        "gained_s": {one.engine: one.gained * tick for one in outcome.contributions},
        "cpu_s": {one.engine: one.cpu_s for one in outcome.contributions},
    }


def table(done: Mapping[Key, CellResult]) -> Iterator[str]:
    """A row a variant that both solves of are there, and means."""
    pairs = {model: _pair(done, model) for model in PAPER if len(_pair(done, model)) > 1}
    yield from head(("model", *_COLUMNS))
    for model, (one, other) in pairs.items():
        less = 1 - one["step_s"] / other["step_s"]
        paid = (_paid(one, "windows"), _paid(one, "annealing"), _paid(other, "annealing"))
        yield row((model, ms(one["step_s"]), ms(other["step_s"]), f"{less:.2%}", *paid))
    if pairs:
        yield row(("mean", "", "", f"{mean(1 - a['step_s'] / b['step_s'] for a, b in pairs.values()):.2%}", "", "", ""))


def _pair(done: Mapping[Key, CellResult], model: str) -> Sequence[Found]:
    """What was found with windows and without."""
    both = [done.get((model, CLUSTERS[0], how)) for how in (WITH, WITHOUT)]
    return [one.found for one in both if one is not None]


def _paid(result: Found, engine: str) -> str:
    return f"{ms(result['gained_s'].get(engine, 0.0))}, {result['cpu_s'].get(engine, 0.0):.1f}"
