"""No path that a file or a request names is opened by a job: only uploads, presets and built-in names are resolved."""

import hashlib
import json
import os
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import Exit, UsageError
from pesto.core.files.disk import confine_to, read_bytes
from pesto.core.plans.plan_file import loads
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import plan_cluster
from pesto.split.files.split_file import dumps_split
from pesto.split.files.typed_graph_file import loads_typed_graph
from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.verbs import artifacts
from pesto.verbs.jobs.request import JobRequest
from pesto.verbs.jobs.run_job import run

TOWERS = (Path(__file__).parents[3] / "data" / "two-towers.graph.json").read_bytes()
HOSTILE = (
    "/etc/hosts", "/etc/passwd", "/etc/shadow", "/etc", "/", ".", "..", "../..", "../../../../etc/hosts", "./step.json",
    "step.json", "link.toml", "./link.toml", "fifo", "./fifo", "fifo.toml", "../fifo", "missing.toml",
    "/missing/x.toml",
    "/proc/self/environ", "/proc/self/mem", "/proc/self/fd/0", "/proc/1/root/etc/hosts", "/dev/stdin", "/dev/fd/0",
    "/dev/zero", "/dev/random", "/dev/tty", "/sys/kernel", "file:///etc/hosts", "file:/etc/hosts", "http://localhost/x",
    "https://localhost/x.toml", "ftp://localhost/x", "\\\\host\\share\\x", "//host/share/x.toml", "C:\\x.toml",
    "~/.ssh/id_rsa", "~root/x.toml", "$HOME/x.toml", "/etc/hosts\0.toml", "\0", "a\nb.toml",
    " /etc/hosts", "/etc/hosts ",
    "é/ü.toml", "\u202e/lmot.x", "\uff0fetc\uff0fhosts", "x" * 300 + ".toml", "/" + "y/" * 3000 + "z.toml",
    "v100x2-nvlink/..",
    "../clusters/v100x2-nvlink.toml", "v100x2-nvlink\0", "V100X2-NVLINK", "", "-", "|cat /etc/hosts", "`id`.toml",
)  # fmt: skip
_touched: list[str] = []
_watching = False


def _hear(event: str, given: tuple[object, ...]) -> None:
    if _watching and event in ("open", "os.listdir", "os.scandir", "socket.connect", "subprocess.Popen", "os.system"):
        _touched.append(os.fsdecode(given[0]) if isinstance(given[0], str | bytes | os.PathLike) else str(given[0]))


sys.addaudithook(_hear)


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """The folder of a worker, in which what is opened and asked for is kept in a list."""
    global _watching  # noqa: PLW0603 - an audit hook stays
    (tmp_path / "blobs").mkdir()
    (tmp_path / "step.json").write_bytes(TOWERS)
    os.mkfifo(tmp_path / "fifo")
    os.mkfifo(tmp_path / "fifo.toml")
    (tmp_path / "link.toml").symlink_to("/etc/hosts")
    monkeypatch.chdir(tmp_path)
    _touched.clear()
    stat = os.stat

    def heard(path, *given, **more):
        _touched.append(str(path))
        return stat(path, *given, **more)

    _watching = True
    monkeypatch.setattr(os, "stat", heard)
    yield tmp_path
    _watching = False


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "step.json").write_bytes(TOWERS)
    words = ["solve", "--graph", str(folder / "step.json"), "--time-limit", "0", "-q", "-o", str(folder / "plan.json")]
    assert CliRunner().invoke(pesto, words).exit_code == 0
    return json.loads((folder / "plan.json").read_bytes())


def with_words(plan, **words):
    """The plan's file with other words of where it comes from."""
    made = json.loads(json.dumps(plan))
    made["provenance"] |= words
    # The words as an older version wrote them, without fields, or in the fields.
    if isinstance(words.get("cluster_source"), str):
        kind, _, name = words["cluster_source"].partition(" ")
        made["provenance"]["cluster_origin"] = {"kind": kind, "name": name}
    if "graph_source" in words:
        del made["provenance"]["graph_origin"]
    if "costs" in words:
        del made["provenance"]["costs_files"]
    return json.dumps(made).encode()


def done(folder, kind, data, **fields):
    """The end of a job of a file, of which only the name is the same each time."""
    blobs = folder / "blobs"
    shas = [hashlib.sha256(part).hexdigest() for part in (data, TOWERS)]
    for sha, part in zip(shas, (data, TOWERS), strict=True):
        (blobs / sha).write_bytes(part)
    request = {"kind": kind, "plan": {"blob": shas[0]}, **fields}
    request |= {"source": {"blob": shas[1], "name": "step.json"}} if "source" not in fields else {}
    request = {name: value for name, value in request.items() if value is not None}
    return run(msgspec.convert(request, JobRequest), blobs, folder / "out", lambda _: None)


def untouched(folder, path):
    """Assert that nothing was asked of the system by that name, or of a file of that place."""
    allowed = (str(folder / "blobs"), str(folder / "out"), str(Path(__file__).parents[4]))
    names = {path, str(folder / path)} if path and "\0" not in path else {path}
    odd = [name for name in _touched if name in names - {str(folder), "."}]
    assert not odd, odd
    beside = [name for name in _touched if name.startswith(str(folder) + "/") and not name.startswith(allowed)]
    assert not beside, beside


@pytest.mark.slow
def test_a_plan_s_words_open_nothing(plan, watched):
    """In each place in which a plan says where it comes from, of a check and of a report."""
    assert len(HOSTILE) >= 50
    for path in HOSTILE:
        for kind in ("check", "report"):
            _touched.clear()
            end = done(watched, kind, with_words(plan, cluster=path, cluster_source=f"preset {path}"))
            assert (end.exit_code, end.remedy) == (2, "give it as the cluster"), (path, end)
            assert "no preset" in end.error
            for label in (f"file {path}", f"function {path}, 2 micro-batches", f"model {path} tiny", path):
                end = done(watched, kind, with_words(plan, graph_source=label), source=None)
                assert end.exit_code == 2, (path, end)
            done(watched, kind, with_words(plan, costs=f"times of {path}", costs_basis="given"))
            untouched(watched, path)


def test_what_there_is_cannot_be_told_from_what_there_is_not(plan, watched):
    told = {
        done(watched, "check", with_words(plan, cluster=path, cluster_source="preset x")).error.replace(path, "")
        for path in ("/etc/hosts", "/etc/nothing", "fifo", "/proc/self/environ", "/")
    }
    assert len(told) == 1, told


def test_a_request_s_words_open_nothing(plan, watched):
    """Of a cluster, a model and its variant; an uploaded cluster's preset and link model."""
    for path in HOSTILE:
        _touched.clear()
        data = with_words(plan)
        for fields in ({"cluster": path}, {"source": {"model": path}}, {"source": {"model": "rnnlm", "variant": path}}):
            try:
                assert done(watched, "check", data, **fields).exit_code == 2, (path, fields)
            except msgspec.ValidationError:
                assert len(path) > 100
        said = json.dumps(path)
        for line in (f"devices = [{{preset = {said}}}]", f"links = [{{pairs = [], model = {said}}}]"):
            toml = f"format_version = 1\nhosts = [{{cpu = {said}, cores = 1, memory_gib = 1}}]\n{line}\n".encode()
            sha = hashlib.sha256(toml).hexdigest()
            (watched / "blobs" / sha).write_bytes(toml)
            assert done(watched, "check", data, cluster={"blob": sha, "name": "c.toml"}).exit_code == 3, path
        untouched(watched, path)


TENSOR = {"shape": [8, 8], "dtype": "float32"}
SHAPED = {
    "format": "pesto-shaped", "format_version": 1, "fingerprint": "",
    "kinds": [
        {"type": "Placeholder", "outputs": [TENSOR]}, {"type": "MatMul", "inputs": [TENSOR] * 2, "outputs": [TENSOR]},
    ],
    "ops": {"name": ["x", "y"], "kind": [0, 1]},
    "edges": {"src": [0, 0], "output": [0, 0], "dst": [1, 1], "input": [0, 1]},
}  # fmt: skip
LAYER = {"forward": 2, "backward": 3, "weights_bytes": 10, "activation_bytes": 4}
CHAIN = {"format": "pesto-chain", "format_version": 1, "layers": [LAYER] * 2, "transfers": [1]}
PATTERN = {
    "format": "pesto-pattern", "format_version": 1, "schedule": "1f1b*", "devices": 2, "k": 1, "T": 5,
    "device": [0, 1], "peak_bytes": [30, 22], "chain": CHAIN,
    "rows": [
        {"kind": kind, "layer": layer, "copy": 0, "t": t, "shift": shift}
        for kind, layer, t, shift in (
            ("forward", 0, 0, 2), ("send forward", 0, 2, 2), ("forward", 1, 2, 2), ("backward", 1, 4, 2),
            ("send backward", 0, 2, 1), ("backward", 0, 2, 0),
        )
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def documents(plan):
    """Files that a check takes, and a chain, which it refuses."""
    step = loads_typed_graph(json.dumps(SHAPED).encode(), "step.json")
    split = dumps_split(step, divide(step, (2,), "greedy", Rules(), seconds=10), time_limit_s=10)
    return {"plan": plan, "split": json.loads(split), "pattern": PATTERN, "chain": CHAIN}


def places(document, at=()):
    """Where a document has texts, of each list the first element alone; a key may be one, too."""
    if isinstance(document, dict):
        return [place for key, value in document.items() for place in places(value, (*at, key))]
    if isinstance(document, list):
        return places(document[0], (*at, 0)) if document else []
    return [at] if isinstance(document, str) else []


def with_text(document, place, text):
    """The document with another text in that place."""
    made = json.loads(json.dumps(document))
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = text
    return json.dumps(made).encode()


@pytest.mark.slow
def test_no_text_of_a_file_opens_anything(documents, watched):
    """In the places of plans, splits, patterns and chains that have a text, in turn."""
    assert done(watched, "check", json.dumps(PATTERN).encode(), source=None).exit_code == 0
    for document in documents.values():
        texts = [*places(document), ("source",), ("name",), ("file",)]
        for k, path in enumerate(HOSTILE):
            _touched.clear()
            place, source = texts[k % len(texts)], ({}, {"source": None})[k // len(texts) % 2]
            end = done(watched, "report" if k % 5 == 4 else "check", with_text(document, place, path), **source)
            assert end.exit_code != Exit.BUG, (place, path, end)
            untouched(watched, path)


def test_no_text_of_costs_of_a_start_or_of_other_plans_opens_anything(plan, watched):
    """As files of costs, as the plan to start from, and beside the plan of a page; kinds and files in turn."""
    for k, path in enumerate(HOSTILE):
        _touched.clear()
        row = f"op,device,seconds\n{json.dumps(path)},{path!r},1\n".encode()
        profile = json.dumps({"format": "pesto-profile", "format_version": 1, "source": path, "ops": {path: path}})
        hostile = with_words(plan, cluster=path, cluster_source=f"preset {path}", graph_source=f"file {path}")
        files = ((row, "c.csv"), (profile.encode(), "c.json"), (hostile, "c.json"), (path.encode(), "c.csv"))
        data, name = files[k % len(files)]
        file = {"blob": hashlib.sha256(data).hexdigest(), "name": name}
        (watched / "blobs" / file["blob"]).write_bytes(data)
        kinds = (
            ("check", {"costs": file}), ("solve", {"plan": None, "costs": file}),
            ("compare", {"plan": None, "costs": file, "methods": "expert"}),
            ("sweep", {"plan": None, "costs": file, "sweep": {"links": [1]}}),
            ("solve", {"plan": None, "start": file, "costs": file}), ("report", {"against": [file]}),
        )  # fmt: skip
        kind, fields = kinds[k % len(kinds) - k // 12 % 2]
        end = done(watched, kind, with_words(plan), **fields)
        assert end.exit_code in (2, 3, 6, 9) or (kind, end.exit_code) == ("report", 0), (path, kind, name, end)
        untouched(watched, path)


def test_a_job_reads_its_uploads_alone_whatever_it_is_led_to(plan, watched, monkeypatch):
    """One gate for all kinds of files: a path that is followed nonetheless is refused before it is looked at."""
    for path in ("/etc/hosts", "fifo", "missing.json", "../step.json", "step.json", "/proc/self/environ"):
        monkeypatch.setattr(artifacts, "plan_source", lambda *_, path=path: Source(file=Path(path)))
        _touched.clear()
        end = done(watched, "check", with_words(plan))
        assert (end.exit_code, end.remedy) == (2, "upload the file, and give it as a blob"), end
        untouched(watched, path)
    with confine_to(watched / "blobs"):
        assert load_cluster("v100x2-nvlink").devices
        assert read_bytes(next((watched / "blobs").iterdir()))
        for path in (watched / "step.json", watched / "blobs" / ".." / "step.json", watched / "blobs"):
            with pytest.raises(UsageError, match="uploads alone"):
                read_bytes(path)
    assert read_bytes(watched / "step.json") == TOWERS


def test_the_command_line_opens_no_path_of_a_plan(plan, watched):
    for path in ("fifo.toml", "./fifo", "link.toml", "/dev/zero"):
        data = with_words(plan, cluster=path, cluster_source=f"preset {path}")
        with pytest.raises(UsageError, match="no preset"):
            plan_cluster(loads(data, "plan.json"))
        (watched / "plan.json").write_bytes(data)
        _touched.clear()
        end = CliRunner().invoke(pesto, ["check", "plan.json", "--graph", "step.json"])
        assert isinstance(end.exception, UsageError) and "give it as the cluster" in str(end.exception)
        assert path not in _touched and str(watched / path) not in _touched
