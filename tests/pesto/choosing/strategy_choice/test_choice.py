"""Kinds of plans on one cluster: what is chosen is the shortest that fits, and what was proven is said."""

import json
from dataclasses import replace
from importlib import resources
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.choosing.strategy_choice import choice, timed_split
from pesto.choosing.strategy_choice.choice import choose, place_from_board
from pesto.choosing.strategy_choice.partial_split import split_partially
from pesto.choosing.strategy_choice.timed_split import (
    cut_along_batch,
    factorings,
    first_board,
    time_split,
    time_with_first_cuts,
)
from pesto.cli.main import pesto
from pesto.core.costs.analytical import model_costs
from pesto.core.errors import Exit, InfeasibleError, InputError, NothingFoundError, SolverError, UsageError
from pesto.core.problem import TICK_S
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving.tracker import PlanWatch, StageWatch
from pesto.reporting.show.split_page import kinds_page
from pesto.split.files.split_check import verify_split
from pesto.split.files.split_file import dumps_split, loads_split
from pesto.split.geometry import WHOLE
from pesto.split.program import Rules
from pesto.split.split_search import divide, first_cuts
from pesto.tf import named_sources
from pesto.verbs.jobs.request import JobRequest
from pesto.verbs.jobs.run_job import JobContext


@pytest.fixture(scope="module")
def step():
    """The graph and its shapes."""
    return named_sources.load_typed(Source(model="rnnlm", variant="tiny"))


def run(*words):
    """The command line, in this process."""
    return CliRunner().invoke(pesto, [str(word) for word in words])


def small(memory=1 << 30, slower=1.0):
    """Two GPUs of so much memory, with links that take so many times as long."""
    cluster = load_cluster("v100x2-nvlink")
    devices = [d if d.kind == "cpu" else replace(d, memory_bytes=memory) for d in cluster.devices]
    paths = [
        tuple(path and replace(path, s_per_byte=path.s_per_byte * slower, source="") for path in row)
        for row in cluster.paths
    ]
    return replace(cluster, devices=tuple(devices), paths=tuple(paths))


def quick(step, cluster, cuts, watch=lambda _: None):
    """Choose among all kinds without search, with a fixed amount of work for cuts, however busy the machine is."""
    graph, _ = step
    settings = Settings(time_limit_s=0.0, deterministic=True)
    return choose(step, cluster, model_costs(graph, cluster), settings, watch, cuts=cuts)


class Taker:
    """A watch that takes plans and splits as they are found."""

    def __init__(self):
        self.plans, self.splits = [], []

    def __call__(self, incumbent):
        """Nothing to do."""

    def take_plan(self, made):
        self.plans.append(made())

    def take_split(self, makespan_s, encoded):
        self.splits.append((makespan_s, loads_split(encoded(), "split")))


@pytest.mark.slow
@pytest.mark.parametrize("slower", [1.0, 1e5])
def test_the_shortest_that_fits_is_chosen(step, slower):
    """Whatever the links; every kind is timed, and says what it holds."""
    taker = Taker()
    found = quick(step, small(slower=slower), [(2,)], taker)
    assert [kind.name for kind in found.kinds if kind.kind != "both"] == ["split 2", "data-parallel", "place"]
    # A worker that is killed meanwhile leaves the best of these: of the whole step and the whole cluster.
    assert {len(plan.names) for plan in taker.plans} == {step[0].ops}
    whole = [split for split in taker.splits if not split[1].rules.partial]
    assert min(seconds for seconds, _ in whole) == min(kind.makespan_s for kind in found.kinds[:2])
    best = min([plan.makespan_s for plan in taker.plans] + [seconds for seconds, _ in taker.splits])
    assert best == found.chosen.makespan_s
    fitting = [kind for kind in found.kinds if kind.fits]
    assert found.chosen.makespan_s == min(kind.makespan_s for kind in fitting)
    assert all(kind.peak_bytes > 0 for kind in fitting)
    assert found.reason
    if slower > 1:
        assert found.chosen.kind in ("place", "both")


@pytest.mark.slow
def test_a_partial_split_that_is_not_the_shortest_is_left_out(step, monkeypatch):
    """It is found, with a fixed amount of work, and takes longer than the placement."""
    found = []

    def kept(*given):
        found.append(split_partially(*given))
        return found[-1]

    monkeypatch.setattr(choice, "split_partially", kept)
    graph, cluster = step[0], small()
    settings = Settings(time_limit_s=0.0, deterministic=True)
    chosen = choose(step, cluster, model_costs(graph, cluster), settings, lambda _: None, cuts=[(2,)])
    (partial,) = found
    assert partial.candidate.fits and partial.candidate.makespan * TICK_S > chosen.chosen.makespan_s
    assert [kind.name for kind in chosen.kinds] == ["split 2", "data-parallel", "place"]


@pytest.mark.slow
def test_memory_that_holds_a_half_alone(step):
    """Where a split alone fits it is chosen; where nothing fits, the proof or what lacks is said."""
    graph, shaped = step
    split = divide(shaped, (2,), "exact", Rules(), seconds=60)
    roomy = time_split(graph, shaped, split, small(), Settings())
    peak = int(roomy.candidate.peak[1:].max())
    assert roomy.candidate.fits
    tight = time_split(graph, shaped, split, small(memory=peak - 1), Settings())
    assert not tight.candidate.fits or tight.candidate.rule.endswith("first in, first out")
    with pytest.raises(InfeasibleError, match="variables"):
        quick(step, small(memory=1 << 10), [(2,)])
    with pytest.raises((InfeasibleError, NothingFoundError), match=r"lacks|do not fit|more than"):
        quick(step, small(memory=peak // 2), [(2,)])


@pytest.mark.slow
def test_first_cuts_are_splits_themselves(step):
    """The same as if no more cuts had been made, with the bytes of their parts."""
    graph, shaped = step
    both = divide(shaped, (2, 2), "exact", Rules(), seconds=60)
    one, again = divide(shaped, (2,), "exact", Rules(), seconds=60), first_cuts(shaped, both, 1)
    assert (again.division, again.moved_bytes, again.bound_bytes) == (one.division, one.moved_bytes, one.bound_bytes)
    found = time_with_first_cuts((graph, shaped), both, load_cluster("v100x4"), Settings())
    assert [each.candidate.name for each in found] == ["split 2x2", "split 2"]


def failing(error):
    """A search that raises an error."""

    def search(*_, **__):
        raise error

    return search


def test_plans_of_one_board_are_not_the_steps(step, monkeypatch, tmp_path):
    """Nor those of a step whose long ops are cut: a watch is given neither."""
    asked = []

    def solved(graph, cluster, costs, settings, watch, earlier=None):
        asked.append((len(cluster.devices), isinstance(watch, PlanWatch), isinstance(watch, StageWatch)))
        return SimpleNamespace(plan=None, interrupted=False)

    monkeypatch.setattr(choice, "solve", solved)
    cluster = load_cluster("v100x4x2-25gbe")
    watch = JobContext(JobRequest(kind="solve"), None, tmp_path, lambda _: None, [])
    place_from_board(step[0], cluster, model_costs(step[0], cluster), Settings(), watch)
    assert [hears for _, *hears in asked] == [[False, True], [True, True]]
    assert asked[0][0] < asked[1][0] == len(cluster.devices)


ERRORS = [
    pytest.param(InputError("a description fails - mend it"), id="InputError", marks=pytest.mark.slow),
    pytest.param(SolverError("no HiGHS - install it"), id="SolverError", marks=pytest.mark.slow),
    pytest.param(ValueError("a mistake"), id="ValueError"),
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("search", "name"),
    [
        ("place_from_board", "place"),
        pytest.param("cut_and_time", "split 2", marks=pytest.mark.slow),
        pytest.param("split_partially", "both", marks=pytest.mark.slow),
        pytest.param("cut_along_batch", "data-parallel", marks=pytest.mark.slow),
    ],
)
def test_a_kind_that_fails_takes_no_other_along(step, monkeypatch, caplog, search, name, error):
    """Its row says why, and the shortest of the others is chosen; of a mistake of the program a warning is logged."""
    monkeypatch.setattr(choice, search, failing(error))
    found = quick(step, small(), [(2,)])
    (failed,) = [kind for kind in found.kinds if kind.name == name]
    assert str(error) in failed.why and not failed.fits and failed.makespan_s is None
    assert found.chosen.fits and not found.interrupted
    assert {kind.kind for kind in found.kinds if kind.fits} >= {"split", "place", "data-parallel"} - {failed.kind}
    assert bool(caplog.records) == isinstance(error, ValueError)


def test_a_step_that_cannot_be_cut_is_placed(step):
    """The cuts' rows have the reason, the placement is chosen, and nothing stands beside it."""
    found = quick((step[0], "op next: it takes the batch from an iterator"), load_cluster("v100x2-nvlink"), [(2,)])
    assert [kind.name for kind in found.kinds] == ["split 2", "place"] and found.chosen.kind == choice.PLACE
    assert not found.kinds[0].fits and "from an iterator" in found.kinds[0].why
    assert "from an iterator" in kinds_page(found)


@pytest.mark.parametrize("error", ERRORS)
def test_where_all_kinds_fail_the_first_failure_is_raised(step, monkeypatch, error):
    """With its own exit code."""
    for search in ("cut_and_time", "cut_along_batch", "place_from_board"):
        monkeypatch.setattr(choice, search, failing(error))
    with pytest.raises(type(error), match=str(error)):
        quick(step, small(), [(2,)])


@pytest.mark.parametrize(
    "search",
    [
        "place_from_board",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("split_partially", "cut_along_batch")),
    ],
)
def test_an_interruption_keeps_what_was_found(step, monkeypatch, search):
    """Nothing is searched for after it."""
    monkeypatch.setattr(choice, search, failing(KeyboardInterrupt()))
    found = quick(step, small(), [(2,)])
    assert found.interrupted and found.chosen.fits
    assert found.kinds[-1].why == "interrupted"


def test_an_interruption_within_a_kind_keeps_its_first_split(step, monkeypatch):
    """The split for bytes, where the one for seconds is interrupted; without any nothing is kept."""
    monkeypatch.setattr(timed_split, "priced_rules", failing(KeyboardInterrupt()))
    settings, cluster = Settings(time_limit_s=600.0), small()
    found = choose(step, cluster, model_costs(step[0], cluster), settings, lambda _: None, cuts=[(2,)])
    assert found.interrupted and [kind.name for kind in found.kinds] == ["split 2"] and found.chosen.fits
    monkeypatch.setattr(timed_split, "divide", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        quick(step, cluster, [(2,)])


@pytest.mark.slow
def test_one_board_is_placed_on_first(step):
    """All hosts and the GPUs near the first; the whole cluster is never worse, and neither is what is cut there."""
    graph, _ = step
    cluster = load_cluster("v100x8")
    costs = model_costs(graph, cluster)
    board, board_costs = first_board(cluster, costs)
    names = [device.name for device in board.devices]
    assert names == [device.name for device in cluster.devices if device.kind == "cpu" or device.name < "gpu:4"]
    assert board_costs.compute_s.shape == (graph.ops, len(names))
    at = {device.name: k for k, device in enumerate(cluster.devices)}
    for a, b in permutations(range(len(names)), 2):
        assert board.paths[a][b] == cluster.paths[at[names[a]]][at[names[b]]]
    quick, silent = Settings(time_limit_s=0.0, deterministic=True), lambda _: None
    (_, there), (_, outcome) = place_from_board(graph, cluster, costs, quick, silent)
    assert outcome.plan.makespan_s <= there.plan.makespan_s
    cut = split_partially(step, cluster, quick, [(board, there)], silent)
    alone = split_partially(step, board, quick, [(board, there)], silent)
    assert cut.candidate.makespan == alone.candidate.makespan and cut.sent_bytes == alone.sent_bytes
    assert cut.bench.problem.locations == len(cluster.devices)


@pytest.mark.parametrize("name", ["v100x2-nvlink", "v100x4"])
def test_a_cluster_may_be_one_board(step, name):
    """Then it is placed on at once."""
    cluster = load_cluster(name)
    assert first_board(cluster, model_costs(step[0], cluster)) is None


def test_data_parallelism_is_chosen_where_it_is_the_shortest(step, monkeypatch):
    """Whole variables on each device, half of the work, gradients added up before they are sent; its file is valid."""
    graph, shaped = step
    cluster = load_cluster("v100x2-nvlink")
    timed = cut_along_batch(step, cluster, Settings(), seconds=60)
    verify_split(loads_split(dumps_split(shaped, timed.split, time_limit_s=60.0), "split"), shaped)
    alone = float(np.nansum(model_costs(graph, cluster).compute_s[:, 1]))
    assert 0.5 * alone < timed.makespan_s < 1.5 * alone  # kernels are launches here, of any batch, and sums are more
    assert timed.candidate.peak[1:].min() > graph.param_bytes.sum()
    assert set(timed.split.division.variables) == {(WHOLE,)}
    monkeypatch.setattr(choice, "cut_and_time", failing(NothingFoundError("nothing divides")))
    monkeypatch.setattr(choice, "place_from_board", failing(NothingFoundError("no room")))
    chosen = quick(step, cluster, [(2,)]).chosen
    assert chosen.kind == "data-parallel" and chosen.makespan_s == timed.makespan_s


def test_cuts_for_so_many_workers():
    """One for all, one for each prime factor, whose first cuts come with it, and for fewer; none for one worker."""
    assert factorings(2) == ((2,),)
    assert factorings(6) == ((6,), (2, 3), (3,))
    assert factorings(8) == ((8,), (2, 2, 2), (4,))
    with pytest.raises(UsageError, match="two accelerators"):
        factorings(1)


@pytest.mark.slow
def test_solve_writes_what_it_chose(tmp_path):
    """A split as a file that pesto check confirms; kinds are told with their step, peak and whether they fit."""
    out = tmp_path / "best.json"
    words = ["--model", "rnnlm", "--variant", "tiny", "--cluster", "v100x2-nvlink", "--split", "auto", "-q"]
    done = run("solve", *words, "--time-limit", "1", "-o", out, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["strategy"] in ("split", "place", "both", "data-parallel")
    assert set(found["kinds"]) - {"both 2"} == {"place", "split 2", "data-parallel"}
    assert set(found["kinds"]["place"]) >= {"makespan_s", "peak_bytes", "fits"}
    assert run("check", out, "--json").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--split", "3x"], "workers '3x'"),
        (["--split", "4"], "for 4 workers, v100x2-nvlink has 2"),
        (["--split", "2", "--cdep", "x.json"], "--cdep is for placements alone"),
    ],
)
def test_words_that_do_not_go_with_splits(words, said):
    """Refused before anything is read."""
    done = run("solve", "--model", "rnnlm", "--cluster", "v100x2-nvlink", *words)
    assert isinstance(done.exception, UsageError) and said in str(done.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "rnnlm", "--workers", "4", "--cluster", "v100x2-nvlink"], "4 workers, v100x2-nvlink has 2"),
        (["step.shaped.json", "--workers", "2", "--cluster", "v100x2-nvlink"], "shapes alone cannot be timed"),
        (["ops", "--workers", "2"], "nothing is split - leave out --workers"),
    ],
)
def test_what_cannot_be_timed(words, said, tmp_path, monkeypatch):
    """Refused before anything is read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.shaped.json").write_text("{}")
    done = run("split", *words)
    assert isinstance(done.exception, UsageError) and said in str(done.exception)


@pytest.mark.parametrize(("gib", "code"), [(1e-6, Exit.INFEASIBLE), (1e-4, Exit.NOTHING)])
def test_a_split_that_does_not_fit(tmp_path, gib, code):
    """Variables that are too large are a proof; a peak that is too high is what lacks, and larger devices mend it."""
    words = ["split", "--model", "rnnlm", "--variant", "tiny", "--workers", "2", "--cluster"]
    preset = resources.files("pesto").joinpath("configs/clusters/v100x2-nvlink.toml").read_text()
    file = tmp_path / "small.toml"
    file.write_text(preset.replace("memory_gib = 16\n", f"memory_gib = {gib}\n"))
    done = run(*words, file)
    assert done.exception.exit_code == code and "larger devices" in str(done.exception)
    file.write_text(preset)
    assert run(*words, file).exit_code == 0


@pytest.mark.slow
def test_a_split_is_timed_on_a_cluster():
    """pesto split says its step and peak there, and by how much it does not fit."""
    words = ["split", "--model", "rnnlm", "--variant", "tiny", "--workers", "2"]
    found = json.loads(run(*words, "--cluster", "v100x2-nvlink", "--json").stdout)
    assert (
        found["makespan_s"] > 0
        and max(found["peak_bytes"].values()) > found["params_per_worker_bytes"]
        and found["fits"]
    )
    assert json.loads(run(*words, "--json").stdout)["makespan_s"] is None
