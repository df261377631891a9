"""A folder of reproductions: the table of artefacts, cells kept by version, and a page, pictures and numbers."""

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pesto
import solvers
from pesto.core.distribution import VERSION
from pesto.core.errors import UsageError
from pesto.core.files.disk import check_folder, make_folder, write_atomic
from pesto.core.files.toml import suggest
from pesto.reporting.show import drawing
from pesto.research.reproduction import cell_lists, paper_charts, pesto_pages, thesis_pages, tofu_pages
from pesto.research.reproduction.cached_cells import (
    CellResult,
    CellSettings,
    Hear,
    ResultStore,
    WorkCell,
    graph_cells,
    missing_cells,
    run,
    spent_text,
)
from pesto.research.reproduction.grids import PaperNumbers, Results, TextGrid, load_printed

PACKAGES = tuple(Path(str(package.__file__)).parent for package in (pesto, solvers))
APART = ("cli", "reporting/show", "verbs/compiling", "schema", "research/reproduction", "research/study")
"""Rooms of `pesto` that no number follows from; but for the work of cells, in `pesto/research/reproduction/work`."""
GRAPHS = ("tf", "core/files", "core/graph.py", "core/source.py")
"""Sources that determine graph files."""


@cache
def results_version() -> str:
    """The version of cells: package, sources and the libraries that numbers follow from."""
    apart = [PACKAGES[0] / room for room in APART]
    rooms = (path for path in _files(PACKAGES[:1]) if not any(path.is_relative_to(room) for room in apart))
    sources = (*rooms, PACKAGES[0] / "research/reproduction/work", PACKAGES[1])
    return _hash(_files(sources), ("numpy", "ortools", "tensorflow"))


@cache
def graphs_version() -> str:
    """The version of graph files."""
    return _hash(_files(PACKAGES[0] / name for name in GRAPHS), ("tensorflow",))


def _files(sources: Iterable[Path]) -> Iterator[Path]:
    for source in sources:
        result = [source] if source.is_file() else sorted((*source.rglob("*.py"), *source.rglob("*.toml")))
        yield from (path for path in result if path.suffix in (".py", ".toml"))


def _hash(files: Iterable[Path], libraries: Iterable[str]) -> str:
    made = hashlib.sha256()
    for path in files:
        made.update(f"{path.relative_to(PACKAGES[0].parent)}\0".encode())
        made.update(path.read_bytes())
    for name in libraries:
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = "none"
        made.update(f"{name} {installed}\0".encode())
    return made.hexdigest()[:10]


@cache
def commit() -> str:
    """The short name of the checkout's commit; empty where there is none, or sources have changed since."""
    names = [package.name for package in PACKAGES]
    if _git("status", "--porcelain", "--", *names, "configs") != "":
        return ""
    return _git("log", "-1", "--format=%h", "--", *names, "configs") or ""


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=PACKAGES[0].parent, capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


ALL = "all"
PAPERS = ("pardnn", "tofu")
"""Prefixes, each of which names all tables and figures that begin with it."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """One table or figure of a paper."""

    cells: list[WorkCell]
    grids: Callable[[Results, PaperNumbers], list[TextGrid]]
    draw: Callable[[Results], bytes] | None = None
    """Its picture, as PNG."""


ARTEFACTS: dict[str, Artefact] = {
    "table1": Artefact(cell_lists.COUNTS, pesto_pages.table1),
    "table2": Artefact([*cell_lists.solved(cell_lists.TIMED), *cell_lists.PLACINGS], pesto_pages.table2),
    "table3": Artefact(
        [*cell_lists.solved(cell_lists.TIMED), *cell_lists.rivals(cell_lists.TIMED), *cell_lists.PLACINGS],
        pesto_pages.table3,
    ),
    "fig2": Artefact([cell_lists.ORDERED], pesto_pages.fig2, paper_charts.fig2),
    "fig4": Artefact(cell_lists.SPREADS, pesto_pages.fig4, paper_charts.fig4),
    "fig5": Artefact(cell_lists.CONGESTIONS, pesto_pages.fig5, paper_charts.fig5),
    "fig7": Artefact([*cell_lists.solved(), *cell_lists.rivals()], pesto_pages.fig7, paper_charts.fig7),
    "fig8": Artefact(
        [*cell_lists.solved(cell_lists.SWEPT["compute"]), *cell_lists.SWEEPS], pesto_pages.fig8, paper_charts.fig8
    ),
    "pardnn-fig4.2": Artefact([cell_lists.MAPPED], thesis_pages.fig4_2),
    "pardnn-fig4.3": Artefact([cell_lists.PEAKED], thesis_pages.fig4_3),
    "pardnn-table5.1": Artefact(cell_lists.SIZES, thesis_pages.table5_1),
    "pardnn-table6.1": Artefact([*cell_lists.SINGLES, *cell_lists.parts()], thesis_pages.table6_1),
    "pardnn-fig6.1": Artefact([*cell_lists.SINGLES, *cell_lists.parts()], thesis_pages.fig6_1, paper_charts.fig6_1),
    "pardnn-fig6.2": Artefact(cell_lists.SHAPES, thesis_pages.fig6_2),
    "pardnn-fig6.6": Artefact(cell_lists.OTHERS, thesis_pages.fig6_6),
    "pardnn-fig6.7": Artefact(cell_lists.OTHERS, thesis_pages.fig6_7),
    "pardnn-overhead": Artefact(cell_lists.parts(), thesis_pages.overhead),
    "pardnn-quoted": Artefact(cell_lists.parts(cell_lists.SMALL), thesis_pages.quoted),
    "tofu-table1": Artefact(cell_lists.WEIGHTS, tofu_pages.table1),
    **{
        f"tofu-fig9{part}": Artefact(
            cell_lists.divisions("tofu-wrn", cell_lists.WRN_OF[layers]), partial(tofu_pages.fig9, layers=layers)
        )
        for part, layers in (("a", 50), ("b", 101), ("c", 152))
    },
    "tofu-fig10": Artefact(cell_lists.divisions("tofu-rnn", cell_lists.RNN), tofu_pages.fig10),
    "tofu-fig11": Artefact(cell_lists.METHODS, tofu_pages.fig11),
}
"""By the name that the command line has. Add one: a row here, and its printed numbers in `printed.toml`."""


def choose_artefacts(names: Iterable[str]) -> list[str]:
    """The names that are asked for, in the order of the table; UsageError, with the nearest, for an unknown one."""
    asked, known = list(names), (ALL, *PAPERS, *ARTEFACTS)
    for name in asked:
        if name not in known:
            raise UsageError.build(f"no table or figure is called {name!r}", remedy=suggest(name, known))
    if not asked:
        raise UsageError.build("no table or figure is named", remedy=suggest("", known))
    return [name for name in ARTEFACTS if not {ALL, name, name.partition("-")[0]}.isdisjoint(asked)]


PAGE, NUMBERS, FORMAT = "reproduction.md", "reproduction.json", "pesto-reproduction"
SHOWN = ("fig2", "fig5", "fig7", "fig8", "pardnn-fig6.1")
"""Pictures that a page elsewhere has beside it: few, and small."""
INTRODUCTION = (
    "the tables and figures of Pesto (Hafeez et al., Middleware '21), of ParDNN (Qararyah's thesis, 2020) and of Tofu "
    "(Wang et al., arXiv:1807.08887v1), ours beside the printed numbers.",
    "Step times are **modelled**: predictions of the event simulator on modelled costs of V100s, and of K80s for "
    "Tofu, not of a stopwatch. Seconds to place are measured, in CPU seconds. Searches count stretches, so that the "
    "same version gives the same plans, however busy the machine.",
)


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """A folder, and how much work its cells do."""

    folder: Path
    settings: CellSettings
    store: ResultStore

    def results(self) -> Results:
        """Stored results by table."""
        return Results({cell.table: self.store.of(cell.table) for a in ARTEFACTS.values() for cell in a.cells})


def open_folder(folder: Path, seconds: float, *, tiny: bool) -> ResultsFolder:
    """The folder, made where it is not there. FileError where that cannot be."""
    check_folder(folder)
    make_folder(folder)
    settings = f"{seconds:g}s{'-tiny' if tiny else ''}"
    cells = folder / f"cells-{results_version()}-{settings}"
    graphs = folder / f"graphs-{graphs_version()}{'-tiny' if tiny else ''}"
    return ResultsFolder(
        folder, CellSettings(graphs=graphs, drawn=cells, seconds=seconds, tiny=tiny), ResultStore(cells)
    )


def other_versions(book: ResultsFolder) -> list[str]:
    """Names of what the folder has of other versions or settings."""
    return sorted(path.name for path in book.folder.glob("cells-*") if path != book.store.folder and path.is_dir())


def run_missing_cells(book: ResultsFolder, names: Iterable[str], jobs: int, hear: Hear) -> list[str]:
    """Do the cells of these that are not kept: graph files, what must be alone, the rest; returns what failed."""
    cells = missing_cells((cell for name in names for cell in ARTEFACTS[name].cells), book.store)
    models = dict.fromkeys(word for cell in cells for word in cell.key if "/" in word)
    failed = run(graph_cells(models, book.settings), book.store, book.settings, jobs, hear)
    alone = [cell for cell in cells if cell.table in cell_lists.ALONE]
    failed += run(alone, book.store, book.settings, 1, hear)
    return failed + run([cell for cell in cells if cell not in alone], book.store, book.settings, jobs, hear)


def count_missing(book: ResultsFolder) -> dict[str, int]:
    """How many cells lack of each table or figure that cannot be made yet."""
    counts = {name: len(missing_cells(artefact.cells, book.store)) for name, artefact in ARTEFACTS.items()}
    return {name: count for name, count in counts.items() if count}


def write_results(book: ResultsFolder, page: Path | None = None) -> dict[str, Any]:
    """Write the page, the pictures and the numbers of all that can be made, and return the numbers.

    `page`: another place for the page, with few of the pictures in a folder `pictures` beside it.
    """
    results, made = book.results(), _made(book)
    pictures = {name: a.draw(results) for name, a in made.items() if a.draw and drawing.available()}
    for name, picture in pictures.items():
        write_atomic(book.folder / f"{name}.png", picture)
    write_atomic(book.folder / PAGE, _text(book, {name: f"{name}.png" for name in pictures}).encode())
    artefacts = {}
    for name, artefact in made.items():
        it, cells = load_printed()[name], artefact.cells
        kept = [
            {"table": cell.table, "key": list(cell.key), **done._asdict()}
            for cell, done in zip(cells, _done(artefact, results), strict=True)
        ]
        grids = [asdict(each) for each in artefact.grids(results, it)]
        artefacts[name] = {**asdict(it), "grids": grids, "cells": kept}
    numbers = {
        "format": FORMAT,
        "format_version": 1,
        "pesto": VERSION,
        "commit": commit(),
        "version": results_version(),
        "time_limit_s": book.settings.seconds,
        "tiny": book.settings.tiny,
        "artefacts": artefacts,
        "lacking": count_missing(book),
    }
    write_atomic(book.folder / NUMBERS, json.dumps(numbers, ensure_ascii=False, indent=1).encode())
    if page is not None:
        beside = {name: f"pictures/reproduction-{name}.png" for name in pictures if name in SHOWN}
        make_folder(page.parent / "pictures")
        for name, path in beside.items():
            write_atomic(page.parent / path, pictures[name])
        write_atomic(page, _text(book, beside).encode())
    return numbers


def section(book: ResultsFolder, name: str) -> list[str]:
    """Markdown section of one table or figure, whose cells are all stored."""
    results, it = book.results(), load_printed()[name]
    return list(_section(it, ARTEFACTS[name].grids(results, it), _done(ARTEFACTS[name], results), None))


def _made(book: ResultsFolder) -> dict[str, Artefact]:
    """Artefacts whose cells are all stored."""
    lacks = count_missing(book)
    return {name: artefact for name, artefact in ARTEFACTS.items() if name not in lacks}


def _done(artefact: Artefact, results: Results) -> list[CellResult]:
    return [results.tables[cell.table][cell.key] for cell in artefact.cells]


def _text(book: ResultsFolder, pictures: dict[str, str]) -> str:
    results, made = book.results(), _made(book)
    used = {(cell.table, cell.key) for artefact in made.values() for cell in artefact.cells}
    models = {word for _, key in used for word in key if "/" in word}
    graphs = [done for key, done in book.store.of("graphs").items() if key[0] in models]
    spent = spent_text([*graphs, *(results.tables[table][key] for table, key in used)])
    words = f"NAME... --time-limit {book.settings.seconds:g}{' --tiny' * book.settings.tiny}"
    where = f"commit {commit()}" if commit() else "sources that are no commit's"
    lines = ["# The papers' tables and figures, made again", ""]
    lines.append(f"`pesto reproduce {words} --out FOLDER` made this page: {INTRODUCTION[0]}")
    if book.settings.tiny:
        lines += ["", "**A rehearsal with tiny models: no number here says anything of the papers' models.**"]
    lines += ["", INTRODUCTION[1], "", f"Pesto {VERSION}, {where}, cells of version {results_version()}; {spent}."]
    for name, artefact in made.items():
        it = load_printed()[name]
        lines += _section(it, artefact.grids(results, it), _done(artefact, results), pictures.get(name))
    lacks = count_missing(book)
    if lacks:
        lines += ["", "## Not made yet", ""]
        lines += [f"- {name}: {count} of {len(ARTEFACTS[name].cells)} cells lack" for name, count in lacks.items()]
    return "\n".join(lines) + "\n"


def _section(it: PaperNumbers, grids: list[TextGrid], done: list[CellResult], picture: str | None) -> Iterator[str]:
    yield from ("", f"## {it.title}", "", f"{it.source} (`{it.name}`). {it.ours}")
    if it.says:
        yield from ("", f"The paper: {it.says}")
    for each in grids:
        yield ""
        yield from each.lines()
    if picture:
        yield from ("", f"![{it.title}]({picture})")
    if it.reasons:
        yield from ("", "Why they differ:", "")
        yield from (f"- {reason}" for reason in it.reasons)
    yield from ("", f"{spent_text(done)}.")
