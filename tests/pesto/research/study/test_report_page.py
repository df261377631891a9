"""What people see of a study's report: text, page and pictures, with names that try to be more than names."""

import base64
import csv
import hashlib
import io
import json
import re
import shlex
import sqlite3
import sys
import xml.etree.ElementTree as ET
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.reporting.show.lines import Column, Table, to_csv
from pesto.research.study.report import write
from pesto.research.study.report.figures import Figure, FigureLine, Panel
from pesto.research.study.report.write import queries

TABLES = """
CREATE TABLE study (name, spec_json, created_by_version);
CREATE TABLE cells (key PRIMARY KEY, ordinal, stage, instance, family, solver, formulation, limit_s REAL, seed,
    parameters, state, owner);
CREATE TABLE results (key PRIMARY KEY, status, limit_reason, makespan, lower_bound, bound_by, start_makespan,
    seconds REAL, version, detail, tasks, devices, edges, measures);
CREATE TABLE traces (key, seconds, makespan, lower_bound);
CREATE VIEW rows AS SELECT * FROM cells JOIN results USING (key);
PRAGMA user_version = 1;
"""
CELL = f"INSERT INTO cells VALUES ({', '.join('?' * 12)})"  # noqa: S608
RESULT = f"INSERT INTO results VALUES ({', '.join('?' * 14)})"  # noqa: S608
EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "_$\\frac{$_ |a|b| `c` **d** [e](http://f.example)",
    "=cmd|' /C calc'!A0",
    "--><svg onload=alert(3)> \u202e\u0000\n]]>",
    "\u4f60\u597d \U0001f600 " + "w" * 300,
)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Every name and text of the file is an attack, on two instances and over two formulations; one cell a kind."""
    path = tmp_path / "h'o$s\"t`.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(TABLES)
        db.execute("INSERT INTO study VALUES (?, '{}', ?)", (EVIL[0], EVIL[1]))
        for k in range(24):
            solver, stage = EVIL[k % 6], "plan" if k >= 20 else "schedule"
            named = (f"{EVIL[k % 4]}{k}", k, stage, EVIL[k // 12], EVIL[2], solver, ("tight", EVIL[2])[k // 6 % 2])
            mix = json.dumps({EVIL[0]: EVIL[1], "n": k // 20 * k})
            db.execute(CELL, (*named, 10.0, 0, mix, "done", None))
            status = ("optimal", "feasible", EVIL[0], "crashed")[k % 4]
            made = None if status == "crashed" else 100 + k
            measures = json.dumps({EVIL[0]: k + 1, "step_ms": k + 0.5, EVIL[3]: EVIL[1]})
            found = (named[0], status, EVIL[0], made, 90, EVIL[1], 150, 1.0 + k, EVIL[3], EVIL[4], 3, 2, 2, measures)
            db.execute(RESULT, found)
            db.execute("INSERT INTO traces VALUES (?, 0.0, 150, 50)", (named[0],))
        db.execute("INSERT INTO traces VALUES ('none', 'soon', 'x', NULL)")
        db.commit()
    return path


class Seen(HTMLParser):
    """Collects the elements, attributes and texts that a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.slow
def test_a_page_is_whole_by_itself_and_its_names_are_only_text(hostile: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write.write_report(hostile, tmp_path / "out", ("html",))
    text = (tmp_path / "out" / "report.html").read_text()
    seen = Seen()
    seen.feed(text)
    assert {"img", "iframe", "link", "object", "embed", "form"}.isdisjoint(seen.tags)
    assert seen.tags.count("script") == 1
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    # a reference leads into the page itself
    led = [value or "" for name, value in seen.attributes if name in ("src", "href", "xlink:href", "action")]
    assert led
    assert all(value.startswith("#") for value in led)
    assert "@import" not in text
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", text))
    assert any(EVIL[0] in piece for piece in seen.text)
    identities = [value for name, value in seen.attributes if name == "id"]
    assert len(identities) == len(set(identities))
    # each reference of the pictures has its target
    targets = {f"#{value}" for value in identities}
    assert {value for value in led if value.startswith("#")} <= targets


@pytest.mark.slow
def test_only_the_page_s_own_script_may_run(hostile: Path, tmp_path: Path) -> None:
    """The policy names the hash of exactly the script that is in the page."""
    write.write_report(hostile, tmp_path / "out", ("html",))
    text = (tmp_path / "out" / "report.html").read_text()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy[1]
    assert "default-src 'none'" in policy[1]


@pytest.mark.slow
def test_every_picture_is_drawn_from_hostile_names_as_sound_xml(hostile: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = write.write_report(hostile, tmp_path / "out", ("svg", "png"))
    names = {path.name for path in done.files}
    assert {"plans.svg", "gap_over_time.svg", "profile_time.png", "primal_integral.png"} <= names
    for path in done.files:
        data = path.read_bytes()
        if path.suffix == ".png":
            assert data.startswith(b"\x89PNG")
        else:
            assert ET.fromstring(data).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314
            assert b"onload=alert" not in data.replace(b"<!--", b"").split(b"<svg", 1)[0]


def test_a_markdown_cell_shows_the_name_and_does_nothing_else(hostile: Path, tmp_path: Path) -> None:
    """No bar that splits a cell, no tag, no link; each table has one width."""
    write.write_report(hostile, tmp_path / "out", ("md",))
    text = (tmp_path / "out" / "report.md").read_text()
    outside = re.sub(r"```sh.*?```", "", text, flags=re.DOTALL)
    assert "<" not in outside
    assert not re.search(r"(?<!\\)\]\(http", outside)
    assert "://" not in outside
    for block in re.findall(r"(?:^\|.*\n)+", outside, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1


def test_csv_holds_full_numbers_and_no_formulas(hostile: Path, tmp_path: Path) -> None:
    write.write_report(hostile, tmp_path / "out", ("csv",))
    for path in (tmp_path / "out").iterdir():
        lines = list(csv.reader(io.StringIO(path.read_text())))
        assert len({len(line) for line in lines}) == 1
        assert not [cell for line in lines for cell in line if cell.startswith(("=", "@", "+"))]
    table = Table(key="t", title="", columns=(Column(key="a", title="a"),), rows=((1 / 3,), (None,), ("-x",), (True,)))
    assert to_csv(table).decode().splitlines() == ["a", "0.3333333333333333", '""', "'-x", "true"]


def test_without_matplotlib_all_but_the_pictures_is_written(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = write.write_report(hostile, tmp_path / "out")
    assert {path.suffix for path in done.files} == {".md", ".csv", ".html"}
    assert "pip install -e '.[study]'" in done.hint
    for name in ("report.md", "report.html"):
        assert "pip install" in (tmp_path / "out" / name).read_text()


def test_without_jinja2_all_but_the_page_is_written(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without matplotlib too, the hint names both, on a line each."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = write.write_report(hostile, tmp_path / "out")
    assert {path.suffix for path in done.files} == {".md", ".csv"}
    assert [line.split(":")[0] for line in done.hint.splitlines()] == ["no pictures", "no page"]


@pytest.mark.slow
def test_the_same_study_gives_the_same_bytes(hostile: Path, tmp_path: Path) -> None:
    """So that a report under version control changes only when the study does."""
    for name in ("one", "two"):
        write.write_report(hostile, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_queries_survive_the_shell_and_count_what_is_there(hostile: Path) -> None:
    """A shell takes each for one command; the one for sqlite3 is run, whatever the name of the file is."""
    lines = queries(str(hostile))
    assert shlex.split(queries("plain.sqlite")[1], comments=True)[2].startswith("ATTACH 'plain.sqlite' AS s")
    assert [shlex.split(line, comments=True)[0] for line in lines] == ["sqlite3", "duckdb", "duckdb"]
    name, query = shlex.split(lines[0])[-2:]
    with closing(sqlite3.connect(name)) as db:
        assert sum(row[3] for row in db.execute(query)) == 24


def test_duckdb_reads_the_csv(hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    write.write_report(hostile, tmp_path / "out", ("csv",))
    monkeypatch.chdir(tmp_path / "out")
    query = shlex.split(queries(str(hostile))[2], comments=True)[-1]
    assert sum(row[3] for row in duckdb.connect().execute(query).fetchall()) == 20


def test_ten_lines_are_told_apart_and_have_a_legend_outside() -> None:
    """No two of ten look alike, and no part of the legend lies over the axes."""
    mpl = pytest.importorskip("matplotlib.figure")
    from pesto.reporting.show.drawing import COLOURS
    from pesto.research.study.report import pictures
    from pesto.research.study.report.figures import line_styles
    from pesto.research.study.report.runs import Configuration

    ten = [
        Configuration(solver=s, formulation=f, limit_s=60.0, parameters=(), label=f"{s} {f}")
        for s in ("cbc", "highs", "scip", "gurobi", "cplex") for f in ("tight", "paper")
    ]  # fmt: skip
    found = line_styles(ten)
    assert len({(c % len(COLOURS), d % len(pictures.DASHES)) for c, d in found}) == 10
    x = np.array([0.0, 1.0])
    lines = tuple(FigureLine(label=c.label, colour=a, dash=b, x=x, y=x) for c, (a, b) in zip(ten, found, strict=True))
    panel = Panel(x_title="x (s)", y_title="y", lines=lines, kind="lines")
    kept: list[Any] = []
    save = mpl.Figure.savefig
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mpl.Figure, "savefig", lambda self, *a, **k: (kept.append(self), save(self, *a, **k))[1])
        pictures.draw(Figure(key="f", title="t", caption="", panels=(panel,)), ("png",))
    (canvas,) = kept
    legend, axes = canvas.legends[0].get_window_extent(), canvas.axes[0].get_tightbbox()
    assert legend.x0 >= axes.x1 - 1
    assert legend.x1 <= canvas.bbox.x1 + 1
    assert legend.y0 >= canvas.bbox.y0 - 1
