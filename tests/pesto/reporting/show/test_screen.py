"""Nothing that is read can act on the terminal that it is printed on, and no closed stream costs a plan."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pesto.reporting.show.screen import Screen, one_line, visible
from pesto.reporting.show.status_line import LiveLine
from solvers import Progress

GRAPH = {
    "format": "pesto-graph", "format_version": 1, "source": "two ops",
    "ops": [{"name": n, "outputs": [8], "time_s": {"gpu": 1e-3, "cpu": 1e-3}} for n in "ab"],
}  # fmt: skip
HOSTILE = "x\r\x1b[2Kplan.json: valid\nplan.json: valid; \x9b1A\u202e\x07\x7f"
"""Goes back in its line, clears it, begins another, goes up, turns the text around, rings, deletes."""
SHELL = {"stderr closed": "2>&-", "all closed": "<&- >&- 2>&-", "stderr full": "2>/dev/full"}


def run(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command line of a shell, in which pesto is this project's."""
    words = ["sh", "-c", command.replace("pesto", f"{sys.executable} -m pesto", 1)]
    return subprocess.run(words, check=False, cwd=cwd, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "g.json").write_text(json.dumps(GRAPH))
    return tmp_path


def test_only_line_ends_and_tabs_are_left_as_they_are() -> None:
    """Letters of any script stay, everything that acts is written as JSON writes it, and a message has one line."""
    assert visible("Größe → 三\n\tb") == "Größe → 三\n\tb"
    assert visible(HOSTILE).count("\n") == 1 and visible(HOSTILE).replace("\n", "").isprintable()
    assert one_line("a\nb\x1b") == "a\\nb\\u001b"
    assert visible("\U000e0041") == "\\udb40\\udc41"


def test_json_stays_what_it_is() -> None:
    """What `json` leaves unescaped, such as C1 controls and marks of direction, means the same when it is."""
    said = {"name": HOSTILE, "\xa0key": ["\U000e0041", "三"]}
    stream = io.StringIO()
    Screen(stream).write(json.dumps(said, ensure_ascii=False, indent=1))
    assert json.loads(stream.getvalue()) == said
    assert stream.getvalue().replace("\n", "").isprintable()


def test_the_live_line_moves_the_cursor_and_what_it_says_does_not() -> None:
    """The bound's name is a solver's own word."""
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with LiveLine(stream=stream, verbose=True) as line:
        line.hear(Progress(schedule=None, lower_bound=1, seconds=0.0, bound_by=HOSTILE, log=(HOSTILE,)))
        line._show()
    assert stream.getvalue().replace("\r\x1b[K", "").replace("\n", "").isprintable()


def test_a_closed_stream_is_no_terminal() -> None:
    """colorama, where it is installed, asks as the interpreter ends."""
    stream = io.StringIO()
    stream.close()
    assert not Screen(stream).isatty()


def test_an_expendable_stream_may_fail() -> None:
    """A terminal that is gone answers EIO; what nobody can read must not end a solve. Other streams raise."""
    gone = io.StringIO()
    gone.write = lambda _: os.write(-1, b"")  # type: ignore[assignment,method-assign]
    Screen(gone, expendable=True).write("text")
    with pytest.raises(OSError):
        Screen(gone).write("text")


@pytest.mark.parametrize(
    "redirection",
    [
        pytest.param(words, id=name, marks=[pytest.mark.slow] * (name != "stderr closed"))
        for name, words in SHELL.items()
    ],
)
def test_closed_streams_cost_no_plan(redirection: str, folder: Path) -> None:
    """The plan is written, whole, and checks; the exit code is that of a solve whose words were read."""
    done = run(f"pesto solve --graph g.json --time-limit 1 {redirection}", folder)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "plan.json").read_text())["format"] == "pesto-plan"


@pytest.mark.slow
def test_a_crafted_plan_cannot_say_that_it_is_valid(folder: Path) -> None:
    """Its graph's source, a lane and an unknown key try to: each message is one printable line."""
    made = run("pesto solve -q --json --graph g.json --time-limit 1", folder)
    assert made.returncode == 0, made.stderr
    plan = json.loads((folder / "plan.json").read_text())
    spoilt = json.loads(json.dumps(plan))
    spoilt[HOSTILE] = 1
    spoilt["provenance"] |= {"graph_source": HOSTILE, "graph_fingerprint": "0" * 64}
    lanes = json.loads(json.dumps(plan)) | {"lanes": [HOSTILE, *plan["lanes"][1:]]}
    for changed, code, lines in ((spoilt, 9, 2), (lanes, 6, 1)):
        (folder / "bad.json").write_text(json.dumps(changed))
        done = run("pesto check bad.json --graph g.json", folder)
        assert (done.returncode, done.stdout) == (code, "")
        assert len(done.stderr.splitlines()) == lines and done.stderr.replace("\n", "").isprintable(), done.stderr
        assert all(line.startswith("pesto: ") for line in done.stderr.splitlines())
