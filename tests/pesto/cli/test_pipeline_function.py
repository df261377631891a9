"""pesto pipeline --function from end to end: what is wrong is one line, what is planned is confirmed and run."""

import json
import re
import sys
from pathlib import Path

import forked
import pytest

from pesto.cli.main import main
from pesto.pipelining import late_pipeline, schedules

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
BATCH = ("--batch", "24")
LATE = "--asynchronous"
WRONG = {
    "compiled without a loss": ("lossless", BATCH, 3, "Provide a `loss` argument"),
    "no loss, no gradient": ("forward", (), 3, "takes no gradients .* - give a training step"),
    "own step that trains nothing": ("idle", BATCH, 3, "takes no gradients .* - give a training step"),
    "no optimizer": ("gradients", (), 3, r"no Keras optimizer .* - call optimizer\.apply_gradients"),
    "own update": ("by_hand", (), 3, r"no Keras optimizer .* - call optimizer\.apply_gradients"),
    "own update, late": ("by_hand", (LATE,), 3, r"- call optimizer\.apply_gradients in it, or plan it with a flush"),
    "two updates": ("twice", BATCH, 3, "gradients 2 times .* leave out their number"),
    "two updates, late": ("twice", (*BATCH, LATE), 3, "gradients 2 times .* plan it with a flush"),
    "not divisible": ("dense", ("--batch", "23"), 2, "give a batch of 18 or 24"),
    "rows not divisible": ("two", ("--micro-batches", "7"), 2, "give a batch of 21 or 28"),
    "rows unlike": ("lengths", (), 3, "12 and 24 rows.* - give every argument the batch"),
    "no k": ("dense", (*BATCH, LATE, "--schedule", "exact"), 2, "give k too, such as 1"),
    "empty to empty": ("dense", (*BATCH, LATE, "--schedule", "gpipe"), 2, r"give one of 1f1b\*, thinned, exact"),
    "flush": ("dense", (*BATCH, "--updates-each", "3"), 2, "updates once - leave out --updates-each"),
    "no multiple": ("dense", (*BATCH, LATE, "--updates-each", "4"), 2, "give 8 micro-batches, two or more times"),
    "one update": ("dense", (*BATCH, LATE, "--updates-each", "6"), 2, "give 12 micro-batches, two or more times"),
    "flight": ("dense", (*BATCH, LATE, "--updates-each", "2"), 2, "1f1b. has 4 in flight, .* - give 4 or more"),
    "search": ("dense", (*BATCH, LATE, "--search", "3"), 2, "leave it out, or let the step flush"),
    "contiguous": ("dense", (*BATCH, "--contiguous", "--schedule", "free"), 2, "do not ask for contiguous ones"),
    "two versions": (
        "dense",
        ("--batch", "48", LATE, "--updates-each", "4", "--micro-batches", "12", "--cluster", "short.toml"),
        5,
        "lacks .* - give devices of 21568 bytes",
    ),
    "few batches": ("dense", (*BATCH, LATE, "--micro-batches", "2"), 2, "give as many micro-batches as devices"),
    "no memory": ("dense", (*BATCH, LATE, "--cluster", "small.toml"), 4, "short; .* - use more or larger devices"),
    "no versions": ("dense", (*BATCH, LATE, "--cluster", "mean.toml"), 5, r"\(of 11516 bytes, 11.25 KiB, or more\)"),
}
SMALL = {"small.toml": 4, "mean.toml": 10, "enough.toml": 11516 / 1024, "short.toml": 18, "told.toml": 21568 / 1024}
"""Clusters, and KiB of each of their devices."""


@pytest.fixture(name="ended")
def _ended(monkeypatch, capfd, tmp_path):
    """The exit code, and what is on stdout and stderr, of a whole call in a folder with SMALL."""
    text = (ROOT / "configs/clusters/cpux3.toml").read_text()
    for name, kib in SMALL.items():
        (tmp_path / name).write_text(text.replace("memory_gib = 16", f"memory_gib = {kib / 2**20}"))
    monkeypatch.chdir(tmp_path)

    def call(program, *words):
        given = ["pipeline", "--function", f"pieced_programs:{program}", *map(str, words), "-o", "plan.json"]
        given += [] if "--micro-batches" in words else ["--micro-batches", "6"]
        monkeypatch.setattr(sys, "argv", ["pesto", *given, *([] if "--cluster" in words else ["--cluster", "cpux3"])])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capfd.readouterr()

    return call


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line(ended, tmp_path, case):
    """With the exit code of its kind, a remedy, and no file."""
    program, words, code, told = WRONG[case]
    left, out, err = ended(program, *words)
    said = err.strip().splitlines()[-1]
    assert left == code and re.search(told, said) and not out and "Traceback" not in err, (left, err)
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(
    ("words", "cluster"), [((), "enough.toml"), (("--updates-each", 4, "--micro-batches", "12"), "told.toml")]
)
def test_the_memory_that_is_named_is_enough(ended, words, cluster):
    """As it is told where there is less."""
    code, out, err = ended("dense", "--batch", 48 if words else 24, LATE, *words, "--cluster", cluster, "--json")
    assert code == 0 and json.loads(out)["fits"], err


def test_two_versions_choose_what_they_serve(ended):
    """The exact schedule has as many batches in flight as it likes; where it has too many another is taken."""
    words = ("dense", *BATCH, LATE, "--updates-each", 4, "--micro-batches", "12", "--k", 1)
    code, out, err = ended(*words, "--json")
    assert code == 0 and json.loads(out)["schedule"] == "1f1b*", err
    code, _, err = ended(*words, "--schedule", "exact")
    assert code == 2 and re.search(r"exact has \d+ in flight.* twice as many in all, or 1f1b\*, or fewer", err), err


@pytest.mark.parametrize("program", ["two", "scalar"])
def test_several_inputs(ended, program):
    """What has the batch is cut, a number is given whole."""
    code, out, err = ended(program, "--schedule", "1f1b", "--json")
    assert code == 0 and json.loads(out)["fits"], err


def test_a_table_at_both_ends_is_told(ended):
    """It is on one device, and read on another."""
    code, out, err = ended("table", *BATCH, "--schedule", "gpipe")
    assert code == 0 and re.search(r"shared +1 variable is read on several devices, on one of them", out), (out, err)


RUN = {
    "own": ("own", ("--schedule", "1f1b")),
    "own, late": ("own", (LATE,)),
    "thinned, late": ("dense", (LATE, "--schedule", "thinned")),
    "exact, late": ("dense", (LATE, "--schedule", "exact", "--k", "2")),
    "two versions": ("dense", (LATE, "--updates-each", "3", "--micro-batches", "12", "--cluster", "cpux2")),
    "two versions, own": ("own", (LATE, "--updates-each", "4", "--micro-batches", "12")),
    "tight, late": ("dense", (LATE, "--cluster", "./tight.toml")),
}


@pytest.mark.parametrize("case", RUN)
def test_what_is_planned_is_confirmed_and_run(tmp_path, case):
    """Nothing is moved, no order inverted, every loss and variable equal to the step's without a plan."""
    program, words = RUN[case]
    text = (ROOT / "configs/clusters/cpux3.toml").read_text()
    (tmp_path / "tight.toml").write_text(text.replace("memory_gib = 16", f"memory_gib = {25 / 2**20}"))
    source = ("--function", f"pieced_programs:{program}")
    on = () if case.startswith("tight") else ("--cluster", "cpux3")
    made = said(tmp_path, "pipeline", *source, *BATCH, "--micro-batches", "6", *on, *words, "-o", "plan.json")
    assert made["fits"] and all(stage["in_flight"] <= 6 for stage in made["stages"])
    assert said(tmp_path, "check", "plan.json", *source, *words[1:] * case.startswith("tight"))["valid"]
    ran = said(tmp_path, "run", "plan.json", *source, "--steps", "3", "--devices", "cpu")
    assert not ran["moves"] and not ran["inversions"]
    assert ran["losses_equal"] and ran["variables_equal"] and ran["single_equal"]


def said(folder, *words):
    """What a call of the command line prints as JSON."""
    paths = str(ROOT / "tests/oracles")
    done = forked.run("pesto", *words, "--json", cwd=folder, PYTHONPATH=paths, TF_ENABLE_ONEDNN_OPTS="0")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def struck(*_, **__):
    """Ctrl-C."""
    raise KeyboardInterrupt


def test_an_interrupt_keeps_what_was_found(ended, tmp_path, monkeypatch):
    """1F1B* where the search for the exact schedule is ended, and nothing where that alone was asked for."""
    monkeypatch.setattr(schedules, "exact", struck)
    for more in ((), (LATE,)):
        code, _, err = ended("dense", *BATCH, *more, "--schedule", "exact", "--k", 1)
        assert code == 130 and not (tmp_path / "plan.json").exists(), err
        code, out, err = ended("dense", *BATCH, *more, "--contiguous", "--search", 0, "--k", 1, "--json")
        said = json.loads(out)
        assert (code, said["interrupted"], said["fits"]) == (130, True, True), err
        (tmp_path / "plan.json").unlink()


def test_an_interrupt_before_there_is_any_writes_nothing(ended, tmp_path, monkeypatch):
    """The stages are there, the step that is late by them is not."""
    monkeypatch.setattr(late_pipeline, "weight_staleness", struck)
    code, out, err = ended("dense", *BATCH, LATE)
    assert code == 130 and not out and "Traceback" not in err and not (tmp_path / "plan.json").exists()
