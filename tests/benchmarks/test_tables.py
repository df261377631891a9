"""What makes the tables of the pages keeps what it measured, and puts each table in its place."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tables import __main__ as tables
from benchmarks.tables import comparison, results
from benchmarks.tables.cells import under
from benchmarks.tables.markdown import MARK, written
from pesto.research.reproduction.cached_cells import CellResult, CellSettings, Found, Key, ResultStore, WorkCell, run

ROOT = Path(__file__).resolve().parents[2]


def squared(key: Key, asked: CellSettings) -> Found:
    """A cell's work: fails on what is no number, and leaves a trace of being done."""
    number = int(key[0])
    with (asked.graphs / "done").open("a") as file:
        file.write(f"{number}\n")
    return {"square": number * number}


@pytest.mark.slow
def test_cells_are_measured_once(tmp_path: Path) -> None:
    """A second run does what the first lacks, a line that was cut off among it; a failure is told and not kept."""
    asked, kept = CellSettings(graphs=tmp_path, drawn=tmp_path, seconds=1.0, tiny=True), ResultStore(tmp_path / "kept")
    cells = [WorkCell("squares", (word,), squared) for word in ("2", "3", "four")]
    failed = run(cells, kept, asked, 1)
    assert len(failed) == 1 and failed[0].startswith("squares four: ValueError")
    assert {key: done.found for key, done in kept.of("squares").items()} == {
        ("2",): {"square": 4},
        ("3",): {"square": 9},
    }
    path = tmp_path / "kept" / "squares.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert len(kept.of("squares")) == 1
    assert run(cells[:2], kept, asked, 1) == []
    assert len(kept.of("squares")) == 2 and (tmp_path / "done").read_text() == "2\n3\n3\n"
    assert all(done.cpu_s >= 0 and len(done.load) == 2 for done in kept.of("squares").values())


def test_a_block_takes_its_place_and_no_more(tmp_path: Path) -> None:
    """Other text, other places and pages without one keep every byte."""
    one, other = tmp_path / "one.md", tmp_path / "other.md"
    text = "# A\n\n<!-- table: a -->\nold\n<!-- end -->\n\nprose\n<!-- table: b -->\nkept\n<!-- end -->\n"
    one.write_text(text)
    other.write_text("nothing\n")
    assert written({"a": ["| x |", "|---|"], "c": ["lost"]}, [one, other]) == {"a"}
    assert one.read_text() == text.replace("old\n", "\n| x |\n|---|\n\n") and other.read_text() == "nothing\n"
    assert written({"a": ["| x |", "|---|"]}, [one]) == {"a"} and one.read_text().count("| x |") == 1


def test_every_place_in_the_pages_has_a_table() -> None:
    """Each mark is closed, none is there twice, and the command knows it."""
    known = {place for place, _, _ in tables.makers({table: {} for table in tables.every()})}
    marks = [found[2] for page in tables.pages() for found in MARK.finditer(page.read_text())]
    begun = sum(page.read_text().count("<!-- table:") for page in tables.pages())
    assert len(marks) == len(set(marks)) == begun and set(marks) <= known


def test_the_line_below_names_commit_work_and_load() -> None:
    """Sums of seconds, and the range of loads."""
    done = [CellResult({}, 10.4, 21.0, (1.5, 2.0)), CellResult({}, 1.2, 2.0, (0.5, 1.0))]
    assert list(under(done, "abc"))[-1].startswith("Commit abc; 2 cells, 12 CPU s in 23 s, load 0.5 to 2.0 on ")
    assert list(under([], "abc")) == []


def _methods(**steps: float | None) -> dict[str, Found]:
    return {name: {"makespan_s": step, "fits": step is not None} for name, step in steps.items()}


def test_the_best_rival_is_no_search_and_fits() -> None:
    """Of what fits, MCMC and Pesto apart."""
    methods = _methods(list=0.3, etf=0.2, mcmc=0.1, pesto=0.1, single=None)
    methods["dls"] = {"makespan_s": 0.05, "fits": False}
    assert results.best_rival(methods) == ("etf", 0.2) and results.best_rival(None) == ("", None)


def test_pairs_are_of_cells_where_both_fit() -> None:
    """A geometric mean by cluster, and over the paper's variants."""
    every = {
        ("m", "v100x4"): _methods(pesto=1.0, expert=2.0), ("n", "v100x4"): _methods(pesto=2.0, expert=1.0),
        ("m", "v100x8"): _methods(pesto=1.0, expert=None), ("m", comparison.LARGE): _methods(pesto=1.0, expert=1.0),
    }  # fmt: skip
    line = next(line for line in comparison.pairs(every) if line.startswith("| pesto, expert"))
    assert line == "| pesto, expert | 1.000 | - | 1.000 | 1.000 | 0.500 to 2.000 |"


@pytest.mark.slow
def test_a_rehearsal_makes_tables(tmp_path: Path) -> None:
    """Two cells of the results, on tiny models: plans, rivals and bounds in one table."""
    words = ("--out", str(tmp_path), "--only", "results,comparison", "--tiny", "--seconds", "0.2", "--jobs", "1")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tables", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line for line in done.stdout.splitlines() if line.startswith("| rnnlm/2x2048 | ")]
    assert len(rows) >= 4 and "Commit " in done.stdout
