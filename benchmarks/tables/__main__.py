"""Makes the tables of the pages that rest on modelled costs: graph files, solves, comparisons, bounds, studies.

    python -m benchmarks.tables --out FOLDER [--only results,comparison] [--jobs 2] [--seconds 5]

A cell that FOLDER has of this commit is not measured again. Tables are written to their places in the pages,
`<!-- table: NAME -->` to `<!-- end -->`; what has none is printed. With `--tiny` all models are the tiny ones and
nothing is written: a rehearsal. Searches count stretches, `--seconds` of them, and no clock ends them.
"""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.tables import bounds, changes, comparison, durations, parts, results, studies
from benchmarks.tables.cells import ROOT, Asked, Cell, Done, Kept, Key, commit, run, under
from benchmarks.tables.markdown import written
from benchmarks.tables.steps import graph_cells

LARGE = ("pardnn-transformer/48x8192", "v100x16")


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="what is measured is kept here")
    parser.add_argument("--only", help=f"some of {','.join(every())}")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each search, as --time-limit has it")
    parser.add_argument("--tiny", action="store_true", help="rehearse with tiny models; writes no page")
    given = parser.parse_args()
    name = commit()
    kept = Kept(given.out.resolve() / (f"{name}-tiny" if given.tiny else name))
    asked = Asked(graphs=kept.folder / "graphs", seconds=given.seconds, tiny=given.tiny)
    cells = chosen(given.only)
    models = [model for cell in cells for model in cell.key if "/" in model]
    failed = run(graph_cells(list(dict.fromkeys(models)), asked), kept, asked, given.jobs)
    failed += run(cells, kept, asked, given.jobs)
    publish(blocks(kept, name), () if given.tiny else pages())
    if failed:
        raise SystemExit("\n".join(("failed:", *failed)))


def every() -> dict[str, list[Cell]]:
    """Cells by what `--only` names, in the order in which they are run."""
    found: dict[str, list[Cell]] = {}
    for cell in (
        *durations.cells(), *results.cells(), *comparison.cells(), *bounds.cells(), *changes.cells(), *parts.cells(),
        *studies.cells(), Cell("large", LARGE, results.solved),
    ):  # fmt: skip
        found.setdefault(cell.table, []).append(cell)
    return found


def chosen(only: str | None) -> list[Cell]:
    """The cells of the tables that are asked for; SystemExit for an unknown one."""
    known = every()
    names = only.split(",") if only else list(known)
    for name in names:
        if name not in known:
            raise SystemExit(f"no table is called {name!r} - choose of {','.join(known)}")
    return [cell for name in names for cell in known[name]]


def pages() -> list[Path]:
    """The pages that may have places for tables."""
    return [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]


def blocks(kept: Kept, name: str) -> dict[str, list[str]]:
    """Each table that has measurements, by its place's name, with the line below it."""
    done = {table: kept.of(table) for table in every()}
    rivals = {key: one.found["methods"] for key, one in done["comparison"].items()}
    methods = comparison.methods(done["comparison"], done["results"])
    found: dict[str, tuple[str, Iterable[str]]] = {
        "durations": ("durations", durations.table(done["durations"])),
        "results": ("results", results.tables(done["results"], rivals)),
        "stages": ("results", results.stages(done["results"])),
        "large": ("large", results.tables(done["large"], {})),
        "comparison": ("comparison", comparison.tables(done["comparison"], methods)),
        "comparison-summary": ("comparison", comparison.summary(methods)),
        "comparison-pairs": ("comparison", comparison.pairs(methods)),
        "bounds": ("bounds", bounds.full(done["bounds"], done["results"])),
        "bounds-coarse": ("bounds-coarse", bounds.coarse_table(done["bounds-coarse"])),
        "starts": ("starts", changes.starts(done["starts"])),
        "sweep": ("sweep", changes.sweep_table(done["sweep"])),
        "trust": ("trust", changes.trust_table(done["trust"])),
        "search": ("search", parts.table(done["search"], done["results"])),
        "congestion": ("studies", studies.congestion(done["studies"])),
        "coarsening": ("studies", studies.coarsening(done["studies"])),
        "solvers-models": ("studies", studies.models(done["studies"])),
    }
    return {place: [*lines, *under(_list(done[table]), name)] for place, (table, lines) in found.items() if done[table]}


def _list(done: Mapping[Key, Done]) -> list[Done]:
    return list(done.values())


def publish(tables: Mapping[str, list[str]], places: Iterable[Path]) -> None:
    """Write tables into the pages; print those that have no place."""
    placed = written(tables, places)
    for name, lines in tables.items():
        if name not in placed:
            print("\n".join((f"\n<!-- table: {name} -->", *lines)))


if __name__ == "__main__":
    main()
