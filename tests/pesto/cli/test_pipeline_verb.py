"""pesto pipeline on chain files: page, JSON, pictures, ranks, and what is refused."""

import json
import sys

import pytest
from click.testing import CliRunner

from pesto.cli.main import main, pesto
from pesto.core.errors import VerificationError
from pesto.pipelining import schedules

TWO = {"forward": 2, "backward": 3, "weights_bytes": 10, "activation_bytes": 4}
FILE = {"format": "pesto-chain", "format_version": 1, "layers": [TWO] * 4, "transfers": [1, 1, 1]}
WRONG = {
    "not said how many devices": ((), 2, "give --devices"),
    "no device": (("--devices", 0), 2, "give a whole number from 1 to 4096"),
    "no batch": (("--devices", 2, "--micro-batches", 0), 2, "give a whole number, 1 or more"),
    "no such count of memory": (("--devices", 2, "--memory-model", "all"), 2, "give one of paper, received"),
    "a time that is none": (("--devices", 2, "--time-limit", "x"), 2, "write 60, 90s, 10m or 2h"),
    "no such option": (("--devices", 2, "--bogus"), 2, "see pesto pipeline --help"),
    "more batches than can be laid out": (("--devices", 2, "--micro-batches", 4097), 2, "give 4096 or fewer"),
    "no such schedule": (("--devices", 2, "--schedule", "gpip"), 2, "gpipe"),
    "too little memory": (
        ("--devices", 2, "--memory", 20, "--memory-model", "paper"),
        4,
        "8 B lack at most - give 28 bytes",
    ),
    "too little for any cuts": (("--devices", 2, "--memory", 20, "--contiguous"), 4, "12 B lack - give 32 bytes"),
    "a schedule that does not fit": (("--devices", 2, "--memory", 40, "--schedule", "gpipe"), 5, "out of memory"),
    "it lacks bytes": (("--devices", 2, "--memory", 40, "--schedule", "gpipe"), 5, "give 116 bytes"),
    "a schedule without stages": (("--devices", 2, "--memory", 20, "--schedule", "thinned"), 4, "give 32 bytes"),
    "no picture": (("--devices", 2, "--chart", "x.pdf"), 2, ".png"),
    "one file twice": (("--devices", 2, "--chart", "x.png", "--curve", "x.png"), 2, "twice"),
}


@pytest.fixture(name="chain")
def _chain(tmp_path, monkeypatch):
    """A file of four equal layers, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chain.json").write_text(json.dumps(FILE))
    return "chain.json"


@pytest.fixture(name="ended")
def _ended(monkeypatch, capfd):
    """The exit code, and what is on stdout and stderr, of a whole call."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["pesto", "pipeline", *map(str, words)])
        # as under python -m: remedies name the command all the same
        monkeypatch.setattr(sys.modules["__main__"], "__package__", "pesto", raising=False)
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capfd.readouterr()

    return call


def run(*words):
    """The command line, in this process."""
    return CliRunner().invoke(pesto, ["pipeline", *map(str, words)])


def test_the_object_has_what_the_page_says(chain):
    """Stages cover all layers; the period is a fraction as text and as a number; schedules stand by name."""
    done = run(chain, "--devices", 2, "--memory", 60, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["schedule"], said["period"], said["period_ticks"]) == ("1f1b*", "10", 10.0)
    assert (said["k"], said["T"], said["status"]) == (1, 10, "optimal")
    assert [(s["first"], s["last"], s["device"], s["load"]) for s in said["stages"]] == [(0, 1, 0, 10), (2, 3, 1, 10)]
    assert all(s["bytes"] <= 60 and s["weights_bytes"] == 20 and s["in_flight"] >= 1 for s in said["stages"])
    assert said["schedules"]["gpipe"]["fits"] is False and said["schedules"]["1f1b*"]["fits"] is True
    assert said["bound"]["ticks"] <= 10 and said["step_bound"]["ticks"] <= said["step"] and said["makespan_s"] is None
    page = run(chain, "--devices", 2, "--memory", 60).stdout
    assert "0 to 1" in page and "10 ticks a batch, by 1f1b*" in page and "among all schedules" in page


def test_the_exact_schedule_is_no_longer(chain):
    """It is found within the memory by a process of its own."""
    said = json.loads(run(chain, "--devices", 2, "--memory", 60, "--k", 1, "--time-limit", "20", "--json").stdout)
    assert said["schedules"]["exact"]["fits"] and said["schedules"]["exact"]["period_ticks"] == 10


def test_ctrl_c_keeps_what_is_found(chain, tmp_path, monkeypatch):
    """The best so far is told and drawn, and the exit code says so; no other is made, and no curve searched for."""

    def struck(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pesto.pipelining.schedules.exact", struck)
    done = run(chain, "--devices", 2, "--memory", 60, "--k", 2, "--chart", "a.svg", "--json")
    said = json.loads(done.stdout)
    assert list(said["schedules"]) == ["1f1b*", "thinned", "exact"]
    assert (done.exit_code, said["interrupted"], said["schedule"], said["period"]) == (130, True, "1f1b*", "10")
    assert said["schedules"]["exact"]["why"] == "interrupted" and (tmp_path / "a.svg").exists()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pesto.verbs.pipeline_step.period_curve", struck)
    done = run(chain, "--devices", 2, "--curve", "c.svg", "-o", "kept.json")
    assert "c.svg is not drawn" in done.stderr and "optimal" in done.stdout and (tmp_path / "kept.json").exists()
    assert not (tmp_path / "c.svg").exists()


@pytest.mark.slow
def test_pictures_and_ranks_are_the_same_each_time(chain, tmp_path):
    """Both pictures are drawn; ranks are a row a device."""
    made = []
    for turn in "ab":
        words = ("--chart", f"{turn}.svg", "--curve", f"{turn}c.png", "--export", f"{turn}.csv")
        assert run(chain, "--devices", 2, "--contiguous", *words).exit_code == 0
        made.append([(tmp_path / name).read_bytes() for name in (words[1], words[3], words[5])])
    assert made[0] == made[1] and all(made[0])
    assert made[0][2].decode().splitlines()[0].startswith("0F0,0F1")


def check(*words):
    """pesto check, in this process."""
    return CliRunner().invoke(pesto, ["check", *words])


def test_a_pattern_is_written_and_checked(chain, tmp_path):
    """What is written is confirmed, with its bounds where they are asked for; tampered with, it is refused with 6."""
    assert run(chain, "--devices", 2, "--memory", 60, "-o", "p.json").exit_code == 0
    said = json.loads(check("p.json", "--certificate", "--json").stdout)
    assert (said["valid"], said["schedule"], said["period"], said["memory_bytes"]) == (True, "1f1b*", "10", 60)
    assert said["bound"]["ticks"] <= said["stage_bound"]["ticks"] <= 10 and max(said["peak_bytes"].values()) <= 60
    assert "valid; 4 layers on 2 devices, 10 ticks a batch" in check("p.json").stdout
    text = (tmp_path / "p.json").read_text()
    (tmp_path / "p.json").write_text(text.replace('"memory_bytes":60', '"memory_bytes":30'))
    error = check("p.json").exception
    assert error.exit_code == 6 and "p.json: the pattern is invalid: memory: device" in str(error)
    assert check("p.json", "--model", "nmt").exception.exit_code == 2


@pytest.mark.slow
def test_a_pattern_that_does_not_fit_is_not_written(chain, ended, tmp_path):
    """All else is; the message says so."""
    words = ("--devices", 2, "--memory", 40, "--schedule", "gpipe", "--chart", "a.svg", "-o", "p.json")
    left, _, err = ended(chain, *words)
    assert left == 5 and "its pattern is not written" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "chain.json"]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] * (case == "a schedule that does not fit")) for case in WRONG],
)
def test_what_is_wrong_is_one_line(chain, ended, tmp_path, case):
    """With the exit code of its kind; nothing is written."""
    words, code, told = WRONG[case]
    left, _, err = ended(chain, *words)
    assert left == code and told in err and len(err.splitlines()) == 1 and " - " in err, (left, err)
    assert [path.name for path in tmp_path.iterdir()] == ["chain.json"]


@pytest.mark.parametrize("ticks", [-1, "NaN", 1.5])
def test_times_that_are_none(chain, ended, tmp_path, ticks):
    """Refused with their place in the file."""
    text = json.dumps({**FILE, "layers": [TWO, {**TWO, "forward": 0}, TWO, TWO]})
    (tmp_path / chain).write_text(text.replace('"forward": 0', f'"forward": {ticks}'))
    left, said, err = ended(chain, "--devices", 2)
    assert (left, said) == (3, "") and chain in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(("ticks", "told"), [(0, "smaller unit"), (2**56, "larger unit")])
def test_ticks_that_cannot_be_counted(chain, ended, tmp_path, ticks, told):
    """None at all, or so many that a step's end is beyond 64 bits: told before anything is laid out."""
    layer = {**TWO, "forward": ticks, "backward": ticks}
    (tmp_path / chain).write_text(json.dumps({**FILE, "layers": [layer] * 4}))
    left, said, err = ended(chain, "--devices", 2, "--micro-batches", 64, "--chart", "x.png")
    assert (left, said) == (3, "") and told in err and not (tmp_path / "x.png").exists()


def test_a_solver_that_fails_costs_one_row(chain, monkeypatch):
    """The others stand, and its row says why."""

    def fails(question):
        raise RuntimeError("CP-SAT's process ended with code 1")

    monkeypatch.setattr(schedules, "exact", fails)
    said = json.loads(run(chain, "--devices", 2, "--k", 2, "--json").stdout)
    assert said["schedule"] == "1f1b*" and "ended with code 1" in said["schedules"]["exact"]["why"]


@pytest.mark.slow
def test_devices_that_are_named_in_the_file(chain, tmp_path):
    """The fast one gets three layers of four; --memory is for those without; the pattern has it all and is checked."""
    named = FILE | {"devices": [{"memory_bytes": 99}, {"speed": "3"}]}
    (tmp_path / chain).write_text(json.dumps(named))
    files = ("-o", "pattern.json", "--chart", "pipe.svg", "--curve", "curve.svg")
    done = run(chain, "--memory", 60, "--contiguous", "--json", *files)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    rows = {row["device"]: row for row in said["stages"]}
    # A half of 2 or 3 ticks takes 1 at three times the speed.
    assert {d: (row["load"], row["speed"], row["memory_bytes"]) for d, row in rows.items()} == {
        0: (5, "1", 99), 1: (6, "3", 60),
    }  # fmt: skip
    assert said["period"] == "6" and all(row["bytes"] <= row["memory_bytes"] for row in rows.values())
    checked = CliRunner().invoke(pesto, ["check", "pattern.json", "--certificate", "--json"])
    assert checked.exit_code == 0, checked.output
    # 20 ticks on devices of speeds 1 and 3.
    assert json.loads(checked.stdout)["bound"] == {"name": "fastest devices", "value": "5", "ticks": 5.0}
    kept = json.loads((tmp_path / "pattern.json").read_text())
    assert kept["chain"]["devices"] == [{"memory_bytes": 99}, {"speed": "3", "memory_bytes": 60}]
    kept["chain"]["devices"][1]["speed"] = "2"
    (tmp_path / "slower.json").write_text(json.dumps(kept))
    refused = CliRunner().invoke(pesto, ["check", "slower.json"])
    assert isinstance(refused.exception, VerificationError) and "begins before" in str(refused.exception)
    page = run(chain).stdout
    assert "2 unequal devices" in page and "speed" in page


def test_what_named_devices_refuse(chain, tmp_path, ended):
    """A number of them beside them; memory that nothing fits, with what would do."""
    named = FILE | {"devices": [{"memory_bytes": 20}, {"memory_bytes": 14}]}
    (tmp_path / chain).write_text(json.dumps(named))
    code, _, said = ended(chain, "--devices", 2)
    assert code == 2 and "leave out --devices" in said
    code, _, said = ended(chain, "--contiguous", "--memory-model", "paper")
    assert code == 4 and "give each 14 bytes" in said
    named["devices"] = [{"memory_bytes": 34}, {"memory_bytes": 28}]
    (tmp_path / chain).write_text(json.dumps(named))
    assert run(chain, "--contiguous", "--memory-model", "paper").exit_code == 0


def test_cuts_of_two_stages_a_device_are_held_against_their_bound(chain, ended):
    """Two of four layers of five ticks on each of two devices: 10 of a bound of 10; other schedules have none."""
    code, said, err = ended(chain, "--devices", 2, "--contiguous", "--json")
    assert code == 0, err
    found = json.loads(said)["schedules"]
    for name, load in (("interleaved-2", 10), ("zero-bubble-v", 10), ("gpipe", None)):
        keys = {"busiest_load": load, "busiest_load_bound": load, "busiest_load_gap": None if load is None else 0.0}
        assert keys.items() <= found[name].items()
    page = " ".join(ended(chain, "--devices", 2, "--contiguous")[1].split())
    assert "interleaved-2: the busiest device computes 10 ticks a micro-batch" in page and "not the step" in page
