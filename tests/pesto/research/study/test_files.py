"""The files around a study: odd names, what is in the way, what is gone, and what a run and its reader leave alone."""

import json
import os
import sqlite3
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import FileError
from pesto.core.executing.executor import WorkItem, WorkResult
from pesto.core.files import lock
from pesto.research.study import runner, store
from pesto.research.study import store as peek
from pesto.research.study.cells import REFUSED, CellAnswer, cells_of
from pesto.research.study.execute import InstanceCache, execute
from pesto.research.study.spec import load_study
from solvers import api
from solvers.files import problem_json
from solvers.instances.table import make

HEAD = 'format_version = 1\nname = "t"\n[[grid]]\nsolvers = ["list", "single"]\nlimits_s = [5]\n'
FAMILY = HEAD + '[[grid.families]]\nname = "layered"\nseeds = [0, 1]\nparams = { layers = 3, width = 3 }\n'
MODEL = HEAD + '[[grid.models]]\nname = "rnnlm"\nvariants = ["tiny"]\nnodes = [10]\nclusters = ["mine.toml"]\n'


def study(folder: Path, text: str):
    (folder / "t.toml").write_text(text)
    return load_study(str(folder / "t.toml"))


def run(*words: str):
    return CliRunner().invoke(pesto, ["study", "run", *words], catch_exceptions=True)


@pytest.mark.parametrize("name", ["/dev/full", "/dev/null", ".", "", "t.toml/x.sqlite"])
def test_what_cannot_be_a_studys_file_is_refused_before_it_is_opened(tmp_path, monkeypatch, name):
    study(tmp_path, FAMILY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store.sqlite3, "connect", None)
    result = run("t.toml", "--db", name, "--limit-cells", "0")
    assert isinstance(result.exception, FileError), result.exception
    assert "name a file, such as study.sqlite" in str(result.exception)
    assert "\n" not in str(result.exception)
    assert [p.name for p in tmp_path.iterdir()] == ["t.toml"]


def test_a_name_with_a_null_byte_is_refused(tmp_path):
    with pytest.raises(FileError, match="null byte"):
        lock.real_path(tmp_path / "a\0b")


def test_a_name_that_sqlite_gives_a_meaning_is_a_plain_name(tmp_path, monkeypatch):
    study(tmp_path, FAMILY)
    monkeypatch.chdir(tmp_path)
    assert run("t.toml", "--db", ":memory:", "--limit-cells", "1", "-q").exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [":memory:", "t.toml"]
    assert "1 done, 0 running, 3 pending" in run("t.toml", "--db", ":memory:", "--limit-cells", "0").output


def test_a_link_is_followed_and_locked_where_it_leads(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real.sqlite")
    assert lock.real_path(tmp_path / "link") == tmp_path / "real.sqlite"
    with lock.hold_lock(tmp_path / "link", store.LOCK):
        assert (tmp_path / ".real.sqlite.pesto-lock").exists()


@pytest.mark.parametrize("kind", ["text", "folder", "link", "pipe"])
def test_nobody_elses_file_is_taken_for_a_lock(tmp_path, kind):
    """Not written to, not removed; and a file t.sqlite.lock is of no interest at all."""
    (tmp_path / "t.sqlite.lock").write_text("mine")
    beside, other = tmp_path / ".t.sqlite.pesto-lock", tmp_path / "other"
    other.write_text("")
    make = {
        "text": lambda: beside.write_text("mine"), "folder": beside.mkdir, "link": lambda: beside.symlink_to(other),
        "pipe": lambda: os.mkfifo(beside),
    }  # fmt: skip
    make[kind]()
    before = os.lstat(beside)
    with pytest.raises(FileError), lock.hold_lock(tmp_path / "t.sqlite", store.LOCK):
        pass
    assert os.lstat(beside).st_ino == before.st_ino
    assert os.lstat(beside).st_size == before.st_size
    assert (other.read_text(), (tmp_path / "t.sqlite.lock").read_text()) == ("", "mine")
    if kind == "text":
        beside.unlink()
        with lock.hold_lock(tmp_path / "t.sqlite", store.LOCK):
            left = beside.read_bytes()
        beside.write_bytes(left)  # as a killed run leaves it
        with lock.hold_lock(tmp_path / "t.sqlite", store.LOCK):
            pass
        assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "t.sqlite.lock"]


def test_a_cluster_that_is_gone_or_changes_refuses_its_cells(tmp_path):
    gone = cells_of(study(tmp_path, MODEL))
    answer = execute(gone[0], InstanceCache())
    assert (answer.status, "mine.toml" in answer.detail) == (REFUSED, True)
    (tmp_path / "mine.toml").write_text("format_version = 1\n")
    there = cells_of(study(tmp_path, MODEL))
    assert there[0].key != gone[0].key
    (tmp_path / "mine.toml").write_text("format_version = 1\n\n")
    assert "run the study again" in execute(there[0], InstanceCache()).detail


def test_a_folder_whose_name_is_no_text(tmp_path, monkeypatch):
    """Its problem file is solved, its missing one refused, through a worker; names are shown in plain characters."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    good = problem_json.Instance(problem=make("fork", tasks=5), name="fork")
    (folder / "good.json").write_bytes(problem_json.dumps_problem(good))
    study(folder, HEAD + '[[grid.problems]]\nfile = "good.json"\n[[grid.problems]]\nfile = "gone.json"\n')
    monkeypatch.chdir(folder)
    result = run(str(folder / "t.toml"), "--db", str(folder / "s.sqlite"), "--jobs", "1", "--json")
    assert result.exit_code == 0, result.exception
    (line,) = [line for line in result.output.splitlines() if line.startswith("{")]
    assert json.loads(line)["done"] == 4
    with sqlite3.connect("s.sqlite") as file:
        found = file.execute("SELECT status, detail FROM rows ORDER BY ordinal").fetchall()
    assert [status for status, _ in found] == ["feasible", "feasible", REFUSED, REFUSED]
    assert "gone.json" in found[2][1]


def test_status_writes_nothing_beside_the_file(tmp_path):
    """The folder's time stays: no log and no index came and went. During a run it reads the log of that run."""
    path, loaded = tmp_path / "a b?#%.sqlite", study(tmp_path, FAMILY)
    with store.opened(path) as file:
        file.sync(loaded, cells_of(loaded), "1")
        assert Path(f"{path}-wal").exists()
        assert peek.peeked(path).tally.pending == 4
    os.utime(tmp_path, ns=(1, 1))
    assert peek.peeked(path).tally.pending == 4
    assert tmp_path.stat().st_mtime_ns == 1


def test_what_was_settled_before_is_brought_up_to_date(tmp_path):
    """A problem file that was renamed is the same cell under its new name, in every column."""
    good = problem_json.dumps_problem(problem_json.Instance(problem=make("fork", tasks=5), name="fork"))
    for name in "ab":
        (tmp_path / f"{name}.json").write_bytes(good)
    with store.opened(tmp_path / "t.sqlite") as file:
        for name in "ab":
            loaded = study(tmp_path, HEAD + f'[[grid.problems]]\nfile = "{name}.json"\n')
            file.sync(loaded, cells_of(loaded), "1")
    with sqlite3.connect(tmp_path / "t.sqlite") as found:
        rows = found.execute("SELECT instance, json_extract(parameters, '$.of.file'), ordinal FROM cells").fetchall()
    assert rows == [("b.json", "b.json", 0), ("b.json", "b.json", 1)]


def test_a_failure_has_its_seconds_and_the_size_of_its_instance(tmp_path, monkeypatch):
    """Of a solve that raises, what was known before; of a lost process, what another cell of the instance said."""
    found = cells_of(study(tmp_path, FAMILY))

    def broken(*_, **__):
        raise OSError(28, "No space left")

    shelf = InstanceCache()
    posed = shelf.posed(found[0].instance)
    monkeypatch.setattr(api, "solve", broken)
    answer = execute(found[0], shelf)
    assert (answer.status, answer.tasks, answer.start_makespan) == ("crashed", 9, posed.listed.makespan)
    assert answer.seconds > 0
    done = CellAnswer(key=found[0].key, status="feasible", makespan=4, start_makespan=5, tasks=9, devices=2, edges=12)
    script = [done, CellAnswer(key=found[1].key, status="hung", seconds=7.0)]
    steps = []
    with store.opened(tmp_path / "t.sqlite") as file:
        file.sync(load_study(str(tmp_path / "t.toml")), found, "1")
        runner.run(found, file, Told(script), steps.append, limit=2)
    hung = steps[1].answer
    assert (hung.tasks, hung.devices, hung.edges, hung.start_makespan, hung.seconds) == (9, 2, 12, 5, 7.0)
    assert hung.makespan is None


class Told:
    """An executor that gives the answers it was given."""

    slots = 1

    def __init__(self, answers: list[CellAnswer]):
        self.answers = answers

    def begin(self, work: WorkItem) -> None:
        assert work.key == self.answers[0].key
        self.work = work

    def collect(self) -> list[WorkResult]:
        answer = self.answers.pop(0)
        return [WorkResult(key=self.work.key, data=msgspec.json.encode(answer), seconds=answer.seconds)]

    def close(self) -> None:
        pass
