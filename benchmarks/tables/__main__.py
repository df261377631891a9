"""Makes the tables of the pages that rest on modelled costs: graph files, solves, comparisons, bounds, studies.

    python -m benchmarks.tables --out FOLDER [--only results,comparison] [--jobs 2] [--seconds 3]

A cell that FOLDER has of this commit and of as many seconds is not measured again. Tables are written to their places,
`<!-- table: NAME -->` to `<!-- end -->`; what has none is printed. With `--tiny` models are the tiny ones, cells few,
and nothing is written: a rehearsal. Searches count stretches that stand for `--seconds`: no clock ends them.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.tables import bounds, changes, comparison, durations, parts, results, studies, windows
from benchmarks.tables.cells import IMPORTED, ROOT, commit, under
from benchmarks.tables.markdown import written
from pesto.research.reproduction.cached_cells import (
    CellResult,
    CellSettings,
    Key,
    ResultStore,
    WorkCell,
    graph_cells,
    run,
)

REHEARSED = 2
"""Cells of each table in a rehearsal."""
LARGE = ("pardnn-transformer/48x8192", "v100x16")


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="what is measured is kept here")
    parser.add_argument("--only", help=f"some of {','.join(every())}")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each search, as --time-limit has it")
    parser.add_argument("--tiny", action="store_true", help="rehearse with tiny models; writes no page")
    given = parser.parse_args()
    name, made = ("rehearsal", "graphs") if given.tiny else (commit(), f"graphs-{commit(IMPORTED)}")
    out = given.out.resolve()
    kept = ResultStore(out / f"{name}-{given.seconds:g}s")
    asked = CellSettings(graphs=out / made, drawn=kept.folder, seconds=given.seconds, tiny=given.tiny)
    cells = chosen(given.only, REHEARSED if given.tiny else None)
    models = [model for cell in cells for model in cell.key if "/" in model]
    failed = run(graph_cells(list(dict.fromkeys(models)), asked), kept, asked, given.jobs)
    failed += run(cells, kept, asked, given.jobs)
    publish(blocks(kept, name), () if given.tiny else pages())
    if failed:
        raise SystemExit("\n".join(("failed:", *failed)))


def every() -> dict[str, list[WorkCell]]:
    """Cells by what `--only` names, in the order in which they are run."""
    result: dict[str, list[WorkCell]] = {}
    for cell in (
        *durations.cells(), *results.cells(), *comparison.cells(), *bounds.cells(), *changes.cells(), *parts.cells(),
        *studies.cells(), *windows.cells(), WorkCell("large", LARGE, results.solved),
    ):  # fmt: skip
        result.setdefault(cell.table, []).append(cell)
    return result


def chosen(only: str | None, limit: int | None = None) -> list[WorkCell]:
    """The cells of the tables that are asked for, of each the first `most`; SystemExit for an unknown one."""
    known = every()
    names = only.split(",") if only else list(known)
    for name in names:
        if name not in known:
            raise SystemExit(f"no table is called {name!r} - choose of {','.join(known)}")
    return [cell for name in names for cell in known[name][:limit]]


def pages() -> list[Path]:
    """The pages that may have places for tables."""
    return [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


Measured = Mapping[Key, CellResult]


def blocks(store: ResultStore, name: str) -> dict[str, list[str]]:
    """Each table that has measurements, by its place's name, with the line below it."""
    done: dict[str, Measured] = {}
    for table, cells in every().items():
        result = store.of(table)
        done[table] = {cell.key: result[cell.key] for cell in cells if cell.key in result}
    return {place: [*lines, *under(list(cells.values()), name)] for place, cells, lines in makers(done) if cells}


def makers(done: Mapping[str, Measured]) -> Iterator[tuple[str, Measured, Iterable[str]]]:
    """Each table's place, the cells that it is of, and its lines."""
    solved, compared = done["results"], done["comparison"]
    methods = comparison.methods(compared, solved)
    yield "durations", done["durations"], durations.table(done["durations"])
    yield "results", solved, results.tables(solved, {key: one.found["methods"] for key, one in compared.items()})
    yield "stages", solved, results.stages(solved)
    yield "large", done["large"], results.alone(done["large"])
    yield "comparison", compared, comparison.tables(compared, methods)
    yield "comparison-summary", compared, comparison.summary(methods)
    yield "comparison-pairs", compared, comparison.pairs(methods)
    yield "bounds", done["bounds"], bounds.full(done["bounds"], solved)
    yield "bounds-coarse", done["bounds-coarse"], bounds.coarse_table(done["bounds-coarse"])
    yield "starts", done["starts"], changes.starts(done["starts"])
    yield "sweep", done["sweep"], changes.sweep_table(done["sweep"])
    yield "trust", done["trust"], changes.trust_table(done["trust"])
    yield "search", done["search"], parts.table(done["search"], solved)
    yield "windows", done["windows"], windows.table(done["windows"])
    for name, table in studies.TABLES.items():
        one: Measured = {key: each for key, each in done["studies"].items() if key == (name,)}
        yield name, one, table(one)


def publish(tables: Mapping[str, list[str]], places: Iterable[Path]) -> None:
    """Write tables into the pages; print those that have no place."""
    placed = written(tables, places)
    for name, lines in tables.items():
        if name not in placed:
            print("\n".join((f"\n<!-- table: {name} -->", *lines)))


if __name__ == "__main__":
    main()
