"""Plans: solved, verified, saved, loaded, refused; the authors' files."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pesto.core.cluster import Path
from pesto.core.errors import (
    InfeasibleError,
    InputError,
    MismatchError,
    NothingFoundError,
    PestoError,
    VerificationError,
)
from pesto.core.plans import plan_file
from pesto.core.plans.plan import control_edges, verify
from pesto.core.plans.plan_file import read_placement
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import formulate
from pesto.planning.solving.flow import solve

QUICK = Settings(time_limit_s=60, coarsen_to=8, search=False)


def fork(make_graph, scale=1):
    """Two chains of three 1 ms ops from one short source."""
    ops = [{"name": "x", "bytes": 1000, "s": 1e-6 * scale}]
    for side in "ab":
        for k in range(3):
            before = f"{side}{k - 1}" if k else "x"
            ops.append({"name": f"{side}{k}", "inputs": [before], "bytes": 1000, "s": 1e-3 * scale, "param": 100})
    return make_graph(ops)


@pytest.fixture
def case(make_graph, make_cluster, make_costs):
    """(graph, cluster, costs) of the fork on two GPUs."""
    graph, cluster = fork(make_graph), make_cluster()
    return graph, cluster, make_costs(graph, cluster)


SOLVED = []


@pytest.fixture
def plan(case):
    """The fork's plan; solved once for all tests, since plans never change."""
    if not SOLVED:
        SOLVED.append(solve(*case, QUICK, lambda _: None).plan)
    return SOLVED[0]


@pytest.mark.property
def test_more_memory_and_faster_links_never_hurt_and_times_scale(make_graph, make_cluster, make_costs) -> None:
    """Metamorphic: the optimum of the fork is 3 us + 3 ms; times k, and transfers with them, it is k times that."""
    makespans = []
    for memory, k in ((10**9, 1), (10**12, 1), (10**9, 3)):
        graph = fork(make_graph, scale=k)
        cluster = make_cluster(memory=memory, path=Path(latency_s=1e-6 * k, s_per_byte=1e-9 * k))
        found = solve(graph, cluster, make_costs(graph, cluster), QUICK, lambda _: None)
        makespans.append(found.plan.schedule.makespan)
    assert makespans[0] == makespans[1] == makespans[2] / 3


def test_the_fork_is_solved_to_its_optimum(case) -> None:
    """One chain a GPU: 1 us, 1 us + 1000 bytes at 1 ns = 2 us to the other GPU, then 3 ms; one GPU takes 6 ms."""
    heard = []
    found = solve(*case, QUICK, heard.append)
    assert found.plan.makespan_s == pytest.approx(3.003e-3)
    assert found.candidates["single"].makespan == 6_001_000
    assert found.candidates["list"] and found.candidates["coarse"] and found.candidates["expert"]
    assert [i.makespan_s for i in heard] == sorted((i.makespan_s for i in heard), reverse=True)
    assert found.plan.provenance.lower_bound_ticks <= found.plan.schedule.makespan
    assert found.plan.makespan_s <= min(c.timeline.makespan_s for c in found.candidates.values() if c and c.fits)


def test_what_is_saved_is_loaded(case, plan, tmp_path) -> None:
    """A plan survives the disk, byte for byte, and still verifies."""
    graph, cluster, costs = case
    plan_file.save(plan, tmp_path / "plan.json")
    again = plan_file.load(tmp_path / "plan.json")
    assert plan_file.dumps(again) == plan_file.dumps(plan)
    verify(again, graph, formulate(graph, costs, cluster, QUICK), cluster)


def test_a_plan_knows_the_layout_and_the_batch(case) -> None:
    """Both are those of the graph that was solved."""
    graph, cluster, costs = case
    found = solve(replace(graph, batch=32), cluster, costs, QUICK, lambda _: None).plan
    assert (found.provenance.graph_layout, found.provenance.graph_batch) == (graph.layout(), 32)
    assert found.provenance.graph_listing == graph.listing()


def test_older_plans_without_layout_and_batch_are_read(case, plan) -> None:
    """They verify by fingerprint and names alone."""
    graph, cluster, costs = case
    document = json.loads(plan_file.dumps(plan))
    for name in ("graph_layout", "graph_listing", "graph_batch"):
        del document["provenance"][name]
    older = plan_file.loads(json.dumps(document).encode(), "plan")
    assert (
        older.provenance.graph_layout == older.provenance.graph_listing == "" and older.provenance.graph_batch is None
    )
    verify(older, graph, formulate(graph, costs, cluster, QUICK), cluster)


def test_the_same_solve_gives_the_same_bytes(case) -> None:
    """Deterministic: no clock, no address, no random order in the file."""
    quiet = replace(QUICK, deterministic=True)
    first, second = (plan_file.dumps(solve(*case, quiet, lambda _: None).plan) for _ in range(2))
    assert first == second


def claim(plan, **changes):
    return replace(plan, provenance=replace(plan.provenance, **changes))


def later(s):
    """The whole step 1000 ticks later: valid, but not what its order leads to."""
    return replace(s, **{name: getattr(s, name) + 1000 for name in ("start", "finish", "sent_start", "sent_finish")})


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda p: replace(p, rank=p.rank[::-1]), VerificationError, "order"),
        (lambda p: replace(p, rank=np.zeros_like(p.rank)), VerificationError, "0..n-1"),
        (lambda p: replace(p, peak_bytes={**p.peak_bytes, "gpu:0": 1}), VerificationError, "memory"),
        (lambda p: replace(p, schedule=replace(p.schedule, start=p.schedule.start + 1)), VerificationError, "invalid"),
        (lambda p: claim(p, lower_bound_ticks=10**12), VerificationError, "lower bound"),
        (lambda p: claim(p, lower_bound_ticks=p.schedule.makespan - 1), VerificationError, "lower bound"),
        (lambda p: claim(p, lower_bound_ticks=-9), VerificationError, "lower bound"),
        (lambda p: claim(p, lower_bound_name="magic"), VerificationError, "lower bound"),
        (lambda p: claim(p, chosen="bogus"), VerificationError, "bogus"),
        (lambda p: claim(p, candidates_ticks={p.provenance.chosen: 5}), VerificationError, "chosen"),
        (lambda p: claim(p, candidates_fit={p.provenance.chosen: False}), VerificationError, "chosen"),
        (lambda p: claim(p, links="infinite"), VerificationError, "policies"),
        (lambda p: claim(p, transfers="free"), VerificationError, "policies"),
        (lambda p: claim(p, graph_fingerprint="0" * 64), MismatchError, "plan is for graph"),
        (lambda p: claim(p, graph_layout="0" * 64), MismatchError, "plan is for layout 0"),
        (lambda p: claim(p, graph_listing="0" * 64), MismatchError, "plan is for listing 0"),
        (lambda p: replace(p, names=p.names[::-1]), MismatchError, "lists its ops otherwise"),
        (lambda p: replace(p, tick_s=1e-12), VerificationError, "ticks"),
        (lambda p: replace(p, lanes=p.lanes[::-1]), VerificationError, "lanes"),
        (lambda p: replace(p, lane_device=("gpu:9",) * len(p.lanes)), VerificationError, "lanes"),
        (lambda p: replace(p, schedule=later(p.schedule)), VerificationError, "own times"),
    ],
)
def test_a_changed_plan_is_refused(case, plan, change, error, says) -> None:
    """Each edit breaks one promise of the plan."""
    graph, cluster, costs = case
    with pytest.raises(error, match=says):
        verify(change(plan), graph, formulate(graph, costs, cluster, QUICK), cluster)


def test_a_single_gpu_that_is_too_small_is_not_chosen(make_graph, make_cluster, make_costs) -> None:
    """Six variables of 100 bytes do not fit one GPU of 400, but two: the plan splits them."""
    graph, cluster = fork(make_graph), make_cluster(memory=5500)
    found = solve(graph, cluster, make_costs(graph, cluster), QUICK, lambda _: None)
    assert all(v <= 5500 for k, v in found.plan.peak_bytes.items() if k.startswith("gpu"))


def test_variables_that_cannot_fit_are_proven_infeasible(make_graph, make_cluster, make_costs) -> None:
    """600 bytes of variables on 2 x 250 bytes cannot fit, and that is a proof, not a failed search."""
    graph, cluster = fork(make_graph), make_cluster(memory=250)
    with pytest.raises(InfeasibleError, match="gpu memory"):
        solve(graph, cluster, make_costs(graph, cluster), QUICK, lambda _: None)


def test_activations_that_do_not_fit_say_how_much_is_missing_or_that_they_never_can(
    make_graph, make_cluster, make_costs
) -> None:
    """Every op's output has 1000 bytes and its input another 1000: nothing fits GPUs of 1500, which CP-SAT proves."""
    graph, cluster = fork(make_graph), make_cluster(memory=1500)
    costs = make_costs(graph, cluster)
    with pytest.raises(NothingFoundError, match="more than its"):
        solve(graph, cluster, costs, replace(QUICK, solver="list"), lambda _: None)
    with pytest.raises(InfeasibleError, match="fits in no order and no placement"):
        solve(graph, cluster, costs, QUICK, lambda _: None)


def test_control_edges_chain_each_device(case, plan) -> None:
    """With the graph's own edges they leave exactly the plan's order of each device."""
    graph = case[0]
    pairs = set(control_edges(plan, graph)) | set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    for d in range(len(plan.lanes)):
        on = [i for i in np.argsort(plan.rank).tolist() if plan.schedule.device[i] == d]
        assert all(pair in pairs for pair in itertools.pairwise(on))


def test_the_authors_files_come_back(case, plan, tmp_path) -> None:
    """part.json and cdep.json give the same placement and an order with the same step."""
    graph, cluster, costs = case
    part, cdep = tmp_path / "part.json", tmp_path / "cdep.json"
    part.write_bytes(plan_file.part_json(plan))
    cdep.write_bytes(plan_file.cdep_json(plan, graph))
    assert json.loads(part.read_text())[0] == {"x": plan.device_names()[0]}
    problem = formulate(graph, costs, cluster, QUICK)
    device, rank = read_placement(part, cdep, graph, problem, cluster)
    assert np.array_equal(device, plan.schedule.device)
    chained = [np.argsort(rank)[device[np.argsort(rank)] == d].tolist() for d in range(3)]
    planned = [np.argsort(plan.rank)[device[np.argsort(plan.rank)] == d].tolist() for d in range(3)]
    assert chained == planned


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[{"x": "gpu:0"}]', MismatchError),
        ('[{"x": "gpu:0"}, {"x": "gpu:1"}]', InputError),
        ('[{"nobody": "gpu:0"}]', MismatchError),
        ('{"x": "gpu:0"}', InputError),
    ],
)
def test_a_bad_part_file_is_refused(case, tmp_path, text, error) -> None:
    """Left out, twice, unknown, not a list: each one line."""
    graph, cluster, costs = case
    part = tmp_path / "part.json"
    part.write_text(text)
    with pytest.raises(error, match=r"part\.json"):
        read_placement(part, None, graph, formulate(graph, costs, cluster, QUICK), cluster)


def test_tensorflow_device_names_are_understood(case, plan, tmp_path) -> None:
    """/job:worker/device:GPU:1 is gpu:1; an unknown one is refused."""
    graph, cluster, costs = case
    problem = formulate(graph, costs, cluster, QUICK)
    part = tmp_path / "part.json"
    part.write_text(json.dumps([{n: "/job:worker/task:0/device:GPU:1"} for n in graph.names]))
    device, _ = read_placement(part, None, graph, problem, cluster)
    assert (problem.location[device] == 2).all()
    part.write_text(json.dumps([{n: "GPU:9"} for n in graph.names]))
    with pytest.raises(InputError, match="unknown device"):
        read_placement(part, None, graph, problem, cluster)


@given(data=st.data())
def test_a_damaged_plan_file_is_a_pesto_error(case, plan, data) -> None:
    """Cut anywhere, or with any byte changed, it loads and verifies or is refused in the project's own words."""
    graph, cluster, costs = case
    text = bytearray(plan_file.dumps(plan))
    at = data.draw(st.integers(0, len(text) - 1))
    if data.draw(st.booleans()):
        text = text[:at]
    else:
        text[at] = data.draw(st.integers(0, 255))
    try:
        verify(plan_file.loads(bytes(text), "plan"), graph, formulate(graph, costs, cluster, QUICK), cluster)
    except PestoError as error:
        assert "\n" not in str(error)
