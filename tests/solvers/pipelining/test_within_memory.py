"""Any allocation within memory: equal to enumeration of allocations and schedules, never above contiguous stages."""

from fractions import Fraction

import numpy as np
import pytest
from periods_by_force import least_of_all, least_on, least_ticks, one_fits, partitions
from pipelines import chain_with_idle_layers, small_chain

from benchmarks.chain_families import make_case
from solvers.arrays import ints
from solvers.pipelining import within_memory
from solvers.pipelining.chain import Allocation, Chain, Machines, MemoryModel
from solvers.pipelining.contiguous import best_cuts, bytes_lacking, period_bound
from solvers.pipelining.one_f_one_b_star import least_period, thinned
from solvers.pipelining.pattern_check import check
from solvers.pipelining.pipeline_bounds import best, of_all, of_allocation
from solvers.pipelining.quick_period import NONE, ground, lacking, quick_period
from solvers.pipelining.within_memory import PeriodSearchSpec, least_anywhere, roomy_memory


@pytest.fixture(scope="module")
def races(stub):
    """CP-SAT in one process for all, whose start takes longer than most races; not in this one, for its libraries."""
    with stub("races") as running:
        yield running


@pytest.fixture
def here(monkeypatch, races):
    """It is asked in place of a process each."""

    def streamed(_, given, *__, **___):
        races.stdin.write(b"%d\n" % len(given.splitlines()) + given)
        races.stdin.flush()
        while line := races.stdout.readline().strip():
            yield line

    monkeypatch.setattr(within_memory, "streamed", streamed)


def asked(chain, devices, memory, model, **more) -> PeriodSearchSpec:
    """On equal devices, with time enough and little search before the proof."""
    machines = Machines.alike(devices, memory)
    return PeriodSearchSpec(
        **{"chain": chain, "machines": machines, "model": model, "seconds": 600, "rounds": 1, **more}
    )


def drawn(seed: int, most: int) -> tuple[Chain, int, int, MemoryModel]:
    """A chain of up to so many layers, devices, bytes of each, and how they count."""
    rng = np.random.default_rng(seed)
    chain, devices = small_chain(rng, int(rng.integers(2, most + 1)), 3, 5), int(rng.integers(2, 4))
    model = list(MemoryModel)[seed % 2]
    return (
        chain,
        devices,
        max(0, bytes_lacking(chain, Machines.alike(devices, 0), model) + int(rng.integers(-2, 8))),
        model,
    )


def equals_enumeration(seed: int, most: int, k: int) -> bool:
    """One random chain; whether the best is better than contiguous stages."""
    chain, devices, memory, model = drawn(seed, most)
    least = least_of_all(chain, devices, k, memory, model is MemoryModel.PAPER)
    found = least_anywhere(asked(chain, devices, memory, model, k=k))
    if least is None:
        assert found.pattern is None and found.infeasible, seed
        return False
    assert found.pattern.period == found.least == Fraction(least, k), seed
    assert check(chain, found.allocation, found.pattern, memory, model).valid
    cuts = best_cuts(chain, Machines.alike(devices, memory), model)
    return cuts is None or found.pattern.period < cuts.period


@pytest.mark.slow
def test_the_best_of_all_allocations_and_schedules(here, seeds) -> None:
    """Up to 5 layers on 3 devices, one batch a period, both models; many are better than contiguous ones."""
    assert sum(equals_enumeration(seed, 5, 1) for seed in seeds(10)) > len(seeds(10)) / 6


@pytest.mark.slow
def test_the_best_of_all_allocations_with_two_batches_a_period(here, seeds) -> None:
    """Up to 3 layers."""
    assert sum(equals_enumeration(seed, 3, 2) for seed in seeds(3)) > len(seeds(3)) / 10


@pytest.mark.parametrize("seed", range(60))
def test_layers_that_take_no_ticks_hold_what_enumeration_says(here, seed) -> None:
    """Nothing where they are undone at once: schedules, bounds, and what is said not to fit, on 1 to 4 devices."""
    chain, devices, memory, model = *chain_with_idle_layers(seed), list(MemoryModel)[seed % 2]
    paper = model is MemoryModel.PAPER
    least = least_of_all(chain, devices, 1, memory, paper)
    found = least_anywhere(asked(chain, devices, memory, model))
    assert found.infeasible == (found.pattern is None) == (least is None)
    assert least is None or found.pattern.period == found.least == least
    if least is None:
        assert best_cuts(chain, Machines.alike(devices, memory), model) is None
        return
    assert best(of_all(chain, devices, memory, model)).value <= least
    for device in partitions(chain.layers, devices):
        if one_fits(chain, device, memory, paper):
            bounds = of_allocation(chain, Allocation(device=device, devices=devices), memory, model)
            own = least_ticks(chain, device, 1, memory, paper)
            assert best([each for each in bounds if each.name != "in flight"]).value <= own
    cuts, runs = (
        best_cuts(chain, Machines.alike(devices, memory), model),
        [p for p in partitions(chain.layers, devices) if ordered(p)],
    )
    if period_bound(chain, Machines.alike(devices, memory), model) is None:
        assert not any(one_fits(chain, device, memory, paper) for device in runs)
    if cuts is not None:
        pattern = thinned(chain, cuts.allocation, cuts.T, cuts.keep)
        assert check(chain, cuts.allocation, pattern, memory, model).valid


def ordered(device: tuple[int, ...]) -> bool:
    """Whether each device has one run of layers."""
    return list(device) == sorted(device)


def test_what_no_contiguous_stages_do(here) -> None:
    """Lemma 2's chain fits on none of them; Theorem 6's takes k - 1 times as long on them; both are proven."""
    for name, parameters in (("one-two-one", {"bounded": 1}), ("arbitrarily-longer", {"k": 3})):
        case = make_case(name, **parameters)
        found = least_anywhere(asked(case.chain, case.devices, case.memory, MemoryModel.RECEIVED))
        assert found.pattern.period == found.least == case.least
    none = least_anywhere(asked(case.chain, case.devices, case.memory - 1, MemoryModel.RECEIVED))
    assert none.infeasible and none.pattern is None


def test_the_answer_is_never_above_where_it_starts(monkeypatch) -> None:
    """Without time it is the start; Ctrl-C keeps what was found by then; long chains improve without the exact one."""
    case = make_case("convolution-chain", 1)
    cuts = best_cuts(case.chain, Machines.alike(case.devices, case.memory), MemoryModel.PAPER)
    start = cuts.allocation, thinned(case.chain, cuts.allocation, cuts.T, cuts.keep)
    wanted = asked(case.chain, case.devices, case.memory, MemoryModel.PAPER, seconds=-1)
    assert least_anywhere(wanted, start).pattern is start[1]

    def struck(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(within_memory, "streamed", struck)
    wanted = asked(case.chain, case.devices, case.memory, MemoryModel.PAPER)
    found = least_anywhere(wanted, start)
    assert found.interrupted and found.least is None and found.pattern.period < cuts.period
    assert not found.allocation.contiguous
    assert check(case.chain, found.allocation, found.pattern, case.memory, MemoryModel.PAPER).valid


@pytest.mark.slow
def test_a_quick_schedule_is_1f1b_star_on_contiguous_stages(seeds) -> None:
    """Never longer in the paper's model, where that is the least of one batch a period."""
    for seed in seeds(40):
        rng = np.random.default_rng(seed)
        chain, devices = small_chain(rng, int(rng.integers(1, 9)), 7), int(rng.integers(1, 5))
        memory = bytes_lacking(chain, Machines.alike(devices, 0), MemoryModel.PAPER) + int(rng.integers(0, 9))
        device = best_cuts(chain, Machines.alike(devices, memory), MemoryModel.PAPER).allocation
        found = quick_period(
            ground(chain, Machines.alike(devices, memory), MemoryModel.PAPER),
            device.device,
            int(chain.loads.sum()) + 99,
        )
        assert found <= least_period(chain, device, memory, MemoryModel.PAPER).period


@pytest.mark.parametrize(("memory", "period"), [(8, 2), (7, 4), (4, 4), (3, NONE)])
def test_a_quick_period_has_room_for_its_batches(chain, memory, period) -> None:
    """Two layers of 1 + 1 ticks, 4 bytes a batch, a device each: ticks 0 to 4 are two batches at 2, and one at 4.

    At 3 ticks the last half waits a tick for the first, and two batches meet. In 3 bytes not even one fits.
    """
    on = ground(chain([1, 1], [1, 1], activation=[4, 4]), Machines.alike(2, memory), MemoryModel.PAPER)
    assert quick_period(on, np.array([0, 1]), 9) == period
    assert lacking(on, np.array([0, 1])) == 2 * max(0, 4 - memory)


@pytest.mark.parametrize(("memory", "period"), [(15, 2), (14, 4), (11, 4), (10, 6), (9, NONE)])
def test_a_quick_period_has_room_for_what_is_sent(chain, memory, period) -> None:
    """The same with 3 bytes sent for a tick each way: ticks 0, 1, 2, 3, 4 and 5 of the six operations.

    The first device keeps 4 bytes in ticks 0 to 6 and 3 from 4 on: 15 at 2 ticks, 11 at 4. At 3 the link is taken, so
    it keeps three batches until tick 8, and 3 bytes; at 5 its own first half is in the way, and it needs 11. The second
    has what it receives in ticks 1 to 4, its 4 bytes from 2 to 4 and what it sends from 3 to 5: 10 at 3.
    """
    sent = chain([1, 1], [1, 1], activation=[4, 4], output=[0, 3, 0], transfers=[2])
    on = ground(sent, Machines.alike(2, memory), MemoryModel.RECEIVED)
    assert quick_period(on, np.array([0, 1]), 6) == period
    assert lacking(on, np.array([0, 1])) == max(0, 10 - memory)


def test_no_period_need_be_longer_than_a_batch_on_the_slowest(chain) -> None:
    """1 + 2 and 3 + 4 ticks at half speed, and 5 on a link of speed 1/3, of three devices: 6, 14 and 15."""
    machines = Machines(speed=(Fraction(1), Fraction(1, 2), Fraction(2)), links={(0, 2): Fraction(1, 3)})
    spec = PeriodSearchSpec(chain=chain([1, 2], [3, 4], transfers=[5]), machines=machines)
    assert within_memory._PeriodSearch(spec, None, None).longest == 6 + 14 + 15


SPEEDS = (Fraction(1, 2), Fraction(2, 3), Fraction(1), Fraction(3, 2), Fraction(2))


@pytest.mark.property
def test_the_best_of_all_allocations_to_unequal_devices(here, seeds) -> None:
    """Up to 4 layers on 2 or 3 devices of any speeds, bytes and links: as enumerated, also where nothing fits."""
    found, none = 0, 0
    for seed in seeds(6):
        rng = np.random.default_rng(seed)
        chain, devices = small_chain(rng, int(rng.integers(2, 5)), 3, 5), int(rng.integers(2, 4))
        model, paper = list(MemoryModel)[seed % 2], list(MemoryModel)[seed % 2] is MemoryModel.PAPER
        least = bytes_lacking(chain, Machines.alike(devices, 0), model)
        memory = ints(rng.integers(max(0, least - 4), least + 8, devices))
        speed = tuple(SPEEDS[at] for at in rng.integers(0, len(SPEEDS), devices).tolist())
        links = {(0, 1): SPEEDS[int(rng.integers(0, len(SPEEDS)))]}
        machines = Machines(speed=speed, memory=memory, links=links)
        answer = least_anywhere(PeriodSearchSpec(chain=chain, machines=machines, model=model, seconds=600, rounds=1))
        wanted = least_on(chain, speed, links, memory.tolist(), paper)
        if wanted is None:
            assert answer.pattern is None and answer.infeasible, seed
            none += 1
            continue
        assert answer.pattern.period == answer.least == wanted, seed
        assert check(chain, answer.allocation, answer.pattern, memory, model, machines).valid
        found += 1
    assert found > none


def test_unequal_devices(here) -> None:
    """A slow device gets the short layer, one with little memory the light one, and a slow link is not crossed."""
    chain = Chain(
        forward=[2, 1], backward=[4, 2], weights=[1, 5], activation=[1, 1], output=[0, 0, 0], transfers=[0]
    )  # fmt: skip
    slow = Machines(speed=(Fraction(1, 2), Fraction(1)), memory=ints([99, 99]))
    found = least_anywhere(PeriodSearchSpec(chain=chain, machines=slow, seconds=600, rounds=1))
    assert found.allocation.device.tolist() == [1, 0] and found.pattern.period == found.least == 6
    small = Machines(speed=(Fraction(1), Fraction(1)), memory=ints([99, 4]))
    found = least_anywhere(PeriodSearchSpec(chain=chain, machines=small, seconds=600, rounds=1))
    assert found.allocation.device.tolist() == [1, 0]
    far = Chain(
        forward=[1, 1, 1], backward=[1, 1, 1], weights=[0] * 3, activation=[0] * 3, output=[0] * 4, transfers=[1, 9]
    )  # fmt: skip
    apart = Machines(speed=(Fraction(1),) * 3, links={(0, 1): Fraction(1, 4), (1, 2): Fraction(1, 4)})
    found = least_anywhere(PeriodSearchSpec(chain=far, machines=apart, seconds=600, rounds=1))
    assert found.pattern.period == 4 and found.least == 4
    assert set(found.allocation.device.tolist()) == {0, 2}


@pytest.mark.slow
def test_the_memory_that_some_stages_fit() -> None:
    """Equal to what enumeration finds in the paper's model; what is told fits in the other."""
    for seed in (0, 1, 6, 14):
        chain, devices, _, model = drawn(seed, 4)
        least = roomy_memory(chain, devices, model)
        fitting = [least_of_all(chain, devices, 1, memory, model is MemoryModel.PAPER) for memory in (least - 1, least)]
        assert fitting[1] is not None
        assert fitting[0] is None or model is MemoryModel.RECEIVED
