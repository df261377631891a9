"""pesto profile on machines that are made up, and what plans say of the profiles that they rest on."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.cli.verbs import measuring as verb
from pesto.core.costs.disturbance import KEEP
from pesto.core.costs.measured import Noise, Profile, load_profile
from pesto.core.errors import Exit, NothingFoundError, UsageError
from pesto.core.files import graph_file

KNOWN = {"seconds": 3e-3, "low": 2e-3, "median": 4e-3, "mean": 5e-3, "spread": 0.1, "raw_spread": 0.3}
"""Of each of three ops."""


def typed(*words):
    done = CliRunner().invoke(pesto, [*map(str, words)], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture
def graph(make_graph):
    return make_graph([{"name": "a", "bytes": 8}, *({"name": n, "inputs": ["a"], "bytes": 8} for n in "bc")])


@pytest.fixture
def machine(monkeypatch, graph):
    """What profiling finds, and what it was asked for."""
    asked = []

    def make(**noise):
        known = {"runs": 30, "refused": 10, "others_cores": 0.03, "excess": 0.5} | noise
        times = {name: np.full(3, x) for name, x in KNOWN.items()}
        found = Profile(
            fingerprint=graph.fingerprint(), kind="cpu", device="a core", iterations=20, source="test",
            noise=Noise(**known), **times,
        )  # fmt: skip

        def profile_source(source, iterations, *, keep_disturbed, feeds):
            asked.append((source.model, iterations, keep_disturbed))
            assert feeds is None
            return graph, found

        monkeypatch.setattr(verb, "profile_source", profile_source)
        return asked

    return make


def test_the_page_says_how_noisy_it_was(machine, tmp_path, graph):
    """Three ops of 2 ms by their lower deciles; a third of the runs was left out."""
    machine()
    page = " ".join(typed("profile", "--model", "nmt", "-o", tmp_path / "p.json").split())
    assert (
        "all ops take 6.00 ms by their lower deciles; profile: lower deciles of 20 runs, 10 more were disturbed" in page
    )
    assert "other programs used 0.03 cores meanwhile; means are 50.0% longer" in page
    assert "and 12.00 ms by medians, 15.00 ms by means of all samples, and 9.00 ms trimmed" in page
    assert load_profile(tmp_path / "p.json", graph).times.tolist() == [2e-3] * 3


def test_the_object_has_the_noise(machine, tmp_path):
    """All of it, and both sums; that disturbed runs are wanted is passed on."""
    asked = machine(kept=True, refused=0, others_cores=1.5, busy=(("make", 1.5),))
    said = json.loads(typed("profile", "--model", "nmt", "--keep-disturbed", "--json", "-o", tmp_path / "p.json"))
    assert asked == [("nmt", 100, True)]
    assert (said["low_s"], said["mean_s"]) == pytest.approx((6e-3, 9e-3))
    assert (said["median_s"], said["untrimmed_mean_s"]) == pytest.approx((12e-3, 15e-3))
    assert said["noise"] == {"runs": 30, "refused": 0, "others_cores": 1.5, "busy": [["make", 1.5]], "kept": True,
                             "excess": 0.5, "clocks": ""}  # fmt: skip


def test_the_spread_is_drawn(machine, tmp_path):
    """Pesto, Fig 4a: two curves, of 0.1 and 0.3 for all ops; the same bytes again; nothing else than a picture."""
    machine()
    for name in ("one.svg", "two.svg"):
        typed("profile", "--model", "nmt", "-o", tmp_path / "p.json", "--chart", tmp_path / name)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.svg", "two.svg"))
    assert one == two and one.startswith(b"<?xml")
    with pytest.raises(UsageError, match="no picture format"):
        typed("profile", "--model", "nmt", "-o", tmp_path / "p.json", "--chart", tmp_path / "spread.txt")


def test_a_busy_machine_names_the_option_and_leaves_no_file(monkeypatch, tmp_path):
    """Exit code 5; other reasons for it name no option."""

    def busy(*_, **__):
        raise NothingFoundError.of(reason[0])

    monkeypatch.setattr(verb, "profile_source", busy)
    reason = [f"other programs used 1.50 of 2 cores (make 1.50), so ... - measure when they are at rest, or {KEEP}"]
    with pytest.raises(NothingFoundError, match=r"make 1\.50.*kept \(--keep-disturbed\)$") as caught:
        typed("profile", "--model", "nmt", "-o", tmp_path / "p.json")
    assert caught.value.exit_code == Exit.NOTHING and not (tmp_path / "p.json").exists()
    reason[0] = "nothing was found - look elsewhere"
    with pytest.raises(NothingFoundError, match=r"elsewhere$"):
        typed("profile", "--model", "nmt", "-o", tmp_path / "p.json")


def test_every_plan_says_how_noisy_its_profile_was(machine, tmp_path, graph):
    """The plan's file in its line on costs; page and object in full."""
    machine(kept=True, refused=0, others_cores=1.5, busy=(("make", 1.5),))
    profile, step, plan = tmp_path / "p.json", tmp_path / "g.json", tmp_path / "plan.json"
    typed("profile", "--model", "nmt", "-o", profile)
    graph_file.save(graph, step)
    given = ("--graph", step, "--cluster", "cpux2", "--costs", profile)
    solve = ("solve", *given, "--no-search", "--time-limit", 60, "-q", "-o", plan)
    note = (
        "profile: DISTURBED RUNS KEPT, lower deciles of 30 runs; other programs used 1.50 cores meanwhile (make 1.50)"
    )
    assert note in json.loads(typed(*solve, "--json"))["costs_note"]
    assert "noise 50.0%, disturbed runs kept" in json.loads(plan.read_text())["provenance"]["costs"]
    assert note in " ".join(typed(*solve).split())
    assert note in json.loads(typed("simulate", plan, *given, "--json"))["costs_note"]
    typed("check", plan, *given)
