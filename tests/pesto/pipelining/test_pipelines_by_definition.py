"""Chains of steps, runs of schedules and their names, each against its definition, op by op and batch by batch."""

from math import ceil

import numpy as np
import pytest
from pipelines import small_chain
from training_steps import training_step

from pesto.core.errors import UsageError
from pesto.core.problem import COPIED, TICK_S
from pesto.core.step_parts import AFTER, BACKWARD, BEFORE, FORWARD
from pesto.inputs.cluster_file import load_cluster
from pesto.pipelining.max_load import chain_layers, spread_layers, step_layers
from pesto.pipelining.pattern_certificate import matches_schedule
from pesto.pipelining.replicas import Replicas, in_flight, run_replicas
from pesto.pipelining.schedules import NAMES, ChainRequest, check_name
from pesto.pipelining.staged_step import StagedStep
from pesto.pipelining.step_pipeline import shared_step
from pesto.pipelining.unrolled import rank_actions, unroll
from solvers.arrays import ints
from solvers.pipelining import chain as kinds
from solvers.pipelining.chain import Allocation, Machines, Pattern
from solvers.pipelining.flushed import gpipe, interleaved, one_f_one_b, round_robin, v_shaped, zero_bubble
from solvers.pipelining.one_f_one_b_star import stages_of, thinned
from solvers.pipelining.pattern_check import check


def drawn(seed: int, least: int = 2):
    """A chain of up to 7 layers, and each device's run of layers."""
    rng = np.random.default_rng(seed)
    chain = small_chain(rng, int(rng.integers(least, 8)))
    devices = int(rng.integers(1, chain.layers + 1))
    cuts = np.sort(rng.choice(np.arange(1, chain.layers), devices - 1, replace=False))
    return chain, Allocation(device=ints(np.searchsorted(cuts, np.arange(chain.layers), "right")), devices=devices)


def patterns(chain, allocation, batches: int):
    """Every named schedule with a pattern on one stage a device."""
    stages = stages_of(chain, allocation)
    period = max(1, int((stages.forward + stages.backward).max()))
    yield "1f1b*", thinned(chain, allocation, period, (1, 1))
    yield "thinned", thinned(chain, allocation, period, (2, 3))
    yield "gpipe", gpipe(chain, allocation, batches)
    yield "1f1b", one_f_one_b(chain, allocation, batches)
    yield "zero-bubble", zero_bubble(chain, allocation, batches)


def test_a_run_of_a_pattern_does_each_batch_once(seeds) -> None:
    """Of so many batches: each operation of the pattern for each, when the row of its batch says, from tick 0 on."""
    for seed in seeds(12):
        chain, allocation = drawn(seed)
        for _, pattern in patterns(chain, allocation, 3):
            run = unroll(chain, pattern, 5)
            rows = sorted(zip(run.start, run.kind, run.layer, run.batch, run.finish, strict=True))
            starts, seen = [], set()
            for batch in range(5):
                for r in range(len(pattern.kind)):
                    period, left = divmod(batch - int(pattern.shift[r]), pattern.k)
                    if left == 0:
                        starts.append(
                            (int(pattern.t[r]) + period * pattern.T, pattern.kind[r], pattern.layer[r], batch)
                        )
            first = min(starts)[0]
            wanted = sorted((start - first, *rest) for start, *rest in starts)
            assert [(start, *rest[:3]) for start, *rest in rows] == wanted
            seen = {(kind, layer, batch) for _, kind, layer, batch, _ in rows}
            assert len(seen) == len(rows) and run.step == max(row[4] for row in rows)
    with pytest.raises(ValueError, match="give 1 or more"):
        unroll(chain, pattern, 0)


def test_ranks_do_each_half_once_in_order(seeds) -> None:
    """A row a device: every batch's halves of its stage, as they start."""
    for seed in seeds(12):
        chain, allocation = drawn(seed)
        for name, pattern in patterns(chain, allocation, 3):
            run = unroll(chain, pattern, 4)
            ranks = list(range(allocation.devices))
            rows = [line.split(",") for line in rank_actions(allocation.stages, ranks, run).splitlines()]
            letters = "FIW" if name == "zero-bubble" else "FB"
            for stage, row in enumerate(rows):
                assert sorted(row) == sorted(f"{stage}{letter}{batch}" for letter in letters for batch in range(4))
                of = {(f"{stage}{'FB??IW'[kind]}{batch}"): start for start, kind, layer, batch in reversed(
                    list(zip(run.start.tolist(), run.kind, run.layer, run.batch, strict=True))
                ) if allocation.device[layer] == stage and kind not in (2, 3)}  # fmt: skip
                assert [of[action] for action in row] == sorted(of[action] for action in row)


def test_a_name_is_believed_of_its_own_schedule_alone(seeds) -> None:
    """Each pattern is what it is called; with a later row it is not, and under another name it seldom is."""
    for seed in seeds(12):
        chain, allocation = drawn(seed)
        for name, pattern in patterns(chain, allocation, 3):
            checked = check(chain, allocation, pattern)
            assert checked.valid and matches_schedule(name, chain, allocation, pattern, checked.in_flight)
            later = Pattern(
                k=pattern.k, T=pattern.T + 1, kind=pattern.kind, layer=pattern.layer, copy=pattern.copy,
                resource=pattern.resource, t=pattern.t, shift=pattern.shift,
            )  # fmt: skip
            if name != "1f1b*" or chain.loads.sum():
                assert not matches_schedule("gpipe", chain, allocation, later, checked.in_flight)
            for free in ("free", "somebody else's"):
                assert matches_schedule(free, chain, allocation, later, checked.in_flight)
            assert matches_schedule("exact", chain, allocation, later, checked.in_flight)


def test_shapes_belong_to_names(seeds) -> None:
    """Stages that go round are interleaved ones', and a V's are zero-bubble-v's."""
    for seed in seeds(8):
        chain, _ = drawn(seed, least=4)
        for name, allocation in (("interleaved-2", round_robin([1, 1, 1, chain.layers - 3], 2)),
                                 ("zero-bubble-v", v_shaped([1, 1, 1, chain.layers - 3]))):  # fmt: skip
            pattern = (interleaved if name == "interleaved-2" else zero_bubble)(chain, allocation, 4)
            flight = check(chain, allocation, pattern).in_flight
            assert matches_schedule(name, chain, allocation, pattern, flight)
            assert not matches_schedule("exact", chain, allocation, pattern, flight)
            assert not matches_schedule("1f1b", chain, allocation, pattern, flight)


def shared(seed: int):
    """A chain in stages, each of one to three devices."""
    rng = np.random.default_rng(seed)
    chain = small_chain(rng, int(rng.integers(2, 7)))
    stages = int(rng.integers(1, chain.layers + 1))
    first = ints([0, *np.sort(rng.choice(np.arange(1, chain.layers), stages - 1, replace=False))])
    counts = rng.integers(1, 4, stages)
    ends = np.cumsum(counts)
    devices = tuple(tuple(range(end - n, end)) for end, n in zip(ends.tolist(), counts.tolist(), strict=True))
    stage = np.searchsorted(first, np.arange(chain.layers), side="right") - 1
    homes = ints([devices[s][0] for s in stage])
    return chain, Replicas(first=first, devices=devices, homes=homes, in_turn=bool(seed % 2))


def test_shared_stages_take_whole_batches_in_order(seeds) -> None:
    """Each batch on one device of each stage, as evenly as can be; in turn, or so many that follow each other."""
    for seed in seeds(25):
        _, stages = shared(seed)
        taker = stages.taker(7)
        for s, devices in enumerate(stages.devices):
            counts = [int((taker[s] == device).sum()) for device in devices]
            assert sum(counts) == 7 and max(counts) - min(counts) <= 1
            changes = int((np.diff(taker[s]) != 0).sum())
            assert changes == (6 if stages.in_turn and len(devices) > 1 else min(len(devices), 7) - 1)


def test_runs_of_shared_stages_wait_for_what_they_need(seeds) -> None:
    """One thing at a time on a device, after what it reads and its transfer; none is shorter than the bound."""
    for seed in seeds(25):
        chain, stages = shared(seed)
        run = run_replicas(chain, stages, 5)
        at = {
            key: row
            for row, key in enumerate(zip(run.kind.tolist(), run.layer.tolist(), run.batch.tolist(), strict=True))
        }
        assert len(at) == 2 * chain.layers * 5 == len(run.kind)
        stage = stages.stage
        for (kind, layer, batch), row in at.items():
            before = (kind, layer - 1, batch) if kind == kinds.FORWARD else (kind, layer + 1, batch)
            wait = 0
            if before not in at:
                before = (kinds.FORWARD, layer, batch)
            elif stage[before[1]] != stage[layer]:
                total = int(chain.transfers[min(layer, before[1])])
                wait = total // 2 if kind == kinds.FORWARD else total - total // 2
            if before in at and before != (kind, layer, batch):
                assert run.start[row] >= run.finish[at[before]] + wait
        for device in set(run.resource.tolist()):
            mine = np.flatnonzero((run.resource == device) & (run.finish > run.start))
            order = mine[np.argsort(run.start[mine], kind="stable")]
            assert (run.finish[order][:-1] <= run.start[order][1:]).all()
        assert run.step >= shared_step(chain, stages, 5).value
        assert (in_flight(stages, run) <= 5).all() and (in_flight(stages, run) >= (chain.loads > 0)).all()


@pytest.fixture(name="staged", params=[0, 1, 2])
def _staged(request, make_graph):
    """A random step on four accelerators, four micro-batches."""
    graph = make_graph(training_step(request.param, layers=6, momentum=bool(request.param % 2)).ops)
    return StagedStep.of(graph, load_cluster("v100x4"), 4)


def test_a_chain_has_all_of_its_step(staged) -> None:
    """Ticks of each half and of updates, bytes of variables: each op's, at the layer where it is."""
    graph, part, chain = staged.one, staged.parts.part, staged.chain
    assert set(chain.layer.tolist()) <= set(range(chain.chain.layers)) and (chain.once >= 0).all()
    for layer in range(chain.chain.layers):
        held = int(graph.param_bytes[chain.home == layer].sum())
        assert held <= chain.chain.weights[layer]
        if not (part[chain.layer == layer] == BACKWARD).any():
            assert chain.chain.backward[layer] == 0
        if not (part[chain.layer == layer] == FORWARD).any():
            assert chain.chain.forward[layer] == 0
    assert chain.chain.forward.sum() > 0 < chain.chain.backward.sum()
    for edge in range(len(graph.src)):
        a, b = graph.src[edge], graph.dst[edge]
        if part[a] == part[b] == FORWARD:
            assert chain.layer[a] <= chain.layer[b]
        if part[a] == part[b] == BACKWARD:
            assert chain.layer[a] >= chain.layer[b]


def test_layers_of_a_step_send_each_tensor_once_to_each_reader(staged) -> None:
    """By a loop over tensors and readers, on links that are all alike; layers that grouped ops join are tied."""
    graph, part, chain, dag = staged.one, staged.parts.part, staged.chain, step_layers(staged)
    assert (dag.loads == chain.chain.loads).all() and (dag.src < dag.dst).all()
    paths = [staged.cluster.paths[a][b] for a in staged.fast for b in staged.fast if a != b]
    wanted = dict[tuple[int, int], int]()
    for tensor, maker in enumerate(graph.tensor_op.tolist()):
        readers = {int(chain.layer[graph.dst[e]]) for e in np.flatnonzero(graph.tensor == tensor)
                   if part[graph.dst[e]] != AFTER}  # fmt: skip
        once, size = part[maker] in (BEFORE, AFTER), int(graph.tensor_bytes[tensor])
        seconds = max(max(path.latency_s + size * path.s_per_byte, path.floor_s) for path in paths)
        for layer in readers - {int(chain.layer[maker])}:
            if not (once and size <= COPIED):
                pair = tuple(sorted((int(chain.layer[maker]), layer)))
                wanted[pair] = wanted.get(pair, 0) + ceil(seconds / TICK_S / (4 if once else 1))
    found = dict(zip(zip(dag.src.tolist(), dag.dst.tolist(), strict=True), dag.transfers.tolist(), strict=True))
    assert set(found) == set(wanted) and all(abs(found[pair] - wanted[pair]) <= 8 for pair in found)
    assert all(dag.group[a] == dag.group[b] for a, b in zip(chain.layer, chain.home, strict=True))


@pytest.mark.slow
def test_layers_of_a_chain_are_spread_below_its_runs(seeds) -> None:
    """Without time: the runs themselves, whose bound is no more than any device's share."""
    for seed in seeds(6):
        chain, allocation = drawn(seed)
        spread = spread_layers(chain_layers(chain), allocation.devices, None, seconds=-1.0)
        assert spread.bound.value <= spread.busiest <= spread.runs and spread.loads.sum() >= chain.loads.sum()
        assert spread.gap >= 0 and len(spread.device) == chain.layers


@pytest.mark.parametrize(
    ("more", "said"),
    [({"batches": 0}, "give 1 or more"), ({"batches": 1 << 13}, "or fewer"), ({"k": -1}, "none below 0"),
     ({"seconds": -1.0}, "none below 0"), ({"seconds": float("nan")}, "none below 0")],
)  # fmt: skip
def test_requests_out_of_range_are_refused(more, said) -> None:
    """By a ValueError with what would do."""
    with pytest.raises(ValueError, match=said):
        ChainRequest(chain=drawn(1)[0], machines=Machines.alike(2), **more)


def test_names_are_checked_against_what_else_is_asked() -> None:
    """Exact needs k, and stages that are not contiguous do not go with contiguous ones."""
    for name in NAMES:
        check_name(name, NAMES, k=1, contiguous=False)
    for name, k, contiguous, said in (
        ("exact", 0, False, "give k"),
        ("free", 1, True, "contiguous"),
        ("x", 0, False, "x"),
    ):
        with pytest.raises(UsageError, match=said):
            check_name(name, NAMES, k=k, contiguous=contiguous)
