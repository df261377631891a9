"""First come, first served on a clock that waits for the executor: to the tick what the reference simulator says.

The executor is played here: it reaches what can start in a random order, which must not matter.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pesto.core.errors import VerificationError
from pesto.core.simulator import simulate
from pesto.tf.emulate.clocks import EmulatedWork, EventClock, Reservations
from pesto.tf.emulate.emulate_options import REACHED
from solvers.instances.random import generate, random_order
from solvers.problem import Problem


def work(p: Problem, device: np.ndarray, rank: np.ndarray) -> EmulatedWork:
    """The functions of a placed and ordered problem: tasks in order of rank, then its transfers."""
    at = p.location[device]
    order = np.argsort(rank).tolist()
    place = {task: k for k, task in enumerate(order)}
    across = [k >= 0 and at[p.producer[k]] != at[b] for k, b in zip(p.payload, p.dst, strict=True)]
    sent = sorted({(int(k), int(at[b])) for k, b in zip(p.payload[across], p.dst[across], strict=True)})
    transfer = {each: p.tasks + k for k, each in enumerate(sent)}
    data: list[set[int]] = [set() for _ in range(p.tasks)]
    chain: list[set[int]] = [set() for _ in range(p.tasks)]
    for a, b, k in zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True):
        data[place[b]].add(transfer.get((k, int(at[b])), place[a]) if at[a] != at[b] else place[a])
    for d in range(p.devices):
        mine = [task for task in order if device[task] == d]
        for a, b in pairwise(mine):
            chain[place[b]].add(place[a])
    n = len(sent)
    links, ticks = [], []
    for k, to in sent:
        here = int(at[p.producer[k]])
        links.append(tuple(p.devices + link for link in p.holds[here, to].tolist() if link >= 0))
        ticks.append(int(p.transfer[k, p.path_class[here, to]]))
    return EmulatedWork(
        names=tuple(f"f{k}" for k in range(p.tasks + n)),
        cpu=(0,) * (p.tasks + n),
        holds=(*((int(device[t]),) for t in order), *links),
        ticks=(*(int(p.duration[t, device[t]]) for t in order), *ticks),
        data=(*map(tuple, data), *((place[int(p.producer[k])],) for k, _ in sent)),
        controls=(*map(tuple, chain), *(() for _ in sent)),
        op=(*order, *(-1 for _ in sent)),
        sent=(*((-1, -1) for _ in order), *sent),
        rank=(*(int(rank[t]) for t in order), *(-1 for _ in sent)),
    )


def play(ledger: EventClock, rng: np.random.Generator) -> None:
    """Reach everything that can start in a random order, and let one function end, until none is left."""
    w = ledger.work
    left = [{*w.data[k], *w.controls[k]} for k in range(w.functions)]
    reached: set[int] = set()
    while True:
        ready = [k for k in range(w.functions) if not left[k] and k not in reached]
        assert ledger.due == len(ready)
        for k in rng.permutation(ready).tolist():
            ledger.reach(k)
            reached.add(k)
        ended = ledger.next()
        if not ended:
            return
        for before in left:
            before.difference_update(ended)


@given(st.integers(0, 2**32 - 1))
def test_it_is_the_simulator_to_the_tick_whatever_is_reached_first(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = generate(rng, tasks=int(rng.integers(1, 25)), gpus=int(rng.integers(1, 4)))
    device = np.array([rng.choice(np.flatnonzero(row)) for row in p.allowed])
    rank = random_order(p, rng)
    ledger = EventClock(work(p, device, rank))
    play(ledger, rng)
    planned = simulate(p, device, rank).schedule
    start = dict(zip(ledger.work.op, ledger.start, strict=True))
    assert [start[t] for t in range(p.tasks)] == planned.start.tolist()
    sent = {s: (a, b) for s, a, b in zip(ledger.work.sent, ledger.start, ledger.end, strict=True) if s[0] >= 0}
    rows = zip(planned.sent_payload, planned.sent_to, planned.sent_start, planned.sent_finish, strict=True)
    assert sent == {(int(k), int(to)): (a, b) for k, to, a, b in rows}


def test_a_path_of_two_links_holds_both_from_when_both_are_free() -> None:
    """Link 1 is free at 7, link 2 at 3: the path begins at 7, and link 2 stands idle until then, then serves others."""
    links = Reservations()
    assert links.take([1], 0, 7) == (0, 7)
    assert links.take([2], 0, 3) == (0, 3)
    assert links.take([1, 2], 1, 5) == (7, 12)
    assert links.take([2], 4, 1) == (12, 13)
    assert links.take([], 4, 1) == (4, 5)


def two_sends(**changes: object) -> EmulatedWork:
    """One op of 10 ticks whose two tensors cross one link in 5 ticks each."""
    fields = {
        "names": ("a", "a", "a"), "cpu": (0, 0, 0), "holds": ((0,), (1,), (1,)), "ticks": (10, 5, 5),
        "data": ((), (0,), (0,)), "controls": ((), (), ()), "op": (0, -1, -1),
        "sent": ((-1, -1), (0, 1), (1, 1)), "rank": (0, -1, -1),
    }  # fmt: skip
    return EmulatedWork(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("ties", "first"), [("planned", [10, 15]), (REACHED, [15, 10])])
def test_ties_are_served_as_simulated_or_as_reached(ties: str, first: list[int]) -> None:
    ledger = EventClock(two_sends(), ties)
    ledger.reach(0)
    assert ledger.next() == [0]
    ledger.reach(2)
    ledger.reach(1)
    assert len(ledger.next()) == 1
    assert ledger.start[1:] == first


@pytest.mark.parametrize(("ties", "together"), [("planned", [[0], [1]]), (REACHED, [[0, 1], []])])
def test_what_ends_at_one_instant_ends_in_the_planned_order_or_together(ties: str, together: list[list[int]]) -> None:
    two = two_sends(names=("a", "b"), cpu=(0, 1), holds=((0,), (1,)), ticks=(4, 4), data=((), ()), controls=((), ()),
                    op=(0, 1), sent=((-1, -1), (-1, -1)), rank=(0, 1))  # fmt: skip
    ledger = EventClock(two, ties)
    ledger.reach(1)
    ledger.reach(0)
    assert [ledger.next(), ledger.next()] == together


def test_who_asks_for_a_processor_at_one_instant_is_served_by_rank() -> None:
    """Whatever the graph calls them: ops out of the chains have the lower ranks, then comes the plan's order."""
    two = two_sends(names=("a", "b"), cpu=(0, 0), holds=((0,), (0,)), ticks=(4, 4), data=((), ()), controls=((), ()),
                    op=(0, 1), sent=((-1, -1), (-1, -1)), rank=(3, 2))  # fmt: skip
    ledger = EventClock(two)
    ledger.reach(0)
    ledger.reach(1)
    assert ledger.next() == [1] and ledger.start == [4, 0]


def test_a_relay_ends_at_its_place() -> None:
    """Not ahead of an op that ends at the same instant and was planned before it."""
    two = two_sends(names=("relay", "b"), cpu=(0, 1), holds=((), (0,)), ticks=(0, 0), data=((), ()), controls=((), ()),
                    op=(-1, 1), sent=((-1, -1), (-1, -1)), rank=(3, 2))  # fmt: skip
    ledger = EventClock(two)
    ledger.reach(0)
    ledger.reach(1)
    assert [ledger.next(), ledger.next()] == [[1], [0]]


def test_time_stands_still_while_something_is_due() -> None:
    """Both tensors can go when the op has ended, and the first does not end before the second was reached."""
    ledger = EventClock(two_sends(holds=((0,), (1,), ())))
    ledger.reach(0)
    assert (ledger.due, ledger.next(), ledger.due, ledger.now) == (0, [0], 2, 10)
    ledger.reach(1)
    assert ledger.due == 1
    ledger.reach(2)
    assert (ledger.due, ledger.next(), ledger.next(), ledger.now) == (0, [1], [2], 15)
    assert ledger.next() == []


def test_what_begins_too_early_is_an_error() -> None:
    ledger = EventClock(two_sends())
    with pytest.raises(VerificationError, match="began a before what it waits for"):
        ledger.reach(1)
