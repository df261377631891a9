"""Every kind of job does what its verb does: the same objects, files and errors."""

import gzip
import hashlib
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import PestoError, describe_error
from pesto.verbs.jobs.job_events import Done, Event, Log
from pesto.verbs.jobs.request import JobRequest
from pesto.verbs.jobs.run_job import run

TOWERS = (Path(__file__).parents[3] / "data" / "two-towers.graph.json").read_bytes()


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
def test_a_split_and_a_pattern_are_checked_as_by_the_verb(folder) -> None:
    """With the same refusals; a page of plans takes neither, here as there."""
    words = "split --model rnnlm --variant tiny --workers 2 --method greedy -o split.json"
    assert at_home(*words.split())[0] == 0
    layer = {"forward": 2, "backward": 3, "weights_bytes": 10, "activation_bytes": 4}
    chain = {"format": "pesto-chain", "format_version": 1, "layers": [layer] * 4, "transfers": [1, 1, 1]}
    (folder / "chain.json").write_text(json.dumps(chain))
    assert at_home("pipeline", "chain.json", "--devices", "2", "-o", "pattern.json")[0] == 0
    bad = json.loads((folder / "split.json").read_text())
    (folder / "bad.json").write_text(json.dumps(bad | {"bytes": bad["bytes"] + 1}))
    for name in ("split.json", "pattern.json"):
        plan = {"blob": stored(folder, (folder / name).read_bytes()), "name": name}
        end, _ = done(folder, "check", plan=plan, source=None, certificate=True)
        assert (end.exit_code, end.files) == (0, ("answer.json", "page.txt")), end
        said = at_home("check", name, "--certificate", "--json")[1]
        assert json.loads((folder / "check" / "answer.json").read_text()) == json.loads(said)
        assert (folder / "check" / "page.txt").read_text() == at_home("check", name, "--certificate")[1]
    for kind, name, more in (
        ("check", "split.json", {"cluster": "v100x4"}),
        ("check", "split.json", {"source": {"model": "nmt", "variant": "tiny"}}),
        ("check", "bad.json", {}),
        ("check", "pattern.json", {"source": {"model": "rnnlm"}}),
        ("check", "chain.json", {}),
        ("report", "split.json", {}),
    ):
        plan = {"blob": stored(folder, (folder / name).read_bytes()), "name": name}
        end, _ = done(folder, kind, **{"plan": plan, "source": None} | more)
        source, cluster = more.get("source", {}), more.get("cluster")
        words = [word for key, value in source.items() for word in (f"--{key}", value)]
        found = CliRunner().invoke(pesto, [kind, name, *words, *(["--cluster", cluster] if cluster else [])])
        assert isinstance(found.exception, PestoError), (kind, name, more)
        home = describe_error(found.exception, None)
        assert (end.exit_code, end.error) == (home.exit_code, home.error), (kind, name, more)
    plan = {"blob": stored(folder, (folder / "split.json").read_bytes()), "name": "split.json"}
    end, _ = done(folder, "check", plan=plan, source=None, limits={"nodes": 10})
    assert end.exit_code == 3 and end.error is not None and "758 ops" in end.error


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


@pytest.fixture
def too_large(folder) -> dict[str, dict[str, object]]:
    """A product by a weight of 1 MiB, of which a device holds no more than 0.8, as files and for a request."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        weight = tf.compat.v1.get_variable("w", (512, 512))
        tf.matmul(tf.compat.v1.placeholder(tf.float32, (8, 512)), weight, name="y")
    (folder / "product.pb").write_bytes(graph.as_graph_def().SerializeToString())
    preset = (Path(__file__).parents[4] / "configs" / "clusters" / "v100x2-nvlink.toml").read_text()
    (folder / "small.toml").write_text(preset.replace("memory_gib = 16\n", "memory_gib = 0.0008\n"))
    files = {name: stored(folder, (folder / name).read_bytes()) for name in ("product.pb", "small.toml")}
    return {
        "source": {"blob": files["product.pb"], "name": "product.pb", "fetch": ["y"]},
        "cluster": {"blob": files["small.toml"], "name": "small.toml"},
    }


@pytest.mark.slow
def test_a_solve_with_cuts_is_that_of_the_verb(folder, too_large) -> None:
    """Placement where that is shorter, and a split where no placement fits."""
    words = "solve -q --json --time-limit 0 --deterministic --split 2 --model rnnlm --variant tiny -o plan.json"
    asked = {"settings": {"time_limit_s": 0, "deterministic": True}, "cuts": "2"}
    end, _ = done(folder, "solve", source={"model": "rnnlm", "variant": "tiny"}, **asked)
    assert (end.exit_code, end.files) == (0, ("plan.json", "answer.json", "page.txt")), end
    assert json.loads((folder / "solve/answer.json").read_text())["chosen_kind"] == end.result["kind"] == "place"
    code, said = at_home(*words.split())
    assert code == 0 and json.loads(said)["chosen_kind"] == "place"
    assert at_home("check", "solve/plan.json")[0] == 0

    words = "solve -q --json --split 2 --graph product.pb --fetch y --cluster small.toml -o split.json"
    end, _ = done(folder, "solve", cuts="2", **too_large)
    assert (end.exit_code, end.files) == (0, ("split.json", "answer.json", "page.txt")), end
    code, said = at_home(*words.split())
    assert code == 0
    mine, home = json.loads((folder / "solve" / "answer.json").read_text()), json.loads(said)
    assert mine["chosen_kind"] == home["chosen_kind"] == "split 2"
    assert [mine[key] for key in ("bytes", "makespan_s", "split")] == [
        home[key] for key in ("bytes", "makespan_s", "split")
    ]
    code, said = at_home("check", "solve/split.json", "--graph", "product.pb", "--fetch", "y", "--json")
    assert code == 0 and json.loads(said)["valid"]


@pytest.mark.parametrize(
    ("name", "bomb", "why"),
    [
        ("step.json.gz", gzip.compress(bytes(1 << 24)), "more than 200 times its size"),
        ("step.pb", b"\n\x00" * 5_000_001, "5000001 nodes, the limit is 5000000"),
    ],
)
def test_bombs_are_refused(folder, name, bomb, why) -> None:
    end, _ = done(folder, "solve", source={"blob": stored(folder, bomb), "name": name})
    assert (end.exit_code, end.files) == (3, ())
    assert end.error is not None and why in end.error and end.remedy


def test_cuts_for_more_accelerators_than_there_are(folder) -> None:
    end, _ = done(folder, "solve", source={"model": "rnnlm", "variant": "tiny"}, cluster="v100x4", cuts="8")
    assert end.exit_code == 2 and end.error is not None and "for 8 workers" in end.error
