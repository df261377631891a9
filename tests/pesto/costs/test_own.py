"""Op times of a user's own: what matches replaces the model, and what matches nothing is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto as command
from pesto.costs import GIVEN, MODELLED
from pesto.costs.analytical import modelled
from pesto.costs.own import own
from pesto.errors import InputError
from pesto.files import graph_file
from pesto.graph import Graph
from pesto.inputs.cluster_file import load_cluster

CLUSTER = load_cluster("v100x2-nvlink")
OPS = [
    {"name": "net/a", "type": "MatMul", "outputs": [4], "dtypes": ["float32"], "flops": 2e9, "kernel": "matmul",
     "sizes": [1000, 1000, 1000, 1, 0, 0]},
    {"name": "net/b", "type": "MatMul", "outputs": [4], "flops": 1e9, "inputs": ["net/a"], "runs_on": ["gpu"]},
    {"name": "end", "type": "NoOp", "control": ["net/b"], "launches": False, "runs_on": ["cpu"]},
]  # fmt: skip


def graph() -> Graph:
    return graph_file.loads(json.dumps({"format": "pesto-graph", "format_version": 1, "ops": OPS}).encode(), "x")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    graph_file.save(graph(), tmp_path / "g.json")
    return tmp_path


def given(folder: Path, text: str) -> tuple[np.ndarray, list[int], str]:
    (folder / "own.csv").write_text(text)
    found = own(folder / "own.csv", graph(), CLUSTER, modelled(graph(), CLUSTER))
    return found.compute_s, found.origin.tolist(), found.source


def test_a_type_gives_all_its_ops_and_a_name_one(folder: Path) -> None:
    """Whatever stands first; on all devices where they run."""
    before = modelled(graph(), CLUSTER).compute_s
    found, origin, source = given(folder, "name,type,seconds\nnet/b,MatMul,0.5\n,MatMul,0.25\n")
    assert found[0].tolist() == [0.25] * 3 and found[1, 1:].tolist() == [0.5] * 2 and np.isnan(found[1, 0])
    assert found[2, 0] == before[2, 0] and origin == [GIVEN, GIVEN, MODELLED]
    assert source == "2 of 3 ops by own.csv, else kernels and roofline of xeon-core, V100"


def test_a_device_may_be_named(folder: Path) -> None:
    """By its name, kind or preset; what is left is modelled, and the op counts as modelled where it may be placed."""
    before = modelled(graph(), CLUSTER).compute_s
    found, origin, _ = given(folder, "type,device,seconds\nMatMul,gpu:1,0.5\n")
    assert found[:2, 2].tolist() == [0.5, 0.5] and found[:2, 1].tolist() == before[:2, 1].tolist()
    assert origin == [MODELLED] * 3
    for device in ("gpu", "V100"):
        assert given(folder, f"type,device,seconds\nMatMul,{device},0.5\n")[1] == [GIVEN, GIVEN, MODELLED]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("name,seconds\nnobody,1\n", "own.csv: none of its 1 rows matches an op of this graph - "),
        ("name,seconds\nnet/a,\n", "none of its 1 rows matches"),
        ("name,seconds\n", "none of its 0 rows matches"),
        ("", "its first line must name seconds, and name or type"),
        ("name,time\nnet/a,1\n", "its first line must name seconds, and name or type"),
        ("name,seconds\nnet/a,-1\n", "own.csv, line 2: seconds is '-1' - give a number from 0 to 1e+06"),
        ("name,seconds\nnet/a,nan\n", "line 2: seconds is 'nan'"),
        ("name,seconds\nnet/a,1\nnet/b,fast\n", "line 3: seconds is 'fast'"),
        ("name,device,seconds\nnet/a,gpu:7,1\n", "line 2: no device, kind or preset here is named 'gpu:7'"),
        ("name,seconds\n\"net/a,1\n", "own.csv: no CSV: "),
    ],
)  # fmt: skip
def test_files_that_say_nothing_are_refused(folder: Path, text: str, fault: str) -> None:
    """In one line, with the place."""
    with pytest.raises(InputError) as caught:
        given(folder, text)
    assert fault in str(caught.value) and "\n" not in str(caught.value)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(command, [*arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_costs_are_listed_and_read_again(folder: Path) -> None:
    """What `--csv` writes gives the same times back, now given; one changed number is used."""
    listed = run("costs", "--graph", "g.json", "--csv")
    head, first, _, last = listed.splitlines()
    assert head == "name,type,dtype,flops,bytes,seconds,origin,kernel"
    assert first.startswith("net/a,MatMul,float32,2000000000.0,4,") and first.endswith(",modelled,matmul")
    assert last == "end,NoOp,,0.0,0,,modelled,"
    (folder / "own.csv").write_text(listed)
    assert given(folder, listed)[0][:2, 1:].tolist() == modelled(graph(), CLUSTER).compute_s[:2, 1:].tolist()
    (folder / "own.csv").write_text("type,seconds\nMatMul,0.5\n")
    said = json.loads(run("costs", "--graph", "g.json", "--costs", "own.csv", "--json"))
    assert said["seconds"] == 1.0 and [op["origin"] for op in said["ops"]] == ["given", "given", "modelled"]
    assert said["ops"][0]["kernel"] == "" and said["device"] == "gpu:0"


def test_sums_and_devices(folder: Path) -> None:
    """By type and by scope, the longest first; of a core the roofline; pages say the total."""
    said = json.loads(run("costs", "--graph", "g.json", "--by", "scope", "--json"))
    assert [(row["scope"], row["ops"]) for row in said["scope"]] == [("net", 2), ("end", 1)]
    assert said["seconds"] == pytest.approx(sum(row["seconds"] for row in said["scope"]))
    said = json.loads(run("costs", "--graph", "g.json", "--by", "type", "--json", "--device", "cpu:0"))
    assert {row["type"]: row["ops"] for row in said["type"]} == {"MatMul": 2, "NoOp": 1}
    page = run("costs", "--graph", "g.json")
    assert "gpu:0 of v100x2-nvlink (V100)" in page and "cannot run" in page and "matmul" in page
    for bad in (["--device", "gpu:9"], ["--csv", "--json"]):
        assert CliRunner().invoke(command, ["costs", "--graph", "g.json", *bad]).exit_code != 0


def test_plans_are_made_from_own_times(folder: Path) -> None:
    """The plan says so, and its check asks for the same file."""
    (folder / "own.csv").write_text("type,seconds\nMatMul,0.5\n")
    quick = ("--time-limit", "0", "--solver", "list", "-q", "-o", "plan.json")
    made = json.loads(run("solve", "--graph", "g.json", "--costs", "own.csv", *quick, "--json"))
    assert made["makespan_s"] == pytest.approx(1.0, rel=0.01)
    run("check", "plan.json", "--graph", "g.json", "--costs", "own.csv")
    # By other times the plan is not what it claims to be.
    assert CliRunner().invoke(command, ["check", "plan.json", "--graph", "g.json"]).exit_code != 0
