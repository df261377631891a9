"""pesto instance and pesto schedule as a user meets them: files for other programs, exit codes, one line of error."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import forked
import pytest

from pesto.cli.main import main
from pesto.core.files.solver_files import load_problem, load_schedule, save_problem, save_schedule
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs import load as inputs
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving import exact, flow
from pesto.research import instances
from solvers import api, program_text
from solvers.checker import check
from solvers.files.npz import pack_problem
from solvers.files.problem_json import Instance, ScheduleInstance
from solvers.instances.table import FAMILIES, label, make
from solvers.result import Options

STUBS = Path(__file__).resolve().parents[3] / "tests" / "solvers" / "stubs"
DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "problem-file.md"
OP = {"name": "a", "outputs": [8], "time_s": {"gpu": 1e-3, "cpu": 1e-3}}
STEP = {
    "format": "pesto-graph",
    "format_version": 1,
    "source": "a ladder",
    "ops": [OP, *({**OP, "name": f"{k}", "inputs": [f"{k - 2}" if k > 1 else "a"]} for k in range(30))],
}
STUB = """
import sys
from pesto.cli.main import main
from solvers import api
from solvers.base import SolverEntry
api.SOLVERS["stub"] = SolverEntry(module="bad_solvers", attribute=sys.argv.pop(1), isolated=True)
main()
"""
MADE = """
import hashlib
from pesto.research import instances
from solvers.files.npz import pack_problem
problem = instances.coarse_problem("rnnlm", "tiny", "v100x2-nvlink", 30, batch=4)
print(hashlib.sha256(pack_problem(problem)).hexdigest())
"""


class Ended(NamedTuple):
    """How a run of the command line ended."""

    code: int
    out: str
    err: str


def pesto(*arguments: object, cwd: Path, stub: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with a solver called `stub` where a class of the stubs is named."""
    paths = os.pathsep.join([str(STUBS), *filter(None, [os.environ.get("PYTHONPATH")])])
    if stub is None:
        return forked.run("pesto", *arguments, cwd=cwd)
    (cwd / "stub.py").write_text(STUB)
    return forked.run("stub.py", stub, *arguments, cwd=cwd, PYTHONPATH=paths)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The problem of the documentation, and beside it, as theirs.json, its schedule."""
    blocks = DOCS.read_text().split("```json\n")[1:]
    for block, name in zip(blocks, ("problem.json", "theirs.json"), strict=True):
        (tmp_path / name).write_text(block.split("```")[0])
    return tmp_path / "problem.json"


def edited(path: Path, name: str, **changes: Any) -> Path:
    """A file beside `path` with some keys changed."""
    target = path.with_name(name)
    target.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return target


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run the command line in this process, which is quick; a solve would make the process deaf to signals."""

    def run(*arguments: object) -> Ended:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["pesto", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(int(ended.value.code or 0), *capfd.readouterr())

    return run


def test_an_instance_is_written_solved_and_checked(here: Callable[..., Ended], tmp_path: Path) -> None:
    """What the library makes is in the file; the schedule is valid and optimal, in ticks, and says what made it."""
    made = here("instance", "fork", "--set", "tasks=7", "--set", "gpus=3", "-o", "p.json")
    assert made.code == 0, made.err
    assert "7 tasks, 10 edges, 6 payloads; 3 devices" in made.out
    instance = load_problem(tmp_path / "p.json")
    assert pack_problem(instance.problem) == pack_problem(make("fork", tasks=7, gpus=3))
    solved = pesto("schedule", "p.json", "--time-limit", "600", "--json", cwd=tmp_path)
    assert solved.returncode == 0, solved.stderr
    said = json.loads(solved.stdout)
    # Five tasks between the first and the join: three here by 4, one on each other GPU (sent, run and sent back by 4).
    assert (said["status"], said["makespan"], said["lower_bound"], said["gap"]) == ("optimal", 5, 5, 0.0)
    assert (said["optimum"], said["name"], said["verified"]) == (5, label("fork", tasks=7, gpus=3), True)
    answer = load_schedule(tmp_path / "schedule.json")
    assert check(instance.problem, answer.schedule) == ()
    assert (answer.status, answer.lower_bound, answer.bound_by) == ("optimal", 5, said["bound_by"])
    assert answer.solver.startswith("cpsat ")
    checked = here("schedule", "p.json", "--check", "schedule.json")
    assert (checked.code, checked.err) == (0, "")
    assert "valid; makespan 5 ticks" in checked.out


@pytest.mark.slow
def test_the_program_is_written_beside_the_problem(here: Callable[..., Ended], tmp_path: Path) -> None:
    """In both forms, as the library writes it, and named in what is said."""
    made = here(
        "instance", "fork", "--per-edge", "--lp", "f.lp", "--mps", "f.mps", "--formulation", "pulp", "--json"
    )  # fmt: skip
    assert made.code == 0, made.err
    assert json.loads(made.out)["programs"] == {"lp": "f.lp", "mps": "f.mps"}
    problem = load_problem(tmp_path / "problem.json").problem
    for form in ("lp", "mps"):
        assert (tmp_path / f"f.{form}").read_text() == program_text(problem, "pulp", form)
    text = here("instance", "chain", "--lp", "c.lp").out
    assert "the integer program, to c.lp" in text and "mps" not in text


def test_the_list_names_every_family_and_parameter(here: Callable[..., Ended], tmp_path: Path) -> None:
    """As text and as one object; per_edge is everywhere."""
    text = here("instance", "--list").out
    rows = json.loads(here("instance", "--list", "--json").out)["families"]
    assert [row["family"] for row in rows] == list(FAMILIES)
    for row in rows:
        assert list(row["parameters"]) == [*FAMILIES[row["family"]].parameters, "per_edge"]
        assert all(f"{key}={p['default']}" in text for key, p in row["parameters"].items())
    assert not list(tmp_path.iterdir())


def test_seeds_and_payloads_an_edge(here: Callable[..., Ended], tmp_path: Path) -> None:
    """--seed and --per-edge reach the family; a name that ends in .gz is packed and read all the same."""
    options = ("--seed", "7", "--per-edge", "--set", "longest=9", "-o", "p.json.gz", "--json")
    done = here("instance", "layered", *options)
    assert done.code == 0, done.err
    problem = make("layered", 7, per_edge=1, longest=9)
    assert (tmp_path / "p.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert pack_problem(load_problem(tmp_path / "p.json.gz").problem) == pack_problem(problem)
    assert json.loads(done.out)["payloads"] == problem.payloads == (problem.payload >= 0).sum()


def test_the_problem_of_a_step_is_the_one_that_a_solve_gives_its_solver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same coarse problem, edge by edge or not; a tick is a nanosecond."""
    (tmp_path / "step.json").write_text(json.dumps(STEP))
    source, machine = Source(file=tmp_path / "step.json"), load_cluster("v100x2-nvlink")
    graph = inputs.load_graph(source)
    given: list[bytes] = []
    solve = exact.api.solve

    def seen(problem: Any, name: str, options: Any, **rest: Any) -> Any:
        given.append(pack_problem(problem))
        return solve(problem, name, options, **rest)

    for per_edge in (False, True):
        settings = Settings(coarsen_to=9, per_edge=per_edge, solver="single", search=False)
        with monkeypatch.context() as patch:
            patch.setattr(exact.api, "solve", seen)
            flow.solve(graph, machine, inputs.load_costs(graph, machine, None), settings, [].append)
        instance = instances.coarsened(source, "v100x2-nvlink", settings)
        assert pack_problem(instance.problem) == given[-1]
        assert (instance.problem.tasks, instance.ticks_per_second) == (9, 10**9)
        assert instance.name.startswith("a ladder on v100x2-nvlink, 9 nodes")


@pytest.mark.slow
def test_a_built_in_model(tmp_path: Path) -> None:
    """The command and the function of a model agree."""
    options = ("--model", "rnnlm", "--variant", "tiny", "--batch", "4", "--coarsen-to", "30", "-o", "p.json")
    done = pesto("instance", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert " ms (" in done.stdout
    assert done.stdout.startswith("model rnnlm tiny batch 4 on v100x2-nvlink, ")
    problem = load_problem(tmp_path / "p.json").problem
    assert problem.tasks <= 30
    (tmp_path / "made.py").write_text(MADE)
    made = forked.run("made.py", cwd=tmp_path)
    assert made.stdout.split() == [hashlib.sha256(pack_problem(problem)).hexdigest()], made.stderr


def test_a_start_is_never_lost(example: Path) -> None:
    """With no time at all, the schedule to start from is the answer; the file need not say what it belongs to."""
    done = pesto(
        "schedule", "problem.json", "--start", "theirs.json", "--time-limit", "0", "--json", "-q", cwd=example.parent
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["makespan"] == 14


@pytest.mark.parametrize("solver", ["cbc", "highs", "scip", "cpsat", "cpsat-windows"])
def test_engines_start_from_a_list_schedule(solver: str, here: Callable[..., Ended], example: Path) -> None:
    """With no time at all there is an answer, and the start is named; asked for none, there is no answer."""
    listed = json.loads(here("schedule", "problem.json", "--solver", "list", "--json", "-q").out)
    options = ("--solver", solver, "--time-limit", "0", "--json", "-q", "-o", "made.json")
    done = here("schedule", "problem.json", *options)
    said = json.loads(done.out)
    assert done.code == 0, done.err
    assert (said["start"], said["start_by"]) == (listed["makespan"], "list")
    assert said["makespan"] == said["start"]
    bare = here("schedule", "problem.json", *options, "--no-start")
    said = json.loads(bare.out)
    assert bare.code == 5
    assert (said["start"], said["start_by"], said["makespan"]) == (None, "", None)


@pytest.mark.parametrize("solver", ["auto", "heft", "list", "search", "single"])
def test_what_makes_its_own_schedule_is_given_none(solver: str, here: Callable[..., Ended], example: Path) -> None:
    """A method of placement that began with a better schedule would pass that off as its own."""
    said = json.loads(here("schedule", "problem.json", "--solver", solver, "--time-limit", "1", "--json", "-q").out)
    assert (said["start"], said["start_by"]) == (None, "")


def test_the_page_says_what_became_of_the_start(here: Callable[..., Ended], example: Path) -> None:
    """How much shorter the answer is, or that it is as long; a start from a file is called by that."""
    same = here("schedule", "problem.json", "--start", "theirs.json", "--time-limit", "0", "-q")
    assert "makespan      14 ticks, that of the start, 14 ticks (theirs.json)" in same.out
    fast = json.loads(example.with_name("theirs.json").read_text())
    late = {key: [*fast[key][:3], fast[key][3] + 12] for key in ("start", "finish")}
    edited(example.with_name("theirs.json"), "slow.json", **late, makespan=26)
    better = here("schedule", "problem.json", "--start", "slow.json", "--time-limit", "60", "-q")
    assert "makespan      14 ticks, 46.2% below the start, 26 ticks (slow.json)" in better.out


def test_a_foreign_schedule_is_checked(here: Callable[..., Ended], example: Path) -> None:
    """Valid: 0. With task 2 a tick early: 6, and the reasons, as text and in the one object of --json."""
    good = here("schedule", "problem.json", "--check", "theirs.json")
    assert (good.code, good.err) == (0, "")
    edited(example.with_name("theirs.json"), "early.json", start=[0, 7, 4, 12], finish=[3, 12, 9, 14])
    bad = here("schedule", "problem.json", "--check", "early.json")
    assert bad.code == 6
    assert bad.out.splitlines() == ["arrival: task 2 starts at 4, before payload 0 arrives at 5"]
    assert bad.err.startswith("pesto: early.json: invalid for problem.json: task 2 starts at 4")
    said = json.loads(here("schedule", "problem.json", "--check", "early.json", "--json").out)
    assert (said["valid"], said["gap"], [v["kind"] for v in said["violations"]]) == (False, None, ["arrival"])


def test_an_optimum_that_cannot_be_is_doubted(here: Callable[..., Ended], example: Path) -> None:
    """The file says 15, and the schedule takes 14."""
    edited(example, "wrong.json", optimum=15)
    done = here("schedule", "wrong.json", "--check", "theirs.json")
    assert done.code == 0
    assert "WARNING: wrong.json says that the optimum is 15, which is not so" in done.err


OUTCOMES: dict[str, tuple[str | None, dict[str, Any], int, str, bool]] = {
    "infeasible": (None, {"capacity": [0, 6, 6]}, 4, "infeasible: group 0 needs 12 bytes", False),
    "nothing found": ("GivesUp", {}, 5, "no schedule found", False),
    "a lie after a schedule": ("Overlaps", {}, 6, "invalid: an invalid schedule", True),
    "a crash after a schedule": ("Segfaults", {}, 7, "crashed: killed by SIGSEGV", True),
}
"""Solver, changes of the problem, exit code, words of the error, and whether a schedule is kept."""


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_way_to_end_has_its_exit_code(name: str, example: Path) -> None:
    """One line of error, the object of --json all the same, and the schedule that was found before."""
    stub, changes, code, says, kept = OUTCOMES[name]
    # The stubs run everything on each task's first device, so here all tasks can run on device 0.
    easy = {"duration": [[3, -1, -1], *([[5, 5, 5]] * 3)], "memory": [0] * 4, "optimum": None} if stub else {}
    edited(example, "p.json", **easy, **changes)
    options = ("--solver", "stub") if stub else ("--time-limit", "600")
    done = pesto("schedule", "p.json", *options, "--json", "-q", cwd=example.parent, stub=stub)
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
    assert " - " in done.stderr
    said = json.loads(done.stdout)
    assert (said["schedule"] is not None) == kept == (example.parent / "schedule.json").exists()
    if kept:
        found = load_schedule(example.parent / "schedule.json").schedule
        assert check(load_problem(example.parent / "p.json").problem, found) == ()


@pytest.mark.kill
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="signals as on Linux")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_keeps_the_best(sent: int, code: int, tmp_path: Path) -> None:
    """While the solver works on a start: the documented exit code, and a schedule that is no worse and checks."""
    problem = make("lstm-grid", layers=6, gpus=4)
    listed = api.solve(problem, "list", Options()).schedule
    assert listed is not None
    save_problem(Instance(problem=problem), tmp_path / "problem.json")
    save_schedule(ScheduleInstance(schedule=listed), tmp_path / "start.json")
    command = [sys.executable, "-m", "pesto", "schedule", "problem.json", "--time-limit", "600", "--json"]
    command += ["--start", "start.json", "--verbose"]
    run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None
    assert any(f"starting from {listed.makespan} ticks" in line for line in run.stderr)
    assert run.stderr.readline()  # the solver's own: it is at work
    run.send_signal(sent)
    out, err = run.communicate(timeout=600)
    assert run.returncode == code, err
    assert json.loads(out)["limit"] == "interrupt"
    kept = load_schedule(tmp_path / "schedule.json").schedule
    assert check(problem, kept) == ()
    assert kept.makespan <= listed.makespan


BAD = {
    "unknown family": (("instance", "lstm_grid"), 2, "did you mean lstm-grid"),
    "unknown parameter": (("instance", "chain", "--set", "task=3"), 2, "did you mean tasks"),
    "no value": (("instance", "chain", "--set", "tasks"), 2, "write NAME=VALUE"),
    "out of range": (("instance", "chain", "--set", "tasks=0"), 2, "give an integer from 1"),
    "a parameter twice": (("instance", "chain", "--set", "tasks=3", "--set", "tasks=4"), 2, "twice"),
    "nothing named": (("instance",), 2, "give a FAMILY"),
    "two things named": (("instance", "chain", "--model", "nmt"), 2, "give one of them"),
    "seed of a step": (("instance", "--model", "nmt", "--seed", "3"), 2, "leave out --seed"),
    "a program that cannot be said": (
        ("instance", "fork", "--lp", "f.lp", "--formulation", "pulp"),
        3,
        "sends payload 0 to each of the tasks",
    ),
    "an unknown formulation of a program": (
        ("instance", "fork", "--lp", "f.lp", "--formulation", "printed"),
        2,
        "choose one of tight, paper, pulp",
    ),
    "a formulation of no program": (("instance", "fork", "--formulation", "paper"), 2, "name one of them"),
    "program and problem in one file": (("instance", "fork", "--mps", "p", "-o", "p"), 2, "named twice"),
    "a program into a folder": (("instance", "fork", "--lp", "."), 8, "folder"),
    "cluster of a family": (("instance", "chain", "--cluster", "v100x4"), 2, "leave out --cluster"),
    "instance into a folder": (("instance", "chain", "-o", "."), 8, "folder"),
    "unknown solver": (("schedule", "problem.json", "--solver", "cplexx"), 2, "cpsat"),
    "gap above one": (("schedule", "problem.json", "--gap", "7"), 2, "fraction"),
    "formulation without a MILP": (("schedule", "problem.json", "--formulation", "paper"), 2, "MILP"),
    "formulation of nobody": (("schedule", "problem.json", "--solver", "cbc", "--formulation", "p"), 2, "paper"),
    "a start and none": (("schedule", "problem.json", "--start", "theirs.json", "--no-start"), 2, "give one of them"),
    "pulp without a MILP": (("schedule", "problem.json", "--formulation", "pulp"), 2, "such as cbc or highs"),
    "no problem": (("schedule", "nowhere.json"), 8, "nowhere.json"),
    "a schedule as the problem": (("schedule", "theirs.json"), 3, "format is 'pesto-schedule'"),
    "a problem as the schedule": (
        ("schedule", "problem.json", "--check", "problem.json"),
        3,
        "format is 'pesto-problem'",
    ),
    "a broken problem": (("schedule", "broken.json"), 3, "$.memory: 1 entries, expected 4"),
    "another's schedule": (("schedule", "problem.json", "--check", "others.json"), 9, "another problem"),
    "an invalid start": (("schedule", "problem.json", "--start", "early.json"), 3, "not a valid schedule"),
    "output is the input": (("schedule", "problem.json", "-o", "problem.json"), 2, "named twice"),
    "json beside a file on stdout": (("schedule", "problem.json", "-o", "/dev/stdout", "--json"), 2, "one object"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_input_gets_one_line_and_its_exit_code(name: str, here: Callable[..., Ended], example: Path) -> None:
    """One clear line, the documented code, no traceback, no new file."""
    edited(example, "broken.json", memory=[0])
    theirs = example.with_name("theirs.json")
    edited(theirs, "others.json", problem="0" * 64)
    edited(theirs, "early.json", start=[0, 7, 4, 12], finish=[3, 12, 9, 14])
    before = set(example.parent.iterdir())
    arguments, code, says = BAD[name]
    ended = here(*arguments)
    assert ended.code == code, ended.err
    assert says in ended.err
    assert len(ended.err.splitlines()) == 1, ended.err
    assert json.loads(ended.out)["exit_code"] == code if "--json" in arguments else ended.out == ""
    assert set(example.parent.iterdir()) == before
