"""A valid pattern passes the check with its true bytes and batches in flight; a mutant of any class is refused."""

from dataclasses import fields, replace

import numpy as np
import pytest

from solvers.arrays import ints
from solvers.pipelining.chain import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    SEND_FORWARD,
    WEIGHT_GRADIENT,
    Allocation,
    MemoryModel,
    Pattern,
    pattern_from_starts,
)  # fmt: skip
from solvers.pipelining.flushed import gpipe, zero_bubble
from solvers.pipelining.one_f_one_b_star import stages_of, thinned
from solvers.pipelining.pattern_check import check

ROWS = [f.name for f in fields(Pattern) if f.name not in ("k", "T")]


@pytest.fixture(scope="module")
def pipelines(random_case):
    """Of a seed: chain, allocation and a valid pattern of some kind."""

    def of(seed):
        chain, allocation = random_case(10_000 + seed, least=1)
        rng = np.random.default_rng(seed)
        stages = stages_of(chain, allocation)
        period = int((stages.forward + stages.backward).max()) + int(rng.integers(0, 9))
        match seed % 4:
            case 0:
                return chain, allocation, thinned(chain, allocation, period, (1, 1))
            case 1:
                return chain, allocation, thinned(chain, allocation, period, (2, 3))
            case 2:
                return chain, allocation, gpipe(chain, allocation, 3)
        return chain, allocation, zero_bubble(chain, allocation, 3)

    return of


def changed(pattern, row, **values):
    columns = {name: getattr(pattern, name).copy() for name in ROWS}
    for name, value in values.items():
        columns[name][row] = value
    return replace(pattern, **columns)


def kept(pattern, rows):
    return replace(pattern, **{name: getattr(pattern, name)[rows] for name in ROWS})


def added(pattern, **values):
    """One more row a copy, of another kind or layer than any."""
    columns = {name: getattr(pattern, name) for name in ROWS}
    more = {"t": 0, "resource": 0, "layer": 0} | values
    for copy in range(pattern.k):
        one = more | {"copy": copy, "shift": copy}
        columns = {name: np.append(columns[name], one[name]) for name in ROWS}
    return replace(pattern, **columns)


def of_kind(pattern, *kinds):
    return np.flatnonzero(np.isin(pattern.kind, kinds))


def dropped(rng, chain, allocation, pattern):
    return kept(pattern, np.delete(np.arange(len(pattern.kind)), rng.integers(len(pattern.kind))))


def doubled(rng, chain, allocation, pattern):
    return kept(pattern, np.append(np.arange(len(pattern.kind)), rng.integers(len(pattern.kind))))


def an_operation_dropped(rng, chain, allocation, pattern):
    row = rng.integers(len(pattern.kind))
    return kept(pattern, (pattern.kind != pattern.kind[row]) | (pattern.layer != pattern.layer[row]))


def elsewhere(rng, chain, allocation, pattern):
    row = rng.integers(len(pattern.kind))
    return changed(pattern, row, resource=pattern.resource[row] + 1)


def no_such_layer(rng, chain, allocation, pattern):
    return changed(pattern, rng.integers(len(pattern.kind)), layer=chain.layers + int(rng.integers(0, 3)))


def sent_at_the_end(rng, chain, allocation, pattern):
    return added(pattern, kind=SEND_FORWARD, layer=chain.layers - 1)


def of_another_kind(rng, chain, allocation, pattern):
    row = rng.choice(of_kind(pattern, FORWARD))
    return changed(pattern, row, kind=rng.choice([BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT]))


def backward_whole_and_split(rng, chain, allocation, pattern):
    is_split = len(of_kind(pattern, INPUT_GRADIENT)) > 0
    kind = BACKWARD if is_split else rng.choice([INPUT_GRADIENT, WEIGHT_GRADIENT])
    return added(pattern, kind=kind, resource=allocation.device[0])


def one_label_twice(rng, chain, allocation, pattern):
    row = rng.integers(len(pattern.kind))
    return changed(pattern, row, copy=(pattern.copy[row] + 1) % pattern.k) if pattern.k > 1 else None


def one_batch_twice(rng, chain, allocation, pattern):
    row = rng.integers(len(pattern.kind))
    return changed(pattern, row, shift=pattern.shift[row] + 1) if pattern.k > 1 else None


def far(pattern):
    return pattern.k * (int(np.ptp(pattern.shift)) // pattern.k + 2)


def forward_late(rng, chain, allocation, pattern):
    row = rng.choice(of_kind(pattern, FORWARD))
    return changed(pattern, row, shift=pattern.shift[row] - far(pattern))


def backward_early(rng, chain, allocation, pattern):
    row = rng.choice(of_kind(pattern, BACKWARD, INPUT_GRADIENT))
    return changed(pattern, row, shift=pattern.shift[row] + far(pattern))


def weights_first(rng, chain, allocation, pattern):
    rows = of_kind(pattern, WEIGHT_GRADIENT)
    row = rng.choice(rows) if len(rows) else None
    return None if row is None else changed(pattern, row, shift=pattern.shift[row] + far(pattern))


def sent_before_it_is_made(rng, chain, allocation, pattern):
    rows = of_kind(pattern, SEND_FORWARD)
    row = rng.choice(rows) if len(rows) else None
    return None if row is None else changed(pattern, row, shift=pattern.shift[row] + far(pattern))


def begun_together(rng, chain, allocation, pattern):
    ticks = chain.ticks(pattern.kind, pattern.layer)
    row = rng.choice(np.flatnonzero(ticks))
    others = np.flatnonzero((pattern.resource == pattern.resource[row]) & (ticks > 0))
    others = others[others != row]
    return changed(pattern, row, t=pattern.t[rng.choice(others)]) if len(others) else None


def too_short_a_period(rng, chain, allocation, pattern):
    ticks, resource = chain.ticks(pattern.kind, pattern.layer), pattern.resource
    period = max(1, int(ticks[resource == rng.choice(allocation.device)].sum()) - int(rng.integers(1, 3)))
    return replace(pattern, T=period, t=pattern.t % period) if ticks[resource < allocation.devices].sum() > 1 else None


def counted_from_another_batch(rng, chain, allocation, pattern):
    return replace(pattern, shift=pattern.shift + int(rng.choice([-2, -1, 1, 2])))


MUTANTS = {
    dropped: "copies rows", doubled: "copies", an_operation_dropped: "rows", elsewhere: "rows",
    no_such_layer: "rows copies", sent_at_the_end: "rows", of_another_kind: "rows copies",
    backward_whole_and_split: "rows",
    one_label_twice: "copies", one_batch_twice: "copies", forward_late: "dependency",
    backward_early: "dependency rows", weights_first: "dependency", sent_before_it_is_made: "dependency",
    begun_together: "overlap dependency", too_short_a_period: "overlap dependency",
    counted_from_another_batch: "rows",
}  # fmt: skip


def refused(pipelines, mutant, seeds):
    """How many mutants of some seeds were refused, each with a name that fits."""
    count = 0
    for seed in seeds:
        chain, allocation, pattern = pipelines(seed)
        changed_pattern = mutant(np.random.default_rng(seed), chain, allocation, pattern)
        if changed_pattern is not None:
            found = check(chain, allocation, changed_pattern)
            assert found.refusal in MUTANTS[mutant].split(), (seed, found.refusal, found.text)
            assert found.text
            count += 1
    return count


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_refused(pipelines, mutant, seeds):
    assert refused(pipelines, mutant, seeds(12)) >= len(seeds(12)) / 12


def test_a_byte_less_than_the_peak_is_refused(pipelines, seeds):
    for seed in seeds(12):
        chain, allocation, pattern = pipelines(seed)
        for model in MemoryModel:
            fits = check(chain, allocation, pattern, model=model)
            assert fits.valid, fits.text
            assert check(chain, allocation, pattern, fits.peaks, model).valid
            short = fits.peaks.copy()
            short[seed % allocation.devices] -= 1
            assert check(chain, allocation, pattern, short, model).refusal == "memory"


def test_what_is_held_when(chain, each):
    """Two layers, a send of 2 ticks each way, one batch at a time: bytes by hand."""
    found = chain([1, 1], [1, 1], weights=[100, 200], activation=[10, 20], output=[1, 2, 4], transfers=[4])
    rows = [[0, 0, 0, 0], [2, 0, 0, 1], [0, 1, 0, 3], [1, 1, 0, 4], [3, 0, 0, 5], [1, 0, 0, 7]]
    pattern = pattern_from_starts(each(2), 1, 8, ints(rows))
    checked = check(found, each(2), pattern)
    # Device 0: weights, activation, the step's input, the gradient that comes. Device 1: weights, activation, input,
    # the gradient that it makes.
    assert checked.peaks.tolist() == [100 + 10 + 1 + 2, 200 + 20 + 2 + 2]
    assert check(found, each(2), pattern, model=MemoryModel.PAPER).peaks.tolist() == [110, 220]
    assert checked.in_flight.tolist() == [1, 1]


def test_the_papers_sum_is_above_the_peak_of_two_stages(chain):
    """Erratum: what two stages of one device hold at their most falls at different times."""
    found = chain([1, 1, 1], [1, 1, 1])
    allocation = Allocation(device=[0, 1, 0], devices=2)
    # Layer 2 holds its batch while layer 0 holds one, and two of layer 0 meet when layer 2 holds none.
    rows = [[0, 0, 0, 0], [0, 1, 0, 1], [0, 2, 0, 2], [1, 2, 0, 3], [1, 1, 0, 5], [1, 0, 0, 7]]
    pattern = pattern_from_starts(allocation, 1, 6, ints(rows))
    paper = check(found, allocation, pattern, model=MemoryModel.PAPER)
    assert paper.in_flight.tolist() == [2, 1, 1]
    assert paper.peaks.tolist() == [3, 1]
    assert check(found, allocation, pattern).peaks.tolist() == [2, 1]


def test_batches_may_overtake_each_other(chain):
    """The count by shifts needs batches in order; the unrolled one does not: a batch that waits a period is counted."""
    found, allocation = chain([1], [1]), Allocation(device=[0], devices=1)
    rows = [[0, 0, 0, 0], [0, 0, 1, 2], [1, 0, 0, 5], [1, 0, 1, 3]]
    checked = check(found, allocation, pattern_from_starts(allocation, 2, 4, ints(rows)))
    assert checked.valid
    assert checked.in_flight.tolist() == [2]


def test_shifts_too_far_apart_are_refused_at_once(chain, each):
    pattern = thinned(chain([1, 1], [1, 1]), each(2), 2, (1, 1))
    for apart in (10**8, 2**61):
        shift = pattern.shift + apart * (pattern.kind == FORWARD)
        checked = check(chain([1, 1], [1, 1]), each(2), replace(pattern, shift=shift))
        assert checked.refusal in ("rows", "memory")


def test_what_does_not_belong_together_is_an_error(chain, each):
    pattern = thinned(chain([1, 1], [1, 1]), each(2), 2, (1, 1))
    with pytest.raises(ValueError, match="an allocation of 3 layers"):
        check(chain([1, 1], [1, 1]), each(3), pattern)
    with pytest.raises(ValueError, match="memory of 3 devices"):
        check(chain([1, 1], [1, 1]), each(2), pattern, ints([1, 1, 1]))
