"""A chain cut into contiguous stages on devices that are not equal: cuts, devices and their order, together.

For a given T a dynamic program finds the best of all orders, from the chain's end, with one label a state as in
`solvers.pipelining.contiguous`; a state says how many devices of each kind the layers behind have used, and of which
kind the first of them is. Devices of a kind are alike in speed, bytes and links, so that equal devices cost nothing.
Bisection finds the least T. Where there are more states than can be looked at, some orders are tried, and changed two
devices at a time: a heuristic, which proves nothing of the others.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from math import prod
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints, offsets
from solvers.compiled.kernels import routine, subroutine
from solvers.pipelining.chain import Chain, Machines, MemoryModel, slower
from solvers.pipelining.contiguous import (
    NONE,
    Cuts,
    StageBytes,
    at_least,
    at_most,
    best_cuts,
    check_sums,
    in_flight_of,
    least_memory,
    period_bound,
    push,
)
from solvers.problem import MOST


class Fleet(NamedTuple):
    """A chain on C kinds of devices."""

    work: Ints
    """[C, L + 1] ticks of all layers before each on a device of a kind."""
    transfers: Ints
    """[K, L - 1] ticks of each cut on each kind of link."""
    link: Ints
    """[C, C] kind of the link between devices of two kinds, or between two of one."""
    memory: Ints
    """[C] bytes of a device."""
    weights: Ints
    """[L + 1] as of `StageBytes`, and the following ones too."""
    activation: Ints
    entering: Ints
    before: Ints
    behind: Ints
    sent: Ints
    """[C, L] ticks of the transfer before layer i that a stage on a kind is charged with."""
    in_flight: Ints
    """[2 P + 2] batches in flight in a stage of each group."""


class States(NamedTuple):
    """Which devices are used, each state after those that it follows on."""

    kind: Ints
    """[S] of the first device."""
    begin: Ints
    """[S + 1] where the states behind its first device begin."""
    after: Ints
    """[n] these states; -1: none, the stage is the last."""


class OrderLabels(NamedTuple):
    """The least label of layers i.. in each state, [S, L + 1] each."""

    group: Ints
    """Group of the first stage, NONE where nothing fits."""
    load: Ints
    """Ticks in that group so far."""
    end: Ints
    """The layer behind the first stage."""
    behind: Ints
    """The state of what is behind it; -1: nothing."""


def order_labels(fleet: Fleet, states: States, most: int) -> OrderLabels:
    """Return the labels of all states for T = `most`. O(S (L^2 + L n / S))."""
    return OrderLabels(*_order_labels(fleet, states, most))


@routine
def _order_labels(fleet: Fleet, states: States, most: int) -> tuple[Ints, Ints, Ints, Ints]:
    layers, many = fleet.work.shape[1] - 1, len(states.kind)
    result = OrderLabels(
        np.zeros((many, layers + 1), dtype=np.int64), np.zeros((many, layers + 1), dtype=np.int64),
        np.zeros((many, layers + 1), dtype=np.int64), np.full((many, layers + 1), -1),
    )  # fmt: skip
    for s in range(many):
        ahead = _ahead(fleet, states, result, s, most)
        for i in range(layers - 1, -1, -1):
            _stage(fleet, result, ahead, (s, states.kind[s], i), most)
    return result.group, result.load, result.end, result.behind


@subroutine
def _ahead(fleet: Fleet, states: States, found: OrderLabels, s: int, most: int) -> Ints:
    """Return [L + 1, 3] the least label of the layers behind each cut, its transfer among them, and its state."""
    layers = fleet.work.shape[1] - 1
    ahead = np.zeros((layers + 1, 3), dtype=np.int64)
    for at in range(states.begin[s], states.begin[s + 1]):
        other = states.after[at]
        if other < 0:
            ahead[layers, 0], ahead[layers, 2] = 1, -1
            continue
        link = fleet.link[states.kind[s], states.kind[other]]
        for j in range(1, layers):
            if found.group[other, j] == NONE:
                continue
            group, load = push(found.group[other, j], found.load[other, j], fleet.transfers[link, j - 1], most)
            known = ahead[j, 0]
            if group != NONE and (known == NONE or group < known or (group == known and load < ahead[j, 1])):
                ahead[j, 0], ahead[j, 1], ahead[j, 2] = group, load, other
    return ahead


@subroutine
def _stage(fleet: Fleet, found: OrderLabels, ahead: Ints, at: tuple[int, int, int], most: int) -> None:
    """The least label of layers i.. whose first stage is on a device of this kind."""
    s, c, i = at
    work, memory = fleet.work[c], fleet.memory[c]
    for j in range(i + 1, len(work)):
        ticks = work[j] - work[i]
        fixed = fleet.weights[j] - fleet.weights[i] + fleet.before[i]
        if ticks > most or fixed > memory:
            break
        if ahead[j, 0] == NONE:
            continue
        group, load = push(ahead[j, 0], ahead[j, 1], ticks, most)
        known = found.group[s, i]
        if known != NONE and (group > known or (group == known and load >= found.load[s, i])):
            continue
        in_flight = fleet.in_flight[group] * (fleet.activation[j] - fleet.activation[i])
        entered = fleet.in_flight[group + (load + fleet.sent[c, i] > most)] * fleet.entering[i]
        if fixed + fleet.behind[j] + in_flight + entered <= memory:
            found.group[s, i], found.load[s, i], found.end[s, i] = group, load, j
            found.behind[s, i] = ahead[j, 2]


MOST_STATES, MOST_STEPS = 1 << 14, 40_000_000
"""States of all orders, and those times the squared layers, up to which all orders are looked at."""
TRIED = 400
"""Orders that are tried elsewhere."""
Keeps = tuple[tuple[int, int], ...]
"""(k, n) of thinnings, as of `contiguous.best_cuts`."""


def best_orders(
    chain: Chain, machines: Machines, model: MemoryModel = MemoryModel.RECEIVED, keeps: Keeps = ((1, 1),)
) -> Cuts | None:
    """Return the cuts and devices whose 1F1B*, thinned by one of `keeps`, has the least period; None: none fits.

    Of equal devices as `best_cuts`. Least among all contiguous allocations, if `all_orders`, with bytes by the rule
    `stage_bytes.at_most`, in which what a stage receives comes over the slowest link of its device; else the least of
    the orders that were tried. ValueError for bytes that cannot be summed.
    """
    if machines.equal:
        return best_cuts(chain, machines.devices, _each(machines), model, keeps)
    return _OrderSearch(chain, machines, at_most(chain, model)).best(keeps)


def order_bound(
    chain: Chain, machines: Machines, model: MemoryModel = MemoryModel.RECEIVED, keeps: Keeps = ((1, 1),)
) -> Fraction | None:
    """Return a period below which nothing contiguous fits under 1F1B* thinned by one of `keeps`; None: nothing does.

    0 where there are too many orders to say.
    """
    if machines.equal:
        return period_bound(chain, machines.devices, _each(machines), model, keeps)
    if not all_orders(chain, machines):
        return Fraction(0)
    result = _OrderSearch(chain, machines, at_least(chain, model)).best(keeps)
    return None if result is None else result.period


def bytes_lacking(chain: Chain, machines: Machines, model: MemoryModel = MemoryModel.RECEIVED) -> int:
    """Return how many bytes more each device would need for stages that `best_orders` finds, one batch in flight."""
    if machines.equal:
        return max(0, least_memory(chain, machines.devices, model) - (_each(machines) or 0))
    held = at_most(chain, model)
    low, high = 0, held.held(0, chain.layers, 1, 1)
    while low < high:
        middle = (low + high) // 2
        fits = _OrderSearch(chain, larger(machines, middle), held).fits()
        low, high = (low, middle) if fits else (middle + 1, high)
    return low


def all_orders(chain: Chain, machines: Machines) -> bool:
    """Return True if all orders of these devices are looked at."""
    counts = _counts(machines)
    many = len(counts) * prod(n + 1 for n in counts)
    return many <= MOST_STATES and many * chain.layers**2 <= MOST_STEPS


def _each(machines: Machines) -> int | None:
    return None if machines.memory is None else int(machines.memory[0])


def larger(machines: Machines, more: int) -> Machines:
    """Return the devices with so many bytes more for each that has a limit."""
    memory = machines.memory
    return machines if memory is None else replace(machines, memory=np.minimum(memory, MOST - more) + more)


def _counts(machines: Machines) -> list[int]:
    """Return how many devices there are of each kind, in the order of their first ones."""
    return np.unique(machines.kinds(), return_counts=True)[1].tolist()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OrderResult:
    """Labels of the least T."""

    states: States
    labels: OrderLabels
    T: int
    keep: tuple[int, int]

    @property
    def period(self) -> Fraction:
        return Fraction(self.T * self.keep[1], self.keep[0])


class _OrderSearch:
    """A chain with its sums on each kind of devices."""

    def __init__(self, chain: Chain, machines: Machines, held: StageBytes) -> None:
        check_sums(chain, machines.devices, None)
        self.chain, self.machines, self.held = chain, machines, held
        kinds = np.array(machines.kinds())
        self.first, self.kind = np.unique(kinds, return_inverse=True)
        self.members = [np.flatnonzero(kinds == d).tolist() for d in self.first.tolist()]
        self.used = min(machines.devices, chain.layers)
        # The chain on one device of each kind.
        kind = range(len(self.members))
        pairs = {(c, e): (self.members[c][0], self.members[e][-1]) for c in kind for e in kind}
        speed = {pair: machines.link(d, e) if d != e else Fraction(1) for pair, (d, e) in pairs.items()}
        speeds = sorted(set(speed.values()))
        first = [each[0] for each in self.members]
        slowest = [
            min((machines.link(d, e) for e in range(machines.devices) if e != d), default=Fraction(1)) for d in first
        ]
        both = [slower(chain.forward, machines.speed[d]) + slower(chain.backward, machines.speed[d]) for d in first]
        memory = [MOST] * machines.devices if machines.memory is None else machines.memory.tolist()
        self.fleet = Fleet(
            work=ints([offsets(ints(each)) for each in both]),
            transfers=ints([slower(chain.transfers, each) for each in speeds]).reshape(len(speeds), -1),
            link=ints([[speeds.index(speed[c, e]) for e in kind] for c in kind]),
            memory=ints([memory[d] for d in first]), weights=held.weights, activation=held.activation,
            entering=held.entering, before=held.before, behind=held.behind,
            sent=ints([slower(held.sent, each) for each in slowest]), in_flight=ints([]),
        )  # fmt: skip
        self.high = max(1, machines.most_ticks(chain))
        self.low = max(1, int(np.diff(self.fleet.work).min(axis=0).max()))

    def fits(self) -> bool:
        """Return True if there are stages, with one batch in flight."""
        return any(self._least(states, (1, 1), None, self.high) is not None for states in self._states())

    def best(self, keeps: Keeps) -> Cuts | None:
        """Return the best over all keeps; if not all orders are tried, each keep uses the best order of the first."""
        best: _OrderResult | None = None
        states = list(self._states())
        for keep in keeps:
            for each in states:
                best = self._least(each, keep, best) or best
            if best is not None and not all_orders(self.chain, self.machines):
                best = self._swap_kinds(best, keep)
                states = [best.states]
        if best is None:
            return None
        # The stages that lead to the least label of the whole chain.
        labels, free = best.labels, [list(each) for each in self.members]
        fitting = np.flatnonzero(labels.group[:, 0] != NONE).tolist()
        s = min(fitting, key=lambda s: (labels.group[s, 0], labels.load[s, 0], s))
        first, order, group, charged = [0], [], [], []
        while s >= 0:
            c, i, j = int(best.states.kind[s]), first[-1], int(labels.end[s, first[-1]])
            at = int(labels.group[s, i])
            entered = at + (labels.load[s, i] + self.fleet.sent[c, i] > best.T)
            charged.append(self.held.held(i, j, *in_flight_of(ints([at, entered]), best.keep).tolist()))
            order.append(free[c].pop(0))
            group.append(at)
            first.append(j)
            s = int(labels.behind[s, i])
        return Cuts(
            first=ints(first), devices=self.machines.devices, T=best.T, keep=best.keep, group=ints(group),
            bytes=ints(charged), order=ints(order),
        )  # fmt: skip

    def _least(
        self, states: States, keep: tuple[int, int], known: _OrderResult | None, low: int = 0
    ) -> _OrderResult | None:
        """Return the least T, shorter than what is known; None where there is none. `low`: a T that none is below."""
        low, high = max(low, self.low), self.high
        if known is not None:
            high = min(high, -(-known.T * known.keep[1] * keep[0] // (known.keep[0] * keep[1])) - 1)
        if high < low:
            return None
        fleet = self.fleet._replace(in_flight=in_flight_of(np.arange(2 * self.used + 2), keep))
        result = order_labels(fleet, states, high)
        if not (result.group[:, 0] != NONE).any():
            return None
        while low < high:
            middle = (low + high) // 2
            tried = order_labels(fleet, states, middle)
            if (tried.group[:, 0] != NONE).any():
                high, result = middle, tried
            else:
                low = middle + 1
        return _OrderResult(states=states, labels=result, T=high, keep=keep)

    def _states(self) -> Iterator[States]:
        """Yield the states of all orders together, or of some orders one by one where all are too many."""
        machines = self.machines
        if all_orders(self.chain, machines):
            # How many of each kind are used, and which kind is first.
            known, kind, after = dict[tuple[tuple[int, ...], int], int](), list[int](), list[list[int]]()
            for used in sorted(product(*(range(n + 1) for n in _counts(machines))), key=sum):
                if sum(used) > self.used:
                    break
                for c in (c for c, n in enumerate(used) if n):
                    rest = (*used[:c], used[c] - 1, *used[c + 1 :])
                    known[used, c] = len(kind)
                    kind.append(c)
                    after.append([known[rest, e] for e, n in enumerate(rest) if n] or [-1])
            yield _states(kind, after)
            return
        # As listed, by speed, by memory, and each device's nearest next; both ways, each once.
        listed = list(range(machines.devices))
        memory = [MOST] * machines.devices if machines.memory is None else machines.memory.tolist()
        near, left = listed[:1], listed[1:]
        while left:
            near.append(max(left, key=lambda d: machines.link(near[-1], d)))
            left.remove(near[-1])
        quick, small = sorted(listed, key=lambda d: machines.speed[d]), sorted(listed, key=lambda d: memory[d])
        kinds, distinct = machines.kinds(), dict[tuple[int, ...], list[int]]()
        for order in (listed, quick, small, near):
            for each in (order, order[::-1]):
                distinct.setdefault(tuple(kinds[d] for d in each), each)
        for order in distinct.values():
            yield _states([int(self.kind[d]) for d in reversed(order)])

    def _swap_kinds(self, best: _OrderResult, keep: tuple[int, int]) -> _OrderResult:
        """Let two kinds of an order change places as long as that is better."""
        tried, better = 0, True
        while better and tried < TRIED:
            better = False
            kinds = best.states.kind.tolist()
            for a, b in combinations(range(len(kinds)), 2):
                if kinds[a] == kinds[b] or tried == TRIED:
                    continue
                other, tried = kinds.copy(), tried + 1
                other[a], other[b] = kinds[b], kinds[a]
                result = self._least(_states(other), keep, best)
                if result is not None:
                    best, better = result, True
                    break
        return best


def _states(kind: list[int], after: list[list[int]] | None = None) -> States:
    """Return the states of these kinds; by default those of any of these devices, in this order."""
    after = [[-1, *range(at)] for at in range(len(kind))] if after is None else after
    flat = [other for each in after for other in each]
    return States(ints(kind), offsets(ints([len(each) for each in after])), ints(flat))
