"""Graphs of layers spread over devices: the least greatest load of all allocations, never above runs of an order."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from benchmarks.chain_families import network_dag
from solvers.pipelining import least_loads
from solvers.pipelining.layer_dag import LayerDag, busiest, contiguous_runs, knots
from solvers.pipelining.least_loads import least_dag_load
from solvers.pipelining.pipeline_bounds import packed_ticks


def by_definition(dag: LayerDag, device: tuple[int, ...]) -> int:
    """The busiest device, one layer and one edge at a time."""
    busy: dict[int, int] = {}
    for layer, d in enumerate(device):
        busy[d] = busy.get(d, 0) + int(dag.loads[layer])
    for u, v, ticks in zip(dag.src, dag.dst, dag.transfers, strict=True):
        if device[u] != device[v]:
            for end in (u, v):
                busy[device[end]] += int(ticks)
    return max(busy.values())


def drawn(seed: int) -> tuple[LayerDag, int, int | None]:
    """A graph of up to 7 layers, some tied, devices, and bytes of each that its weights may fit."""
    rng = np.random.default_rng(seed)
    found = network_dag(rng, int(rng.integers(1, 8)), tied=0.4)
    weights, devices = rng.integers(0, 9, found.layers), int(rng.integers(1, 4))
    dag = LayerDag(
        loads=found.loads, src=found.src, dst=found.dst, transfers=3 * found.transfers, group=found.group,
        weights=weights,
    )  # fmt: skip
    return dag, devices, int(weights.sum() // devices + rng.integers(4, 12)) if seed % 2 else None


def allowed(dag: LayerDag, device: tuple[int, ...], devices: int, memory: int | None) -> bool:
    """Whether ties are together and weights fit."""
    tied = all(len({device[at] for at in np.flatnonzero(dag.group == g)}) == 1 for g in set(dag.group.tolist()) - {-1})
    held = np.bincount(device, weights=dag.weights, minlength=devices).max()
    return tied and (memory is None or held <= memory)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_the_best_of_all_allocations(seed) -> None:
    """Exhaustively; ties are kept, weights fit, and what is told is what the definition says."""
    dag, devices, memory = drawn(seed + 20)
    every = [each for each in product(range(devices), repeat=dag.layers) if allowed(dag, each, devices, memory)]
    found = least_dag_load(dag, devices, memory, seconds=600)
    device = tuple(found.device.tolist())
    assert device in every and found.optimal
    assert found.T == by_definition(dag, device) == busiest(dag, found.device, devices)
    assert found.T == min(by_definition(dag, each) for each in every) <= found.contiguous


def test_runs_of_the_order_are_the_best_there_are(seeds) -> None:
    """Against every cut of the order."""
    for seed in seeds(25):
        dag, devices, memory = drawn(seed)
        given = knots(dag)
        order = least_loads._order(dag, given)
        m = len(order)
        found = contiguous_runs(given, order, devices, 10**9 if memory is None else memory)
        least = None
        for cuts in product(range(m + 1), repeat=devices - 1):
            bounds = [0, *sorted(cuts), m]
            device = np.zeros(m, dtype=np.int64)
            for d, (i, j) in enumerate(pairwise(bounds)):
                device[order[i:j]] = d
            laid = tuple(device[given.of].tolist())
            if allowed(dag, laid, devices, memory):
                least = min(by_definition(dag, laid), least or 10**9)
        assert (least is None) == (found.min() < 0)
        if least is not None:
            assert busiest(dag, found[given.of], devices) == least


def bound_by_force(seed: int) -> bool:
    """The linear program's bound is at most the best of all; whether it is above that of loads alone."""
    rng = np.random.default_rng(seed)
    dag, devices = network_dag(rng, int(rng.integers(2, 8)), tied=0.4), int(rng.integers(2, 4))
    dag = replace(dag, transfers=int(rng.integers(1, 4)) * dag.transfers)
    given = knots(dag)
    if not len(given.to):
        return False
    best = min(by_definition(dag, each) for each in product(range(devices), repeat=dag.layers)
               if allowed(dag, each, devices, None))  # fmt: skip
    least = packed_ticks(given.loads.tolist(), devices)
    start = contiguous_runs(given, least_loads._order(dag, given), devices, 10**9)
    known = busiest(dag, start[given.of], devices)
    found = least_loads._spread(given, start, known, {"devices": devices, "least": least, "seconds": 600.0})
    assert least <= found <= best, seed
    return found > least


@pytest.mark.slow
def test_the_bound_counts_transfers_and_is_below_all() -> None:
    """Up to 7 layers on 2 or 3 devices, against every allocation; in some it is more than loads alone say."""
    assert sum(bound_by_force(seed) for seed in range(2)) >= 1


@pytest.mark.slow
def test_the_bound_is_below_all_on_other_graphs(seeds) -> None:
    """The same."""
    assert sum(bound_by_force(100 + seed) for seed in seeds(6)) > len(seeds(6)) / 10


def test_ctrl_c_and_the_clock_keep_the_runs(monkeypatch) -> None:
    """Never above them, with a bound that holds; interrupted in CP-SAT, what annealing found is kept."""
    dag = network_dag(np.random.default_rng(1), 40)
    found = least_dag_load(dag, 4, seconds=-1)
    assert found.contiguous >= found.T and found.bound.value <= found.T

    def struck(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(least_loads, "asked_of", struck)
    monkeypatch.setattr(least_loads, "PARTS", 2)
    better = least_dag_load(dag, 4, seconds=600)
    assert better.interrupted and better.bound.value <= better.T < found.contiguous


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"loads": []}, "there are no layers - give at least one"),
        ({"loads": [1, -1]}, r"loads\[1\] is -1, out of range"),
        ({"dst": [2]}, r"dst\[0\] is 2, out of range"),
        ({"dst": [0]}, "edge 0 joins layer 0 with itself - leave it out"),
        ({"transfers": [1, 2]}, r"transfers has shape \(2,\), expected \(1,\)"),
    ],
)  # fmt: skip
def test_what_is_no_graph_is_refused(change, said) -> None:
    """With the first offender."""
    given = {"loads": [1, 2], "src": [0], "dst": [1], "transfers": [3]}
    with pytest.raises(ValueError, match=said):
        LayerDag(**{key: np.array(value, dtype=np.int64) for key, value in (given | change).items()})


def test_a_cycle_is_refused() -> None:
    """No order has it."""
    both = np.array([0, 1])
    dag = LayerDag(loads=np.array([1, 1]), src=both, dst=both[::-1], transfers=both)
    with pytest.raises(ValueError, match="form a cycle - leave one of them out"):
        least_dag_load(dag, 2)
