"""A chain on devices: what is chosen fits and is checked, what is called optimal is, and a step is its pattern, run."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from periods_by_force import least_of_all, one_fits, partitions
from pipelines import chain_with_idle_layers

from benchmarks.chain_families import make_case
from pesto.core.errors import InfeasibleError, InputError, NothingFoundError, UsageError
from pesto.pipelining import schedules
from pesto.pipelining.pipeline import ALL, PERIODIC, THESE_STAGES, WHOLE_HALVES, find_pipeline, period_curve
from pesto.pipelining.schedules import NAMES, ChainRequest
from pesto.pipelining.unrolled import rank_actions, unroll
from solvers.pipelining import within_memory
from solvers.pipelining.any_allocation import LoadAllocation, greatest_load
from solvers.pipelining.chain import BACKWARD, FORWARD, INPUT_GRADIENT, Allocation, Chain, Machines, MemoryModel
from solvers.pipelining.flushed import gpipe, one_f_one_b
from solvers.pipelining.one_f_one_b_star import thinned
from solvers.pipelining.pattern_check import check
from solvers.pipelining.pipeline_bounds import PeriodBound

HALVES = ((4, 8), (6, 12), (5, 9), (7, 13), (3, 6), (8, 15), (8, 15), (4, 8), (6, 11), (6, 11), (3, 5), (2, 3))
TWELVE = Chain(
    forward=[forward for forward, _ in HALVES],
    backward=[backward for _, backward in HALVES],
    weights=[1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 32, 16],
    activation=[16, 16, 8, 8, 8, 4, 4, 4, 2, 2, 1, 1],
    output=[0, 16, 16, 8, 8, 8, 4, 4, 4, 2, 2, 1, 1],
    transfers=[8, 8, 4, 4, 4, 2, 2, 2, 1, 1, 0],
)


def asked(memory=None, devices=4, **more):
    """Twelve layers on four devices, memory as the paper counts it."""
    given = {"chain": TWELVE, "machines": Machines.alike(devices, memory), "model": MemoryModel.PAPER}
    return ChainRequest(**given | more)


@pytest.mark.parametrize(("memory", "period"), [(None, 52), (160, 58), (100, 72), (70, Fraction(201, 2)), (50, 171)])
def test_the_least_period_that_fits_is_chosen(memory, period):
    """As docs/internals/stages.md says of this chain; what is chosen fits, what does not is said to lack memory."""
    found = find_pipeline(asked(memory))
    assert found.chosen.period == period and found.chosen.fits and found.chosen.periodic
    assert found.bound.value <= found.stage_bound.value <= period
    assert found.gap == pytest.approx(float(period / found.bound.value) - 1)
    assert [each.name for each in found.schedules] == list(NAMES)
    for each in found.schedules:
        if each.peaks is not None:
            assert each.fits == (memory is None or int(each.peaks.max()) <= memory) == (not each.why)
    assert 0 <= found.bubble < 1 and found.step_bound.value <= found.chosen.step


@pytest.fixture
def searches(monkeypatch):
    """Seconds that each search by CP-SAT is given; it uses them all and finds nothing."""
    clock, given = [0.0], []

    def search(seconds):
        given.append(seconds)
        clock[0] += seconds

    def least(_chain, _machines, *, seconds):
        search(seconds)

    def within(wanted, *_):
        search(wanted.seconds)
        return SimpleNamespace(allocation=None, pattern=None, infeasible=False, interrupted=False)

    def exactly(question):
        search(question.seconds)
        return SimpleNamespace(pattern=None, infeasible="")

    monkeypatch.setattr(schedules, "CLOCK", lambda: clock[0])
    for name, replaced in (("least_load", least), ("least_anywhere", within), ("exact", exactly)):
        monkeypatch.setattr(schedules, name, replaced)
    return given


def test_the_time_is_of_all_searches_together(searches):
    """Half of 40 s for the exact schedule, 5 for loads, the rest for stages in memory; of 8 s the loads have 2."""
    found = find_pipeline(asked(100, k=2, contiguous=False, seconds=40.0))
    assert searches == [20.0, 5.0, 15.0] and found.chosen.fits
    searches.clear()
    find_pipeline(asked(100, k=2, contiguous=False, seconds=8.0))
    assert searches == [4.0, 2.0, 2.0]
    searches.clear()
    find_pipeline(asked(100, k=2, seconds=40.0))
    assert searches == [40.0]


def test_no_search_begins_once_the_time_is_over(searches, monkeypatch):
    """Making contiguous stages took longer than the time; a time of 0 is no limit that was reached."""
    late = asked(100, k=2, contiguous=False, seconds=40.0).begun()
    monkeypatch.setattr(schedules, "CLOCK", lambda: 50.0)
    found = {each.name: each for each in find_pipeline(late).schedules}
    assert searches == [] and found["exact"].why == found["free"].why == schedules.TIME_OVER
    assert found["1f1b*"].fits
    find_pipeline(asked(100, k=2, contiguous=False, seconds=0.0))
    assert searches == [0.0, 0.0, 0.0]


def test_stages_that_need_not_be_contiguous(monkeypatch):
    """Without memory they are as short as any can be; where that exceeds the memory, contiguous ones are taken."""
    monkeypatch.setattr(schedules, "MOST_SECONDS", 600.0)
    found = find_pipeline(asked(contiguous=False, seconds=600))
    assert (found.chosen.name, found.chosen.period, found.optimal_among) == ("free", 45, ALL)
    assert not found.chosen.allocation.contiguous and found.chosen.fits and found.gap == 0


def other_stages(*devices):
    """In place of CP-SAT: these stages, and that none is below 46 ticks a batch."""
    allocation = Allocation(device=np.array(devices), devices=4)
    bound = PeriodBound(name="CP-SAT", value=Fraction(46))
    return lambda chain, *_, **__: LoadAllocation(
        allocation=allocation, T=greatest_load(chain, allocation), bound=bound
    )


@pytest.mark.slow
def test_stages_that_need_not_be_contiguous_fit_the_memory(monkeypatch):
    """They are shorter than contiguous ones, their bound holds for all; what was found before Ctrl-C is kept."""
    monkeypatch.setattr(schedules, "least_load", other_stages(0, 1, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3))
    monkeypatch.setattr(within_memory, "streamed", lambda *_, **__: ())
    found = find_pipeline(asked(160, contiguous=False, seconds=600))
    assert found.chosen.name == "free" and found.chosen.fits and int(found.chosen.peaks.max()) <= 160
    assert 46 <= found.chosen.period < 58 and not found.chosen.allocation.contiguous
    assert (found.bound.name, found.bound.value) == ("CP-SAT", 46)

    def struck(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(schedules, "least_load", struck)
    found = find_pipeline(asked(160, contiguous=False))
    assert found.interrupted and found.chosen.period == 58
    assert [each.name for each in found.schedules] == ["1f1b*", "thinned", "exact", "free"], "and nothing after it"
    assert find_pipeline(asked(160, contiguous=False), "1f1b").chosen.name == "1f1b", "what was asked for is made"


def test_a_search_that_fails_costs_nothing_else(monkeypatch):
    """Its row says what failed; the best of all others is taken."""

    def failing(*_, **__):
        raise RuntimeError("CP-SAT failed (-9): ")

    monkeypatch.setattr(schedules, "least_load", failing)
    monkeypatch.setattr(schedules, "exact", failing)
    found = find_pipeline(asked(160, contiguous=False, k=1))
    said = [each.why for each in found.schedules if each.name in {"exact", "free"}]
    assert said == ["its solver failed: CP-SAT failed (-9): "] * 2
    assert found.chosen.period == 58 and not found.interrupted


def test_what_is_called_optimal_is():
    """Of one layer a device nothing is shorter at all; without memory none of these stages; else of fewer schedules."""
    same = Chain(forward=[1, 1], backward=[2, 2], weights=[1, 1], activation=[1, 1], output=[1, 1, 1], transfers=[0])
    assert find_pipeline(ChainRequest(chain=same, machines=Machines.alike(2))).optimal_among == ALL
    assert find_pipeline(asked()).optimal_among == THESE_STAGES
    assert find_pipeline(asked(100)).optimal_among == PERIODIC
    one = find_pipeline(asked(60, devices=13, model=MemoryModel.RECEIVED))
    assert (one.optimal_among, one.stage_bound.name) == (WHOLE_HALVES, "in flight")
    assert find_pipeline(asked(70)).optimal_among == f"{PERIODIC} and its thinnings"
    assert find_pipeline(asked(100), "gpipe").optimal_among is None


def test_a_named_schedule_is_taken():
    """Also one that does not fit; one that there is not, and one that was not made, are refused."""
    found = find_pipeline(asked(100), "1f1b")
    assert found.chosen.name == "1f1b" and not found.chosen.fits and "device 0" in found.chosen.why
    with pytest.raises(UsageError, match="gpipe"):
        find_pipeline(asked(), "gpip")
    with pytest.raises(UsageError, match="give k too"):
        find_pipeline(asked(), "exact")
    with pytest.raises(NothingFoundError, match="two stages a device need 26 layers"):
        find_pipeline(asked(devices=13), "interleaved-2")


def test_memory_that_nothing_fits_is_told_with_what_does():
    """The remedy works; a device of one byte less fits nothing."""
    with pytest.raises(InfeasibleError, match="give 50 bytes"):
        find_pipeline(asked(40))
    assert find_pipeline(asked(50)).chosen.fits
    with pytest.raises(InfeasibleError):
        find_pipeline(asked(49))


@pytest.mark.slow
def test_memory_that_may_be_enough_is_not_called_too_little():
    """Between what nothing is below and what is found, where received inputs count, no proof is claimed."""
    received = {"model": MemoryModel.RECEIVED}
    with pytest.raises(NothingFoundError, match=r"were found that fit 52 bytes .* give 53 bytes"):
        find_pipeline(asked(52, **received))
    with pytest.raises(InfeasibleError):
        find_pipeline(asked(51, **received))
    assert find_pipeline(asked(53, **received)).chosen.fits


@pytest.mark.parametrize("seed", range(8))
def test_two_stages_a_device_hold_all_layers(seed):
    """Each stage has a layer, however unequal they are, also where some take no ticks."""
    rng = np.random.default_rng(seed)
    ticks = rng.integers(0, 2, 9) * rng.integers(1, 2**50, 9)
    chain = replace(TWELVE, forward=[*ticks.tolist(), 0, 0, 7], weight_gradient=[])
    named = {each.name: each for each in find_pipeline(asked(chain=chain)).schedules}
    assert len(named["interleaved-2"].allocation.stages) == len(named["zero-bubble-v"].allocation.stages) + 1 == 8


def test_two_stages_a_device_are_cut_by_their_sum():
    """A table, 16 equal layers and a head of 2.6: the head's device has little else to do."""
    none = [0] * 18
    chain = Chain(
        forward=[10, *[100] * 16, 260], backward=[20, *[200] * 16, 520], weights=none, activation=none,
        output=[0, *none], transfers=none[1:],
    )  # fmt: skip
    for name, before in (("interleaved-2", 29100), ("zero-bubble-v", 27780)):
        found = find_pipeline(asked(chain=chain, batches=16), name)
        loads = np.bincount(found.chosen.allocation.device, weights=chain.loads)
        assert loads.max() == 1500 and found.chosen.step < before  # of stages of equal shares


@pytest.mark.parametrize("seed", range(6))
def test_a_step_is_its_pattern(seed):
    """Each half of each batch once, no resource twice at once, batch after batch a period apart, nothing too early."""
    chain = make_case("random-chain", seed, layers=7, devices=3).chain
    cut = Allocation(device=np.array([0, 0, 1, 1, 1, 2, 2]), devices=3)
    for pattern in (thinned(chain, cut, 2 * int(chain.loads.sum()), (2, 3)), gpipe(chain, cut, 5)):
        run = unroll(chain, pattern, 5)
        keys = list(zip(run.kind.tolist(), run.layer.tolist(), run.batch.tolist(), strict=True))
        at = {key: k for k, key in enumerate(keys)}
        assert len(at) == len(keys) and {batch for _, _, batch in at} == set(range(5))
        for batch in range(5):
            for layer in range(6):
                assert run.finish[at[FORWARD, layer, batch]] <= run.start[at[FORWARD, layer + 1, batch]]
                assert run.finish[at[BACKWARD, layer + 1, batch]] <= run.start[at[BACKWARD, layer, batch]]
            assert run.finish[at[FORWARD, 6, batch]] <= run.start[at[BACKWARD, 6, batch]]
        for resource in set(run.resource.tolist()):
            busy = np.flatnonzero((run.resource == resource) & (run.finish > run.start)).tolist()
            mine = sorted((int(run.start[k]), int(run.finish[k])) for k in busy)
            assert all(one[1] <= other[0] for one, other in pairwise(mine))
        assert run.start.min() == 0 and run.step == run.finish.max()


def test_devices_without_a_layer_idle():
    """More devices than layers are no error."""
    found = find_pipeline(asked(devices=20))
    assert found.chosen.allocation.devices == 20 and len(found.chosen.allocation.stages) <= 12
    assert {each.name for each in found.schedules if each.pattern is None} >= {"interleaved-2", "zero-bubble-v"}


def test_ranks_do_what_the_schedule_does():
    """A row a rank; each stage's halves of each batch once, in the order in which they start."""
    found = find_pipeline(asked(batches=4), "zero-bubble")
    rows = [
        line.split(",")
        for line in rank_actions(found.chosen.rows, range(found.request.devices), found.chosen.run).splitlines()
    ]
    assert len(rows) == 4 and sum(map(len, rows)) == 4 * 4 * 3
    assert rows[0][0] == "0F0" and rows[3][:2] == ["3F0", "3I0"]
    assert {action[1] for row in rows for action in row} == {"F", "I", "W"}
    first = {}
    run = found.chosen.run
    stage = np.repeat(np.arange(4), np.diff([*found.chosen.allocation.stages[:, 0].tolist(), 12]))
    for kind, layer, batch, start in zip(run.kind, run.layer, run.batch, run.start, strict=True):
        letter = {FORWARD: "F", INPUT_GRADIENT: "I"}.get(int(kind), "W")
        if int(kind) in (FORWARD, INPUT_GRADIENT, 5):
            first.setdefault(f"{stage[layer]}{letter}{batch}", int(start))
    for row in rows:
        assert [first[action] for action in row] == sorted(first[action] for action in row)


@pytest.mark.parametrize("contiguous", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_more_memory_is_never_longer(contiguous):
    """Along the curve each way falls; cuts for the memory are never above fixed ones, thinned never above 1F1B*.

    Stages that need not be contiguous are never above these, and fit less memory.
    """
    points = period_curve(asked(contiguous=contiguous, seconds=2.0), 6 if contiguous else 3)
    assert [memory for memory, _ in points] == sorted({memory for memory, _ in points})
    for (_, one), (_, other) in combinations(points, 2):
        assert all(other[key] <= one[key] for key in one if one[key] is not None)
    for _, row in points:
        ways = [row[key] for key in ("bound", "free", "thinned", "joint", "fixed") if row[key] is not None]
        assert ways == sorted(ways) and (row["free"] is None) == contiguous


def test_what_cannot_be_asked():
    """Said before anything is done."""
    for wrong in ({"batches": 0}, {"k": -1}, {"seconds": -1.0}, {"seconds": float("nan")}):
        with pytest.raises(ValueError, match="give"):
            asked(**wrong)
    with pytest.raises(ValueError, match="0 batches"):
        unroll(TWELVE, find_pipeline(asked()).chosen.pattern, 0)


@pytest.mark.parametrize("batches", [1, 4])
def test_layers_that_take_no_time_do_not_lengthen_a_step(batches):
    """At either end of a chain they are done in their batch's own turn, whichever schedule it is."""
    busy, ends = {"forward": [3, 2, 4, 3], "backward": [4, 4, 5, 4]}, ([0, 1, 2, 3], [0, 0, 1, 2, 3, 3])
    steps = []
    for halves, device in ((busy, ends[0]), ({key: [0, *ticks, 0] for key, ticks in busy.items()}, ends[1])):
        layers = len(device)
        chain = Chain(
            **halves,
            weights=[0] * layers,
            activation=[1] * layers,
            output=[0] * (layers + 1),
            transfers=[0] * (layers - 1),
        )
        allocation = Allocation(device=device, devices=4)
        made = (gpipe(chain, allocation, batches), one_f_one_b(chain, allocation, batches))
        steps.append([unroll(chain, pattern, batches).step for pattern in made])
    assert steps[0] == steps[1]


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.property) for seed in range(20, 120))]
)
def test_what_fits_is_planned_also_where_layers_take_no_time(seed):
    """What is called impossible is so by enumeration; all else is answered, or refused as not found."""
    chain, devices, memory = chain_with_idle_layers(seed)
    model = list(MemoryModel)[seed % 2]
    given = asked(chain=chain, machines=Machines.alike(devices, memory), model=model, batches=3)
    runs = [device for device in partitions(chain.layers, devices) if list(device) == sorted(device)]
    fitting = [device for device in runs if one_fits(chain, device, memory, model is MemoryModel.PAPER)]
    try:
        found = find_pipeline(given)
    except InfeasibleError:
        assert not fitting
    except NothingFoundError as error:
        assert "were found" in str(error)
    else:
        chosen = found.chosen
        assert check(chain, chosen.allocation, chosen.pattern, memory, model).valid
        least = least_of_all(chain, devices, 1, memory, model is MemoryModel.PAPER) if chosen.pattern.k == 1 else None
        assert least is None or found.bound.value <= least
        assert tuple(chosen.allocation.device.tolist()) in fitting


def test_a_chain_without_ticks_is_refused():
    """In a line with a remedy."""
    none = [0] * 12
    with pytest.raises(InputError, match="no layer takes any ticks - give"):
        find_pipeline(asked(chain=replace(TWELVE, forward=none, backward=none, weight_gradient=[])))
