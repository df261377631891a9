"""pesto pipeline on a training step: page, JSON, plan, pictures, and what is refused."""

import json
import sys

import pytest
from training_steps import training_step

from pesto.cli.main import main
from pesto.core.files import graph_file

WRONG = {
    "nothing named": ((), 2, "no graph"),
    "a chain's option": (("--graph", "step.json", "--devices", 4), 2, "leave out --devices"),
    "two things": (("step.json", "--graph", "step.json", "--devices", 2), 2, "leave out one of them"),
    "a graph as a chain": (("step.json",), 3, "expected 'pesto-chain'"),
    "no such schedule": (("--graph", "step.json", "--schedule", "gpip"), 2, "give one of"),
    "one accelerator": (("--graph", "step.json", "--cluster", "one.toml"), 2, "one accelerator"),
    "unequal accelerators": (("--graph", "step.json", "--cluster", "two.toml"), 2, "whose accelerators are alike"),
    "no such cluster, nor module": (("--function", "no_such:f", "--cluster", "v100x5"), 2, "did you mean v100x8"),
    "no training step": (("--graph", "forward.json"), 3, "it updates no variable"),
    "search of a chain": (("step.json", "--devices", 2, "--search", 3), 2, "a chain has no ops - leave out --search"),
    "asynchronous of a graph": (("--graph", "step.json", "--asynchronous"), 2, "whose updates Pesto makes - give a"),
    "asynchronous and whole": (("--function", "m:f", "--asynchronous"), 2, "does not loop itself) and 2 or more micro"),
    "asynchronous chain": (("step.json", "--devices", 2, "--asynchronous"), 2, "leave out --asynchronous"),
    "no micro-batch": (("--graph", "step.json", "--micro-batches", 0), 2, "--micro-batches"),
    "its input": (("--graph", "step.json", "-o", "step.json"), 2, "step.json"),
}
HEAD = """
format_version = 1
name = "own"
[[hosts]]
name = "a"
cpu = "xeon-core"
cores = 4
memory_gib = 64
[[links]]
pairs = [["cpu", "gpu"], ["gpu", "gpu"]]
latency_us = 10
bandwidth_gb_s = 10
"""
CLUSTER = """
[[devices]]
preset = "V100"
memory_gib = 16
"""


@pytest.fixture(name="step")
def _step(make_graph, tmp_path, monkeypatch):
    """A step of ten layers and its forward pass alone, in the working folder."""
    monkeypatch.chdir(tmp_path)
    ops = [{**op, "s": 50 * op["s"]} for op in training_step(5, layers=10, momentum=True).ops]
    graph_file.save(make_graph(ops), "step.json")
    graph_file.save(make_graph([op for op in ops if op["name"][0] in "wrxfl"]), "forward.json")
    return "step.json"


@pytest.fixture(name="ended")
def _ended(monkeypatch, capfd):
    """The exit code, and what is on stdout and stderr, of a whole call."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["pesto", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capfd.readouterr()

    return call


@pytest.mark.slow
def test_a_step_is_pipelined_and_its_plan_checked(step, ended, tmp_path):
    """The object has what the page says; the plan is confirmed on the step of so many micro-batches, on no other."""
    words = ("pipeline", "--graph", step, "--cluster", "v100x4", "--micro-batches", 6, "--search", 0)
    files = ("-o", "plan.json", "--chart", "pipe.svg", "--export", "ranks.csv")
    files += ("--stages", "stages.csv")
    code, out, err = ended(*words, *files, "--json")
    assert code == 0, err
    said = json.loads(out)
    assert said["micro_batches"] == 6 and said["plan"] == "plan.json" and said["fits"] and said["costs"]
    rows = {name: row for name, row in said["schedules"].items() if row["makespan_s"] is not None}
    assert said["makespan_s"] == pytest.approx(min(row["makespan_s"] for row in rows.values() if row["fits"]))
    assert said["lower_bound_s"] <= said["makespan_s"] and len(rows) >= 5 and 0 < said["bubble"] < 1
    assert {"gpu:0", "gpu:1"} <= {stage["device"] for stage in said["stages"]} <= {f"gpu:{k}" for k in range(4)}
    assert said["stages"][0]["first"] == 0 and all(stage["bytes"] > 0 for stage in said["stages"])
    assert len((tmp_path / "ranks.csv").read_text().splitlines()) == 4
    assert (tmp_path / "stages.csv").read_text().startswith("op,part,layer,stage,devices\n")
    assert said["period"] and said["period_ticks"] and said["k"] and said["T"] and said["search"] is None
    assert {"first", "last", "device", "load", "weights_bytes", "in_flight", "bytes"} <= set(said["stages"][0])
    assert {"period", "step", "peak_bytes", "fits"} <= set(said["schedules"]["gpipe"])
    assert "ms, as the chain has it" in (tmp_path / "pipe.svg").read_text()
    assert ended("check", "plan.json", "--graph", step, "--micro-batches", 6)[0] == 0
    assert ended("check", "plan.json", "--graph", step, "--micro-batches", 5)[0] == 9
    code, page, _ = ended(*words)
    assert code == 0 and said["schedule"] in page and "6 micro-batches" in page and "by the chain" in page


def test_the_schedule_that_is_asked_for(step, ended):
    """It is the plan, though another is shorter, and is confirmed as such."""
    words = ("--graph", step, "--schedule", "interleaved-2", "--cluster", "v100x4")
    said = json.loads(ended("pipeline", *words, "-o", "plan.json", "--json")[1])
    assert said["schedule"] == "interleaved-2" and said["micro_batches"] == 8
    assert any(row["fits"] and row["makespan_s"] < said["makespan_s"] for row in said["schedules"].values())
    assert ended("check", "plan.json", "--graph", step, "--micro-batches", 8)[0] == 0


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line(step, ended, tmp_path, case):
    """With the exit code of its kind."""
    (tmp_path / "one.toml").write_text(HEAD + CLUSTER)
    other = CLUSTER.replace("V100", "P100")
    (tmp_path / "two.toml").write_text(HEAD + CLUSTER + other)
    words, code, told = WRONG[case]
    left, out, err = ended("pipeline", *words)
    assert left == code and told in " ".join(err.split()) and "Traceback" not in err and not out, (left, err)


def test_several_micro_batches_are_planned_and_not_run(step, ended):
    """Every verb that plans takes them; what runs a step refuses them."""
    code, out, err = ended("simulate", "--help")
    assert code == 0, err
    code, out, err = ended(
        "solve", "--graph", step, "--micro-batches", 2, "--time-limit", 0, "-o", "p.json", "--json", "--deterministic"
    )
    assert code == 0 and json.loads(out)["makespan_s"] > 0, err
    left, _, err = ended("run", "p.json", "--graph", step, "--micro-batches", 2)
    assert left == 2 and "not run or cut" in err


@pytest.mark.slow
def test_the_curve_of_a_step_has_every_way(step, ended, tmp_path):
    """Stages that need not be contiguous, too."""
    words = ("pipeline", "--graph", step, "--cluster", "v100x4", "--micro-batches", 6, "--search", 0)
    code, _, err = ended(*words, "--time-limit", 0.5, "--curve", "curve.svg")
    assert code == 0, err
    drawn = (tmp_path / "curve.svg").read_text()
    assert all(way in drawn for way in ("best without memory", "1F1B*", "need not be contiguous", "no schedule below"))
