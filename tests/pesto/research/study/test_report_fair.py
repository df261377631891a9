"""Comparisons in a report that nobody wins or loses by accident: refusals, false claims, failures, old files."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.reporting.show.lines import Table, escape_markdown
from pesto.research.study import cells
from pesto.research.study.report import pictures, write
from pesto.research.study.report import runs as report_rows
from pesto.research.study.report.content import Report, build_report
from pesto.research.study.report.figures import MOST_LINES, comparison_figures, plan_figure
from pesto.research.study.report.runs import (
    FAILED,
    PLAN,
    CellRow,
    ProgressTrace,
    StageRuns,
    StudyRows,
    comparable,
    group_runs,
)
from pesto.research.study.report.tables import measured_of, multiples, plans
from pesto.research.study.report.write import DEFINITIONS


def cell(status: str, solver: str = "x", instance: str = "a", **more: Any) -> CellRow:
    """A cell with a limit of 10 s that took 1 s, on instance a."""
    outcome = cells.CellAnswer(
        key=f"{solver}{instance}", status=status,
        limit_reason="", makespan=more.get("makespan"), lower_bound=more.get("bound", 0), bound_by="",
        start_makespan=more.get("start"), seconds=more.get("seconds", 1.0), version=more.get("version", ""), detail="",
        tasks=3, devices=2, edges=2, measures=more.get("measures", {}),
    )  # fmt: skip
    return CellRow(
        key=f"{solver}{instance}", stage=more.get("stage", "schedule"), instance=instance, family="f", solver=solver,
        formulation=more.get("formulation", ""), limit_s=10.0, seed=0, parameters=more.get("parameters", {}),
        state="done", outcome=outcome,
    )  # fmt: skip


def solved(solver: str = "x", instance: str = "a", **more: Any) -> CellRow:
    return cell("optimal", solver, instance, **{"makespan": 100, "bound": 100, "start": 200} | more)


def rows(cells: Sequence[CellRow]) -> StudyRows:
    """A study whose runs all began with a bound of 50."""
    n = len(cells)
    trace = ProgressTrace(
        cell=np.arange(n), seconds=np.zeros(n), makespan=np.full(n, 200), bound=np.full(n, 50)
    )  # what is better than a run delivered does not count
    return StudyRows(name="tiny", created_by="1", cells=tuple(cells), trace=trace, former=0)


def told(cells: Sequence[CellRow], table: str) -> list[dict[str, Any]]:
    (found,) = [t for t in build_report(rows(cells)).files if t.key == table]
    return lines(found)


def lines(table: Table) -> list[dict[str, Any]]:
    return [dict(zip([c.key for c in table.columns], row, strict=True)) for row in table.rows]


def planned(n: int, measures: dict[str, Any], status: str = "feasible", instance: str = "a") -> CellRow:
    return cell(status, instance=instance, stage="plan", parameters={"coarsen_to": n}, measures=measures)


def plan_runs(cells: Sequence[CellRow]) -> StageRuns:
    return group_runs(rows(cells), plans=True)


def test_an_instance_that_could_not_be_built_is_nobody_s_failure() -> None:
    """Instance b is refused to both: x is as good as without b, and only the counts know of it."""
    cells = [solved(), solved("y", makespan=125, bound=125, start=None), *(cell("refused", s, "b") for s in "xy")]
    without, whole = told(cells[:2], "configurations"), told(cells, "configurations")
    assert [(line["cells"], line["refused"]) for line in whole] == [(2, 1), (2, 1)]
    for before, after in zip(without, whole, strict=True):
        assert {k: v for k, v in before.items() if k not in ("cells", "refused")}.items() <= after.items()
    found = group_runs(rows(cells), plans=False)
    drawn, problems = comparable(found)
    assert (drawn.tolist(), problems.tolist()) == ([0, 1], [0])
    assert all("finished: 1." in figure.caption for figure in comparison_figures(found))
    sides = [
        solved(formulation="tight"),
        solved(formulation="paper"),
        *(cell("refused", instance="b", formulation=w) for w in ("tight", "paper")),
    ]
    assert [(line["problems"], line["failed_a"]) for line in told(sides, "formulations")] == [(1, 0)]
    assert any("1 of 1 instance" in fact for fact in build_report(rows(cells)).facts)


def test_a_contradicted_bound_is_no_truth() -> None:
    """`liar` claims 120 where 100 is known, `x` proves 80: the best bound is 80, and the lie is no proof and no gap."""
    cells = [cell("feasible", makespan=100, bound=80, start=200), solved("liar", makespan=120, bound=120, seconds=2.0)]
    honest, liar = told(cells, "configurations")
    assert (honest["best_gap"], honest["feasible"], honest["contradicted"]) == (pytest.approx(0.2), 1, 0)
    assert (liar["optimal"], liar["feasible"], liar["contradicted"]) == (0, 0, 1)
    # its own bound is what was known before: 50
    assert (liar["own_gap"], liar["closed_own"] < 1) == (pytest.approx(70 / 120), True)
    assert liar["to_proof_s"] == pytest.approx(10.0)
    assert [line["liar"] for line in told(cells, "instances_status")] == ["contradicted"]
    assert told(cells, "instances_bound")[0]["best_bound"] == 80
    # the file's own words stay
    assert [(line["lower_bound"], line["contradicted"]) for line in told(cells, "cells_schedule")] == [
        (80, ""),
        (120, "yes"),
    ]
    assert any("solved by at least one configuration: 0 of 1" in fact for fact in build_report(rows(cells)).facts)


def test_a_refuted_proof_of_infeasibility_is_no_proof() -> None:
    cells = [cell("feasible", makespan=100), cell("infeasible", "denier")]
    (_, denier) = told(cells, "configurations")
    assert (denier["infeasible"], denier["contradicted"], denier["own_gap"]) == (0, 1, 1.0)
    assert denier["primal_integral_s"] == pytest.approx(10.0)
    assert denier["to_proof_s"] == pytest.approx(10.0)


def test_a_failure_with_a_false_bound_stays_a_failure() -> None:
    cells = [solved(), cell("crashed", "y", bound=500)]
    (_, y) = told(cells, "configurations")
    assert (y["crashed"], y["contradicted"]) == (1, 1)
    assert told(cells, "instances_bound")[0]["best_bound"] == 100


@pytest.mark.parametrize("status", ["crashed", "hung", "invalid", "missing"])
def test_a_failure_is_not_quick(status: str) -> None:
    """It ended after 1 s of 10; all columns of seconds count it with its limit."""
    cells = [solved(seconds=4.0), cell(status, instance="b")]
    (line,) = told(cells, "configurations")
    assert line["mean_s"] == pytest.approx(7.0)
    assert line["geometric_mean_s"] == line["to_proof_s"] == pytest.approx((5 * 11) ** 0.5 - 1)
    assert [row["x"] for row in told(cells, "instances_seconds")] == [4.0, 10.0]
    # longer than its limit is as long as it was
    assert told([solved(), cell(status, instance="b", seconds=30.0)], "instances_seconds")[1]["x"] == 30.0


def test_a_failed_plan_is_not_quick_and_a_refused_one_has_no_seconds() -> None:
    cells = [planned(1, {}, "crashed"), planned(2, {}, "refused"), planned(3, {"step_ms": 1.0})]
    found = plan_runs(cells)
    assert [line["seconds"] for line in lines(plans(found, measured_of(found)))] == [10.0, None, 1.0]


def test_where_a_cell_ran_and_what_never_varies_is_no_measure() -> None:
    """Nor is a bound stated as a multiple."""
    same = {"cores": 4, "pesto": "1", "how": "same", "bound_ms": 2.0, "coarse_bound_ms": 3.0}
    found = plan_runs([planned(n, same | {"chosen": f"{n}", "step_ms": float(n)}) for n in (1, 2, 3)])
    measured = measured_of(found)
    assert [c.key for c in plans(found, measured).columns][4:] == [
        "seconds", "bound_ms", "coarse_bound_ms", "chosen", "step_ms",
    ]  # fmt: skip
    assert [c.key for c in multiples(found, measured).columns] == ["setting", "seconds", "step_ms"]
    figure = plan_figure(found, measured)
    assert figure is not None
    assert [panel.title for panel in figure.panels] == ["step", "seconds"]
    # what a single plan says is not dull because it is alone
    assert measured_of(plan_runs([planned(1, same)]))[0]["how"] == "same"


def test_one_list_of_failures_and_one_schema() -> None:
    assert FAILED is cells.FAILED
    assert PLAN is cells.PLAN
    assert report_rows.SCHEMA is cells.SCHEMA


def test_a_file_that_was_renamed_stays_one_instance() -> None:
    """By the hash of its content; one of another content does not become it, nor a model by its cluster's file."""
    made = [{"type": "problem", "file": f, "sha256": h} for f, h in (("a", "1"), ("b", "1"), ("c", "2"))]
    made += [
        {"type": "model", "model": m, "cluster": c, "sha256": "3"} for m, c in (("m", "p"), ("m", "q"), ("n", "p"))
    ]
    names = ["a", "b", "c", "m p", "m q", "n p"]
    found = group_runs(
        rows(
            [solved("xy"[k % 2], i, parameters={"of": of}) for k, (i, of) in enumerate(zip(names, made, strict=True))]
        ),
        plans=False,
    )
    assert found.instances == ("a", "c", "m p", "n p")
    assert found.instance.tolist() == [0, 0, 1, 2, 2, 3]


def test_a_plan_without_a_schedule_of_the_solver_s_own_is_a_gap_in_the_picture() -> None:
    """Setting 2 has only the start's measures: no number is made up for it, and its panel is drawn."""
    cells = []
    for i in "ab":
        for n in (1, 2, 3):
            own = None if n == 2 or i == "b" else 5.0 * n**3
            shared = {"coarse_start_ms": 9.0, "start_step_ms": 8.0, "step_ms": 1.0 * n}
            cells.append(planned(n, {"coarse_ms": own, "last_step_ms": own, **shared}, instance=i))
    found = plan_runs(cells)
    measured = measured_of(found)
    table = lines(plans(found, measured))
    assert [line["coarse_ms"] for line in table] == [5.0, None, 135.0, None, None, None]
    assert {line["coarse_start_ms"] for line in table} == {9.0}
    figure = plan_figure(found, measured)
    assert figure is not None
    panels = {panel.title: panel for panel in figure.panels}
    assert np.isnan(panels["coarse"].lines[0].y).tolist() == [False, True, False]
    assert panels["coarse"].y_log
    assert "coarse_ms" not in [c.key for c in multiples(found, measured).columns]
    pytest.importorskip("matplotlib")
    assert pictures.draw(figure, ("png",))["png"].startswith(b"\x89PNG")


def test_a_panel_whose_drawn_instances_have_no_number_is_empty() -> None:
    """Only an instance beyond those that are drawn has the measure."""
    cells = [planned(n, {"step_ms": 1.0 * n}, instance=f"i{k}") for k in range(MOST_LINES) for n in (1, 2, 3)]
    cells += [planned(n, {"step_ms": 1.0 * n, "coarse_ms": 2.0 * n}, instance="last") for n in (1, 2, 3)]
    found = plan_runs(cells)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plan_figure(found, measured_of(found))
    assert figure is not None
    assert [panel.y_log for panel in figure.panels if panel.title == "coarse"] == [False]


def test_cells_of_several_versions_are_said_aloud() -> None:
    def facts(cells: Sequence[CellRow]) -> list[str]:
        return [fact for fact in build_report(rows(cells)).facts if "several versions" in fact]

    one, two = solved(version="1", measures={"pesto": "7"}), solved(instance="b", version="2", measures={"pesto": "8"})
    assert facts([one, two]) == ["cells of several versions: x (1, 2), x (pesto 7, pesto 8)"]
    # two solvers have two versions, and a failed cell may have none
    assert not facts([one, solved("y", "b", version="2"), cell("crashed", instance="b")])


def made(cells: Sequence[CellRow], folder: Path, monkeypatch: pytest.MonkeyPatch, *formats: str) -> Report:
    monkeypatch.setattr(write, "read", lambda _: rows(cells))
    return write.write_report(Path("s.sqlite"), folder, formats or write.FORMATS).report


@pytest.mark.slow
def test_no_stale_file_stays_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second study has neither comparisons nor failures; what somebody else made stays, also by a known name."""
    pytest.importorskip("matplotlib")
    made([solved(), solved("y", seconds=2.0), cell("crashed", "y", "b")], tmp_path, monkeypatch)
    others = {"plans.csv": b"mine,yours\n", "formulations.png": b"\x89PNG of mine", "notes.svg": b"<svg/>"}
    for name, data in others.items():
        (tmp_path / name).write_bytes(data)
    assert {"profile_time.png", "profile_time.svg"} <= {path.name for path in tmp_path.iterdir()}
    made([cell("refused"), cell("refused", "y")], tmp_path, monkeypatch, "csv")
    names = {path.name for path in tmp_path.iterdir()}
    assert {"profile_time.png", "profile_time.svg", "report.md"} <= names  # not asked for in these formats
    assert "curves.csv" not in names
    made([cell("refused"), cell("refused", "y")], tmp_path, monkeypatch)
    left = {path.name for path in tmp_path.iterdir()}
    assert {name for name in left if name.endswith((".png", ".svg"))} == {"formulations.png", "notes.svg"}
    assert all((tmp_path / name).read_bytes() == data for name, data in others.items())


@pytest.mark.slow
def test_every_file_of_a_report_is_known_to_a_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study with all there is: pictures and tables of any kind would be recognised."""
    pytest.importorskip("matplotlib")
    pair = [solved("z", i, formulation=w) for i in "ab" for w in ("tight", "paper")]
    steps = [planned(n, {"step_ms": 1.0 * n}) for n in (1, 2, 3)]
    found = made([*pair, cell("crashed", "y"), solved("y", "b"), *steps], tmp_path, monkeypatch)
    assert {table.key for table in found.files} == set(write._TABLES)
    assert {figure.key for figure in found.figures} == set(write._PICTURES)
    write._clear(tmp_path, set(write.FORMATS), ())
    assert {path.name for path in tmp_path.iterdir()} == {"report.md", "report.html"}


def test_no_text_of_the_report_is_too_long_for_a_line() -> None:
    """Markdown cuts what is longer."""
    texts = [text for _, text in DEFINITIONS] + [table.note for table in build_report(rows([solved()])).files]
    assert not [text for text in texts if text and not escape_markdown(text).endswith(escape_markdown(text[-9:]))]
