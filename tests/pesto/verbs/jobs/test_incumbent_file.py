"""The best plan so far is a file while a job goes on, and verified; a plan of the solve's end takes its place."""

import hashlib
import json
import threading
from pathlib import Path

import msgspec
import pytest

from pesto.core.errors import VerificationError
from pesto.core.plans.plan_file import loads
from pesto.core.settings import Settings
from pesto.planning.solving.flow import solve
from pesto.verbs import plan_step
from pesto.verbs.jobs import incumbent_file
from pesto.verbs.jobs.incumbent_file import SUMMARY, IncumbentFile, left_summary
from pesto.verbs.jobs.request import JobRequest
from pesto.verbs.jobs.run_job import run

TOWERS = (Path(__file__).parents[3] / "data" / "two-towers.graph.json").read_bytes()


@pytest.fixture
def step(make_graph, make_cluster, make_costs):
    """A step of which placements differ, on two devices."""
    ops = [{"name": "in", "s": 1e-3}]
    for side in "ab":
        ops += [{"name": f"{side}{k}", "s": 2e-3, "inputs": [f"{side}{k - 1}" if k else "in"]} for k in range(6)]
    graph, cluster = make_graph([*ops, {"name": "out", "inputs": ["a5", "b5"], "s": 1e-3}]), make_cluster()
    return graph, cluster, make_costs(graph, cluster)


class Watch:
    """Takes each plan at once."""

    def __init__(self):
        self.told, self.made = [], []

    def __call__(self, incumbent):
        self.told.append(incumbent)

    def take_plan(self, made):
        self.made.append(made())


def test_each_better_plan_can_be_made_and_is_verified(step):
    watch = Watch()
    outcome = solve(*step, Settings(time_limit_s=0, deterministic=True), watch)
    steps = [plan.makespan_s for plan in watch.made]
    assert steps == sorted(steps, reverse=True) == [one.makespan_s for one in watch.told if one.makespan_s in steps]
    assert steps[-1] >= outcome.plan.makespan_s > 0
    assert watch.made[0].provenance.chosen in outcome.plan.provenance.candidates_ticks


def test_a_placement_alone_has_no_order_of_its_own(step):
    watch = Watch()
    solve(*step, Settings(time_limit_s=0, deterministic=True, placement_only=True), watch)
    assert watch.made and all(plan.placement_only for plan in watch.made)


def test_the_last_plan_is_written_and_its_summary(step, tmp_path, monkeypatch):
    monkeypatch.setattr(incumbent_file, "LEAST_S", 0.0)
    watch = Watch()
    solve(*step, Settings(time_limit_s=0, deterministic=True), watch)
    file, written = IncumbentFile(tmp_path), threading.Event()

    def wrong():
        raise VerificationError("it is none - report it")

    def last():
        written.set()
        return watch.made[-1]

    file.take(wrong)
    file.take(last)
    assert written.wait(60)
    file.close()
    assert loads((tmp_path / "plan.json").read_bytes(), "plan").makespan_s == watch.made[-1].makespan_s
    assert left_summary(tmp_path).makespan_s == watch.made[-1].makespan_s
    (tmp_path / SUMMARY).write_bytes(b'{"makespan_s": "long"}')
    assert left_summary(tmp_path) is None
    assert left_summary(tmp_path / "none") is None


def test_the_shortest_of_plans_and_splits_is_the_one_that_is_left(step, tmp_path, monkeypatch):
    monkeypatch.setattr(incumbent_file, "LEAST_S", 0.0)
    watch = Watch()
    solve(*step, Settings(time_limit_s=0, deterministic=True), watch)
    plan = watch.made[-1]
    file, done = IncumbentFile(tmp_path), threading.Semaphore(0)
    write = file._write
    monkeypatch.setattr(file, "_write", lambda made: write(made) or done.release())

    def left():
        assert done.acquire(timeout=60)
        summary = left_summary(tmp_path)
        (path,) = tmp_path.glob("[!.]*")  # one file, whole
        return path.name, path.read_bytes()[:1], summary.makespan_s, summary.lower_bound_s is None

    file.take_split(2 * plan.makespan_s, lambda: b"a split")
    assert left() == ("split.json", b"a", 2 * plan.makespan_s, True)
    file.take(lambda: plan)
    assert left() == ("plan.json", b"{", plan.makespan_s, False)
    file.take_split(1.5 * plan.makespan_s, lambda: b"longer")
    assert left()[0] == "plan.json"
    file.take_split(0.5 * plan.makespan_s, lambda: b"shorter")
    assert left() == ("split.json", b"s", 0.5 * plan.makespan_s, True)
    file.close()
    file.forget(["plan.json"])
    assert list(tmp_path.iterdir()) == []


def test_a_split_is_there_before_it_is_timed(tmp_path, monkeypatch):
    """So that a worker which is killed then leaves it; cuts of a solve are kept as they are found."""
    seen = []

    def killed(*_):
        seen.append((tmp_path / "out" / "split.json").read_bytes()[:1])
        raise VerificationError("the worker ends here - no more")

    asked = {"kind": "split", "source": {"model": "rnnlm", "variant": "tiny"}, "cluster": "v100x2-nvlink"}
    monkeypatch.setattr(plan_step, "time_split", killed)
    request = msgspec.convert(asked | {"split": {"workers": "2", "method": "greedy"}}, JobRequest)
    assert run(request, tmp_path, tmp_path / "out", lambda _: None).files == ("split.json",)
    assert seen == [b"{"]


def test_a_solve_s_own_plan_takes_the_place_of_the_one_that_was_written(tmp_path, monkeypatch):
    """Which lies there while the solve goes on, and is no file of the job until then."""
    seen, solved = [], plan_step.solve

    def held(graph, cluster, costs, settings, watch, earlier):
        written = threading.Event()
        monkeypatch.setattr(IncumbentFile, "_write", lambda file, made: write(file, made) or written.set())
        outcome = solved(graph, cluster, costs, settings, watch, earlier)
        assert written.wait(60)
        return outcome

    def write(file, made):
        wrote(file, made)
        seen.append(json.loads((tmp_path / "out" / "plan.json").read_bytes())["provenance"]["chosen"])

    wrote = IncumbentFile._write
    monkeypatch.setattr(plan_step, "solve", held)
    sha = hashlib.sha256(TOWERS).hexdigest()
    (tmp_path / sha).write_bytes(TOWERS)
    source = {"blob": sha, "name": "step.json"}
    request = {"kind": "solve", "source": source, "settings": {"time_limit_s": 0, "search": False}}
    end = run(msgspec.convert(request, JobRequest), tmp_path, tmp_path / "out", lambda _: None)
    assert (end.exit_code, end.files[0], len(seen) > 0) == (0, "plan.json", True)
    assert loads((tmp_path / "out" / "plan.json").read_bytes(), "plan").makespan_s == end.result["makespan_s"]
