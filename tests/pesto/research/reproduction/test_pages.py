"""Every table and picture, made of results that no cell had to find."""

import pytest

from pesto.reporting.show import drawing
from pesto.research.reproduction import thesis_pages, tofu_pages
from pesto.research.reproduction.cached_cells import CellResult, Found, WorkCell
from pesto.research.reproduction.cell_lists import batches
from pesto.research.reproduction.grids import Results, load_printed, share
from pesto.research.reproduction.results_folder import ARTEFACTS
from pesto.research.reproduction.work import pardnn_runs, solves, tofu_runs, toys


def found(cell: WorkCell) -> Found:
    """What a cell of its table may find: plain numbers that tell models, GPUs and factors apart."""
    model, gpus = cell.key[0], int(cell.key[1].rpartition(":")[2]) if ":" in cell.key[-1] else 1
    step_s = 0.1 + len(model) / 100 / gpus
    solved = {
        "step_s": step_s, "bound_s": 0.9 * step_s,
        "candidates_s": {"expert": 1.3 * step_s, "levels": 1.1 * step_s, "search": step_s},
    }  # fmt: skip
    rivals = {name: {"step_s": (1.2 + k / 10) * step_s, "fits": k > 0} for k, name in enumerate(solves.RIVALS)}
    rows = {"gpu:0": [[0.0, 0.01], [0.02, 0.1]], "cpu:0/1": [[0.0, 0.01]], "gpu:0>gpu:1": [[0.01, 0.02]]}
    curve = [0.01 * k for k in range(len(solves.LEVELS))]
    tables: dict[str, Found] = {
        "durations": {"ops": [100, 20, 3]},
        "solves": solved,
        "sweeps": solved,
        "rivals": {"methods": rivals},
        "placings": {"cpu_s": dict.fromkeys(solves.BAECHI, 0.5)},
        "congestion": {
            name: {"promised_s": 0.1, "step_s": s, "transfers": 9, "rows": rows}
            for name, s in (("with", 0.2), ("without", 0.5))
        },
        "spread": {"ops": 700, "long_ops": 300, "trimmed": curve, "raw": None, "others_cores": None},
        "sizes": {"ops": 10_000},
        "shapes": {"parallelism": 5.5, "ccr": None if model.endswith("@256") else 1.25},
        "singles": {"step_s": step_s, "fits": not model.startswith("e3d")},
        "others": {"steps_s": {name: (1 + k) * step_s for k, name in enumerate(pardnn_runs.RIVALS)}},
        "parts": {
            "ops": 10_000, "step_1_cpu_s": 0.25, "step_2_cpu_s": 0.5, "moved": 800, "fits": gpus > 2, "step_s": step_s,
            "fitted_before": gpus > 4, "fullest": 2.5 / gpus,
        },
    }  # fmt: skip
    return tables.get(cell.table) or of_tofu(cell)


def of_tofu(cell: WorkCell) -> Found:
    """A step of Tofu's in 2 s by 8 workers, 4 s where links are slow, 20 s on one GPU, where a batch of 16 fits."""
    slow, quick = ({"step_s": s, "fits": True, "peak_bytes": 2**33, "order": "list order"} for s in (4.0, 2.0))
    lacks = {**slow, "fits": False}
    both = {"k80x8": slow, tofu_runs.SWITCHED: quick}
    tables: dict[str, Found] = {
        "tofu-weights": {"weight_bytes": 2**31, "ops": 9},
        "tofu-splits": {
            "batch": 256, "single_s": 10.0, "runs": {name: {"tofu": run, "exact": lacks} for name, run in both.items()},
        },
        "tofu-small": {"batch": 16, **(slow if cell.key[1] in ("50x4", "50x6") else lacks)},
        "tofu-placed": {"runs": {"k80x8": {"batch": 512, **slow}, tofu_runs.SWITCHED: lacks}},
        "tofu-algorithms": {"bytes": 5e9, "seconds": 1.5, "silent_s": 1.0, "runs": both},
    }  # fmt: skip
    return tables[cell.table]


@pytest.fixture(scope="module")
def results() -> Results:
    tables: dict[str, dict[tuple[str, ...], CellResult]] = {}
    for artefact in ARTEFACTS.values():
        for cell in artefact.cells:
            known = cell.work((), None) if cell.table == "toys" else found(cell)
            tables.setdefault(cell.table, {})[cell.key] = CellResult(known, 1.0, 2.0, (0.5, 1.0))
    return Results(tables)


def test_every_artefact_makes_whole_tables(results: Results) -> None:
    """Each row has as many cells as its table has columns, in text of one line; numbers of the papers are in them."""
    for name, artefact in ARTEFACTS.items():
        grids = artefact.grids(results, load_printed()[name])
        assert grids and all(grid.rows for grid in grids), name
        for grid in grids:
            assert {len(row) for row in grid.rows} == {len(grid.columns)}, (name, grid.title)
            assert all("\n" not in cell and "nan" not in cell for row in grid.rows for cell in row), (name, grid.rows)
            assert len(list(grid.lines())) == len(grid.rows) + (4 if grid.title else 2)


def row(results: Results, name: str, start: str, table: int = 0) -> tuple[str, ...]:
    rows = ARTEFACTS[name].grids(results, load_printed()[name])[table].rows
    return next(each for each in rows if each[0] == start)


def test_rows_set_ours_beside_theirs(results: Results) -> None:
    """One row of each kind, whole."""
    assert row(results, "table1", "nmt/2x1024") == (
        "nmt/2x1024", "100", "20", "3", "123", "21243", "8114", "703", "30060",
    )  # fmt: skip
    assert row(results, "table2", "nmt/4x1024")[-5:] == ("1", "3", "2714", "4120", "51")
    assert row(results, "fig5", "v100x2-nvlink")[-2:] == ("2.50", "nearly 3")
    assert row(results, "fig7", "all", 1)[2::2] == ("15.5%", "23.4%", "14%")
    assert row(results, "pardnn-table5.1", "wrn/610x14") == ("wrn/610x14", "10000", "187742", "0.05")
    assert row(results, "pardnn-fig6.2", "word-rnn/8x2048 batch 256") == (
        "word-rnn/8x2048 batch 256",
        "5.5",
        "-",
        "0.67",
    )
    assert row(results, "pardnn-fig6.6", "all")[-1] == "0.50" and row(results, "pardnn-fig6.7", "all")[-1] == "0.50"
    assert row(results, "pardnn-overhead", "mean")[5] == "8%"


def test_what_does_not_fit_is_said(results: Results) -> None:
    """On one GPU by what one GPU holds; on several by the fullest, and whether ops had to move."""
    assert row(results, "pardnn-table6.1", "e3d/320") == (
        "e3d/320", "1: OOM", "4: OOM (125%)", "16: 62%, moved", "32: 31%", "64: 16%",
    )  # fmt: skip
    assert row(results, "pardnn-table6.1", "e3d/512")[1:3] == ("-", "-")


def test_throughput_is_examples_of_each_batch_over_its_step(results: Results) -> None:
    """By number of GPUs, from the fewest that have a batch."""
    rates = thesis_pages.throughputs(results, "word-rnn/8x2048")
    assert list(rates) == list(batches("word-rnn/8x2048")) == [1, 2, 4, 8, 16]
    steps = results.found("parts", "word-rnn/8x2048@512", "v100x16:2")["step_s"]
    assert rates[2] == pytest.approx(512 / steps)


def test_tofus_rows_are_over_ideal(results: Results) -> None:
    """Ideal is 8 GPUs of one without limit; what is not in the printed order is said."""
    assert row(results, "tofu-table1", "tofu-rnn/6x4096") == ("tofu-rnn/6x4096", "2.00", "6.0", "6.0", "8.4")
    assert row(results, "tofu-fig9a", "tofu-wrn/50x4") == (
        "tofu-wrn/50x4", "256", "205", "0.31 (64)", "OOM", "0.16 (32), batch 16", "SmallBatch below Tofu",
    )  # fmt: skip
    assert row(results, "tofu-fig9a", "tofu-wrn/50x6", 1)[-4:] == (
        "0.62 (128)", "OOM", "0.16 (32), batch 16", "SmallBatch fits",
    )  # fmt: skip
    assert row(results, "tofu-fig9b", "tofu-wrn/101x4")[-2:] == ("OOM", "SmallBatch OOM")
    assert row(results, "tofu-fig9c", "tofu-wrn/152x10")[-2:] == ("OOM", "as printed")
    assert row(results, "tofu-fig10", "tofu-rnn/6x4096")[-4:] == (
        "0.62 (128), batch 512", "op placement above Tofu", "210", "107",
    )  # fmt: skip
    assert row(results, "tofu-fig10", "tofu-rnn/10x8192")[-3] == "op placement above Tofu; op placement fits"
    assert [row(results, "tofu-fig10", f"tofu-rnn/{v}", 1)[-3] for v in ("6x6144", "10x8192")] == [
        "op placement OOM", "as printed",
    ]  # fmt: skip
    assert row(results, "tofu-fig11", "tofu") == (
        "tofu", "Tofu", "5.0", "1.5", "1.00", "4.00", "75%", "2.00", "50%", "8.0", "6.3%",
    )  # fmt: skip
    assert row(results, "tofu-fig11", "rows-random")[-1] == "OOM"


def test_what_fits_no_batch_above_tofu_is_no_order() -> None:
    """Of recurrent networks SmallBatch and op placement are below Tofu, or out of memory."""
    rates = {"Ideal": 9.0, "Tofu": 5.0, "SmallBatch": None, "op placement": 3.0}
    assert tofu_pages.against_rnn(rates, fits=True) == "as printed"
    assert tofu_pages.against_rnn(rates | {"SmallBatch": 6.0}, fits=True) == "SmallBatch above Tofu"
    assert tofu_pages.against_rnn(rates | {"op placement": None}, fits=True) == "op placement OOM"
    assert tofu_pages.against_rnn(rates | {"Tofu": None}, fits=True) == "Tofu OOM"
    assert tofu_pages.against_wrn({"Tofu": None, "SmallBatch": 1.0}, 1.12) == "Tofu OOM"
    assert tofu_pages.against_wrn({"Tofu": 2.0, "SmallBatch": 3.0}, 1.12) == "as printed"


def test_shares_are_rounded_as_they_are_printed() -> None:
    """Whole per cents without a decimal."""
    assert [share(each) for each in (0.22, 0.2222, -0.05, None)] == ["22%", "22.2%", "-5%", "-"]


@pytest.mark.skipif(not drawing.available(), reason="needs matplotlib")
@pytest.mark.parametrize("name", [name for name, artefact in ARTEFACTS.items() if artefact.draw])
def test_pictures_are_the_same_each_time(results: Results, name: str) -> None:
    """As PNG; small ones, as pages keep them."""
    picture = ARTEFACTS[name].draw(results)
    assert picture.startswith(b"\x89PNG") and 5_000 < len(picture) < 200_000
    if name == "fig2":
        assert ARTEFACTS[name].draw(results) == picture


def test_work_is_named_by_functions_that_another_process_can_import() -> None:
    """A cell's work is a function of a module in the room of cells' work."""
    works = {cell.work for artefact in ARTEFACTS.values() for cell in artefact.cells}
    for work in works:
        module = next(m for m in (tofu_runs, pardnn_runs, solves, solves, toys) if m.__name__ == work.__module__)
        assert getattr(module, work.__name__) is work
