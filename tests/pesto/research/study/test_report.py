"""The report of a study from its file: what is counted, compared and written, also of failed and unfinished cells."""

import csv
import io
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.cli.main import main
from pesto.core.errors import Exit, FileError, InputError
from pesto.research.study import store
from pesto.research.study.report import runs as report_rows
from pesto.research.study.report import write
from pesto.research.study.report.content import build_report
from pesto.research.study.report.figures import comparison_figures
from pesto.research.study.report.runs import group_runs

TABLES = """
CREATE TABLE study (name, spec_json, created_by_version);
CREATE TABLE cells (key TEXT PRIMARY KEY, ordinal INTEGER, stage, instance, family, solver, formulation, limit_s REAL,
    seed INTEGER, parameters TEXT, state TEXT, owner TEXT);
CREATE TABLE results (key PRIMARY KEY, status, limit_reason, makespan INTEGER, lower_bound INTEGER, bound_by,
    start_makespan INTEGER, seconds REAL, version, detail, tasks INTEGER, devices INTEGER, edges INTEGER, measures);
CREATE TABLE traces (key, seconds REAL, makespan INTEGER, lower_bound INTEGER);
PRAGMA user_version = 1;
INSERT INTO study VALUES ('tiny', '{}', '1.2.3');
"""
CELL = f"INSERT INTO cells VALUES ({','.join('?' * 12)})"  # noqa: S608
RESULT = f"INSERT INTO results VALUES ({','.join('?' * 14)})"  # noqa: S608
START = (0.0, 200, 50)


def study(path: Path, cells: Sequence[dict[str, Any]]) -> Path:
    """A study's file; a cell without a status is pending. Defaults: instance a, solver s, limit 10 s, seed 0."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(TABLES)
        for k, c in enumerate(cells):
            ordinal, parameters = c.get("ordinal", k), json.dumps(c.get("parameters", {}))
            named = (c.get("stage", "schedule"), c.get("instance", "a"), "fam", c.get("solver", "s"))
            state = "done" if "status" in c else "pending"
            row = (f"k{k}", ordinal, *named, c.get("formulation", ""), c.get("limit", 10.0), c.get("seed", 0))
            db.execute(CELL, (*row, parameters, state, None))
            if "status" in c:
                found = (
                    c["status"],
                    "",
                    c.get("makespan"),
                    c.get("bound", 0),
                    "",
                    c.get("start"),
                    c.get("seconds", 1.0),
                )
                rest = ("v1", c.get("detail", ""), 3, 2, 2, json.dumps(c.get("measures", {})))
                db.execute(RESULT, (f"k{k}", *found, *rest))
            db.executemany("INSERT INTO traces VALUES (?, ?, ?, ?)", [(f"k{k}", *step) for step in c.get("trace", ())])
        db.commit()
    return path


def solved(**more: Any) -> dict[str, Any]:
    """200 down to 100 at 4 s, proven at 8 s."""
    trace = [START, (4.0, 100, 50), (8.0, None, 100)]
    return {"status": "optimal", "makespan": 100, "bound": 100, "start": 200, "seconds": 8.0, "trace": trace} | more


def stuck(**more: Any) -> dict[str, Any]:
    """Down to 160 and up to 80 at 5 s, no further."""
    trace = [START, (5.0, 160, 80)]
    return {"status": "feasible", "makespan": 160, "bound": 80, "start": 200, "seconds": 10.0, "trace": trace} | more


def rows_of(folder: Path, table: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / f"{table}.csv").read_text())))


def reported(tmp_path: Path, cells: Sequence[dict[str, Any]], *formats: str) -> write.Written:
    return write.write_report(study(tmp_path / "s.sqlite", cells), tmp_path / "out", formats or ("csv",))


def test_one_row_a_configuration(tmp_path: Path) -> None:
    """Best known of instance a: 100. `good` proves it; `bad` ends with 160 against 80, by the best bound 60/160."""
    cells = [solved(solver="good"), stuck(solver="bad"), {"solver": "bad", "status": "crashed", "instance": "b"}]
    reported(tmp_path, [*cells, solved(solver="good", instance="b", seconds=2.0)])
    good, bad = rows_of(tmp_path / "out", "configurations")
    assert (good["optimal"], good["crashed"], bad["optimal"], bad["feasible"], bad["crashed"]) == (
        "2",
        "0",
        "0",
        "1",
        "1",
    )
    assert float(good["mean_s"]) == 5.0
    assert float(good["geometric_mean_s"]) == pytest.approx((9 * 3) ** 0.5 - 1)
    # a crash without a schedule is a gap of 100 %, never left out of the mean
    assert float(bad["own_gap"]) == pytest.approx((0.5 + 1) / 2)
    assert float(bad["best_gap"]) == pytest.approx((60 / 160 + 1) / 2)
    # its start had a gap of 1/2 by the best bound and of 3/4 by the bound known before; only a had a start
    assert float(bad["closed"]) == pytest.approx((0.5 - 0.375) / 0.5)
    assert float(bad["closed_own"]) == pytest.approx((0.75 - 0.5) / 0.75)
    assert (bad["started"], bad["improved"], good["improved"]) == ("1", "1", "2")
    # neither of the two is decided within 10 s
    assert float(bad["to_proof_s"]) == pytest.approx(10.0)


def test_primal_integral_by_hand(tmp_path: Path) -> None:
    """`good`: 1/2 for 4 s, then 0. `bad`: (200 - 100)/200 for 5 s, (160 - 100)/160 for 5 s. The crash: 10 s."""
    crash = {"solver": "bad", "status": "crashed", "instance": "b", "trace": [(1.0, 120, 5)], "seconds": 2.0}
    cells = [solved(solver="good"), stuck(solver="bad"), crash, solved(solver="good", instance="b", trace=[])]
    reported(tmp_path, cells)
    found = {
        (c["solver"], c["instance"]): float(c["primal_integral_s"]) for c in rows_of(tmp_path / "out", "cells_schedule")
    }
    assert found["good", "a"] == pytest.approx(2.0)
    assert found["bad", "a"] == pytest.approx(2.5 + 5 * 0.375)
    assert found["bad", "b"] == pytest.approx(10.0)  # it delivered nothing of what it streamed
    assert found["good", "b"] == pytest.approx(8 * 0.5)  # without a trace: its start, and its end at 8 s
    (_, bad) = rows_of(tmp_path / "out", "configurations")
    assert float(bad["primal_integral_share"]) == pytest.approx((0.4375 + 1) / 2)


def test_what_was_streamed_but_not_delivered_does_not_count(tmp_path: Path) -> None:
    """A makespan of 90 that the judge threw away, a bound of 110 that it cut, and a step past the limit."""
    trace = [START, (1.0, 90, 110), (2.0, 100, 60), (11.0, 10, 100)]
    rows = report_rows.read(study(tmp_path / "s.sqlite", [stuck(makespan=100, bound=60, trace=trace)]))
    progress = group_runs(rows, plans=False).progress
    assert progress.seconds.tolist() == [0.0, 0.0, 1.0, 2.0, 10.0]
    assert progress.gap.tolist() == pytest.approx([0.75, 0.75, 0.4, 0.4, 0.4])


def test_gap_over_time_is_the_mean_step_function(tmp_path: Path) -> None:
    """At 6 s `x` has (100 - 50)/100 on a and 80/160 on b; at 1 s 3/4 on both; `y` crashed on one: (1 + .5)/2."""
    cells = [solved(solver="x"), stuck(solver="x", instance="b"), stuck(solver="y")]
    rows = report_rows.read(study(tmp_path / "s.sqlite", [*cells, {"solver": "y", "instance": "b", "status": "hung"}]))
    runs = group_runs(rows, plans=False)
    curve = {f.key: f for f in comparison_figures(runs)}["gap_over_time"].panels[0]
    x, y = curve.lines
    assert np.interp([1.0, 6.0, 9.0], x.x, x.y).tolist() == pytest.approx([0.75, 0.5, 0.25])
    assert np.interp([1.0, 6.0], y.x, y.y).tolist() == pytest.approx([0.875, 0.75])
    assert x.x[[0, -1]].tolist() == pytest.approx([0.8, 10.0])  # the first event is the end of y's hung cell


def test_tight_and_paper_side_by_side_over_the_problems_that_both_finished(tmp_path: Path) -> None:
    """Paper has not finished c; on a tight is better, on b they are equal."""
    cells = [stuck(formulation="paper"), solved(formulation="tight"), stuck(formulation="paper", instance="b")]
    cells += [stuck(formulation="tight", instance="b"), solved(formulation="tight", instance="c")]
    written = reported(tmp_path, [*cells, {"formulation": "paper", "instance": "c"}])
    (pair,) = rows_of(tmp_path / "out", "formulations")
    assert (pair["formulation_a"], pair["formulation_b"], pair["problems"]) == ("tight", "paper", "2")
    assert (pair["optimal_a"], pair["optimal_b"]) == ("1", "0")
    assert float(pair["own_gap_a"]) == pytest.approx(0.25)
    assert float(pair["own_gap_b"]) == pytest.approx(0.5)
    assert [pair[f"{k}_{m}"] for k in ("makespan", "gap") for m in ("a_better", "equal", "b_better")] == list("110110")
    assert "formulations" in [figure.key for figure in written.report.figures]


def test_a_missing_package_says_nothing_about_gaps(tmp_path: Path) -> None:
    """All of its cells are missing: no numbers and no line, but the counts; the note names it."""
    reported(tmp_path, [solved(solver="x"), stuck(solver="y"), {"solver": "gone", "status": "missing"}], "csv", "md")
    gone = rows_of(tmp_path / "out", "configurations")[2]
    assert (gone["missing"], gone["own_gap"], gone["mean_s"], gone["primal_integral_s"]) == ("1", "", "", "")
    assert {row["line"] for row in rows_of(tmp_path / "out", "curves")} == {"x", "y"}
    assert "no cell of theirs has run: gone" in (tmp_path / "out" / "report.md").read_text()


def test_a_crash_closes_nothing_of_the_gap_of_its_start(tmp_path: Path) -> None:
    """No schedule at the end is no worse than the start, and no better."""
    reported(tmp_path, [solved(solver="x"), {"solver": "y", "status": "crashed", "start": 200, "trace": [START]}])
    crashed = rows_of(tmp_path / "out", "configurations")[1]
    assert [crashed[key] for key in ("closed", "closed_own", "own_gap", "improved")] == ["0.0", "0.0", "1.0", "0"]


def test_claims_that_contradict_each_other_are_said_aloud(tmp_path: Path) -> None:
    """A "proof" that 120 is optimal, another that nothing exists, and a schedule of 100."""
    liar = {"solver": "liar", "status": "optimal", "makespan": 120, "bound": 120}
    written = reported(tmp_path, [solved(solver="x"), liar, {"solver": "denier", "status": "infeasible"}], "md", "csv")
    assert [line.split(":")[0] for line in written.report.conflicts] == ["liar on a", "denier on a"]
    assert "Contradictions" in (tmp_path / "out" / "report.md").read_text()
    # the bound of the liar is not the best one
    assert rows_of(tmp_path / "out", "instances_gap")[0]["best_bound"] == "100"


def test_an_infeasible_instance_is_solved_by_its_proof(tmp_path: Path) -> None:
    """Decided at 3 s: a primal integral of 3, no gap at the end, nothing to contradict."""
    written = reported(tmp_path, [{"status": "infeasible", "seconds": 3.0}, {"status": "unknown", "solver": "t"}])
    first, second = rows_of(tmp_path / "out", "configurations")
    assert (first["own_gap"], first["primal_integral_s"], second["own_gap"]) == ("0.0", "3.0", "1.0")
    assert not written.report.conflicts


def test_a_study_that_is_half_done_says_what_is_pending(tmp_path: Path) -> None:
    cells = [solved(solver="x"), stuck(solver="y"), solved(solver="x", instance="b"), {"solver": "y", "instance": "b"}]
    written = reported(tmp_path, cells, "md", "csv")
    assert (written.report.done, written.report.pending) == (3, 1)
    text = (tmp_path / "out" / "report.md").read_text()
    assert "3 of 4 cells done, 1 pending" in text
    assert "have finished: 1." in " ".join(f.caption for f in written.report.figures)
    assert [row["pending"] for row in rows_of(tmp_path / "out", "configurations")] == ["0", "1"]


def test_nothing_has_run_yet(tmp_path: Path) -> None:
    written = reported(tmp_path, [{"solver": "x"}, {"solver": "y"}], *write.FORMATS)
    assert (written.report.done, written.report.pending, written.report.figures) == (0, 2, ())
    assert "No profiles and curves" in (tmp_path / "out" / "report.md").read_text()


def test_what_distinguishes_configurations_is_in_their_names(tmp_path: Path) -> None:
    """Workers vary on one instance; the size goes with the instance, so it names none; limits vary."""
    one, two = {"workers": 1, "size": 7, "of": {"n": 1}}, {"workers": 2, "size": 7, "of": {"n": 1}}
    other = {"workers": 2, "size": 9, "of": {"n": 2}}
    cells = [solved(parameters=one), solved(parameters=two), solved(parameters=two, limit=60.0)]
    reported(tmp_path, [*cells, solved(parameters=other, instance="b")])
    names = [row["configuration"] for row in rows_of(tmp_path / "out", "configurations")]
    assert names == ["10 s workers=1", "10 s workers=2", "60 s workers=2"]


def test_one_name_for_two_problems_is_two_instances(tmp_path: Path) -> None:
    """Two files of one name: the best of one is no measure for the other."""
    cells = [solved(parameters={"of": {"sha": "1"}}), stuck(parameters={"of": {"sha": "2"}}, solver="t")]
    written = reported(tmp_path, cells)
    assert [row["instance"] for row in rows_of(tmp_path / "out", "instances_gap")] == ["a", "a (2)"]
    assert not written.report.conflicts


def test_seeds_are_averaged_in_the_matrices_and_kept_in_the_cells(tmp_path: Path) -> None:
    reported(tmp_path, [solved(), stuck(seed=1)])
    (line,) = rows_of(tmp_path / "out", "instances_makespan")
    assert float(line["s"]) == 130.0
    assert rows_of(tmp_path / "out", "instances_status")[0]["s"] == "1 optimal, 1 feasible"
    assert len(rows_of(tmp_path / "out", "cells_schedule")) == 2


def test_plans_by_the_parameters_that_vary(tmp_path: Path) -> None:
    """Three sizes; measures of any name become columns, of groups too; multiples are of the first size."""
    cells = [
        {"stage": "plan", "status": "feasible", "instance": i, "parameters": {"coarsen_to": n, "of": i},
         "measures": {"step_ms": step * n, "fits": True, "stages_s": {"solve": 0.5}, "chosen": f"by {n}", "none": None}}
        for i, step in (("a", 1.0), ("b", 3.0)) for n in (50, 100, 400)
    ]  # fmt: skip
    written = reported(tmp_path, cells)
    table = rows_of(tmp_path / "out", "plans")
    assert [(row["instance"], row["coarsen_to"], row["step_ms"]) for row in table[2:4]] == [
        ("a", "400", "400.0"),
        ("b", "50", "150.0"),
    ]
    assert (table[0]["stages_s.solve"], table[0]["fits"], table[0]["chosen"]) == ("0.5", "true", "by 50")
    assert [float(row["step_ms"]) for row in rows_of(tmp_path / "out", "plan_multiples")] == pytest.approx([1, 2, 8])
    assert [figure.key for figure in written.report.figures] == ["plans"]


def test_cells_of_an_earlier_form_of_the_study_are_left_out(tmp_path: Path) -> None:
    written = reported(tmp_path, [solved(), stuck(solver="old", ordinal=-1)])
    assert written.report.cells == 1
    assert any("left out: 1 result" in fact for fact in written.report.facts)


def test_the_runner_makes_the_schema_that_is_read(tmp_path: Path) -> None:
    """Both sides agree on tables, columns and version."""
    with store.opened(tmp_path / "s.sqlite") as _:
        pass
    with closing(sqlite3.connect(tmp_path / "s.sqlite")) as db:
        db.execute("INSERT INTO study VALUES ('n', '{}', '1')")
        db.execute("INSERT INTO cells VALUES ('k', 0, 'schedule', 'i', 'f', 's', '', 1.0, 0, '{}', 'done', NULL)")
        db.execute("INSERT INTO results VALUES ('k', 'optimal', '', 3, 3, '', 4, .5, '', '', 1, 1, 0, '{}')")
        db.execute("INSERT INTO traces VALUES ('k', 0.0, 4, 1)")
        db.commit()
    assert build_report(report_rows.read(tmp_path / "s.sqlite")).done == 1


def test_the_file_is_only_read_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = study(tmp_path / "s.sqlite", [solved()])
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    before = path.read_bytes()
    write.write_report(path, tmp_path / "out", ("md",))
    assert path.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"s.sqlite", "out"}


def test_what_a_running_study_has_committed_is_read(tmp_path: Path) -> None:
    """A writer with an open log and an open transaction: its last commit counts, the rest does not."""
    path = study(tmp_path / "s.sqlite", [solved()])
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("UPDATE study SET name = 'committed'")
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE study SET name = 'not committed'")
        assert report_rows.read(path).name == "committed"


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path = study(tmp_path / "s.sqlite", [solved()])
    names = []

    def read(connection: sqlite3.Connection) -> str:
        names.append(connection.execute("SELECT name FROM study").fetchone()[0])
        if len(names) == 1:
            with closing(sqlite3.connect(path)) as db:
                db.execute("UPDATE study SET name = 'changed'")
                db.commit()
        return names[-1]

    assert store.read_consistently(path, read) == "changed"
    assert names == ["tiny", "changed"]


def test_a_file_that_always_changes_is_read_in_the_end(tmp_path: Path) -> None:
    path = study(tmp_path / "s.sqlite", [solved()])
    seen = []

    def read(connection: sqlite3.Connection) -> str:
        seen.append(connection.execute("SELECT name FROM study").fetchone()[0])
        if len(seen) <= store.TRIES:
            with closing(sqlite3.connect(path)) as db:
                db.execute("UPDATE study SET name = ?", (f"{len(seen)}",))
                db.commit()
        return seen[-1]

    assert store.read_consistently(path, read) == f"{store.TRIES}"


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ("DELETE FROM cells", InputError, "no cells"),
        ("DELETE FROM study", InputError, "no name"),
        ("PRAGMA user_version = 2", InputError, "newer"),
        ("PRAGMA user_version = 0", InputError, "not a study"),
        ("DROP TABLE traces", InputError, "not a study"),
        ("ALTER TABLE results DROP COLUMN makespan", InputError, "no such column"),
        ("UPDATE results SET makespan = 'many'", InputError, "k0 is damaged"),
        ("UPDATE results SET makespan = -1", InputError, "k0 is damaged"),
        ("UPDATE cells SET parameters = '[1]'", InputError, "no object"),
        ("UPDATE results SET measures = '{\"a\": NaN}'", InputError, "NaN"),
        ("UPDATE cells SET limit_s = 9e999", InputError, "k0 is damaged"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line_with_a_remedy(
    tmp_path: Path, change: str, error: type[Exception], says: str
) -> None:
    path = study(tmp_path / "s.sqlite", [solved()])
    with closing(sqlite3.connect(path)) as db:
        db.execute(change)
        db.commit()
    with pytest.raises(error, match=says) as caught:
        report_rows.read(path)
    assert " - " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [("gone", None, Exit.IO), ("text", b"hello", Exit.INPUT), ("other", b"", Exit.INPUT), (".", None, Exit.INPUT)],
)
def test_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str,
    content: bytes | None, code: Exit,
) -> None:  # fmt: skip
    """No such file, not a database, no tables, a folder."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr("sys.argv", ["pesto", "study", "report", str(tmp_path / name)])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr().err
    assert (end.value.code, said.count("\n"), " - " in said) == (code, 1, True)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(FileError, match="cannot make the folder"):
        reported(tmp_path, [solved()])


def test_the_command_prints_one_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = study(tmp_path / "s.sqlite", [solved(), {"solver": "t"}])
    arguments = ["study", "report", str(path), "-o", str(tmp_path / "o"), "--format", "md", "--format", "csv", "--json"]
    monkeypatch.setattr("sys.argv", ["pesto", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    said = json.loads(capsys.readouterr().out)
    assert (end.value.code, said["cells"], said["pending"], said["configurations"][0]["optimal"]) == (0, 2, 1, 1)
    assert sorted(said["files"]) == sorted(str(p) for p in (tmp_path / "o").iterdir())
