"""Old plans carried over to changed clusters and graphs: always valid, the old where nothing changed."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pesto.cli.main import pesto
from pesto.core.errors import FileError, InputError, UsageError
from pesto.core.files.graph_file import save
from pesto.core.plans import plan_file
from pesto.core.plans.plan import Plan
from pesto.core.plans.warm_start import carry_over
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.flow import EarlierPlans, solve
from pesto.planning.solving.tracker import SolveRecord, make_plan
from pesto.verbs.api import solve as api_solve
from solvers.bounds.evidence import FullBound
from solvers.checker import check
from solvers.heuristics.devices_of_location import devices_at
from solvers.structure.units import placeable_units

QUICK = Settings(time_limit_s=0, coarsen_to=8, solver="list")


def chains(count, length, *, bytes_=1000, first=0):
    """`count` independent chains of 1 ms ops; each chain's first op holds a variable."""
    ops = []
    for c in range(first, first + count):
        for k in range(length):
            inputs = [f"c{c}/{k - 1}"] if k else []
            ops.append({"name": f"c{c}/{k}", "inputs": inputs, "bytes": bytes_, "s": 1e-3, "param": 0 if k else 10})
    return ops


def solved(graph, cluster, costs, start=None):
    return solve(graph, cluster, costs, QUICK, lambda _: None, EarlierPlans(start=start))


def moved(old, graph, cluster, make_costs):
    """(carried, its candidate) of an old plan; the candidate's schedule passes the checker."""
    problem = formulate(graph, make_costs(graph, cluster), cluster, QUICK)
    found = carry_over(old, graph, problem, cluster)
    assert np.array_equal(np.sort(found.rank), np.arange(graph.ops))
    assert (found.rank[problem.src] < found.rank[problem.dst]).all()
    candidate = CandidateEvaluator.of(graph, problem).ordered("start", found.rule, found.device, found.rank)
    roomy = replace(problem, memory=np.zeros_like(problem.memory))
    assert not check(roomy, candidate.timeline.schedule)
    return found, candidate


def by_name(plan_or_found, names, lanes):
    device = plan_or_found.schedule.device if isinstance(plan_or_found, Plan) else plan_or_found.device
    return {name: lanes[d] for name, d in zip(names, device.tolist(), strict=True)}


def test_nothing_changed_gives_the_same_plan_back(make_graph, make_cluster, make_costs) -> None:
    """Same graph, same cluster: every op on its device, in its place, and so the same step."""
    graph, cluster = make_graph(chains(4, 3)), make_cluster()
    old = solved(graph, cluster, make_costs(graph, cluster)).plan
    found, candidate = moved(old, graph, cluster, make_costs)
    assert np.array_equal(found.device, old.schedule.device)
    assert candidate.makespan == old.schedule.makespan


def test_new_devices_stay_empty(make_graph, make_cluster, make_costs) -> None:
    """Two GPUs become four: the plan that is carried over uses the first two, and takes as long as before."""
    graph, two, four = make_graph(chains(4, 3)), make_cluster(gpus=2), make_cluster(gpus=4)
    old = solved(graph, two, make_costs(graph, two)).plan
    found, candidate = moved(old, graph, four, make_costs)
    assert candidate.makespan == old.schedule.makespan == 6_000_000
    assert by_name(found, graph.names, ["cpu:0", "gpu:0", "gpu:1", "gpu:2", "gpu:3"]) == by_name(
        old, graph.names, old.lanes
    )


def test_ops_of_devices_that_are_gone_spread_over_those_that_remain(make_graph, make_cluster, make_costs) -> None:
    """Four chains of 3 ms on four GPUs, of which two go: 6 ms, two chains on each, none torn apart.

    A chain's later ops are drawn to its first, which goes to the device with less; both devices end with 6 ms.
    """
    graph, four, two = make_graph(chains(4, 3)), make_cluster(gpus=4), make_cluster(gpus=2)
    old = solved(graph, four, make_costs(graph, four)).plan
    assert old.schedule.makespan == 3_000_000
    found, candidate = moved(old, graph, two, make_costs)
    assert candidate.makespan == 6_000_000
    at = by_name(found, graph.names, ["cpu:0", "gpu:0", "gpu:1"])
    assert all(len({at[f"c{c}/{k}"] for k in range(3)}) == 1 for c in range(4))


def test_another_name_of_the_same_kind_takes_over(make_graph, make_cluster, make_costs) -> None:
    """gpu:0 and gpu:1 become gpu:7 and gpu:8: first for first, second for second."""
    graph, cluster = make_graph(chains(2, 3)), make_cluster()
    old = solved(graph, cluster, make_costs(graph, cluster)).plan
    devices = [replace(d, name={"gpu:0": "gpu:7", "gpu:1": "gpu:8"}.get(d.name, d.name)) for d in cluster.devices]
    found, candidate = moved(old, graph, replace(cluster, devices=tuple(devices)), make_costs)
    assert np.array_equal(found.device, old.schedule.device)
    assert candidate.makespan == old.schedule.makespan


def test_a_kind_that_is_gone_leaves_all_of_another_open(make_graph, make_cluster, make_costs) -> None:
    """Without GPUs the ops go to the host, which they can all run on."""
    graph, cluster = make_graph(chains(2, 3)), make_cluster()
    old = solved(graph, cluster, make_costs(graph, cluster)).plan
    host = replace(cluster, devices=cluster.devices[:1], paths=((None,),), links=())
    found, candidate = moved(old, graph, host, make_costs)
    assert set(found.device.tolist()) == {0}
    assert candidate.makespan == 6_000_000


def test_new_ops_go_where_their_neighbours_are(make_graph, make_cluster, make_costs) -> None:
    """Each of two chains, one a GPU, is longer by one op: it runs on its chain's GPU, after it."""
    cluster = make_cluster()
    short, long = make_graph(chains(2, 3, bytes_=10**6)), make_graph(chains(2, 4, bytes_=10**6))
    old = solved(short, cluster, make_costs(short, cluster)).plan
    found, candidate = moved(old, long, cluster, make_costs)
    at = by_name(found, long.names, old.lanes)
    assert all(at[f"c{c}/3"] == at[f"c{c}/2"] for c in range(2))
    assert candidate.makespan == 4_000_000


def test_a_new_source_comes_just_before_what_it_feeds(make_graph, make_cluster, make_costs) -> None:
    """An op without inputs is not done first for want of an old place: the last op's source is ranked after the others.

    One chain on one GPU, and a source for its last op: in the order c0/0, c0/1, w, c0/2 nothing waits, 4 ms.
    """
    cluster = make_cluster(gpus=1)
    chain = chains(1, 3)
    old_graph = make_graph(chain)
    old = solved(old_graph, cluster, make_costs(old_graph, cluster)).plan
    fed = make_graph([*chain[:2], {"name": "w", "bytes": 10, "s": 1e-3}, {**chain[2], "inputs": ["c0/1", "w"]}])
    found, candidate = moved(old, fed, cluster, make_costs)
    assert candidate.makespan == 4_000_000
    assert found.rank.tolist() == [0, 1, 2, 3]


def test_another_model_is_refused(make_graph, make_cluster, make_costs) -> None:
    """No name in common: a usage error that names both graphs."""
    cluster = make_cluster()
    graph, other = make_graph(chains(1, 2)), make_graph(chains(1, 2, first=5), source="other")
    old = solved(graph, cluster, make_costs(graph, cluster)).plan
    with pytest.raises(UsageError, match="the plan to start from is for test; other has none of its ops"):
        solved(other, cluster, make_costs(other, cluster), old)


def test_a_start_is_the_first_plan_and_never_makes_the_result_worse(make_graph, make_cluster, make_costs) -> None:
    """The carried plan is told of first; the result is at least as good, and verified; without one there is no row."""
    graph, two, four = make_graph(chains(5, 3)), make_cluster(gpus=2), make_cluster(gpus=4)
    first = solved(graph, two, make_costs(graph, two))
    assert "start" not in first.candidates
    told = []
    again = solve(graph, four, make_costs(graph, four), QUICK, told.append, EarlierPlans(start=first.plan))
    assert told[0].name == "start"
    assert again.plan.schedule.makespan <= again.candidates["start"].makespan
    assert again.candidates["start"].rule.startswith("carried over from test, 15 of 15 ops known")


def test_a_start_that_does_not_fit_is_no_plan(make_graph, make_cluster, make_costs) -> None:
    """All variables on one GPU before, which has room for half of them now: the start does not fit, the plan does."""
    ops = [{**op, "param": 400} for op in chains(4, 1, bytes_=10)]
    graph, one, two = make_graph(ops), make_cluster(gpus=1), make_cluster(gpus=2, memory=900)
    old = solved(graph, one, make_costs(graph, one)).plan
    found = solve(graph, two, make_costs(graph, two), QUICK, lambda _: None, EarlierPlans(start=old))
    assert not found.candidates["start"].fits
    assert all(size <= 900 for name, size in found.plan.peak_bytes.items() if name.startswith("gpu"))


def test_start_from_a_file_in_the_api(make_graph, make_cluster, make_costs, tmp_path) -> None:
    """`pesto.solve(start=FILE)` begins from the plan in the file."""
    graph, cluster = make_graph(chains(3, 2)), make_cluster()
    plan_file.save(solved(graph, cluster, make_costs(graph, cluster)).plan, tmp_path / "old.json")
    found = api_solve(graph, cluster="v100x4", start=tmp_path / "old.json", time_limit_s=0, solver="list")
    assert "start" in found.provenance.candidates_ticks


def test_start_on_the_command_line(make_graph, tmp_path) -> None:
    """The old plan is read, shown as a candidate, and kept: an output of its name is refused, as is what is no plan."""
    step, old, new = (tmp_path / name for name in ("step.json", "old.json", "new.json"))
    save(make_graph(chains(3, 2)), step)

    def run(*words):
        words = ["solve", "--graph", step, "--time-limit", 0, "-q", *words]
        return CliRunner().invoke(pesto, [str(word) for word in words])

    assert run("-o", old).exit_code == 0
    before = old.read_bytes()
    done = run("--cluster", "v100x4", "--start", old, "-o", new, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["candidates"]["start"] > 0 and old.read_bytes() == before
    for words, error in (
        (("--start", old, "-o", old), UsageError),
        (("--start", step, "-o", new), InputError),
        (("--start", tmp_path / "none.json", "-o", new), FileError),
    ):
        assert isinstance(run(*words).exception, error), words


def anywhere(graph, cluster, costs):
    """A plan with every unit at a location drawn at random."""
    problem = formulate(graph, costs, cluster, QUICK)
    units, rng = placeable_units(problem), np.random.default_rng(graph.ops)
    location = np.array([rng.choice(np.flatnonzero(row)) for row in units.allowed])
    candidate = CandidateEvaluator.of(graph, problem).placed("random", "", devices_at(problem, location[units.unit]))
    record = SolveRecord(graph=graph, cluster=cluster, costs=costs, settings=QUICK, bound=FullBound(0, ""))
    return make_plan(record, candidate, {})


@st.composite
def edited(draw):
    """Ops of a random graph, and of an edit of it: ops dropped, added, given other inputs, groups and kinds."""
    size = draw(st.integers(2, 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def op(name, before):
        inputs = [str(x) for x in rng.permutation(before)[: rng.integers(0, 3)]]
        kinds = [("cpu", "gpu"), ("cpu", "gpu"), ("gpu",), ("cpu",)][rng.integers(0, 4)]
        made = {"name": name, "inputs": inputs, "bytes": int(rng.integers(0, 5000)), "kinds": kinds}
        made |= {"s": float(rng.integers(0, 9)) * 1e-6, "param": int(rng.integers(0, 3))}
        return made | ({"group": f"{kinds}{rng.integers(0, 3)}"} if rng.random() < 0.4 else {})

    def graph(names):
        return [op(name, names[:k]) for k, name in enumerate(names)]

    names = [f"n{k}" for k in range(size)]
    kept = [name for name in names if rng.random() < 0.7] or names[:1]
    after = [str(x) for x in rng.permutation(kept + [f"new{k}" for k in range(rng.integers(0, 6))])]
    return graph(names), graph(after), int(rng.integers(1, 4)), int(rng.integers(0, 5)), int(rng.integers(1, 3))


@given(edited())
def test_whatever_changes_the_result_is_valid(make_graph, make_cluster, make_costs, case) -> None:
    """Random graphs and edits, clusters of 1..3 and 0..4 GPUs and 1 or 2 cores: a permutation along the precedence,
    kinds and groups respected, and every known op whose group allows it on its device if that is still there."""
    before, after, gpus, then, cores = case
    if then == 0:
        after = [{**op, "kinds": ("cpu", "gpu")} for op in after]
    graph, cluster = make_graph(before), make_cluster(gpus=gpus, cores=cores)
    old = anywhere(graph, cluster, make_costs(graph, cluster))
    changed, other = make_graph(after), make_cluster(gpus=then)
    found, _ = moved(old, changed, other, make_costs)
    lanes = ["cpu:0", *(f"gpu:{k}" for k in range(then))]
    at, was = by_name(found, changed.names, lanes), dict(zip(old.names, old.device_names(), strict=True))
    kinds = {op["name"]: op["kinds"] for op in before}
    for op in after:
        name = op["name"]
        if "group" not in op and was.get(name) in lanes and op["kinds"] == kinds[name] and then:
            assert at[name] == was[name]
