"""A folder of reproductions: cells kept by version, and one page, its pictures and its numbers made of them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pesto.core.distribution import VERSION
from pesto.core.files.disk import check_folder, make_folder, write_atomic
from pesto.reporting.show import drawing
from pesto.research.reproduction import cell_lists, versions
from pesto.research.reproduction.artefacts import ARTEFACTS, Artefact
from pesto.research.reproduction.cached_cells import (
    CellResult,
    CellSettings,
    Hear,
    ResultStore,
    WorkCell,
    missing_cells,
    run,
    spent_text,
)
from pesto.research.reproduction.graph_steps import graph_cells
from pesto.research.reproduction.grids import Results, TextGrid
from pesto.research.reproduction.printed_numbers import PaperNumbers, load_printed

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
        return Results({cell.table: self.store.of(cell.table) for a in ARTEFACTS.values() for cell in a.cells()})


def open_folder(folder: Path, seconds: float, *, tiny: bool) -> ResultsFolder:
    """The folder, made where it is not there. FileError where that cannot be."""
    check_folder(folder)
    make_folder(folder)
    settings = f"{seconds:g}s{'-tiny' if tiny else ''}"
    cells = folder / f"cells-{versions.results_version()}-{settings}"
    graphs = folder / f"graphs-{versions.graphs_version()}{'-tiny' if tiny else ''}"
    return ResultsFolder(
        folder, CellSettings(graphs=graphs, drawn=cells, seconds=seconds, tiny=tiny), ResultStore(cells)
    )


def other_versions(book: ResultsFolder) -> list[str]:
    """Names of what the folder has of other versions or settings."""
    return sorted(path.name for path in book.folder.glob("cells-*") if path != book.store.folder and path.is_dir())


def run_missing_cells(book: ResultsFolder, names: Iterable[str], jobs: int, hear: Hear) -> list[str]:
    """Do the cells of these that are not kept: graph files, what must be alone, the rest; returns what failed."""
    cells = missing_cells((cell for name in names for cell in ARTEFACTS[name].cells()), book.store)
    models = dict.fromkeys(word for cell in cells for word in cell.key if "/" in word)
    failed = run(graph_cells(models, book.settings), book.store, book.settings, jobs, hear)
    alone = [cell for cell in cells if cell.table in cell_lists.ALONE]
    failed += run(alone, book.store, book.settings, 1, hear)
    return failed + run([cell for cell in cells if cell not in alone], book.store, book.settings, jobs, hear)


def count_missing(book: ResultsFolder) -> dict[str, int]:
    """How many cells lack of each table or figure that cannot be made yet."""
    counts = {name: len(missing_cells(artefact.cells(), book.store)) for name, artefact in ARTEFACTS.items()}
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
    numbers = _numbers(book)
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
    return [results.tables[cell.table][cell.key] for cell in artefact.cells()]


def _text(book: ResultsFolder, pictures: dict[str, str]) -> str:
    results, made = book.results(), _made(book)
    used = {(cell.table, cell.key) for artefact in made.values() for cell in artefact.cells()}
    models = {word for _, key in used for word in key if "/" in word}
    graphs = [done for key, done in book.store.of("graphs").items() if key[0] in models]
    lines = list(_head(book, [*graphs, *(results.tables[table][key] for table, key in used)]))
    for name, artefact in made.items():
        it = load_printed()[name]
        lines += _section(it, artefact.grids(results, it), _done(artefact, results), pictures.get(name))
    lacks = count_missing(book)
    if lacks:
        lines += ["", "## Not made yet", ""]
        lines += [f"- {name}: {count} of {len(ARTEFACTS[name].cells())} cells lack" for name, count in lacks.items()]
    return "\n".join(lines) + "\n"


def _head(book: ResultsFolder, done: Iterable[CellResult]) -> Iterator[str]:
    words = f"NAME... --time-limit {book.settings.seconds:g}{' --tiny' * book.settings.tiny}"
    where = f"commit {versions.commit()}" if versions.commit() else "sources that are no commit's"
    yield from ("# The papers' tables and figures, made again", "")
    yield f"`pesto reproduce {words} --out FOLDER` made this page: {INTRODUCTION[0]}"
    if book.settings.tiny:
        yield from ("", "**A rehearsal with tiny models: no number here says anything of the papers' models.**")
    yield from ("", INTRODUCTION[1], "")
    yield f"Pesto {VERSION}, {where}, cells of version {versions.results_version()}; {spent_text(done)}."


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


def _numbers(book: ResultsFolder) -> dict[str, Any]:
    results, result = book.results(), {}
    for name, artefact in _made(book).items():
        it = load_printed()[name]
        cells = [_cell(cell, results) for cell in artefact.cells()]
        result[name] = {**asdict(it), "grids": [asdict(each) for each in artefact.grids(results, it)], "cells": cells}
    return {
        "format": FORMAT,
        "format_version": 1,
        "pesto": VERSION,
        "commit": versions.commit(),
        "version": versions.results_version(),
        "time_limit_s": book.settings.seconds,
        "tiny": book.settings.tiny,
        "artefacts": result,
        "lacking": count_missing(book),
    }


def _cell(cell: WorkCell, results: Results) -> dict[str, Any]:
    done = results.tables[cell.table][cell.key]
    return {"table": cell.table, "key": list(cell.key), **done._asdict()}
