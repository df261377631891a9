"""pesto costs: what it lists, sums and refuses, and that its CSV can be given back."""

import csv
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.costs.analytical import list_costs, scope, sum_costs
from pesto.core.errors import Exit, InputError, UsageError
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs, load_graph

OPS = 30
"""Of a step, each in a scope with two others; the first on the CPU."""


def typed(*words: object) -> str:
    done = CliRunner().invoke(pesto, [*map(str, words)], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """A chain: op i has i GFLOP; the last is a matmul whose form is known, the one before has its time given."""
    ops: list[dict[str, Any]] = [
        {"name": f"net/layer_{i // 3}/op_{i}", "type": ("Add", "Mul")[i % 2], "outputs": [4], "flops": i * 10**9,
         "dtypes": ["float32"], "runs_on": ["gpu"] if i else ["cpu"]}
        for i in range(OPS)
    ]  # fmt: skip
    for before, op in itertools.pairwise(ops):
        op["inputs"] = [before["name"]]
    ops[-1] |= {"type": "MatMul", "kernel": "matmul", "sizes": [1024, 1024, 1024, 1, 0, 0]}
    ops[-2]["time_s"] = {"V100": 0.25}
    file = tmp_path / "step.json"
    file.write_text(json.dumps({"format": "pesto-graph", "format_version": 1, "ops": ops}))
    return file


def test_the_page_has_the_largest_and_how_many_more(step: Path) -> None:
    """Each with what it takes, what it does and why; then what is left."""
    page = typed("costs", "--graph", step)
    assert "devices       29 ops on gpu:0 (V100), 1 op on cpu:0 (xeon-core)" in page
    named = [line.split()[-1] for line in page.splitlines() if "net/layer" in line]
    assert len(named) == 20 and named[0] == "net/layer_9/op_28" and named[1] == "net/layer_9/op_27"
    flat = " ".join(page.split())
    assert re.search(r"250.00 ms +[0-9.]+% net/layer_9/op_28 Add float32, 28.00 GFLOP, [0-9.]+ B: given", flat)
    assert re.search(r"op_27 Mul float32, 27.00 GFLOP, [0-9.]+ B: modelled, bytes and operations", flat)
    assert re.search(r"10 more ops take [0-9.]+ .s; --csv and --json have them all$", flat)


def test_what_is_listed_on_another_device_says_so(tmp_path: Path) -> None:
    """An op of the host among those of a GPU; a file need not say types."""
    ops = [{"name": name, "flops": 10**9, "outputs": [4], "runs_on": ["gpu"]} for name in "abc"]
    ops[0] |= {"type": "Lookup", "dtypes": ["int64"], "runs_on": ["cpu"]}
    file = tmp_path / "step.json"
    file.write_text(json.dumps({"format": "pesto-graph", "format_version": 1, "ops": ops}))
    flat = " ".join(typed("costs", "--graph", file).split())
    assert re.search(r" a Lookup int64, on xeon-core, 1.00 GFLOP, [0-9.]+ B: modelled", flat)
    assert re.search(r"% b 1.00 GFLOP, [0-9.]+ B: modelled", flat) and flat.count(" on xeon-core") == 1


def test_the_object_has_every_op_longest_first(step: Path) -> None:
    """As the solver gets them, with a sum and the form of kernel where the time is modelled."""
    said = json.loads(typed("costs", "--graph", step, "--json"))
    graph, cluster = load_graph(Source(file=step)), load_cluster("v100x2-nvlink")
    gpu, cpu = (1, 0) if cluster.devices[0].kind == "cpu" else (0, 2)
    known = load_costs(graph, cluster, None).compute_s
    times = {row["name"]: row["seconds"] for row in said["ops"]}
    assert times == {name: known[i, gpu if i else cpu] for i, name in enumerate(graph.names)} and list(
        times.values()
    ) == sorted(times.values(), reverse=True)
    assert said["total_s"] == pytest.approx(sum(times.values())) and said["devices"] == ["cpu:0", "gpu:0"]
    assert said["costs"] == "mixed: 1 of 30 ops given, 29 modelled"
    rows = {row["name"].rpartition("/")[2]: row for row in said["ops"]}
    assert (rows["op_28"]["origin"], rows["op_28"]["kernel"], rows["op_28"]["device"]) == ("given", None, "V100")
    assert (rows["op_29"]["origin"], rows["op_29"]["kernel"]) == ("modelled", "matmul")
    assert (rows["op_3"]["kernel"], rows["op_3"]["dtype"], rows["op_3"]["flops"]) == (
        "bytes and operations", "float32", 3e9
    )  # fmt: skip


def test_a_device_lists_what_can_run_there(step: Path) -> None:
    """And how much cannot."""
    assert "29 ops on gpu:1 (V100); 1 cannot run there" in typed("costs", "--graph", step, "--device", "gpu:1")
    with pytest.raises(UsageError, match=r"--device gpu:7: not in v100x2-nvlink - .*known: .*gpu:1") as caught:
        typed("costs", "--graph", step, "--device", "gpu:7")
    assert caught.value.exit_code == Exit.USAGE
    with pytest.raises(UsageError, match="both write to stdout - give one"):
        typed("costs", "--graph", step, "--json", "--csv")


@pytest.mark.parametrize("by", ["type", "scope"])
def test_sums_hold_all_that_is_listed(step: Path, by: str) -> None:
    """Op by op; the CSV of sums cannot be taken for one of ops."""
    said = json.loads(typed("costs", "--graph", step, "--by", by, "--json"))
    rows = said[f"by_{by}"]
    assert sum(row["ops"] for row in rows) == OPS
    assert sum(row["total_s"] for row in rows) == pytest.approx(said["total_s"])
    ops = json.loads(typed("costs", "--graph", step, "--json"))["ops"]
    own = {row[by]: 0.0 for row in rows}
    for op in ops:
        own[op["type"] if by == "type" else op["name"].rpartition("/")[0]] += op["seconds"]
    assert {row[by]: pytest.approx(row["total_s"]) for row in rows} == own
    assert [row["total_s"] for row in rows] == sorted((row["total_s"] for row in rows), reverse=True)
    file = step.with_name("sums.csv")
    file.write_text(typed("costs", "--graph", step, "--by", by, "--csv"))
    with pytest.raises(InputError, match="unknown column") as caught:
        typed("costs", "--graph", step, "--costs", file)
    assert caught.value.exit_code == Exit.INPUT
    assert rows[0][by] in typed("costs", "--graph", step, "--by", by)


def test_the_csv_is_a_file_of_ones_own_times(step: Path) -> None:
    """As it is it changes nothing; with a number changed, that op's time is given, in every verb."""
    file = step.with_name("own.csv")
    text = typed("costs", "--graph", step, "--csv")
    file.write_text(text)
    before = json.loads(typed("costs", "--graph", step, "--json"))
    same = json.loads(typed("costs", "--graph", step, "--costs", file, "--json"))
    assert same["costs_note"] == "own.csv: all its times are those that hold without it"
    assert (same["ops"], same["costs_source"]) == (before["ops"], before["costs_source"])
    rows = [*csv.DictReader(io.StringIO(text))]
    (longest,) = (row for row in rows if row["name"].endswith("op_27"))
    longest["seconds"] = "0.5"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    changed = json.loads(typed("costs", "--graph", step, "--costs", file, "--json"))
    assert (changed["ops"][0]["name"], changed["ops"][0]["seconds"]) == (longest["name"], 0.5)
    assert (changed["ops"][0]["origin"], changed["ops"][0]["kernel"]) == ("given", None)
    assert changed["ops"][1:] == [op for op in before["ops"] if op["name"] != longest["name"]]
    plan, given = step.with_name("plan.json"), ("--graph", step, "--costs", file)
    page = typed("solve", *given, "--time-limit", 0, "--solver", "list", "-q", "-o", plan)
    assert "own times of 1 of 30 ops by own.csv" in " ".join(page.split())
    assert "valid" in typed("check", plan, *given)
    assert json.loads(typed("simulate", plan, *given, "--json"))["makespan_s"] > 0.75
    with pytest.raises(UsageError, match=r"rests on times of own\.csv .* - give that file as costs"):
        typed("check", plan, "--graph", step)


def test_the_csv_on_stdout_has_line_feeds_alone(step: Path) -> None:
    """The command line shows all other control characters, so a carriage return would be in the last cell."""
    done = CliRunner().invoke(pesto, ["costs", "--graph", str(step), "--csv"])
    assert done.exit_code == 0 and done.stdout_bytes.count(b"\n") == OPS + 1 and b"\r" not in done.stdout_bytes


def test_files_have_the_times_of_a_device_at_speed_one(step: Path) -> None:
    """So that what is printed for a slower machine is what its file says when it is given back."""
    slow, file = step.with_name("slow.toml"), step.with_name("own.csv")
    preset = typed("clusters", "--show", "v100x2-nvlink", "--toml")
    slow.write_text(preset.replace('preset = "V100"', 'preset = "V100"\nspeed = 0.5'))
    given = ("--graph", step, "--cluster", slow)
    file.write_text(typed("costs", *given, "--csv"))
    here = json.loads(typed("costs", *given, "--json"))
    assert here["ops"][0]["seconds"] == 2 * float(next(csv.DictReader(file.open()))["seconds"])
    assert json.loads(typed("costs", *given, "--costs", file, "--json"))["ops"] == here["ops"]
    assert "(V100, speed 0.5)" in typed("costs", *given)


def test_scopes_are_two_parts_three_of_gradients_and_never_the_op() -> None:
    """So that what a layer does stands beside what its gradients take."""
    names = {
        "a": "",
        "a/b": "a",
        "a/b/c": "a/b",
        "a/b/c/d": "a/b",
        "gradients/a/b/c/d": "gradients/a/b",
        "gradient_tape/a/b/c": "gradient_tape/a/b",
    }
    assert {name: scope(name) for name in names} == names


def test_every_op_of_a_model_is_listed_once() -> None:
    """Of a step of TensorFlow's own as well, and the sums are of them."""
    graph, cluster = load_graph(Source(model="rnnlm", variant="tiny")), load_cluster("v100x2-nvlink")
    costs = load_costs(graph, cluster, None)
    found = list_costs(graph, cluster, costs)
    assert sorted(found.op.tolist()) == list(range(graph.ops)) and (np.diff(found.seconds) <= 0).all()
    for by in ("type", "scope"):
        assert sum(row.seconds for row in sum_costs(graph, found, by)) == pytest.approx(found.seconds.sum())
    assert (found.kernel >= 0).all()
