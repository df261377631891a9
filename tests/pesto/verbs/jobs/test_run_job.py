"""A job does what its verb does: the same bytes, the same refusals; what is found before an interruption is kept."""

import gzip
import hashlib
import json
import os
import signal
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.verbs.jobs.job_events import Done, Event, IncumbentEvent, Stage, decode, encode
from pesto.verbs.jobs.request import JobRequest, blobs_of, digests_of
from pesto.verbs.jobs.run_job import run

TOWERS = Path(__file__).parents[3] / "data" / "two-towers.graph.json"
CLUSTERS = Path(__file__).parents[4] / "configs" / "clusters"
COSTS = "name,seconds\nleft/1,0.0001\n"


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    folder = tmp_path / "blobs"
    folder.mkdir()
    return folder


def stored(blobs: Path, data: bytes) -> str:
    sha = hashlib.sha256(data).hexdigest()
    (blobs / sha).write_bytes(data)
    return sha


def asked(**fields: object) -> JobRequest:
    return msgspec.convert(fields, JobRequest)


def done(request: JobRequest, blobs: Path) -> tuple[Done, list[Event], Path]:
    """The end of a job, what it told before, and the folder of its results."""
    events: list[Event] = []
    out = blobs.parent / "out"
    ended = run(request, blobs, out, events.append)
    assert sorted(p.name for p in out.iterdir()) == sorted(ended.files)
    assert [decode(encode(event)) for event in events] == events
    return ended, events, out


def two_variables(source: str, devices: dict[str, str]) -> bytes:
    """A step with a product for each of two variables, whose devices may be given."""
    ops = []
    for name in ("a", "b"):
        on = {"device": devices[name]} if name in devices else {}
        said = {"name": name, "dtype": "float32", "shape": [4, 4]}
        held = {"type": "Variable", "outputs": [4096], "param_bytes": 4096, "variable": said}
        ops.append({"name": name, "group": name, **held, **on})
        ops.append({"name": f"{name}x", "group": name, "inputs": [name], "outputs": [4096], "flops": 1e10})
    head = {"format": "pesto-graph", "format_version": 1, "source": source, "kinds": ["cpu", "gpu"], "ops": ops}
    return json.dumps(head).encode()


def test_a_solve_beside_another_plan_gives_the_bytes_that_the_verb_writes(tmp_path, blobs, monkeypatch) -> None:
    """Both shared variables stay on the device on which the other step's plan has them."""
    monkeypatch.chdir(tmp_path)
    Path("first.json").write_bytes(two_variables("first", {"a": "gpu:1", "b": "gpu:1"}))
    Path("second.json").write_bytes(two_variables("second", {}))
    words = "--time-limit 600 --deterministic -q"
    for file, more in (("first", ""), ("second", "--beside first.plan.json")):
        run_here = f"solve --graph {file}.json {more} {words} -o {file}.plan.json"
        home = CliRunner().invoke(pesto, run_here.split())
        assert home.exit_code == 0, home.output
    request = asked(
        kind="solve",
        source={"blob": stored(blobs, Path("second.json").read_bytes()), "name": "second.json"},
        beside={"blob": stored(blobs, Path("first.plan.json").read_bytes()), "name": "first.plan.json"},
        settings={"time_limit_s": 600, "deterministic": True},
        out="second.plan.json",
    )
    assert list(digests_of(request)) == ["source", "beside"] and len(blobs_of(request)) == 2
    ended, _, out = done(request, blobs)
    assert (ended.exit_code, ended.error) == (0, None)
    made = (out / "plan.json").read_bytes()
    assert made == Path("second.plan.json").read_bytes()
    assert json.loads(made)["beside"]["variables"] == {"a": "gpu:1", "b": "gpu:1"}


def test_a_deterministic_solve_gives_the_bytes_that_the_verb_writes(tmp_path, blobs, monkeypatch) -> None:
    """With a graph, a cluster and costs of files: plans name these, so that their names are the sender's."""
    monkeypatch.chdir(tmp_path)
    graph, listed = TOWERS.read_bytes(), (CLUSTERS / "v100x4.toml").read_bytes()
    Path("step.json").write_bytes(graph)
    Path("mine.toml").write_bytes(listed)
    Path("mine.csv").write_text(COSTS)
    words = "solve --graph step.json --cluster mine.toml --costs mine.csv --time-limit 600 --deterministic -q"
    home = CliRunner().invoke(pesto, [*words.split(), "-o", "home.json"])
    assert home.exit_code == 0, home.output
    request = asked(
        kind="solve",
        source={"blob": stored(blobs, graph), "name": "step.json"},
        cluster={"blob": stored(blobs, listed), "name": "mine.toml"},
        costs={"blob": stored(blobs, COSTS.encode()), "name": "mine.csv"},
        settings={"time_limit_s": 600, "deterministic": True},
        out="home.json",
    )
    ended, events, out = done(request, blobs)
    assert (ended.exit_code, ended.error) == (0, None)
    assert (out / "plan.json").read_bytes() == Path("home.json").read_bytes()
    best = [event for event in events if isinstance(event, IncumbentEvent)][-1]
    assert ended.result["makespan_s"] == best.best_s == json.loads((out / "answer.json").read_text())["makespan_s"]
    stages = [event.name for event in events if isinstance(event, Stage)]
    assert stages[:3] == ["reading the graph", "problem", "baselines"] and "verify" in stages
    assert home.output.splitlines()[-2:] == (out / "page.txt").read_text().splitlines()[-2:]
    assert b"<html" in (out / "report.html").read_bytes()[:200]
    assert json.loads(gzip.decompress((out / "trace.json.gz").read_bytes()))["traceEvents"]
    assert json.loads((out / "explain.json").read_text())


@pytest.mark.parametrize(
    ("source", "code", "what"),
    [
        ({"blob": b"{", "name": "odd.json"}, 3, "odd.json: the JSON text ends too early"),
        ({"blob": b"\x08\x96", "name": "g.pb", "fetch": ["x"]}, 3, "g.pb"),
        ({"model": "nmtt"}, 2, "did you mean nmt?"),
    ],
)
def test_what_is_refused_ends_as_the_verb_does(blobs, source, code, what) -> None:
    """One line and a remedy, with the file's own name and not where it lies here; nothing is written."""
    if "blob" in source:
        source = source | {"blob": stored(blobs, source["blob"])}
    ended = run(asked(kind="solve", source=source), blobs, blobs.parent / "out", lambda _: None)
    assert (ended.exit_code, ended.files) == (code, ()), ended
    assert ended.error is not None and what in ended.error and ended.remedy
    assert str(blobs.parent) not in f"{ended}"


def test_a_blob_that_is_gone_and_a_graph_of_too_many_ops(blobs) -> None:
    """The one is an error of files, the other one of the input."""
    ended, *_ = done(asked(kind="solve", source={"blob": "0" * 64}), blobs)
    assert ended.exit_code == 8 and ended.error is not None and "no blob 000" in ended.error
    source = {"blob": stored(blobs, TOWERS.read_bytes())}
    ended, *_ = done(asked(kind="solve", source=source, limits={"nodes": 6}), blobs)
    assert ended.exit_code == 3 and ended.error is not None and "7 ops, this job may have 6" in ended.error


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.usefixtures("signals")
def test_an_interruption_keeps_the_best_plan(blobs, sent, code) -> None:
    """At the first better plan; what is told to people is written beside it."""
    out = blobs.parent / "out"

    def tell(event: Event) -> None:
        if isinstance(event, IncumbentEvent):
            os.kill(os.getpid(), sent)

    source = {"blob": stored(blobs, TOWERS.read_bytes())}
    ended = run(asked(kind="solve", source=source, settings={"time_limit_s": 600}), blobs, out, tell)
    assert (ended.exit_code, ended.error) == (code, None)
    assert ended.result["interrupted"] and ended.result["status"] == "feasible"
    assert {"plan.json", "page.txt", "report.html"} <= set(ended.files)
    (blobs.parent / "step.json").write_bytes(TOWERS.read_bytes())
    words = ["check", str(out / "plan.json"), "--graph", str(blobs.parent / "step.json")]
    checked = CliRunner().invoke(pesto, words)
    assert checked.exit_code == 0, checked.output


@pytest.mark.usefixtures("signals")
def test_an_interruption_before_there_is_a_plan(blobs) -> None:
    """Nothing is written, and that is said."""

    def tell(event: Event) -> None:
        if isinstance(event, Stage) and event.name == "problem":
            os.kill(os.getpid(), signal.SIGINT)

    source = {"blob": stored(blobs, TOWERS.read_bytes())}
    ended = run(asked(kind="solve", source=source), blobs, blobs.parent / "out", tell)
    assert (ended.exit_code, ended.error, ended.files) == (130, "interrupted; nothing was written", ())
