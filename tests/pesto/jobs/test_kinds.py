"""Every kind of job does what its verb does: the same objects, files and errors."""

import hashlib
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.jobs.job_events import Done, Event, Log
from pesto.jobs.request import JobRequest
from pesto.jobs.run_job import run

TOWERS = (Path(__file__).parents[2] / "data" / "two-towers.graph.json").read_bytes()


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """With the graph as a file, as the verbs have it, and as a blob."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blobs").mkdir()
    (tmp_path / "step.json").write_bytes(TOWERS)
    stored(tmp_path, TOWERS)
    return tmp_path


def stored(folder: Path, data: bytes) -> str:
    sha = hashlib.sha256(data).hexdigest()
    (folder / "blobs" / sha).write_bytes(data)
    return sha


def done(folder: Path, kind: str, **fields: object) -> tuple[Done, list[Event]]:
    told: list[Event] = []
    source = {"blob": stored(folder, TOWERS), "name": "step.json"}
    request = msgspec.convert({"kind": kind, "source": source, **fields}, JobRequest)
    return run(request, folder / "blobs", folder / kind, told.append), told


def at_home(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(pesto, [*words])
    return found.exit_code, found.stdout


def test_a_comparison_keeps_every_plan_and_the_best(folder) -> None:
    end, told = done(folder, "compare", methods="expert,single,list")
    assert end.exit_code == 0, end
    code, _ = at_home("compare", "--graph", "step.json", "--methods", "expert,single,list", "-q")
    assert code == 0
    for name in ("expert", "single", "list"):
        mine = (folder / "compare" / f"{name}.plan.json").read_bytes()
        assert mine == (folder / "plans" / f"{name}.plan.json").read_bytes()
    assert end.result["method"] == "list"
    assert (folder / "compare" / "plan.json").read_bytes() == (folder / "compare" / "list.plan.json").read_bytes()
    said = json.loads((folder / "compare" / "answer.json").read_text())
    assert sorted(said["methods"]) == ["expert", "list", "single"]
    assert [event.text.partition(":")[0] for event in told if isinstance(event, Log)] == ["single", "expert", "list"]


def test_a_plan_is_checked_and_reported_as_by_the_verbs(folder) -> None:
    """Also one that is of another graph, which ends as there."""
    code, _ = at_home("solve", "--graph", "step.json", "--time-limit", "0", "-q", "-o", "mine.json")
    assert code == 0
    plan = {"blob": stored(folder, (folder / "mine.json").read_bytes()), "name": "mine.json"}
    end, _ = done(folder, "check", plan=plan, certificate=True)
    assert (end.exit_code, end.result["valid"]) == (0, True), end
    code, said = at_home("check", "mine.json", "--graph", "step.json", "--certificate", "--json")
    assert json.loads((folder / "check" / "answer.json").read_text()) == json.loads(said)
    _, text = at_home("check", "mine.json", "--graph", "step.json", "--certificate")
    assert (folder / "check" / "page.txt").read_text() == text
    end, _ = done(folder, "report", plan=plan, against=[plan])
    assert (end.exit_code, end.files) == (0, ("report.html",)), end
    at_home("report", "mine.json", "--graph", "step.json", "--against", "mine.json")
    assert (folder / "report" / "report.html").read_bytes() == (folder / "report.html").read_bytes()
    other = json.loads(TOWERS)
    other["ops"][0]["outputs"] = [2048]
    source = {"blob": stored(folder, json.dumps(other).encode()), "name": "other.json"}
    end, _ = done(folder, "check", plan=plan, source=source)
    assert (end.exit_code, end.files) == (9, ())


@pytest.mark.slow
def test_a_sweep_is_that_of_the_verb(folder) -> None:
    settings = {"time_limit_s": 0}
    end, told = done(folder, "sweep", sweep={"links": [0.1, 1], "memory": [1e-6]}, settings=settings)
    assert (end.exit_code, end.result["points"]) == (0, 3), end
    words = "sweep --graph step.json --links 0.1,1 --memory 0.000001 --time-limit 0 -q --json"
    _, said = at_home(*words.split())
    mine, home = json.loads((folder / "sweep" / "answer.json").read_text()), json.loads(said)
    assert [row["makespan_s"] for row in mine["rows"]] == [row["makespan_s"] for row in home["rows"]]
    assert sum(isinstance(event, Log) for event in told) == 3


@pytest.mark.slow
def test_a_split_is_that_of_the_verb(folder) -> None:
    """Of a built-in model, and refused where the graph has no shapes."""
    asked = {"source": {"model": "rnnlm", "variant": "tiny"}, "split": {"workers": "2", "method": "greedy"}}
    end, _ = done(folder, "split", **asked)
    assert (end.exit_code, end.files) == (0, ("split.json", "answer.json", "page.txt")), end
    words = "split --model rnnlm --variant tiny --workers 2 --method greedy -o home.json"
    code, _ = at_home(*words.split())
    assert code == 0
    mine, home = (json.loads((folder / name).read_text()) for name in ("split/split.json", "home.json"))
    assert (mine["ways"] if "ways" in mine else mine["bytes"]) == (home["ways"] if "ways" in home else home["bytes"])
    end, _ = done(folder, "split", split={"workers": "2"}, cluster="v100x4")
    assert end.exit_code == 2 and end.error is not None and "shapes alone" in end.error
