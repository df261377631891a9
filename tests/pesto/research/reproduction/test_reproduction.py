"""The papers' tables and figures again: toys, arithmetic, printed numbers, what is kept, and the pages."""

import json
import os
import re
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from pesto.core.errors import UsageError
from pesto.core.files import toml
from pesto.core.problem import TICK_S
from pesto.research.reproduction import cell_lists, grids, pesto_pages, results_folder
from pesto.research.reproduction.cached_cells import (
    CellResult,
    CellSettings,
    Found,
    Key,
    ResultStore,
    WorkCell,
    file_of,
    graph_cells,
    machine,
    missing_cells,
    run,
)
from pesto.research.reproduction.grids import PaperNumbers, load_printed
from pesto.research.reproduction.results_folder import ARTEFACTS, choose_artefacts
from pesto.research.reproduction.work import solves, toys
from pesto.research.reproduction.work.solves import _stripes
from solvers import Options
from solvers.cpsat import solver as cpsat
from solvers.timing.replay import replay

ROOT = Path(__file__).resolve().parents[4]


def done(found: Found, cpu_s: float = 1.0) -> CellResult:
    return CellResult(found, cpu_s, cpu_s, (0.0, 0.0))


@pytest.fixture(scope="module")
def toy() -> Found:
    return toys.ordered((), None)


def test_order_alone_is_worth_22_percent_of_pestos_toy(toy: Found) -> None:
    """Pesto, Fig 2: 22 % by order, 26 % by order and placement, of an optimum that CP-SAT proves."""
    ticks = toy["makespan"]
    assert toy["optimum"] == ticks["best"] == 14
    saved = [1 - 14 / ticks[name] for name in ("naive order", "naive order and placement")]
    assert [round(100 * each) for each in saved] == [22, 26]


def test_no_placement_and_no_order_by_rank_beats_the_toys_optimum() -> None:
    """All 256 placements, each in every order of three: bottom level, the longest first, the paper's."""
    problem = toys.drawn(toys.OPS, dict.fromkeys(toys.EDGES, toys.CROSSING), links=True)
    names = list(toys.OPS)
    ways = ("FCEABDGH", "FABDCEGH", "AFCEBDGH")
    ranks = [toys.ranked([names.index(name) for name in way]) for way in ways]
    found = [replay(problem, np.array(at), rank).makespan for at in product((0, 1), repeat=8) for rank in ranks]
    assert min(found) == 14


def test_the_naive_order_prefers_paths_of_many_ops() -> None:
    """What it sorts by are ops on the longest path, whatever they take."""
    problem = toys.drawn(toys.OPS, dict.fromkeys(toys.EDGES, toys.CROSSING))
    assert dict(zip(toys.OPS, toys.hops(problem).tolist(), strict=True)) == {
        "A": 4, "B": 3, "C": 2, "D": 2, "E": 2, "F": 3, "G": 2, "H": 1,
    }  # fmt: skip


def test_pardnns_toys() -> None:
    """Fig 4.2: 13 units by LALB, 15 by GLB. Fig 4.3: peaks of 8 and 11 by the order alone."""
    assert toys.mapped((), None)["makespan"] == {"LALB": 13, "GLB": 15, "LALB, refined": 13}
    assert toys.peaked((), None)["peak"] == {"ACDEFBG": 8, "ABCDEFG": 11}


def test_every_artefact_has_printed_numbers_and_cells() -> None:
    """One entry each, in one order, with a source; each reason and sentence ends as one."""
    assert list(load_printed()) == list(ARTEFACTS)
    for name, it in load_printed().items():
        assert it.source.startswith(("Pesto,", "ParDNN (thesis),", "Tofu,")) and it.ours.endswith(".")
        assert all(reason.endswith(".") for reason in it.reasons)
        cells = ARTEFACTS[name].cells
        assert cells and len({(cell.table, cell.key) for cell in cells}) == len(cells)
    assert load_printed()["table1"].numbers["nmt/2x1024"] == {"short": 21243, "middle": 8114, "long": 703}
    assert load_printed()["table2"].number("nmt/4x1024", "Placeto") == 4120
    assert load_printed()["table3"].number("nmt/2x1024", "Placeto") is None


def test_printed_numbers_are_read_strictly() -> None:
    """A misspelt key is refused with the nearest one."""
    with pytest.raises(UsageError, match="did you mean reasons"):
        toml.parse(b'name = "a"\nsource = "b"\ntitle = "c"\nours = "d"\nreason = ["e"]\n', PaperNumbers, "printed.toml")


def test_effort_is_steps_and_time_to_place_over_experts() -> None:
    """Table 3: half a step for 100 steps and 10 s to place, over 100 s of Expert; nothing to place is the ratio."""
    assert pesto_pages.effort(0.5, 10.0, 1.0, 100) == pytest.approx(0.6)
    assert pesto_pages.effort(0.7, 0.0, 1.0, 350_000) == pytest.approx(0.7)


def test_the_papers_own_efforts_follow_from_its_minutes() -> None:
    """Placeto's 1.0008 is 50 minutes over 375 000 steps of 10 s, as the page says, not of the half second here."""
    it = load_printed()["table3"]
    minutes, steps = load_printed()["table2"].number("nasnet/6x148", "Placeto"), it.number("nasnet/6x148", "steps")
    assert pesto_pages.effort(10.0, 60 * minutes, 10.0, steps) == pytest.approx(1.0008)
    assert pesto_pages.effort(0.493, 60 * minutes, 0.493, steps) == pytest.approx(1.016, abs=5e-4)


def filled() -> grids.Results:
    """What cells of the timed models would find: Expert 1 s, m-SCT .9 s (m-ETF .8 s, out of memory), Pesto .75 s."""
    methods = {name: {"step_s": 1.5, "fits": True, "detail": ""} for name in ("single", "m-topo")}
    methods |= {"expert": {"step_s": 1.0, "fits": True, "detail": ""}}
    methods |= {
        "m-etf": {"step_s": 0.8, "fits": False, "detail": ""},
        "m-sct": {"step_s": 0.9, "fits": True, "detail": ""},
    }
    models = [(model, cell_lists.TWO) for model in cell_lists.TIMED]
    return grids.Results({
        "rivals": {key: done({"methods": methods}) for key in models},
        "solves": {key: done({"step_s": 0.75, "bound_s": 0.7}, 20.0) for key in models},
        "placings": {key: done({"cpu_s": dict.fromkeys(("m-topo", "m-etf", "m-sct"), 2.0)}) for key in models},
    })  # fmt: skip


def test_baechi_is_the_best_of_its_methods_that_fits() -> None:
    """What runs out of memory is no rival, and what is saved is over the better of Expert and Baechi."""
    assert pesto_pages.best_of_baechi(filled(), "nmt/2x1024") == ("m-sct", 0.9)
    assert pesto_pages.savings(filled(), "nmt/2x1024") == pytest.approx((0.25, 1 / 6, 1 / 6))
    row = pesto_pages.table3(filled(), load_printed()["table3"])[0].rows[0]
    assert row == ("nmt/2x1024", "1000.0", "m-sct", "0.90", "0.75", "0.94", "-", "-", "0.89")


def test_mean_savings_are_of_ratios() -> None:
    """A half and a double are no saving; what does not fit is not counted."""
    assert pesto_pages.mean_saving([0.5, -1.0, None]) == pytest.approx(0.0)
    assert pesto_pages.mean_saving([None]) is None


def test_unknown_names_are_answered_with_the_nearest() -> None:
    """And `all` is all, in the order of the papers."""
    with pytest.raises(UsageError, match="no table or figure is called 'figure7' - did you mean fig7"):
        choose_artefacts(["figure7"])
    with pytest.raises(UsageError, match="no table or figure is named"):
        choose_artefacts([])
    assert choose_artefacts(["fig2", "table1"]) == ["table1", "fig2"] and choose_artefacts(["all"]) == list(ARTEFACTS)
    parts = ("table1", "fig9a", "fig9b", "fig9c", "fig10", "fig11")
    assert choose_artefacts(["tofu", "fig2"]) == ["fig2", *(f"tofu-{part}" for part in parts)]


def test_graph_files_are_built_once_for_each_model_and_batch(tmp_path: Path) -> None:
    """A batch has a file of its own; in a rehearsal all variants of a family are one."""
    models = ["wrn/610x14", "wrn/610x14@4", "wrn/304x28"]
    real = CellSettings(graphs=tmp_path, drawn=tmp_path, seconds=1.0, tiny=False)
    assert file_of(models[1], real).name == "wrn-610x14-batch-4.json"
    assert len(graph_cells(models, real)) == 3
    assert len(graph_cells(models, CellSettings(graphs=tmp_path, drawn=tmp_path, seconds=1.0, tiny=True))) == 1
    file_of(models[0], real).touch()
    assert [cell.key for cell in graph_cells(models, real)] == [("wrn/610x14@4",), ("wrn/304x28",)]


def test_a_cluster_is_cut_and_scaled_by_its_name() -> None:
    """PRESET:N has N accelerators, and factors change what they name."""
    assert [len(machine(name).accelerators) for name in ("v100x16:1", "v100x16:4", "v100x16")] == [1, 4, 16]
    base, fast = machine("v100x2-nvlink"), machine("v100x2-nvlink", links=2.0)
    assert fast.paths[0][1].s_per_byte == pytest.approx(base.paths[0][1].s_per_byte / 2)


def test_stripes_join_what_all_but_touches() -> None:
    """Gaps of at most so many ticks vanish; what takes no time is no stripe."""
    start, finish = np.array([10, 0, 30, 50]) * 1000, np.array([20, 8, 30, 60]) * 1000
    found = _stripes(start, finish, 2000.0)
    assert [[round(t / TICK_S) for t in each] for each in found] == [[0, 20_000], [50_000, 60_000]]


def traced(key: Key, asked: CellSettings) -> Found:
    """A cell's work that leaves a trace of being done."""
    with (asked.graphs / "done").open("a") as file:
        file.write(f"{key[0]}\n")
    return {}


def test_a_kept_cell_is_not_run_again(tmp_path: Path) -> None:
    """Nor one that is asked for twice; lines that are no results count as absent."""
    asked, kept = CellSettings(graphs=tmp_path, drawn=tmp_path, seconds=1.0, tiny=True), ResultStore(tmp_path / "kept")
    cells = [WorkCell("traces", (name,), traced) for name in ("a", "b", "a")]
    assert len(missing_cells(cells, kept)) == 2
    heard: list[str] = []
    assert run(cells, kept, asked, 1, heard.append) == [] and run(cells, kept, asked, 1, heard.append) == []
    assert heard == ["1 of 2: traces a", "2 of 2: traces b"] and (tmp_path / "done").read_text() == "a\nb\n"
    (tmp_path / "kept" / "traces.jsonl").write_text('{"key": ["a"]}\n[1]\nnull\n')
    assert len(missing_cells(cells, kept)) == 2


def dying(key: Key, asked: CellSettings) -> Found:
    """A cell's work that ends its process the first time."""
    traced(key, asked)
    if (asked.graphs / "done").read_text().count("\n") == 1:
        os._exit(1)
    return {}


@pytest.mark.kill
def test_a_cell_that_loses_its_process_is_run_again(tmp_path: Path) -> None:
    """And the next cell runs, too."""
    asked, kept = CellSettings(graphs=tmp_path, drawn=tmp_path, seconds=1.0, tiny=True), ResultStore(tmp_path / "kept")
    cells = [WorkCell("traces", (name,), work) for name, work in (("a", dying), ("b", traced))]
    assert run(cells, kept, asked, 1, lambda _: None) == []
    assert (tmp_path / "done").read_text() == "a\na\nb\n" and not missing_cells(cells, kept)


def test_the_version_is_of_what_numbers_follow_from() -> None:
    """The rooms that only show are apart; the work of cells is not."""
    assert all((results_folder.PACKAGES[0] / room).is_dir() for room in results_folder.APART)
    assert {"planning/solving", "core/costs", "choosing/comparison"}.isdisjoint(results_folder.APART)
    assert (
        re.fullmatch(r"[0-9a-f]{10}", results_folder.results_version())
        and results_folder.results_version() != results_folder.graphs_version()
    )


@pytest.mark.slow
def test_figure_2_from_the_command_line(tmp_path: Path) -> None:
    """Page, picture and numbers; a second call does nothing and changes no byte; another version is told."""
    words = [sys.executable, "-m", "pesto", "reproduce", "fig2", "--out", str(tmp_path), "--jobs", "1"]
    first = subprocess.run([*words, "--json"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert first.returncode == 0, first.stderr
    numbers = json.loads(first.stdout)
    assert numbers["artefacts"]["fig2"]["grids"][0]["rows"][0] == ["naive order", "18", "22.2%", "22%"]
    assert numbers["lacking"].keys() == ARTEFACTS.keys() - {"fig2"}
    files = ("reproduction.md", "reproduction.json", "fig2.png")
    before = [(tmp_path / name).read_bytes() for name in files]
    assert before[2].startswith(b"\x89PNG") and b"| naive order | 18 | 22.2% | 22% |" in before[0]
    (tmp_path / "cells-0000000000-3s").mkdir()
    again = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert again.returncode == 0 and "1 of 1" in first.stderr and "1 of 1" not in again.stderr
    assert "has cells-0000000000-3s of another version or other settings" in again.stderr
    assert "| naive order | 18 | 22.2% | 22% |" in again.stdout
    assert [(tmp_path / name).read_bytes() for name in files] == before


@pytest.mark.kill
@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    """Ends with 130 at once, with its processes, and goes on from there."""
    words = [sys.executable, "-m", "pesto", "reproduce", "all", "--tiny", "--out", str(tmp_path), "--jobs", "2"]
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    for line in running.stderr:
        if "1 of" in line:
            running.send_signal(signal.SIGINT)
            break
    rest = running.communicate(timeout=60)[1]
    assert running.returncode == 130 and "interrupted: what is done is kept" in rest
    (kept,) = tmp_path.glob("cells-*")
    assert len(ResultStore(kept).of("graphs")) >= 1


@pytest.mark.slow
def test_a_rehearsal_has_the_layout_of_the_page(tmp_path: Path) -> None:
    """Tables of tiny models with a row for each of the papers', and the page says that it is a rehearsal."""
    names = ["table1", "table2", "table3", "fig2", "pardnn-table5.1", "pardnn-fig6.2"]
    words = [sys.executable, "-m", "pesto", "reproduce", *names, "--tiny", "--time-limit", "0.1"]
    (tmp_path / "docs").mkdir()
    made = subprocess.run(
        [*words, "--out", str(tmp_path), "--jobs", "1", "--page", str(tmp_path / "docs" / "reproduction.md")],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    page = (tmp_path / "docs" / "reproduction.md").read_text()
    assert "**A rehearsal with tiny models" in page and "pictures/reproduction-fig2.png" in page
    assert (tmp_path / "docs" / "pictures" / "reproduction-fig2.png").exists()
    for start in ("| nmt/4x1024 | ", "| naive order | ", "| e3d/512 | ", "| wrn/610x14 batch 16 | "):
        assert any(line.startswith(start) for line in page.splitlines()), start


def test_the_clock_is_owned_up_in_the_words_that_a_cell_looks_for() -> None:
    """Fig 5's exact solver counts its effort; where a busy machine ends it sooner, its cell fails and is not kept."""
    problem = toys.drawn(toys.OPS, dict.fromkeys(toys.EDGES, toys.CROSSING))
    watch = cpsat.SolveMonitor(problem, Options(deterministic=True), None, solver="cpsat-windows", version="")
    assert solves.CLOCKED in cpsat._repeatable(watch, clocked=True) and not cpsat._repeatable(watch, clocked=False)
