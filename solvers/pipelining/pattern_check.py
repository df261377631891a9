"""Independent check of a pattern: validity as a schedule of a chain and peak memory, without code of its makers.

Start times are unrolled batch by batch: memory is counted on the ticks of one whole period, with every batch that is in
flight there. Batches need not keep their order for that, as they must for a count by shifts.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints
from solvers.pipelining.chain import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    KINDS,
    SEND_BACKWARD,
    SEND_FORWARD,
    WEIGHT_GRADIENT,
    Allocation,
    Chain,
    Machines,
    MemoryModel,
    Pattern,
)
from solvers.problem import MOST

_UNROLLED = 20_000_000
"""Batches times holdings of one period beyond which nothing is counted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PatternCheck:
    """The result of a check. If `refusal` is not "", the schedule is invalid, and counts may be empty."""

    refusal: str
    """"", or what is broken: rows, copies, dependency, overlap or memory."""
    text: str
    """The first breach, in one line; "" where there is none."""
    in_flight: Ints
    """[L] most batches between the start of a layer's forward half and the end of its backward half (NCA)."""
    peaks: Ints
    """[P] most bytes on each device, weights included."""

    @property
    def valid(self) -> bool:
        """True if nothing is broken."""
        return not self.refusal


class _RefusalError(Exception):
    def __init__(self, refusal: str, text: str) -> None:
        super().__init__(text)
        self.refusal, self.text = refusal, text


class _HeldBytes(NamedTuple):
    """Bytes on a device from the start of one operation of a batch to the end of another: [k] ticks each."""

    device: int
    bytes_: int
    begin: Ints
    end: Ints


class _Times(NamedTuple):
    """When each operation of the batches 0..k - 1 starts and ends, [k] each; batch b + k follows T ticks later."""

    start: dict[tuple[int, int], Ints]
    end: dict[tuple[int, int], Ints]


def check(
    chain: Chain, allocation: Allocation, pattern: Pattern, memory: int | Ints | None = None,
    model: MemoryModel = MemoryModel.RECEIVED, machines: Machines | None = None,
) -> PatternCheck:  # fmt: skip
    """Check every claim of a pattern: each batch once, dependencies, no overlap on devices and links, memory.

    memory: bytes of each device, or [P]; None: without limit. machines: whose speeds, and those of whose links, the
    chain's ticks are run at; None: at 1. ValueError where allocation, memory or machines do not fit the chain: they are
    no claims of the pattern.
    """
    if len(allocation.device) != chain.layers:
        raise ValueError(f"an allocation of {len(allocation.device)} layers for a chain of {chain.layers}")
    if memory is not None and np.ndim(memory) and len(np.asarray(memory)) != allocation.devices:
        raise ValueError(f"memory of {len(np.asarray(memory))} devices, {allocation.devices} expected")
    if machines is not None:
        chain = _as_run(chain, allocation, machines)
    in_flight = peaks = ints([])
    try:
        _rows(chain, allocation, pattern)
        times = _times(chain, pattern)
        _dependencies(chain, allocation, times)
        # No two operations on one resource at once, modulo T.
        ticks = chain.ticks(pattern.kind, pattern.layer)
        for resource in np.unique(pattern.resource).tolist():
            rows = np.flatnonzero((pattern.resource == resource) & (ticks > 0))
            rows = rows[np.argsort(pattern.t[rows], kind="stable")]
            until = pattern.t[rows] + ticks[rows]
            following = np.append(pattern.t[rows][1:], pattern.t[rows][:1] + pattern.T)
            wrong = np.flatnonzero(until > following)
            if len(wrong):
                one, two = rows[wrong[0]], rows[(wrong[0] + 1) % len(rows)]
                names = [f"{KINDS[pattern.kind[row]]} of layer {pattern.layer[row]}" for row in (one, two)]
                raise _RefusalError("overlap", f"{names[0]} and {names[1]} overlap on resource {resource}")
        spans = [(times.start[FORWARD, layer], times.end[_release(times, layer)]) for layer in range(chain.layers)]
        in_flight = ints([_fullest([_HeldBytes(0, 1, *span)], pattern) for span in spans])
        held = np.zeros(allocation.devices, dtype=np.int64)
        np.add.at(held, allocation.device, chain.weights)
        if model is MemoryModel.PAPER:
            np.add.at(held, allocation.device, in_flight * chain.activation)
        else:
            things = _held(chain, allocation, times)
            for device in range(allocation.devices):
                held[device] += _fullest([each for each in things if each.device == device], pattern)
        peaks = ints(held)
        room = peaks if memory is None else np.broadcast_to(np.asarray(memory), peaks.shape)
        for device in np.flatnonzero(peaks > room).tolist():
            raise _RefusalError("memory", f"device {device} holds {peaks[device]} bytes, and has {room[device]}")
    except _RefusalError as refused:
        return PatternCheck(refusal=refused.refusal, text=refused.text, in_flight=in_flight, peaks=peaks)
    return PatternCheck(refusal="", text="", in_flight=in_flight, peaks=peaks)


def _as_run(chain: Chain, allocation: Allocation, machines: Machines) -> Chain:
    """Return the chain whose ticks each layer takes on its device, and each cut on its link, rounded up."""
    if machines.devices != allocation.devices:
        raise ValueError(f"an allocation to {allocation.devices} devices for {machines.devices} of them")
    device = allocation.device.tolist()
    pairs = [(min(pair), max(pair)) for pair in pairwise(device)]
    layer = [machines.speed[d] for d in device]
    # Within a device nothing is sent.
    cut = [Fraction(1) if d == e else machines.links.get((d, e), Fraction(1)) for d, e in pairs]
    halves = {"forward": layer, "backward": layer, "weight_gradient": layer, "transfers": cut}
    return replace(chain, **{
        name: ints([ceil(ticks / speed) for ticks, speed in zip(getattr(chain, name).tolist(), speeds, strict=True)])
        for name, speeds in halves.items()
    })  # fmt: skip


def _rows(chain: Chain, allocation: Allocation, pattern: Pattern) -> None:
    """Every operation has k rows where it must be, copies 0..k - 1, shifts that differ modulo k; no other has any."""
    sent = set(allocation.sent(chain).tolist())
    result: dict[tuple[int, int], list[int]] = {}
    for row, key in enumerate(zip(pattern.kind.tolist(), pattern.layer.tolist(), strict=True)):
        result.setdefault(key, []).append(row)
    for (kind, layer), rows in result.items():
        is_send = kind in (SEND_FORWARD, SEND_BACKWARD)
        if layer >= chain.layers or (is_send and layer not in sent):
            raise _RefusalError("rows", f"there is no {KINDS[kind]} of layer {layer}")
        at = allocation.link(ints([layer]))[0] if is_send else allocation.device[layer]
        wrong = pattern.resource[rows] != at
        if wrong.any():
            raise _RefusalError(
                "rows", f"{KINDS[kind]} of layer {layer} is on {pattern.resource[rows][wrong][0]}, not {at}"
            )
        copies, shifts = sorted(pattern.copy[rows].tolist()), sorted((pattern.shift[rows] % pattern.k).tolist())
        if copies != list(range(pattern.k)) or shifts != copies:
            raise _RefusalError("copies", f"{KINDS[kind]} of layer {layer} does not do each batch once")
    for layer in range(chain.layers):
        halves = tuple((kind, layer) in result for kind in (BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT))
        if (FORWARD, layer) not in result or halves not in ((True, False, False), (False, True, True)):
            raise _RefusalError("rows", f"layer {layer} lacks a half, or has one twice")
    for cut in sent:
        if (SEND_FORWARD, cut) not in result or (SEND_BACKWARD, cut) not in result:
            raise _RefusalError("rows", f"what crosses after layer {cut} is not sent")
    last = pattern.shift[((pattern.kind == BACKWARD) | (pattern.kind == INPUT_GRADIENT)) & (pattern.layer == 0)]
    if last.min() != 0:
        raise _RefusalError("rows", f"the least shift of layer 0's backward half is {last.min()}, not 0")


def _times(chain: Chain, pattern: Pattern) -> _Times:
    far = int(np.abs(pattern.shift).max()) // pattern.k + 2
    if far * pattern.T > MOST // 4:
        raise _RefusalError("rows", f"a shift of {far * pattern.k} batches is beyond what can be counted")
    batch = pattern.shift % pattern.k
    begins = pattern.t + pattern.T * ((batch - pattern.shift) // pattern.k)
    ends = begins + chain.ticks(pattern.kind, pattern.layer)
    start: dict[tuple[int, int], Ints] = {}
    end: dict[tuple[int, int], Ints] = {}
    keys = zip(pattern.kind.tolist(), pattern.layer.tolist(), strict=True)
    for row, key in enumerate(keys):
        for of, ticks in ((start, begins), (end, ends)):
            of.setdefault(key, np.zeros(pattern.k, dtype=np.int64))[batch[row]] = ticks[row]
    return _Times(start, end)


def _gradient(times: _Times, layer: int) -> tuple[int, int]:
    """Return the operation that makes the gradient for the layer before."""
    return (BACKWARD if (BACKWARD, layer) in times.start else INPUT_GRADIENT, layer)


def _release(times: _Times, layer: int) -> tuple[int, int]:
    """Return the operation of a layer's backward half that ends last."""
    return (BACKWARD if (BACKWARD, layer) in times.start else WEIGHT_GRADIENT, layer)


def _dependencies(chain: Chain, allocation: Allocation, times: _Times) -> None:
    sent = set(allocation.sent(chain).tolist())
    last = chain.layers - 1
    pairs = [((FORWARD, last), _gradient(times, last))]
    for layer in range(last):
        there, back = (FORWARD, layer), _gradient(times, layer + 1)
        if layer in sent:
            pairs += [(there, (SEND_FORWARD, layer)), (back, (SEND_BACKWARD, layer))]
            there, back = (SEND_FORWARD, layer), (SEND_BACKWARD, layer)
        pairs += [(there, (FORWARD, layer + 1)), (back, _gradient(times, layer))]
    pairs += [(_gradient(times, layer), _release(times, layer)) for layer in range(last + 1)]
    for before, after in pairs:
        if before != after and (times.end[before] > times.start[after]).any():
            text = f"{KINDS[after[0]]} of layer {after[1]} begins before {KINDS[before[0]]} of layer {before[1]} ends"
            raise _RefusalError("dependency", text)
        # A row longer than T overlaps itself, which the comparison with its follower a period later shows.


def _held(chain: Chain, allocation: Allocation, times: _Times) -> list[_HeldBytes]:
    """List the bytes that each batch holds on each device, with start and end."""
    device, sent = allocation.device.tolist(), set(allocation.sent(chain).tolist())
    held: list[_HeldBytes] = []

    def hold(layer: int, bytes_: int, begin: tuple[int, int], end: tuple[int, int]) -> None:
        held.append(_HeldBytes(device[layer], bytes_, times.start[begin], times.end[end]))

    for layer in range(chain.layers):
        hold(layer, int(chain.activation[layer]), (FORWARD, layer), _release(times, layer))
    hold(0, int(chain.output[0]), (FORWARD, 0), _release(times, 0))
    for cut in allocation.crossed.tolist():
        bytes_, after = int(chain.output[cut + 1]), cut + 1
        there, back = (SEND_FORWARD, cut), (SEND_BACKWARD, cut)
        hold(after, bytes_, there if cut in sent else (FORWARD, after), _release(times, after))
        if cut in sent:
            hold(after, bytes_, _gradient(times, after), back)
        # Where a link takes no time, the gradient is written where it is needed.
        hold(cut, bytes_, back if cut in sent else _gradient(times, after), _release(times, cut))
    return [each for each in held if each.bytes_]


def _fullest(held: list[_HeldBytes], pattern: Pattern) -> int:
    """Most bytes at any tick of a period, of every batch that is in flight there."""
    at: list[Ints] = []
    change: list[Ints] = []
    unrolled = 0
    for each in held:
        # Of the batches of one residue, those alive at some tick of [0, T).
        first = -((each.end - 1) // pattern.T)
        count = np.maximum((pattern.T - 1 - each.begin) // pattern.T - first + 1, 0)
        count[each.end <= each.begin] = 0
        unrolled += int(count.sum())
        if unrolled > _UNROLLED:
            raise _RefusalError("memory", f"more than {_UNROLLED} batches are in flight")
        which = np.repeat(np.arange(pattern.k), count)
        period = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + first[which]
        at += [each.begin[which] + period * pattern.T, each.end[which] + period * pattern.T]
        change += [np.full(len(which), each.bytes_), np.full(len(which), -each.bytes_)]
    if not unrolled:
        return 0
    ticks, sizes = np.maximum(np.concatenate(at), 0), np.concatenate(change)
    inside = ticks < pattern.T
    ticks, sizes = ticks[inside], sizes[inside]
    # What ends at a tick has left before what begins there.
    return int(np.cumsum(sizes[np.lexsort((sizes, ticks))]).max(initial=0))
