"""A chain cut into stages, one a device, so that 1F1B* or a thinning of it has the least period within the memory.

The paper (Beaumont, Eyraud-Dubois and Shilova 2021) has no algorithm for this. For a given T a dynamic program finds
the best cuts, devices and order of devices together, with one label a state: stages and the transfers between them fill
groups of load T from the chain's end (section 5.1); what a further stage or transfer does to a label (group, load)
grows with the label, in lexicographic order, and so do the bytes of a stage with its group, so that of all ways to lay
layers i.. on some devices the one with the least label serves all that can come before it. A state says how many
devices of each kind these layers use, and of which kind the first of them is; devices of a kind are alike in speed,
bytes and links, so equal devices have one state for each number of them. Whether some cuts fit is monotone in T, and
the least T is a sum of ticks, so bisection over integers finds it exactly. Where there are more states than can be
looked at, some orders are tried, and changed two devices at a time: a heuristic, which proves nothing of the others.

Memory of a stage of layers i to j with n batches in flight, W their weights, a their activations of a batch, x what
enters layer i, y what leaves layer j (a gradient is as large as what it is of); c batches between the start of the
transfer of x and the end of the stage's backward half, n where x needs no transfer:

- PAPER: W + n a, and no less (section 3.2).
- RECEIVED: at most W + n a + c x + 2 x + 2 y, the 2 x only where x is transferred, the 2 y where there is a stage
  behind; at least W + n (a + x).

Why at most: each x is kept until the backward half that reads it has ended. A gradient is there from the start of the
half that writes it to the end of the one that reads it. In one group those follow each other, within T. Otherwise what
comes first waits for T minus the load of the group behind, of which it is part: within 2 T, so two at a time. Why at
least: while a stage waits for its backward half, or turns to it, all n have their activations and their x.

Layers at the chain's end that take no ticks, as no layer behind them does, are done and undone at once, so of a batch
they hold nothing: at least where nothing waits in between, and in 1F1B* at most where nothing is sent behind them. A
rule by gradients of one group alone would not grow with the group, and one label a state would not do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from math import prod
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, bools, ints, offsets
from solvers.compiled.kernels import inlined, routine, subroutine
from solvers.pipelining.chain import Allocation, Chain, Machines, MemoryModel, slower
from solvers.problem import MOST


class StageBytes(NamedTuple):
    """Bytes of a stage of layers i to j - 1: weights, and activations, inputs and gradients in transit."""

    weights: Ints
    """[L + 1] weights of all layers before."""
    activation: Ints
    """[L + 1] activations of a batch of all layers before."""
    entering: Ints
    """[L] bytes of a batch that enter layer i."""
    sent: Ints
    """[L] ticks before layer i's forward half from which on they count: those of the transfer."""
    before: Ints
    """[L] further bytes of a stage that begins at layer i."""
    behind: Ints
    """[L + 1] further bytes of a stage that ends before layer j."""

    def held(self, i: int, j: int, in_flight: int, entered: int) -> int:
        """Return bytes of layers i to j - 1 with so many batches in flight, and so many of what enters."""
        fixed = self.weights[j] - self.weights[i] + self.before[i] + self.behind[j]
        return int(fixed + in_flight * (self.activation[j] - self.activation[i]) + entered * self.entering[i])


def at_most(chain: Chain, model: MemoryModel) -> StageBytes:
    """Return a rule that no stage's bytes exceed."""
    held = _busy_from(np.append(chain.loads[:-1] + chain.transfers, chain.loads[-1]))
    entering = chain.output[:-1] * (held | (np.append(0, chain.transfers) > 0))
    result = _rule(chain, held, entering * (model is MemoryModel.RECEIVED))
    if model is MemoryModel.PAPER:
        return result
    before = np.append(0, 2 * chain.output[1:-1] * (chain.transfers > 0))
    behind = np.append(2 * chain.output[:-1], 0)
    return result._replace(sent=np.append(0, chain.transfers), before=before, behind=behind)


def at_least(chain: Chain, model: MemoryModel) -> StageBytes:
    """Return a rule that no stage's bytes are below, with as many inputs as batches in flight."""
    held = _busy_from(chain.loads)
    return _rule(chain, held, chain.output[:-1] * held * (model is MemoryModel.RECEIVED))


def _busy_from(ticks: Ints) -> Bools:
    """Return [L] whether a layer or one behind it takes any ticks."""
    return bools(np.cumsum(ticks[::-1])[::-1] > 0)


def _rule(chain: Chain, held: Bools, entering: Ints) -> StageBytes:
    """With the activations of these layers alone, and without transit."""
    none = np.zeros(chain.layers + 1, dtype=np.int64)
    activation = offsets(ints(chain.activation * held))
    return StageBytes(offsets(chain.weights), activation, ints(entering), none[:-1], none[:-1], none)


NONE = 0
"""The group of a state that no stages reach; groups count from 1."""


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
    held: StageBytes
    sent: Ints
    """[C, L] ticks of the transfer before layer i that a stage on a kind is charged with, in place of `held.sent`."""
    in_flight: Ints
    """[2 P + 2] batches in flight in a stage of each group."""


class States(NamedTuple):
    """Devices in use, each state after those that can follow its first device."""

    kind: Ints
    """[S] kind of the first device."""
    begin: Ints
    """[S + 1] where the states behind its first device begin."""
    after: Ints
    """[n] these states; -1: none, the stage is the last."""


class Labels(NamedTuple):
    """The least label of layers i.. in each state, [S, L + 1] each."""

    group: Ints
    """Group of the first stage, NONE where nothing fits."""
    load: Ints
    """Ticks in that group so far."""
    end: Ints
    """The layer behind the first stage."""
    behind: Ints
    """The state of the layers behind it; -1: there are none."""


@inlined
def _push(group: int, load: int, ticks: int, most: int) -> tuple[int, int]:
    """Return the label with one stage or transfer more; (NONE, 0) where it takes more than `most` ticks by itself."""
    if ticks > most:
        return NONE, 0
    if load + ticks <= most:
        return group, load + ticks
    return group + 1, ticks


@routine
def least_labels(fleet: Fleet, states: States, most: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the columns of `Labels` for T = `most`. O(S (L^2 + L n / S))."""
    layers, many = fleet.work.shape[1] - 1, len(states.kind)
    result = Labels(
        np.zeros((many, layers + 1), dtype=np.int64), np.zeros((many, layers + 1), dtype=np.int64),
        np.zeros((many, layers + 1), dtype=np.int64), np.full((many, layers + 1), -1),
    )  # fmt: skip
    for s in range(many):
        ahead = _labels_ahead(fleet, states, result, s, most)
        for i in range(layers - 1, -1, -1):
            group, load, end = _least_label(fleet, ahead, states.kind[s], i, most)
            if group != NONE:
                result.group[s, i], result.load[s, i], result.end[s, i] = group, load, end
                result.behind[s, i] = ahead[end, 2]
    return result.group, result.load, result.end, result.behind


@subroutine
def _labels_ahead(fleet: Fleet, states: States, known: Labels, s: int, most: int) -> Ints:
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
            if known.group[other, j] == NONE:
                continue
            group, load = _push(known.group[other, j], known.load[other, j], fleet.transfers[link, j - 1], most)
            least = ahead[j, 0]
            if group != NONE and (least == NONE or group < least or (group == least and load < ahead[j, 1])):
                ahead[j, 0], ahead[j, 1], ahead[j, 2] = group, load, other
    return ahead


@subroutine
def _least_label(fleet: Fleet, ahead: Ints, kind: int, i: int, most: int) -> tuple[int, int, int]:
    """Return the least label of layers i.., the first stage on this kind, and its end; (NONE, 0, 0): nothing fits."""
    work, memory, held = fleet.work[kind], fleet.memory[kind], fleet.held
    best_group, best_load, best_end = NONE, 0, 0
    for j in range(i + 1, len(work)):
        ticks = work[j] - work[i]
        fixed = held.weights[j] - held.weights[i] + held.before[i]
        if ticks > most or fixed > memory:
            break
        if ahead[j, 0] == NONE:
            continue
        group, load = _push(ahead[j, 0], ahead[j, 1], ticks, most)
        if best_group != NONE and (group > best_group or (group == best_group and load >= best_load)):
            continue
        in_flight = fleet.in_flight[group] * (held.activation[j] - held.activation[i])
        entered = fleet.in_flight[group + (load + fleet.sent[kind, i] > most)] * held.entering[i]
        if fixed + held.behind[j] + in_flight + entered <= memory:
            best_group, best_load, best_end = group, load, j
    return best_group, best_load, best_end


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cuts:
    """A chain cut into S stages, one a device, and the 1F1B*, thinned or not, that is laid over them."""

    first: Ints
    """[S + 1] first layer of each stage, and the number of layers."""
    devices: int
    """P, of which S have a stage."""
    T: int
    """Ticks of a period of 1F1B* before it is thinned."""
    keep: tuple[int, int]
    """(k, n): of every n batches of 1F1B*, k are kept, spread evenly; (1, 1) for all."""
    group: Ints
    """[S] group of each stage, the last stage's 1."""
    bytes: Ints
    """[S] bytes with which the memory model charges each stage."""
    order: Ints
    """[S] device of each stage."""

    def __repr__(self) -> str:
        """One line, without arrays."""
        return f"Cuts({len(self.group)} stages, {self.period} ticks a batch, {int(self.bytes.max())} bytes at most)"

    @property
    def period(self) -> Fraction:
        """Ticks a batch, n T / k."""
        return Fraction(self.T * self.keep[1], self.keep[0])

    @property
    def in_flight(self) -> Ints:
        """[S] batches in flight of each stage."""
        return _in_flight(self.group, self.keep)

    @property
    def allocation(self) -> Allocation:
        """Which device does each layer."""
        return Allocation(device=np.repeat(self.order, np.diff(self.first)), devices=self.devices)


def _in_flight(group: Ints, keep: tuple[int, int]) -> Ints:
    """Return [s] batches in flight of each group, thinned by `keep`."""
    return ints(-(-group * keep[0] // keep[1]))


def thinnings(most: int) -> tuple[tuple[int, int], ...]:
    """Return (k, n) of every ratio with n <= `most` once: all batches first, then by n."""
    return tuple((k, n) for n in range(1, most + 1) for k in range(n, 0, -1) if Fraction(k, n).denominator == n)


MOST_DEVICES = 1 << 12
"""Devices of one pipeline at most."""
MOST_STATES, MOST_STEPS = 1 << 14, 40_000_000
"""States of all orders, and those times the squared layers, up to which all orders are looked at."""
TRIED = 400
"""Orders that are tried elsewhere."""
Keeps = tuple[tuple[int, int], ...]
"""(k, n) of thinnings."""


def best_cuts(
    chain: Chain, machines: Machines, model: MemoryModel = MemoryModel.RECEIVED, keeps: Keeps = ((1, 1),)
) -> Cuts | None:
    """Return the cuts and devices whose 1F1B*, thinned by one of `keeps`, has the least period; None: none fits.

    Least among all contiguous allocations under 1F1B* and these thinnings, if `all_orders`, else of the orders that
    were tried. Bytes are by the rule `at_most`, in which what a stage receives comes over the slowest link of its
    device: in the paper's model that is what a stage holds, in the other no pattern holds more, and `period_bound` says
    what is the least there can be. Of equal periods that of the first of `keeps`; idle equal devices are the last.
    ValueError for more than MOST_DEVICES, and for bytes that cannot be summed.
    """
    return _CutSearch(chain, machines, at_most(chain, model)).best(keeps)


def period_bound(
    chain: Chain, machines: Machines, model: MemoryModel = MemoryModel.RECEIVED, keeps: Keeps = ((1, 1),)
) -> Fraction | None:
    """Return a period below which nothing contiguous fits under 1F1B* thinned by one of `keeps`; None: nothing does.

    0 where there are too many orders to say. In the paper's model it is that of `best_cuts`. ValueError as there.
    """
    if not all_orders(chain, machines):
        return Fraction(0)
    result = _CutSearch(chain, machines, at_least(chain, model)).best(keeps)
    return None if result is None else result.period


def bytes_lacking(chain: Chain, machines: Machines, model: MemoryModel = MemoryModel.RECEIVED) -> int:
    """Return how many bytes more each device would need for cuts that `best_cuts` finds, one batch in flight."""
    held = at_most(chain, model)
    low, high = 0, held.held(0, chain.layers, 1, 1)
    while low < high:
        middle = (low + high) // 2
        fits = _CutSearch(chain, larger(machines, middle), held).fits()
        low, high = (low, middle) if fits else (middle + 1, high)
    return low


def larger(machines: Machines, more: int) -> Machines:
    """Return the devices with so many bytes more for each that has a limit."""
    memory = machines.memory
    return machines if memory is None else replace(machines, memory=np.minimum(memory, MOST - more) + more)


def all_orders(chain: Chain, machines: Machines) -> bool:
    """Return True if all orders of these devices are looked at."""
    if machines.equal:
        return True
    counts = np.unique(machines.kinds(), return_counts=True)[1].tolist()
    many = len(counts) * prod(n + 1 for n in counts)
    return many <= MOST_STATES and many * chain.layers**2 <= MOST_STEPS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LeastLabels:
    """Labels of the least T."""

    states: States
    labels: Labels
    T: int
    keep: tuple[int, int]


class _CutSearch:
    """A chain with its sums on each kind of devices."""

    def __init__(self, chain: Chain, machines: Machines, held: StageBytes) -> None:
        if machines.devices > MOST_DEVICES:
            raise ValueError(f"{machines.devices} devices - give 1 to {MOST_DEVICES}")
        self.chain, self.machines, self.held = chain, machines, held
        self.used, self.all = min(machines.devices, chain.layers), all_orders(chain, machines)
        crossing, kept = int(chain.output.max()), int(chain.activation.sum())
        if int(chain.weights.sum()) + 4 * crossing + (2 * self.used + 1) * (kept + crossing) > MOST:
            raise ValueError(f"stages could hold more than {MOST} bytes - count in larger units")
        kinds = np.array(machines.kinds())
        self.kind = np.unique(kinds, return_inverse=True)[1]
        self.members = [np.flatnonzero(kinds == d).tolist() for d in np.unique(kinds).tolist()]
        # The chain on one device of each kind.
        kind, first = range(len(self.members)), [each[0] for each in self.members]
        pairs = {(c, e): (self.members[c][0], self.members[e][-1]) for c in kind for e in kind}
        speed = {pair: machines.link(d, e) if d != e else Fraction(1) for pair, (d, e) in pairs.items()}
        speeds = sorted(set(speed.values()))
        slowest = [
            min((machines.link(d, e) for e in range(machines.devices) if e != d), default=Fraction(1)) for d in first
        ]
        both = [slower(chain.forward, machines.speed[d]) + slower(chain.backward, machines.speed[d]) for d in first]
        self.memory = ints([MOST] * machines.devices) if machines.memory is None else machines.memory
        self.fleet = Fleet(
            work=ints([offsets(ints(each)) for each in both]),
            transfers=ints([slower(chain.transfers, each) for each in speeds]).reshape(len(speeds), -1),
            link=ints([[speeds.index(speed[c, e]) for e in kind] for c in kind]),
            memory=ints(self.memory[first]), held=held,
            sent=ints([slower(held.sent, each) for each in slowest]), in_flight=ints([]),
        )  # fmt: skip
        self.high = max(1, machines.most_ticks(chain))
        self.low = max(1, int(np.diff(self.fleet.work).min(axis=0).max()))

    def fits(self) -> bool:
        """Return True if some cuts fit, with one batch in flight."""
        return any(self._least(states, (1, 1), None, self.high) is not None for states in self._states())

    def best(self, keeps: Keeps) -> Cuts | None:
        """Return the best over all keeps; if not all orders are tried, each keep uses the best order of the first."""
        best: _LeastLabels | None = None
        states = list(self._states())
        for keep in keeps:
            for each in states:
                best = self._least(each, keep, best) or best
            if best is not None and not self.all:
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
            charged.append(self.held.held(i, j, *_in_flight(ints([at, entered]), best.keep).tolist()))
            order.append(free[c].pop(0))
            group.append(at)
            first.append(j)
            s = int(labels.behind[s, i])
        return Cuts(
            first=ints(first), devices=self.machines.devices, T=best.T, keep=best.keep, group=ints(group),
            bytes=ints(charged), order=ints(order),
        )  # fmt: skip

    def _least(
        self, states: States, keep: tuple[int, int], known: _LeastLabels | None, low: int = 0
    ) -> _LeastLabels | None:
        """Return the least T, shorter than what is known; None where there is none. `low`: a T that none is below."""
        low, high = max(low, self.low), self.high
        if known is not None:
            # Only a shorter period is of use: n T / k below that of the best.
            high = min(high, -(-known.T * known.keep[1] * keep[0] // (known.keep[0] * keep[1])) - 1)
        if high < low:
            return None
        fleet = self.fleet._replace(in_flight=_in_flight(np.arange(2 * self.used + 2), keep))
        result = Labels(*least_labels(fleet, states, high))
        if not (result.group[:, 0] != NONE).any():
            return None
        while low < high:
            middle = (low + high) // 2
            tried = Labels(*least_labels(fleet, states, middle))
            if (tried.group[:, 0] != NONE).any():
                high, result = middle, tried
            else:
                low = middle + 1
        return _LeastLabels(states=states, labels=result, T=high, keep=keep)

    def _states(self) -> Iterator[States]:
        """Yield the states of all orders together, or of some orders one by one where all are too many."""
        machines = self.machines
        if self.all:
            # How many of each kind are used, and which kind is first.
            known, kind, after = dict[tuple[tuple[int, ...], int], int](), list[int](), list[list[int]]()
            for used in sorted(product(*(range(len(each) + 1) for each in self.members)), key=sum):
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
        near, left = listed[:1], listed[1:]
        while left:
            near.append(max(left, key=lambda d: machines.link(near[-1], d)))
            left.remove(near[-1])
        quick, small = sorted(listed, key=lambda d: machines.speed[d]), sorted(listed, key=lambda d: self.memory[d])
        kinds, distinct = machines.kinds(), dict[tuple[int, ...], list[int]]()
        for order in (listed, quick, small, near):
            for each in (order, order[::-1]):
                distinct.setdefault(tuple(kinds[d] for d in each), each)
        for order in distinct.values():
            yield _states([int(self.kind[d]) for d in reversed(order)])

    def _swap_kinds(self, best: _LeastLabels, keep: tuple[int, int]) -> _LeastLabels:
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
