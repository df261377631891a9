"""How far to trust a plan: errors are drawn as is said, alike for all, and what is said of them follows by hand."""

import inspect
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pesto
from pesto.core.cluster import Path
from pesto.core.errors import InputError, UsageError
from pesto.core.plans import plan_file
from pesto.core.plans.statements import unconfirmed_statements
from pesto.core.settings import Settings
from pesto.core.simulator import simulate
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.flow import solve
from pesto.planning.solving.trust import (
    DRAWS,
    OTHER,
    ErrorModel,
    ErrorSources,
    _draw_steps,
    factors,
    kind_of,
    least_p90,
    measure_trust,
    remake_candidates,
    solve_error_model,
    standardise,
)
from pesto.reporting.show.facts import trust_line
from pesto.reporting.show.solve_report import InputNames, solve_object, solve_page
from solvers.problem import FORBIDDEN

TYPES = ("MatMul", "Mul", "Conv2D", "Sum")
QUICK = Settings(time_limit_s=0, search=False, solver="list", deterministic=True)
INPUTS = InputNames(source=Source(model="nmt"), cluster="v100x2-nvlink")


@pytest.fixture
def make_bench(make_graph, make_cluster, make_costs):
    """(bench, cluster) of ops {..., type} on so many GPUs that a path joins."""

    def made(ops, **cluster):
        graph = make_graph([{"kinds": ("gpu",), **op} for op in ops])
        types = tuple(dict.fromkeys(op.get("type", "MatMul") for op in ops))
        type_of = np.array([types.index(op.get("type", "MatMul")) for op in ops])
        graph, machine = replace(graph, types=types, type_of=type_of), make_cluster(**cluster)
        return CandidateEvaluator.of(graph, formulate(graph, make_costs(graph, machine), machine, QUICK)), machine

    return made


@pytest.fixture
def random_case(make_bench):
    """Of a seed: (bench, cluster, three candidates on two GPUs); up to 20 ops of at least a millisecond each."""

    def made(seed, *, times=1.0):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 21))
        ops = [
            {
                "name": f"op{k}", "type": str(rng.choice(TYPES)), "s": times * float(rng.uniform(1e-3, 1e-2)),
                "bytes": int(times * 10**6) * int(rng.integers(1, 9)),
                "inputs": [f"op{j}" for j in range(k) if rng.random() < 0.3],
            }
            for k in range(n)
        ]  # fmt: skip
        path = Path(latency_s=times * 1e-4, s_per_byte=1e-9)
        bench, cluster = make_bench(ops, path=path, memory=10**12)
        places = [np.ones(n, np.int64), 2 * np.ones(n, np.int64), rng.integers(1, 3, n)]
        return bench, cluster, [bench.placed(f"c{k}", "", device) for k, device in enumerate(places)]

    return made


def told(found):
    """The line of a page, unbroken."""
    return " ".join(trust_line(found).split())


def seconds(spread):
    return [spread.p10_s, spread.p50_s, spread.p90_s]


@given(seed=st.integers(0, 2**32 - 1), noise=st.floats(0, 2), draws=st.integers(1, 40))
def test_a_drawn_step_is_that_of_the_reference_simulator(random_case, seed, noise, draws) -> None:
    """Times multiplied by the factors of each draw, in the simulator that shares no code with the compiled replay."""
    bench, cluster, found = random_case(seed)
    errors, problem = ErrorModel(noise=noise, draws=draws, seed=seed % 1000), bench.problem
    sources = ErrorSources.of(bench.graph, problem, [d.name for d in cluster.devices])
    common, steps = _draw_steps(bench, sources, found, errors, 0)
    chance = np.random.default_rng((errors.seed, 0))
    again = standardise(chance.standard_normal((draws, sources.count)))
    assert np.array_equal(again, common) and steps.shape == (draws, 3)
    for row, (of_op, of_payload) in zip(steps, factors(chance, sources, again, problem.payloads, errors), strict=True):
        duration = np.where(problem.duration == FORBIDDEN, FORBIDDEN, np.rint(problem.duration * of_op[:, None]))
        transfer = np.rint(problem.transfer * of_payload)
        times = replace(problem, duration=duration.astype(np.int64), transfer=transfer.astype(np.int64))
        wanted = [simulate(times, c.timeline.schedule.device, c.rank).schedule.makespan for c in found]
        assert row.tolist() == wanted


@given(seed=st.integers(0, 2**32 - 1))
def test_without_noise_it_is_the_step(random_case, seed) -> None:
    """Exactly, of the plan and of each rival; the shortest is so in every draw, and nothing explains anything."""
    bench, cluster, (plan, *rivals) = random_case(seed)
    found = measure_trust(bench, cluster, plan, rivals, ErrorModel(noise=0, draws=7))
    for each in (found.plan, *found.rivals.values()):
        assert seconds(each) == [each.step_s] * 3
    assert found.plan.step_s == plan.timeline.makespan_s
    least = min(each.step_s for each in (found.plan, *found.rivals.values()))
    assert found.plan.best == (1.0 if found.plan.step_s == least else 0.0)
    assert found.kinds == found.links == {}


@given(seed=st.integers(0, 2**32 - 1), noise=st.floats(0.01, 2), draws=st.integers(1, 60))
def test_what_is_said_is_consistent(random_case, seed, noise, draws) -> None:
    """p10 <= p50 <= p90; somebody is the shortest; shares of the variance add up to 1 at most, the largest first."""
    bench, cluster, (plan, *rivals) = random_case(seed)
    found = measure_trust(bench, cluster, plan, rivals, ErrorModel(noise=noise, draws=draws))
    every = (found.plan, *found.rivals.values())
    assert all(0 < each.p10_s <= each.p50_s <= each.p90_s for each in every)
    assert sum(each.best for each in every) == pytest.approx(1)
    shares = [*found.kinds.values(), *found.links.values()]
    assert all(share >= 0 for share in shares) and sum(shares) <= 1 + 1e-9
    assert list(found.kinds.values()) == sorted(found.kinds.values(), reverse=True)
    assert [r.step_s for r in found.rivals.values()] == sorted(r.step_s for r in found.rivals.values())
    assert found == measure_trust(bench, cluster, plan, rivals, ErrorModel(noise=noise, draws=draws))
    assert (
        draws == 1
        or found.plan != measure_trust(bench, cluster, plan, [], ErrorModel(noise=noise, draws=draws, seed=1)).plan
    )
    assert (draws >= 2 * len(shares)) if shares else True


@given(seed=st.integers(0, 2**32 - 1), noise=st.floats(0.01, 2))
def test_errors_are_common_to_plan_and_rivals(random_case, seed, noise) -> None:
    """All on one GPU and all on the other is the same step in each draw, so the plan is never beaten; with or without
    rivals the plan's own spread is the same."""
    bench, cluster, (one, other, _) = random_case(seed)
    found = measure_trust(bench, cluster, one, [other], ErrorModel(noise=noise, draws=30))
    assert found.plan.best == 1.0 and seconds(found.rivals["c1"]) == seconds(found.plan)
    alone = measure_trust(bench, cluster, one, [], ErrorModel(noise=noise, draws=30))
    assert seconds(alone.plan) == seconds(found.plan) and alone.rivals == {}


@given(seed=st.integers(0, 2**32 - 1), noise=st.floats(0, 1))
def test_times_that_are_all_eight_times_as_long_give_quantiles_that_are(random_case, seed, noise) -> None:
    """Up to rounding: half a tick for each of at most some hundred times, of steps of at least a million ticks."""
    short, long = (random_case(seed, times=times) for times in (1.0, 8.0))
    errors = ErrorModel(noise=noise, draws=20)
    one, eight = (measure_trust(b, cluster, found[2], found[:2], errors) for b, cluster, found in (short, long))
    assert seconds(eight.plan) == pytest.approx([8 * s for s in seconds(one.plan)], rel=1e-3)


def test_one_op_is_wrong_as_noise_says(make_bench) -> None:
    """The logarithm of its factor is normal of deviation 0.25: median 1, p90 exp(1.2816 · 0.25), of 10 000 draws."""
    bench, cluster = make_bench([{"name": "a", "s": 1.0}])
    found = measure_trust(
        bench, cluster, bench.placed("one", "", np.array([1])), [], ErrorModel(noise=0.25, draws=10_000)
    )
    wide = math.exp(1.2816 * 0.25)
    assert seconds(found.plan) == pytest.approx([1 / wide, 1, wide], rel=0.02)
    # Half of the variance is the kind's, half the op's own.
    assert found.kinds == {"matmul": pytest.approx(0.5, abs=0.03)}


def test_kinds_explain_as_much_as_their_time_squared(make_bench) -> None:
    """40 matmuls of 3 ms and 40 products of 1 ms in a row: own errors average out, 0.75² : 0.25² is 90 % and 10 %."""
    ops = [
        {"name": f"{t}{k}", "type": t, "s": s, "inputs": [f"{t}{k - 1}"] if k else []}
        for t, s in (("MatMul", 3e-3), ("Mul", 1e-3))
        for k in range(40)
    ]
    bench, cluster = make_bench(ops)
    found = measure_trust(
        bench, cluster, bench.placed("one", "", np.ones(80, np.int64)), [], ErrorModel(noise=0.1, draws=1000)
    )
    assert list(found.kinds) == ["matmul", OTHER]
    assert list(found.kinds.values()) == pytest.approx([0.9, 0.1], abs=0.03)
    assert sum(found.links.values()) < 0.03


def test_links_err_too(make_bench) -> None:
    """A tensor of 100 ms between ops of a tick: its step errs as it does, by half for its kind of link."""
    bench, cluster = make_bench([{"name": "a", "s": 1e-9, "bytes": 10**8}, {"name": "b", "s": 1e-9, "inputs": ["a"]}])
    found = measure_trust(
        bench, cluster, bench.placed("two", "", np.array([1, 2])), [], ErrorModel(noise=0.25, draws=1000)
    )
    assert list(found.links) == ["cpu:0-gpu:0"] and found.links["cpu:0-gpu:0"] == pytest.approx(0.5, abs=0.06)
    assert found.plan.p90_s / found.plan.p50_s == pytest.approx(math.exp(1.2816 * 0.25), rel=0.03)


def test_a_step_that_takes_no_time_cannot_err(make_bench) -> None:
    bench, cluster = make_bench([{"name": "a", "s": 0.0}, {"name": "b", "s": 0.0}])
    found = measure_trust(bench, cluster, bench.placed("one", "", np.array([1, 1])), [], ErrorModel(noise=2, draws=50))
    assert seconds(found.plan) == [0, 0, 0] and found.kinds == {}
    assert told(found).endswith("(50 draws); no rival fits the memory")


@given(st.integers(2, 60), st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_common_errors_are_of_mean_0_and_variance_1_and_do_not_correlate(rows, columns, seed) -> None:
    """Where there are rows enough, and each column stays near what was drawn; else they are as drawn."""
    normal = np.random.default_rng(seed).standard_normal((rows, columns))
    found = standardise(normal)
    if rows < columns + 2:
        assert found is normal
        return
    assert np.allclose(found.mean(axis=0), 0) and np.allclose(found.T @ found / rows, np.eye(columns))
    assert all(a @ b > 0 for a, b in zip(found.T, (normal - normal.mean(axis=0)).T, strict=True))


def test_kinds_of_ops() -> None:
    """By type; of what is not known, the rest."""
    kinds = {
        "matmul": ("MatMul", "BatchMatMulV2", "Einsum", "_FusedMatMul"),
        "convolution": ("Conv2D", "Conv3D", "_FusedConv2D", "Conv"),
        "convolution gradient": ("Conv2DBackpropInput", "Conv3DBackpropFilterV2"),
        "depthwise convolution": ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput"),
        "update": ("ResourceApplyAdam", "ApplyGradientDescent", "AssignVariableOp", "ResourceScatterAdd"),
        "reduction": ("Softmax", "FusedBatchNormV3", "MaxPoolGrad", "Sum", "BiasAddGrad", "L2Loss"),
        "data movement": ("ConcatV2", "Transpose", "StridedSlice", "GatherV2", "ReadVariableOp"),
        "loop or call": ("While", "StatelessIf", "PartitionedCall"),
        "recurrent cell": ("CudnnRNNV3", "LSTMBlockCell"),
        "random": ("RandomUniform", "StatelessRandomNormalV2"),
        OTHER: ("Mul", "AddV2", "Tanh", "", "MyOp", "ConvertToCooTensor", "Summary"),
    }
    assert {(kind_of(t), t) for types in kinds.values() for t in types} == {
        (k, t) for k, ts in kinds.items() for t in ts
    }


@pytest.fixture
def near(make_bench):
    """(bench, cluster, on two GPUs, on one): a, b, c and d of 5.1 ms and four kinds; what a sends takes 14.9 ms.

    a on a GPU of its own is 20 ms, of which most is one tensor's; all on one are 20.4 ms, which err apart.
    """
    ops = [{"name": name, "s": 5.1e-3, "type": t} for name, t in zip("abcd", TYPES, strict=True)]
    ops[0]["bytes"] = 14_899_000
    bench, cluster = make_bench([*ops, {"name": "z", "s": 0.0, "inputs": [*"abcd"], "type": "Mul"}])
    two = bench.placed("two", "two", np.array([1, 2, 2, 2, 2]))
    one = bench.placed("one", "one", np.array([1, 1, 1, 1, 1]))
    assert (two.makespan, one.makespan) == (20_000_000, 20_400_000)
    return bench, cluster, two, one


def test_the_robust_choice_is_by_p90(near) -> None:
    """Deviations of 15.7 and 10.2 ms at noise 1: the longer one has the lesser p90, and its rule says that it was."""
    bench, cluster, two, one = near
    chosen = least_p90(bench, cluster, [two, one], ErrorModel(draws=1000))
    assert chosen.name == "one" and chosen.rule == "one; of least p90 among 2 within 5.0% of the shortest"
    found = measure_trust(bench, cluster, two, [one], ErrorModel(draws=1000))
    assert found.rivals["one"].p90_s < found.plan.p90_s and "one has a lower p90" in told(found)
    assert least_p90(bench, cluster, [two], ErrorModel()) is two
    assert least_p90(bench, cluster, [two, one], ErrorModel(noise=0)).name == "two"


@pytest.fixture
def planned(near, make_costs, monkeypatch):
    """(graph, cluster, costs, a solve with other settings, which finds these two candidates alone)."""
    bench, cluster, two, one = near
    costs = make_costs(bench.graph, cluster)

    def stage(*_):
        yield from (replace(two, name="single"), replace(one, name="list"))
        return bench.problem

    monkeypatch.setattr("pesto.planning.solving.flow.baselines", stage)
    monkeypatch.setattr("pesto.planning.solving.flow.multilevel", lambda *_: nothing(bench.problem))
    monkeypatch.setattr("pesto.planning.solving.flow.solve_exactly", lambda *_, **__: None)
    return (
        bench.graph, cluster, costs,
        lambda **more: solve(bench.graph, cluster, costs, replace(QUICK, **more), lambda _: None),
    )  # fmt: skip


def nothing(problem):
    """A stage that finds no candidate."""
    yield from ()
    return problem, ()


def test_a_robust_plan_may_be_longer_and_says_so(planned) -> None:
    """The page, the file and the check of its statements; a plan that is not robust is the shortest."""
    graph, cluster, costs, solved = planned
    plain, robust = solved(), solved(robust=True)
    assert (plain.plan.provenance.chosen, robust.plan.provenance.chosen) == ("single", "list")
    assert "robust" not in plain.plan.provenance.settings and robust.plan.provenance.settings["robust"] is True
    text = " ".join(solve_page(robust, {}, "plan.json", INPUTS).split())
    assert "2.0% shorter, of greater p90" in text and "of least p90 among 2" in text and " trust " in text
    assert "of greater p90" not in solve_page(plain, {}, "plan.json", INPUTS)
    said = solve_object(robust, {}, "plan.json")["trust"]
    assert said == asdict(robust.trust) and said["rivals"]["single"]["p90_s"] > said["plan"]["p90_s"]
    assert robust.trust.draws == 5 * plain.trust.draws
    again = plan_file.loads(plan_file.dumps(robust.plan), "plan.json")
    assert unconfirmed_statements(again, graph, cluster, costs)["settings"]["robust"] is True


def test_a_plan_is_the_shortest_candidate_or_nearly_where_it_is_robust(planned) -> None:
    """A file that says otherwise is refused: a candidate shorter by 2 % without robust, or by 6 % with it."""
    graph, cluster, costs, solved = planned
    plan = solved(robust=True).plan
    made = plan.provenance
    for settings, ticks, says in (
        ({**made.settings, "robust": False}, made.candidates_ticks, "shorter than the chosen one -"),
        (made.settings, {**made.candidates_ticks, "single": 19_200_000}, "by more than 5.0%"),
    ):
        told = replace(plan, provenance=replace(made, settings=settings, candidates_ticks=ticks))
        with pytest.raises(pesto.VerificationError, match=says):
            unconfirmed_statements(told, graph, cluster, costs)


def test_draws_of_a_solve_are_fewer_for_more_ops(random_case) -> None:
    """Never below 32; by the number of ops, not by the clock."""
    bench, _, _ = random_case(3)
    assert solve_error_model(bench, Settings(seed=4)) == ErrorModel(draws=DRAWS, seed=4)
    assert solve_error_model(bench, Settings(robust=True)) == ErrorModel(draws=5 * DRAWS)
    large = replace(bench, problem=_Many())
    assert solve_error_model(large, Settings()).draws == 32


class _Many:
    """Stands for a problem of a million tasks."""

    tasks = 10**6


def test_rivals_are_made_anew_and_none_is_the_plan(random_case) -> None:
    """What a solve makes before its exact solver; the plan itself, and what is like it, is none of its rivals."""
    bench, cluster, _ = random_case(11)
    made = list(remake_candidates(bench, cluster))
    assert {"single", "expert", "list", "levels"} <= {c.name for c in made}
    best = min(made, key=lambda c: c.makespan)
    found = measure_trust(bench, cluster, best, made, ErrorModel(draws=3))
    assert 0 < len(found.rivals) <= 5
    assert all(name.split(" ")[0] in {c.name for c in made} for name in found.rivals)


def test_as_many_draws_from_python_as_by_default() -> None:
    """The command line has the constant's."""
    assert inspect.signature(pesto.simulate).parameters["draws"].default == DRAWS == ErrorModel().draws


BAD = {
    "noise": ((-0.1, 2.5, math.nan, math.inf, "much", True, None), "give a number from 0 to 2, such as 0.25"),
    "draws": ((0, -3, 10_001, 2.5, True), "give a whole number from 1 to 10000"),
    "seed": ((-1, 2**31, 0.5), "give a whole number from 0 to 2147483647"),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (values, _) in BAD.items() for value in values])
def test_a_number_out_of_range_is_refused_in_one_line(name, value) -> None:
    with pytest.raises(UsageError, match=BAD[name][1]) as refused:
        ErrorModel(**{name: value})
    assert "\n" not in str(refused.value) and name in str(refused.value)


def test_times_beyond_what_can_be_added_up_are_refused_and_cost_no_plan(make_bench, make_costs) -> None:
    """130 years in a row, of at most 146 that 64 bits hold: at noise 0.25 some draw is longer."""
    ops = [{"name": f"op{k}", "s": 8.2e6, "inputs": [f"op{k - 1}"] if k else []} for k in range(500)]
    bench, cluster = make_bench(ops)
    one = bench.placed("one", "", np.ones(500, np.int64))
    with pytest.raises(InputError, match="give less noise") as refused:
        measure_trust(bench, cluster, one, [], ErrorModel())
    assert "\n" not in str(refused.value)
    assert measure_trust(bench, cluster, one, [], ErrorModel(noise=0)).plan.p90_s == one.timeline.makespan_s
    found = solve(bench.graph, cluster, make_costs(bench.graph, cluster), QUICK, lambda _: None)
    assert found.trust is None and solve_object(found, {}, "plan.json")["trust"] is None
    assert "\ntrust " not in solve_page(found, {}, "plan.json", INPUTS)


def test_costs_of_a_preset_with_real_types() -> None:
    """Two towers on a preset: whatever a solve says of rivals names candidates that it has."""
    graph = pesto.load_graph("tests/data/two-towers.graph.json")
    cluster = load_cluster("v100x2-nvlink")
    found = solve(graph, cluster, load_costs(graph, cluster, None), QUICK, lambda _: None)
    assert set(found.trust.rivals) <= set(found.candidates) and "trust" in found.stages_s
