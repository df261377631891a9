"""Exact schedules of fixed allocations: theorems' instances have their optima, nothing else is ever better."""

import subprocess
import sys
from fractions import Fraction

import msgspec
import numpy as np
import pytest

from solvers.arrays import ints
from solvers.pipelining import exact_periodic
from solvers.pipelining.chain import Allocation, MemoryModel
from solvers.pipelining.exact_periodic import PeriodicProblem, exact, exact_all
from solvers.pipelining.flushed import gpipe, one_f_one_b, zero_bubble
from solvers.pipelining.modulo_wire import ModuloResult
from solvers.pipelining.one_f_one_b_star import groups, least_period, stages_of, thinned
from solvers.pipelining.pattern_check import check

PAPER = MemoryModel.PAPER
KEEPS = tuple((k, n) for n in range(1, 6) for k in range(1, n + 1))


def by_thirds(chain, sizes, **given):
    """Theorem 2's chain and allocation for two triples that sum to 20 each, or not: a period of 80, or none."""
    layers = 12
    found = chain([20, 20, *sizes, 20, 20, 20, 20], [0] * layers, activation=[0] * 8 + [1] * 4)
    where = Allocation(device=[1, 1, *[0] * 6, 1, 0, 1, 0], devices=2)
    return PeriodicProblem(chain=found, allocation=where, k=1, memory=2, model=PAPER, most=80, **given)


def all_asked(chain, each):
    """What a paper or an exact count gives, by name: (question, ticks)."""
    found = {}
    for j, ticks in ((1, 4), (2, 3), (3, Fraction(8, 3))):
        four = chain([1] * 4, [1] * 4, weights=[1, 1, 2, 3])
        found[f"theorem 4, k = 3, j = {j}"] = (
            PeriodicProblem(chain=four, allocation=each(4), k=j, memory=4, model=PAPER),
            ticks,
        )
    below = {"1": (chain([1, 3, 3, 1], [1, 2, 1, 4]), [3, 2, 2, 2], {1: 9, 2: 7})}
    below["2"] = (chain([1, 1, 2], [5, 1, 4]), [2, 2, 1], {1: 8, 2: 7})
    for name, (one, caps, periods) in below.items():
        for k, ticks in periods.items():
            question = PeriodicProblem(chain=one, allocation=each(one.layers), k=k, memory=ints(caps), model=PAPER)
            found[f"below 1F1B*, {name}, k = {k}"] = question, ticks
    for devices, steps in ((2, (15, 13, 14)), (3, (24, 20, 22))):
        thirds = chain([1] * devices, [2] * devices)
        kinds = ({}, {"split": True}, {"split": True, "memory": ints(np.arange(devices, 0, -1))})
        for kind, ticks in zip(kinds, steps, strict=True):
            question = PeriodicProblem(
                chain=thirds, allocation=each(devices), k=2 * devices, model=PAPER, flushed=True, **kind
            )
            found[f"equal thirds on {devices}, {len(kind)}"] = question, ticks
    found["theorem 2, a partition"] = by_thirds(chain, [5, 6, 9, 6, 6, 8]), 80
    middle = chain([1, 2, 1], [1, 2, 1])
    for name, device, ticks in (("free", [0, 1, 0], 4), ("contiguous", [0, 0, 1], 6)):
        found[f"layers 1, 2, 1, {name}"] = (
            PeriodicProblem(chain=middle, allocation=Allocation(device=device, devices=2), k=1),
            ticks,
        )
    return found


@pytest.fixture(scope="module")
def answers(chain, each):
    asked = all_asked(chain, each)
    return {
        name: (answer, ticks)
        for (name, (_, ticks)), answer in zip(
            asked.items(), exact_all([question for question, _ in asked.values()]), strict=True
        )
    }


def test_the_oracles_are_found_and_proven(answers):
    for name, (answer, ticks) in answers.items():
        assert (answer.ticks, answer.least) == (ticks, ticks), name
        assert answer.optimal


def test_no_solver_is_loaded_beside_the_caller():
    code = "import sys; import solvers.pipelining.exact_periodic; print('ortools' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


def test_memory_that_holds_no_batch_is_infeasible_with_the_shortfall(chain, each):
    """Lemma 2's cut: W 1, 2, 1 on two devices of 2 bytes."""
    found = chain([1, 1, 1], [1, 1, 1], weights=[1, 2, 1], activation=[0, 0, 0])
    for device in ([0, 0, 1], [0, 1, 1]):
        answer = exact(PeriodicProblem(chain=found, allocation=Allocation(device=device, devices=2), k=1, memory=2))
        assert answer.pattern is None
        assert "lacks 1 bytes" in answer.infeasible
        assert not answer.optimal


def test_what_cannot_be_is_said(chain, each):
    with pytest.raises(ValueError, match="k is 0"):
        exact(PeriodicProblem(chain=chain([1], [1]), allocation=each(1), k=0))
    with pytest.raises(ValueError, match="2 layers for 1 layers"):
        exact(PeriodicProblem(chain=chain([1], [1]), allocation=each(2), k=1))


def test_what_the_process_claims_is_checked(chain, each, monkeypatch):
    """A schedule on which both halves of a layer overlap is not believed."""
    lie = ModuloResult(T=2, least=2, starts=[[0], [1], [1], [1]])
    monkeypatch.setattr(exact_periodic, "answered", lambda *_, **__: msgspec.json.encode(lie))
    with pytest.raises(RuntimeError, match="invalid schedule"):
        exact(PeriodicProblem(chain=chain([1, 1], [1, 1]), allocation=each(2), k=1))


@pytest.mark.slow
def test_without_a_partition_in_triples_there_is_no_such_period(chain):
    """Theorem 2's reduction: 6, 6, 6, 6, 6, 10 have none."""
    answer = exact(by_thirds(chain, [6, 6, 6, 6, 6, 10], seconds=300, workers=2))
    assert answer.pattern is None
    assert answer.least > 80


@pytest.mark.slow
def test_equal_thirds_on_four_devices(chain, each):
    thirds = chain([1] * 4, [2] * 4)
    kinds = (({}, 33), ({"split": True}, 27), ({"split": True, "memory": ints([4, 3, 2, 1])}, 30))
    for kind, ticks in kinds:
        question = PeriodicProblem(
            chain=thirds, allocation=each(4), k=8, model=PAPER, flushed=True, seconds=300, workers=2, **kind
        )
        assert exact(question).ticks == ticks


@pytest.mark.slow
def test_1f1b_star_has_the_fewest_in_flight_of_all_1_periodic_schedules(random_case, seeds):
    """Theorem 3: with one batch less on any stage, no schedule of that period exists."""
    questions = []
    for seed in seeds(60):
        chain, _ = random_case(seed, most=4, least=1)
        free = type(chain)(
            forward=chain.forward, backward=chain.backward, weights=0 * chain.weights,
            activation=[1] * chain.layers, output=[0] * (chain.layers + 1), transfers=0 * chain.transfers,
        )  # fmt: skip
        where = Allocation(device=np.arange(chain.layers), devices=chain.layers)
        period = int(free.loads.max()) + seed % 7
        group = groups(stages_of(free, where), period)
        stage = seed % chain.layers
        assert check(free, where, thinned(free, where, period, (1, 1)), group, PAPER).valid
        if group[stage] > 1:
            fewer = np.full(chain.layers, 99)
            fewer[stage] = group[stage] - 1
            questions.append(
                PeriodicProblem(chain=free, allocation=where, k=1, memory=fewer, model=PAPER, most=period, seconds=20)
            )
    for question, answer in zip(questions, exact_all(questions), strict=True):
        assert answer.pattern is None
        assert answer.least > question.most


@pytest.mark.slow
def test_no_thinning_is_better_than_the_exact_schedule(random_case, seeds):
    """Exact of k batches <= thinned to k of n <= 1F1B*, and never below what is proven."""
    for some in np.array_split(seeds(20), 3):
        questions, bests = [], []
        for seed in some.tolist():
            chain, allocation = random_case(seed, most=5, least=1)
            room = check(chain, allocation, gpipe(chain, allocation, 1), model=PAPER).peaks
            room = room + np.random.default_rng(seed).integers(0, 8, allocation.devices)
            whole = least_period(chain, allocation, room, PAPER)
            keeps = tuple((k, n) for k, n in KEEPS if k == 1 + seed % 2)
            best = least_period(chain, allocation, room, PAPER, (*keeps, (1, 1)))
            assert best.period <= whole.period
            k = best.keep[0]
            questions.append(
                PeriodicProblem(
                    chain=chain, allocation=allocation, k=k, memory=room, model=PAPER, most=best.pattern.T, seconds=20
                )
            )
            bests.append(best)
        for best, answer in zip(bests, exact_all(questions), strict=True):
            assert answer.least <= answer.ticks <= best.period


@pytest.mark.slow
def test_no_named_schedule_is_shorter_than_the_exact_step(random_case, seeds):
    for seed in seeds(4):
        chain, allocation = random_case(seed, most=3, least=1)
        for split, named in ((False, (gpipe, one_f_one_b)), (True, (zero_bubble,))):
            question = PeriodicProblem(chain=chain, allocation=allocation, k=3, flushed=True, split=split, seconds=20)
            assert exact(question).ticks <= min(make(chain, allocation, 3).T for make in named)
