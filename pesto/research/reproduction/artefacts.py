"""The table of tables and figures: the cells of each, what they make, and its picture."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from pesto.core.errors import UsageError
from pesto.core.files.toml import suggest
from pesto.research.reproduction import cell_lists, paper_charts, pesto_figures, pesto_tables, thesis_pages, tofu_pages
from pesto.research.reproduction.cached_cells import WorkCell
from pesto.research.reproduction.grids import Results, TextGrid
from pesto.research.reproduction.printed_numbers import PaperNumbers

ALL = "all"
PAPERS = ("pardnn", "tofu")
"""Prefixes, each of which names all tables and figures that begin with it."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """One table or figure of a paper."""

    cells: Callable[[], list[WorkCell]]
    grids: Callable[[Results, PaperNumbers], list[TextGrid]]
    draw: Callable[[Results], bytes] | None = None
    """Its picture, as PNG."""


def _both(*parts: Callable[[], list[WorkCell]]) -> Callable[[], list[WorkCell]]:
    return lambda: [cell for part in parts for cell in part()]


ARTEFACTS: dict[str, Artefact] = {
    "table1": Artefact(cell_lists.counts, pesto_tables.table1),
    "table2": Artefact(_both(lambda: cell_lists.solved(cell_lists.TIMED), cell_lists.placings), pesto_tables.table2),
    "table3": Artefact(
        _both(
            lambda: cell_lists.solved(cell_lists.TIMED),
            lambda: cell_lists.rivals(cell_lists.TIMED),
            cell_lists.placings,
        ),
        pesto_tables.table3,
    ),
    "fig2": Artefact(lambda: cell_lists.toy("ordered"), pesto_figures.fig2, paper_charts.fig2),
    "fig4": Artefact(cell_lists.spreads, pesto_figures.fig4, paper_charts.fig4),
    "fig5": Artefact(cell_lists.congestions, pesto_figures.fig5, paper_charts.fig5),
    "fig7": Artefact(_both(cell_lists.solved, cell_lists.rivals), pesto_figures.fig7, paper_charts.fig7),
    "fig8": Artefact(
        _both(lambda: cell_lists.solved(cell_lists.SWEPT["compute"]), cell_lists.sweeps),
        pesto_figures.fig8,
        paper_charts.fig8,
    ),
    "pardnn-fig4.2": Artefact(lambda: cell_lists.toy("mapped"), thesis_pages.fig4_2),
    "pardnn-fig4.3": Artefact(lambda: cell_lists.toy("peaked"), thesis_pages.fig4_3),
    "pardnn-table5.1": Artefact(cell_lists.sizes, thesis_pages.table5_1),
    "pardnn-table6.1": Artefact(_both(cell_lists.singles, cell_lists.parts), thesis_pages.table6_1),
    "pardnn-fig6.1": Artefact(_both(cell_lists.singles, cell_lists.parts), thesis_pages.fig6_1, paper_charts.fig6_1),
    "pardnn-fig6.2": Artefact(cell_lists.shapes, thesis_pages.fig6_2),
    "pardnn-fig6.6": Artefact(cell_lists.others, thesis_pages.fig6_6),
    "pardnn-fig6.7": Artefact(cell_lists.others, thesis_pages.fig6_7),
    "pardnn-overhead": Artefact(cell_lists.parts, thesis_pages.overhead),
    "pardnn-quoted": Artefact(lambda: cell_lists.parts(cell_lists.SMALL), thesis_pages.quoted),
    "tofu-table1": Artefact(cell_lists.weighed, tofu_pages.table1),
    "tofu-fig9a": Artefact(
        lambda: cell_lists.divisions("tofu-wrn", cell_lists.WRN_OF[50]), partial(tofu_pages.fig9, layers=50)
    ),
    "tofu-fig9b": Artefact(
        lambda: cell_lists.divisions("tofu-wrn", cell_lists.WRN_OF[101]), partial(tofu_pages.fig9, layers=101)
    ),
    "tofu-fig9c": Artefact(
        lambda: cell_lists.divisions("tofu-wrn", cell_lists.WRN_OF[152]), partial(tofu_pages.fig9, layers=152)
    ),
    "tofu-fig10": Artefact(lambda: cell_lists.divisions("tofu-rnn", cell_lists.RNN), tofu_pages.fig10),
    "tofu-fig11": Artefact(cell_lists.algorithms, tofu_pages.fig11),
}
"""By the name that the command line has. Add one: a row here, and its printed numbers in `printed.toml`."""


def choose_artefacts(names: Iterable[str]) -> list[str]:
    """The names that are asked for, in the order of the table; UsageError, with the nearest, for an unknown one."""
    asked = list(names)
    for name in asked:
        if name not in (ALL, *PAPERS, *ARTEFACTS):
            raise UsageError.build(
                f"no table or figure is called {name!r}", remedy=suggest(name, (ALL, *PAPERS, *ARTEFACTS))
            )
    if not asked:
        raise UsageError.build("no table or figure is named", remedy=suggest("", (ALL, *PAPERS, *ARTEFACTS)))
    return [name for name in ARTEFACTS if not {ALL, name, name.partition("-")[0]}.isdisjoint(asked)]
