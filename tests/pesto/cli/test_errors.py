"""How the command line fails: as one JSON object where --json asks for it, and not at all where nobody reads."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import forked
import pytest

from pesto.core.files import disk

GRAPH = {"format": "pesto-graph", "format_version": 1, "ops": [{"name": "a", "time_s": {"gpu": 1e-5}}]}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(GRAPH))
    return path


KEYS = ["error", "exit_code", "message", "remedy", "where"]
FAILURES = {
    "a UsageError": (("solve", "--model", "ntm"), 2, "ntm", "see pesto models"),
    "an InputError": (("check", "graph.json", "--graph", "graph.json"), 3, "format", "pesto solve wrote"),
    "a FileError": (("solve", "--graph", "nowhere.json"), 8, "nowhere.json", "check the name"),
    "an unknown option": (("solve", "--grahp", "graph.json"), 2, "No such option", "see pesto solve --help"),
    "an unknown verb": (("slove",), 2, "slove", "see pesto --help"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_error_is_one_object_beside_its_line(name, graph, tmp_path) -> None:
    """What and remedy are told apart; the exit code is the process's, and the line on stderr stays."""
    words, code, what, remedy = FAILURES[name]
    done = forked.run("pesto", *words, "--json", cwd=tmp_path)
    said = json.loads(done.stdout)
    assert done.returncode == code and said["exit_code"] == code and sorted(said) == KEYS
    assert what in said["error"] and remedy in said["remedy"] and what in done.stderr
    plain = forked.run("pesto", *words, cwd=tmp_path)
    assert (plain.returncode, plain.stdout, plain.stderr) == (code, "", done.stderr)


def test_a_verb_that_has_answered_says_its_error_on_stderr_alone(tmp_path) -> None:
    """A problem that a method has no room for: the result of `schedule` is the one object, and the exit code tells."""
    words = ("instance", "planted", "--set", "tasks=30", "-o", "p.json")
    assert forked.run("pesto", *words, cwd=tmp_path).returncode == 0
    problem = json.loads((tmp_path / "p.json").read_text())
    assert problem["format"] == "pesto-problem"
    done = forked.run("pesto", "schedule", "p.json", "--solver", "cplex", "--json", "-q", cwd=tmp_path)
    said = json.loads(done.stdout)
    assert done.returncode == 7 and said["status"] == "missing" and "error" not in said and "missing" in done.stderr


def run_unread(*words: str, cwd: Path, both: bool = False) -> tuple[int, str]:
    """The command line, with a stdout (and stderr) that nobody reads any more: exit code, and what stderr got."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pesto", *words],
            cwd=cwd, stdout=write, stderr=write if both else subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    finally:
        os.close(write)
    return done.returncode, done.stderr or ""


def test_reading_and_writing_what_is_large_is_said_unless_it_is_to_be_quiet(pesto, tmp_path, monkeypatch) -> None:
    """Before it is read and before it is put into words, by its bytes and ops; a small one in silence."""
    monkeypatch.chdir(tmp_path)
    ops = [{"name": f"{'x' * 140}{k}", "time_s": {"gpu": 1e-6}} for k in range(1_000)]
    (tmp_path / "g.json").write_text(json.dumps({**GRAPH, "ops": ops}))
    size = (tmp_path / "g.json").stat().st_size
    copied = ("import", "--graph", "g.json", "-o", "again.json")
    read = r"pesto: INFO: reading g.json, \d+\.\d\d KiB ...\n"
    wrote = r"pesto: INFO: writing again.json, 1000 ops ...\n"
    assert (disk.LARGE, disk.LARGE_OPS) == (16 << 20, 100_000)
    for bytes_, ops_, said in ((size, 1_000, True), (size + 1, 1_001, False)):
        monkeypatch.setattr(disk, "LARGE", bytes_)
        monkeypatch.setattr(disk, "LARGE_OPS", ops_)
        code, _, told = pesto(*copied)
        read, wrote = (
            r"pesto: INFO: reading g.json, \d+\.\d\d KiB ...\n",
            r"pesto: INFO: writing again.json, 1000 ops ...\n",
        )
        assert code == 0 and re.fullmatch((read + wrote) * said, told), told
    monkeypatch.setattr(disk, "LARGE", size)
    refused = ("solve", "--graph", "g.json", "--costs", "g.json")  # no profile, which is found once the graph is read
    (code, _, told), (also, _, quiet) = (pesto(*refused, *flags) for flags in ((), ("-q",)))
    assert code == also == 3
    assert re.search(read, told) and "reading" not in quiet and "writing" not in quiet


def test_a_list_that_is_not_read_to_its_end_is_no_failure(tmp_path) -> None:
    """`pesto models | head -1` under pipefail: exit 0, and nothing on stderr."""
    assert run_unread("models", cwd=tmp_path) == (0, "")
    assert run_unread("--help", cwd=tmp_path) == (0, "")


@pytest.mark.slow
def test_a_plan_is_written_though_nobody_reads_of_it(graph, tmp_path) -> None:
    """`pesto solve 2>&1 | true`: neither progress nor the page keeps the plan from its file."""
    words = ("solve", "--graph", str(graph), "--solver", "list", "--no-search", "--time-limit", "0")
    assert run_unread(*words, cwd=tmp_path, both=True)[0] == 0
    assert json.loads((tmp_path / "plan.json").read_text())["format"] == "pesto-plan"


@pytest.mark.slow
def test_a_terminal_that_cannot_write_a_sign_gets_it_spelled(graph, tmp_path) -> None:
    """KOI8-R has no µ; without this a UnicodeEncodeError after the work."""
    words = ("solve", "--graph", graph, "--solver", "list", "--no-search", "--time-limit", "0", "-q")
    assert forked.run("pesto", *words, cwd=tmp_path).returncode == 0
    env = {**os.environ, "PYTHONIOENCODING": "koi8-r"}
    slow = [sys.executable, "-m", "pesto", "simulate", "plan.json", "--graph", str(graph)]
    done = subprocess.run(slow, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "10.00 \\xb5s" in done.stdout, done.stderr
