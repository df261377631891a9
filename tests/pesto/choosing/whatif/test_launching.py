"""Launches as ops of their own: one at a time for each GPU, ahead of its kernels, and no part of modelled kernels."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import pesto as face
from pesto.choosing.whatif.rerun import Simulation, evaluator_of
from pesto.cli.main import pesto
from pesto.core.cluster import Cluster
from pesto.core.costs import MEASURED, Costs
from pesto.core.costs.analytical import LaunchCost, model_costs, split_launches
from pesto.core.errors import UsageError
from pesto.core.graph import MATMUL, PASSES, Graph
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.research.instances import coarsened
from solvers.checker import check
from solvers.timing.replay import replay

Ops = list[dict[str, Any]]


@pytest.fixture
def run(
    make_graph: Callable[..., Graph], make_cluster: Callable[..., Cluster], make_costs: Callable[..., Costs]
) -> Callable[..., Simulation]:
    """The step of some ops, each on the device of its place in `at` (cpu:0, gpu:0, gpu:1), in the order listed."""

    def simulated(ops: Ops, at: list[int], order: Any = None) -> Simulation:
        graph, cluster = make_graph(ops), make_cluster()
        costs = make_costs(graph, cluster)
        bench = evaluator_of(graph, cluster, costs, per_edge=False)
        rank = np.arange(len(ops)) if order is None else order
        placed = bench.ordered("test", "", np.array(at), rank)
        return Simulation(cluster=cluster, bench=bench, run=placed, costs=costs)

    return simulated


def chain(count: int, **more: Any) -> Ops:
    """Ops of 2 µs on a GPU, each reading the one before it."""
    return [
        {"name": f"{k}", "inputs": [f"{k - 1}"] if k else [], "s": 2e-6, "kinds": ["gpu"], **more} for k in range(count)
    ]


@pytest.mark.parametrize(("each_us", "step_us"), [(0, 6), (1, 7), (2, 8), (5, 17)])
def test_a_chain_of_kernels_takes_what_its_launches_leave_to_it(
    run: Callable[..., Simulation], each_us: float, step_us: float
) -> None:
    """Three kernels of 2 µs: behind the first launch where that is quick, else the last behind three launches."""
    found = run(chain(3), [1, 1, 1]).launched(each_us * 1e-6)
    assert found.makespan_s * 1e6 == pytest.approx(step_us) and found.count == 3


def test_each_gpu_has_launches_of_its_own_and_what_launches_nothing_has_none(run: Callable[..., Simulation]) -> None:
    """Two chains of two side by side on two GPUs take as long as one; a reshape waits for no launch."""
    ops = chain(2) + [{**op, "name": f"b{op['name']}", "inputs": [f"b{k}" for k in op["inputs"]]} for op in chain(2)]
    assert run(ops, [1, 1, 2, 2]).launched(5e-6).makespan_s == pytest.approx(12e-6)
    bare = run(chain(2, launches=False), [1, 1]).launched(5e-6)
    assert (bare.count, bare.makespan_s) == (0, pytest.approx(4e-6))


def test_a_launch_waits_for_what_a_host_sends(run: Callable[..., Simulation]) -> None:
    """2 µs on the host, 1 µs on the way, 5 µs of launching, 2 µs of kernel; the tensor is sent once."""
    ops = [{"name": "h", "s": 2e-6, "kinds": ["cpu"]}, {"name": "k", "s": 2e-6, "kinds": ["gpu"], "inputs": ["h"]}]
    found = run(ops, [0, 1]).launched(5e-6)
    assert found.makespan_s == pytest.approx(10e-6) and len(found.schedule.sent_payload) == 1


def test_schedules_with_launches_are_valid_and_launches_of_no_time_change_nothing(
    run: Callable[..., Simulation], seeds: Callable[[int], range]
) -> None:
    """Random steps on a host and two GPUs: the checker finds nothing, and with 0 s the step is that of the plan."""
    for seed in seeds(40):
        rng = np.random.default_rng(seed)
        ops = [
            {
                "name": f"{k}", "inputs": [f"{j}" for j in range(k) if rng.random() < 2 / (k + 1)],
                "bytes": int(rng.integers(0, 4000)), "s": float(rng.integers(0, 9)) * 1e-6,
                "kinds": [["cpu"], ["gpu"], ["gpu", "cpu"]][rng.integers(3)], "launches": bool(rng.random() < 0.8),
            }
            for k in range(rng.integers(1, 25))
        ]  # fmt: skip
        at = [0 if op["kinds"] == ["cpu"] else int(rng.integers(1, 3)) for op in ops]
        step = run(ops, at)
        some = step.launched(float(rng.integers(1, 9)) * 1e-6)
        assert check(some.problem, some.schedule) == ()
        assert step.launched(0.0).makespan_s == step.makespan_s


def test_modelled_kernels_are_without_the_launch_and_measured_ones_as_they_are(
    make_graph: Callable[..., Graph],
) -> None:
    """On a V100 a launch takes 5 µs, of which a matmul's own constant leaves a part; a profile says what it takes."""
    ops = [{"name": "matmul"}, {"name": "softmax"}, {"name": "add"}, {"name": "reshape", "launches": False}]
    rows = np.zeros((4, 12), dtype=np.int64)
    rows[0, :5], rows[1, :3] = (MATMUL, 512, 512, 512, 1), (PASSES, 3, 0)
    graph, cluster = make_graph(ops), load_cluster("v100x2-nvlink")
    graph = replace(graph, kernels=rows, flops=[2 * 512.0**3, 0, 0, 0], given_kinds=(), given_s=np.zeros((4, 0)))
    costs = model_costs(graph, cluster)
    apart = split_launches(graph, cluster, costs, LaunchCost())
    gpu = [d.kind for d in cluster.devices].index("gpu")
    less = (costs.compute_s - apart.kernel_s)[:, gpu] * 1e6
    assert 0 < less[0] <= 5 and less[1:].tolist() == pytest.approx([15, 5, 0])
    assert apart.launch_s[:, gpu] * 1e6 == pytest.approx([5, 15, 5, 0])
    seen = np.full((4, len(cluster.devices)), np.nan)
    seen[:2, gpu] = 7e-6
    measured = Costs(compute_s=costs.compute_s, origin=np.full(4, MEASURED), source="test", launch_s=seen)
    known = split_launches(graph, cluster, measured, LaunchCost())
    assert np.array_equal(known.kernel_s, costs.compute_s, equal_nan=True)
    assert known.launch_s[:, gpu] * 1e6 == pytest.approx([7, 7, 5, 0])
    asked = split_launches(graph, cluster, measured, LaunchCost(each_s=2e-6))
    assert asked.launch_s[:, gpu] * 1e6 == pytest.approx([2, 6, 2, 0])


@pytest.mark.parametrize("wrong", [-1e-6, float("nan"), 2.0])
def test_a_launch_out_of_range_is_refused(wrong: float) -> None:
    """Seconds below 0, above 1, and what is no number."""
    with pytest.raises(UsageError, match="give 0 to 1 s"):
        LaunchCost(each_s=wrong)


def test_the_command_line_takes_a_time_or_what_the_costs_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page and JSON of simulate; a coarse problem with a device more for each GPU; what is no time is refused."""
    monkeypatch.chdir(tmp_path)
    ops = [
        {"name": f"{k}", "inputs": [f"{k - 1}"] if k else [], "time_s": {"gpu": 2e-6}, "outputs": [0]} for k in range(3)
    ]
    Path("step.json").write_text(json.dumps({"format": "pesto-graph", "format_version": 1, "source": "3", "ops": ops}))
    face.save_plan(face.solve(face.load_graph("step.json"), time_limit_s=0, solver="list"), "plan.json")

    def said(*words: str) -> Any:
        return CliRunner().invoke(
            pesto, ["simulate", "plan.json", "--graph", "step.json", *words], standalone_mode=False
        )

    found = json.loads(said("--launch", "5us", "--json").stdout)
    assert found["launches"]["makespan_s"] == pytest.approx(17e-6) and found["launches"]["ops"] == 3
    assert "launches" in said("--launch", "costs").stdout
    assert "write 5us" in str(said("--launch", "5 apples").exception)
    plain, apart = (coarsened(Source(file=Path("step.json")), "v100x2-nvlink", Settings(coarsen_to=10), None, launch)
                    for launch in (None, LaunchCost(each_s=5e-6)))  # fmt: skip
    assert apart.problem.devices == plain.problem.devices + 2
    assert apart.problem.duration[:, -2:].max() >= 5000
    assert replay(apart.problem, *_together(apart.problem)).makespan >= 17_000


def _together(problem: Any) -> tuple[Any, Any]:
    """All on the first device that can run each, in topological order."""
    from solvers.arrays import rank_of
    from solvers.compiled.dag import topological_order

    return problem.allowed.argmax(axis=1), rank_of(topological_order(problem.tasks, problem.src, problem.dst))
