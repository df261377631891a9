"""pesto compare: every method on one step, as a user sees it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.choosing.comparison.contest import Entrants, chosen_methods, compete
from pesto.choosing.comparison.methods import METHODS
from pesto.cli.main import pesto
from pesto.core.errors import InfeasibleError, NothingFoundError, PestoError, UsageError
from pesto.core.files.graph_file import save
from pesto.core.settings import Settings
from pesto.reporting.show.comparison_page import comparison_page
from solvers.heuristics.methods import PLACERS

QUICK = Settings(time_limit_s=1.0)
SMALL = ("single", "expert", "round-robin", "list")


def network(make_graph, *, weight=100, activation=1000):
    """Four layers, forward and backward; each activation lives until its layer's gradient."""
    ops, last = [], None
    for k in range(4):
        ops.append({"name": f"layer_{k}/w", "param": weight, "s": 0.0, "group": f"w{k}"})
        inputs = [f"layer_{k}/w", *([last] if last else [])]
        last = f"layer_{k}/mul"
        ops.append({"name": last, "inputs": inputs, "bytes": activation, "s": 5e-6})
    for k in reversed(range(4)):
        ops.append({"name": f"grad/layer_{k}", "inputs": [f"layer_{k}/mul", last], "bytes": 8, "s": 9e-6})
        last = f"grad/layer_{k}"
        ops.append({"name": f"layer_{k}/apply", "inputs": [last], "s": 1e-6, "group": f"w{k}"})
    return make_graph(ops)


def run(*arguments):
    return CliRunner().invoke(pesto, ["compare", *map(str, arguments)])


@pytest.fixture
def step(tmp_path, make_graph):
    save(network(make_graph), tmp_path / "step.json")
    return tmp_path / "step.json"


@pytest.mark.parametrize("methods", ["single,expert,list,m-etf,pesto", pytest.param("all", marks=pytest.mark.matrix)])
def test_every_method_is_simulated_checked_and_saved(methods, step, tmp_path) -> None:
    """All rows of the table answer; each plan passes pesto check; the JSON has the promised keys."""
    done = run("--graph", step, "--time-limit", 1, "--json", "-q", "-o", tmp_path / "plans", "--methods", methods)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert list(found["methods"]) == list(chosen_methods(methods))
    assert methods != "all" or set(PLACERS) <= set(found["methods"])
    bound = found["lower_bound_s"]
    for name, row in found["methods"].items():
        if row["plan"] is None:
            assert "missing" in row["detail"], (name, row)  # an optional package
            continue
        assert row["fits"] and row["makespan_s"] >= bound and row["seconds"] >= 0, name
        assert set(row["peak_bytes"]) == {"cpu:0", "gpu:0", "gpu:1"}
        assert 0 <= row["device_utilisation"] <= 1 and 0 <= row["link_utilisation"] <= 1
        checked = CliRunner().invoke(pesto, ["check", row["plan"], "--graph", str(step)])
        assert checked.exit_code == 0, (name, checked.output)
    best = min(row["makespan_s"] for row in found["methods"].values() if row["fits"])
    assert found["methods"]["pesto"]["makespan_s"] <= found["methods"]["list"]["makespan_s"]
    assert best <= found["methods"]["single"]["makespan_s"]


def test_the_page_ranks_what_fits_before_what_does_not(make_graph, make_cluster, make_costs) -> None:
    """Five thousand bytes: everything on one GPU (4 400 and more) does not fit 4 000; half of it does."""
    graph = network(make_graph)
    cluster = make_cluster(memory=4000)
    heard = []
    contest = compete(graph, cluster, make_costs(graph, cluster), QUICK, heard.append, entrants=Entrants(SMALL))
    assert [e.method for e in heard] == list(SMALL)
    named = {e.method: e for e in contest.entries}
    assert named["single"].plan is None and not named["single"].candidate.fits
    assert "lacks" in named["single"].detail and named["expert"].plan is not None
    order = [e.method for e in contest.ranked()]
    assert order[-1] == "single"
    text = comparison_page(contest, None)
    assert "OOM" in text and "single: " in text and text.count("\n") > len(SMALL)


@pytest.mark.slow
def test_memory_aware_methods_are_repaired_or_say_what_lacks(make_graph, make_cluster, make_costs) -> None:
    """On two GPUs that can just hold the step in halves, every method that knows memory fits or says why not."""
    graph = network(make_graph)
    cluster = make_cluster(memory=3300)
    names = tuple(n for n, m in METHODS.items() if m.memory)
    contest = compete(graph, cluster, make_costs(graph, cluster), QUICK, lambda _: None, entrants=Entrants(names))
    for entry in contest.entries:
        assert entry.plan is not None or entry.detail, entry.method
        if entry.candidate is not None and entry.plan is not None:
            assert (entry.candidate.peak <= [10**12, 3300, 3300]).all()
    assert sum(entry.plan is not None for entry in contest.entries) >= len(names) // 2


def test_variables_that_cannot_fit_are_a_proof(make_graph, make_cluster, make_costs) -> None:
    """400 bytes of variables on two GPUs of 150: who knows memory is refused with the proof, the others run out."""
    graph = network(make_graph)
    cluster = make_cluster(memory=150)
    contest = compete(graph, cluster, make_costs(graph, cluster), QUICK, lambda _: None, entrants=Entrants(SMALL))
    named = {e.method: e for e in contest.entries}
    assert "do not fit" in contest.proof and named["list"].candidate is None
    assert named["round-robin"].candidate is not None and named["round-robin"].plan is None


def test_utilisation_and_cut_bytes(make_graph, make_cluster, make_costs) -> None:
    """a (2 us) sends 1 000 bytes (2 us) to b (2 us) on the other GPU: 6 us, a third of each GPU and of the link."""
    ops = [
        {"name": "layer_0/a", "bytes": 1000, "s": 2e-6},
        {"name": "layer_1/b", "inputs": ["layer_0/a"], "s": 2e-6},
    ]
    graph, cluster = make_graph(ops), make_cluster()
    contest = compete(graph, cluster, make_costs(graph, cluster), QUICK, lambda _: None, entrants=Entrants(("expert",)))
    (entry,) = contest.entries
    assert (entry.cut_bytes, entry.makespan_s) == (1000, pytest.approx(6e-6))
    assert entry.device_use == pytest.approx(1 / 3) and entry.link_use == pytest.approx(1 / 3)


@pytest.mark.slow
def test_splits_stand_beside_placements(tmp_path) -> None:
    """A built-in step has shapes: cut in two and placed by hand, timed alike; a graph file has none, and is refused."""
    words = ["--model", "nmt", "--variant", "tiny", "--methods", "split,expert", "--cluster", "v100x2-nvlink"]
    done = run(*words, "--json", "-q", "-o", tmp_path / "plans")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["methods"]
    split = found["split"]
    assert split["status"] == "fits" and split["plan"] is None and found["expert"]["plan"]
    assert 0 < split["peak_bytes"]["gpu:0"] < 2 * found["expert"]["peak_bytes"]["gpu:0"]
    assert split["peak_bytes"]["gpu:1"] > 0
    assert "split 2: exact cuts" in split["detail"]
    assert set(found) == {"expert", "split"}


def test_data_parallelism_is_a_method_like_others(tmp_path) -> None:
    """A replica a device, timed with its gradients' messages: its step, equal peaks, whether it fits."""
    words = ["--model", "rnnlm", "--variant", "tiny", "--methods", "single,data-parallel", "--cluster"]
    done = run(*words, "v100x2-nvlink", "--json", "-q", "-o", tmp_path / "plans")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["methods"]
    both, single = found["data-parallel"], found["single"]
    assert both["status"] == "fits" and both["fits"] and both["plan"] is None and single["plan"]
    assert both["makespan_s"] > 0 and both["cut_bytes"] > 0 < both["device_utilisation"] <= 1
    assert max(both["peak_bytes"][f"gpu:{k}"] for k in (0, 1)) < single["peak_bytes"]["gpu:0"]
    assert "data-parallel cuts" in both["detail"]
    assert sorted(path.name for path in (tmp_path / "plans").iterdir()) == ["single.plan.json"]
    assert "for whole ops" in run(*words, "v100x2-nvlink", "-q", "-o", tmp_path / "plans").stdout
    assert chosen_methods("data-parallel") == ("data-parallel",)


@pytest.mark.parametrize("name", ["split", "data-parallel"])
def test_a_graph_file_cannot_be_split(name, step, tmp_path) -> None:
    """It has bytes and no shapes: said in the row, which "all" leaves out."""
    done = run("--graph", step, "--methods", f"{name},single", "-o", tmp_path / "plans", "--json", "-q")
    row = json.loads(done.stdout)["methods"][name]
    assert row["status"] == "refused" and "a graph file has no shapes" in row["detail"]


def test_wrong_words_are_usage_errors(step, tmp_path) -> None:
    """An unknown method, a picture of an unknown format: said before anything runs, with the remedy."""
    with pytest.raises(UsageError, match=r"no method is called 'hft' .*heft"):
        chosen_methods(["hft"])
    assert chosen_methods(["all"], shapes=True) == tuple(METHODS)
    assert chosen_methods("search,expert") == ("expert", "pesto")
    assert set(METHODS) - set(chosen_methods(["all"])) == {name for name, row in METHODS.items() if row.cuts}
    done = run("--graph", step, "--methods", "single", "--chart", tmp_path / "x.pdf")
    assert isinstance(done.exception, UsageError) and ".png or .svg" in str(done.exception)
    for path in (tmp_path / "x.pdf", tmp_path / "plans"):
        assert not path.exists()


def test_nothing_that_fits_has_its_exit_code(tmp_path, make_graph) -> None:
    """A step whose variables exceed two V100s: exit 4. One whose activations do on any one device: exit 5."""
    for weight, activation, kind in ((2 * 10**10, 8, InfeasibleError), (8, 10**11, NothingFoundError)):
        save(network(make_graph, weight=weight, activation=activation), tmp_path / "big.json")
        done = run("--graph", tmp_path / "big.json", "--methods", "single,expert", "-q", "-o", tmp_path / "p")
        assert isinstance(done.exception, PestoError) and isinstance(done.exception, kind), done.output
        assert "OOM" in done.output
    assert list((tmp_path / "p").iterdir()) == []


def test_the_chart_shows_every_answer(step, tmp_path) -> None:
    """PNG and SVG, the same bytes for the same contest."""
    pytest.importorskip("matplotlib")
    for form in ("png", "svg"):
        done = run("--graph", step, "--methods", ",".join(SMALL), "-q", "--chart", tmp_path / f"c.{form}",
                   "-o", tmp_path / "plans")  # fmt: skip
        assert done.exit_code == 0, done.output
    assert (tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"
    assert b"<svg" in (tmp_path / "c.svg").read_bytes()


def test_peaks_of_devices_are_numbers_of_bytes(step, tmp_path) -> None:
    """What is printed as GiB is in the JSON as whole bytes."""
    done = run("--graph", step, "--methods", "single", "--json", "-q", "-o", tmp_path / "plans")
    peaks = json.loads(done.stdout)["methods"]["single"]["peak_bytes"]
    assert all(isinstance(b, int) for b in peaks.values()) and np.max(list(peaks.values())) >= 4400


AWARE = tuple(n for n, m in METHODS.items() if m.memory and n not in ("pesto", "m-sct"))
"""Without those that start a process each."""


@pytest.mark.slow
def test_no_plan_exceeds_a_memory_on_random_graphs(make_graph, make_cluster, make_costs, seeds) -> None:
    """Random layers with variables, on GPUs with as little as a third of what one would need: a plan, or none."""
    plans = refused = 0
    for seed in seeds(12):
        rng = np.random.default_rng(seed)
        ops = []
        for k in range(int(rng.integers(4, 30))):
            inputs = sorted({f"op{j}" for j in rng.integers(0, k, 2)}) if k else []
            variable = {"param": int(rng.integers(0, 60)), "group": f"g{k // 3}"} if rng.random() < 0.4 else {}
            ops.append({"name": f"op{k}", "inputs": inputs, "bytes": int(rng.integers(1, 100)), "s": 1e-6, **variable})
        graph = make_graph(ops)
        need = sum(op["bytes"] + op.get("param", 0) for op in ops)
        cluster = make_cluster(gpus=int(rng.integers(1, 4)), memory=max(1, int(need * rng.uniform(0.3, 1.0))))
        contest = compete(graph, cluster, make_costs(graph, cluster), QUICK, lambda _: None, entrants=Entrants(AWARE))
        for entry in contest.entries:
            assert entry.status in ("fits", "oom", "refused"), (seed, entry.method, entry.detail)
            plans += entry.plan is not None
            refused += entry.plan is None
            if entry.plan is not None:
                most = {d.name: d.memory_bytes for d in cluster.devices}
                assert all(entry.plan.peak_bytes[name] <= most[name] for name in most), (seed, entry.method)
            elif entry.candidate is not None:
                assert "lacks" in entry.detail
    assert plans > 20 and refused > 5


def test_one_method_that_crashes_leaves_the_others(make_graph, make_cluster, make_costs, monkeypatch) -> None:
    """A method that raises is a row that says what it raised."""
    from solvers.heuristics.lists import etf

    def broken(problem, options):
        raise RuntimeError("boom")

    monkeypatch.setattr(etf, "place", broken)
    graph, cluster = network(make_graph), make_cluster()
    names = ("round-robin", "heft", "etf")
    contest = compete(graph, cluster, make_costs(graph, cluster), QUICK, lambda _: None, entrants=Entrants(names))
    found = {e.method: (e.status, e.detail) for e in contest.entries}
    assert found["etf"] == ("failed", "RuntimeError: boom") and found["heft"][0] == "fits"


def test_an_interruption_in_compiled_code_ends_the_comparison(
    make_graph, make_cluster, make_costs, monkeypatch
) -> None:
    """Numba raises an error of its own for it: that is no failed method, and those after it are not begun."""
    from solvers.heuristics.lists import etf

    def struck(*_):
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr(etf, "place", struck)
    graph, cluster = network(make_graph), make_cluster()
    names = ("heft", "etf", "round-robin")
    contest = compete(graph, cluster, make_costs(graph, cluster), QUICK, lambda _: None, entrants=Entrants(names))
    assert contest.interrupted and [e.method for e in contest.entries] == ["heft"]
    monkeypatch.setattr("pesto.choosing.comparison.contest.verify", struck)
    contest = compete(graph, cluster, make_costs(graph, cluster), QUICK, lambda _: None, entrants=Entrants(names))
    assert contest.interrupted and not contest.entries
