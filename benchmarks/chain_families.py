"""Families of chains to be pipelined: the paper's examples with their optima, random ones, and ones like networks.

The examples of Beaumont, Eyraud-Dubois and Shilova (Euro-Par 2021) come with the least periods that they prove; where
the paper has one cost for both halves of a layer, the forward half has half of it, rounded down, and nothing is charged
for what crosses a cut, so both models of memory agree. Layers like those of networks hold their weights four times (the
weights, their gradient, two moments of Adam), and a backward half takes twice as long as a forward half.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from solvers.arrays import Floats, Ints
from solvers.instances.table import Parameter
from solvers.pipelining.chain import Allocation, Chain, Machines
from solvers.pipelining.contiguous import bytes_lacking
from solvers.pipelining.layer_dag import LayerDag


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineCase:
    """A chain to be pipelined. None where nothing is known."""

    chain: Chain
    devices: int
    memory: int | None = None
    """Bytes of each device; None: as many as are asked for."""
    given: Allocation | None = None
    """Device index of each layer; None where the solver chooses it."""
    least: Fraction | None = None
    """The least period of all allocations (or of the given one), with any periodic schedule."""
    reached_on: Allocation | None = None
    """An allocation with a schedule of that period."""
    least_contiguous: Fraction | None = None
    """The least period of contiguous allocations, with any periodic schedule."""
    fits_contiguous: bool = True
    """False where it is known that no contiguous allocation fits the memory."""


def three_partition(rng: np.random.Generator, parts: int, total: int) -> PipelineCase:
    """`of_numbers` of 3 `parts` numbers that a hidden partition puts in threes of sum `total` >= 3."""
    low, high = max(1, total // 4), total // 2
    threes: list[tuple[int, int, int]] = []
    while len(threes) < parts:
        a, b = (int(n) for n in rng.integers(low, high + 1, 2))
        if low <= total - a - b <= high:
            threes.append((a, b, total - a - b))
    return of_numbers(rng.permutation(np.array(threes).ravel()).tolist(), partitioned=True)


def of_numbers(numbers: Sequence[int], *, partitioned: bool | None = None) -> PipelineCase:
    """Theorem 2: an allocation of 6 m layers to two devices on which 2 m V ticks are reached if 3 m numbers can be put
    in m threes of equal sum V, and only then; `partitioned` says whether they can, where that is known.

    Memory keeps one batch in each of the last 2 m layers, which leaves the first device m holes of V ticks. ValueError
    where the numbers are not 3 m, or do not sum to a multiple of m.
    """
    parts, lacking = divmod(len(numbers), 3)
    if not parts or lacking or sum(numbers) % parts:
        raise ValueError(f"{len(numbers)} numbers of sum {sum(numbers)} - give 3 m whose sum is a multiple of m")
    total = sum(numbers) // parts
    device = np.array([1] * parts + [0] * (3 * parts) + [1, 0] * parts)
    allocation = Allocation(device=device, devices=2)
    return PipelineCase(
        chain=_chain(
            forward=[total] * parts + list(numbers) + [total] * (2 * parts), backward=[0] * (6 * parts),
            activation=[0] * (4 * parts) + [1] * (2 * parts),
        ),
        devices=2, memory=parts, given=allocation,
        least=Fraction(2 * parts * total) if partitioned else None, reached_on=allocation if partitioned else None,
    )  # fmt: skip


def many_batches(k: int) -> PipelineCase:
    """Theorem 4: k + 1 equal layers on as many devices; 2 (k + 1) / k ticks need patterns of k batches or more.

    Layer l has room for k batches, then k, k - 1, ..., 1. Two layers on one device take 4 ticks, never less.
    """
    layers = k + 1
    least = Fraction(2 * layers, k)
    return PipelineCase(
        chain=_chain(
            forward=[1] * layers, backward=[1] * layers, activation=[1] * layers, weights=[1, *range(1, layers)]
        ),
        devices=layers, memory=layers, least=least, least_contiguous=least,
        reached_on=Allocation(device=np.arange(layers), devices=layers),
    )  # fmt: skip


def twice_as_long(k: int) -> PipelineCase:
    """Theorem 5, k >= 2: the best contiguous allocation takes 2 - 1 / k times as long as the best, and a bit more.

    A tick is the paper's epsilon: on 2 k + 1 devices k (2 k + 1) ticks, against (2 k - 1) (2 k + 1) + 1.
    """
    if k < 2:
        raise ValueError(f"k is {k} - give 2 or more, as for 1 the paper's chain has fewer than no layers of one kind")
    unit = 2 * k + 1
    small = (k - 2) * unit + 1
    costs = [k * unit, 1, (k - 1) * unit, 1] * k + [k * unit] + [1] * small + [unit]
    # k + 1 devices have the long layers, one the last layer and a shorter one, k - 1 a shorter one and 2 k + 1 ticks.
    device = np.zeros(len(costs), dtype=np.int64)
    device[np.flatnonzero(np.array(costs) == k * unit)] = np.arange(k + 1)
    shorter = np.arange(2, 4 * k, 4)
    device[shorter] = k + 1 + np.arange(k)
    device[-1] = k + 1
    ticks = np.flatnonzero(np.array(costs) == 1)
    device[ticks] = k + 2 + np.arange(len(ticks)) // unit
    return PipelineCase(
        chain=_of_costs(costs), devices=unit, least=Fraction(k * unit),
        least_contiguous=Fraction((2 * k - 1) * unit + 1), reached_on=Allocation(device=device, devices=unit),
    )  # fmt: skip


def arbitrarily_longer(k: int) -> PipelineCase:
    """Theorem 6, k >= 2: within the memory the best contiguous allocation takes k - 1 times as long as the best.

    k layers of one tick and M - 1 bytes, one of k ticks and M bytes, k of k - 1 ticks and one byte; k + 2 devices of
    M = max(k, 3) bytes, of which the best leaves one idle.
    """
    if k < 2:
        raise ValueError(f"k is {k} - give 2 or more, as for 1 the last layers take no time")
    memory = max(k, 3)
    return PipelineCase(
        chain=_of_costs([1] * k + [k] + [k - 1] * k, [memory - 1] * k + [memory] + [1] * k),
        devices=k + 2, memory=memory, least=Fraction(k), least_contiguous=Fraction(k * (k - 1)),
        reached_on=Allocation(device=np.array([*range(k), k, *range(k)]), devices=k + 2),
    )  # fmt: skip


def one_two_one(bounded: bool) -> PipelineCase:
    """Layers of 1, 2 and 1 ticks and bytes on two devices: 2 ticks, or 3 if contiguous (section 6.1).

    `bounded`: of two bytes each, which no contiguous allocation fits (Lemma 2).
    """
    return PipelineCase(
        chain=_of_costs([1, 2, 1], [1, 2, 1]), devices=2, memory=2 if bounded else None, least=Fraction(2),
        reached_on=Allocation(device=np.array([0, 1, 0]), devices=2),
        least_contiguous=None if bounded else Fraction(3), fits_contiguous=not bounded,
    )  # fmt: skip


def _of_costs(costs: Sequence[int], weights: Sequence[int] | None = None) -> Chain:
    forward = [cost // 2 for cost in costs]
    backward = [cost - cost // 2 for cost in costs]
    return _chain(forward=forward, backward=backward, weights=weights)


def _chain(
    *,
    forward: Sequence[int],
    backward: Sequence[int],
    activation: Sequence[int] | None = None,
    weights: Sequence[int] | None = None,
) -> Chain:
    layers = len(forward)

    def column(values: Sequence[int] | None) -> Ints:
        return np.array([0] * layers if values is None else values, dtype=np.int64)

    return Chain(
        forward=column(forward), backward=column(backward), weights=column(weights), activation=column(activation),
        output=np.zeros(layers + 1, dtype=np.int64), transfers=np.zeros(layers - 1, dtype=np.int64),
    )  # fmt: skip


def random_chain(rng: np.random.Generator, layers: int, *, devices: int, longest: int, room: int) -> PipelineCase:
    """Ticks and bytes of each layer and cut drawn evenly from 0 to `longest`, backward halves from 1.

    A device has `room` percent of the least memory that some contiguous allocation fits.
    """
    chain = Chain(
        forward=rng.integers(0, longest + 1, layers),
        backward=rng.integers(1, longest + 1, layers),
        weights=rng.integers(0, longest + 1, layers),
        activation=rng.integers(0, longest + 1, layers),
        output=rng.integers(0, longest + 1, layers + 1),
        transfers=rng.integers(0, longest + 1, layers - 1),
    )
    return _on(chain, devices, room)


def transformer_chain(rng: np.random.Generator, blocks: int, *, devices: int, width: int, room: int) -> PipelineCase:
    """An embedding, `blocks` of attention and of two feed-forward products, and a softmax over 16 `width` words.

    Per position: a block's attention has 4 d^2 weights and keeps 6 d numbers, its products 8 d^2 and 5 d, for d =
    `width`; d numbers cross every cut. The embedding has 16 d^2 weights and does nothing but look them up. A tick is
    the product of 64 numbers by 64, on which no layer is off by more than a tenth.
    """
    weights = np.array([16, *[4, 8] * blocks, 16]) * float(width**2)
    kept = np.array([1, *[6, 5] * blocks, 17]) * float(width)
    work = np.array([1 / width, *[4, 8] * blocks, 16]) * float(width**2)
    crossing = np.full(2 * blocks + 3, float(width))
    return _on(_network(rng, work, weights, kept, crossing), devices, room)


def convolution_chain(rng: np.random.Generator, layers: int, *, devices: int, width: int, room: int) -> PipelineCase:
    """Convolutions whose pictures shrink four times to a quarter while their channels double, from `width` on.

    Large activations first, large weights last: 3 x 3 windows, c^2 weights for c channels, c numbers for each of the
    positions, 4 096 at first; every layer works alike but for where channels double. A tick as for `transformer_chain`.
    """
    halvings = np.arange(layers) * 5 // layers
    channels, positions = width * 2.0**halvings, 4096 / 4.0**halvings
    before = np.concatenate([[3.0], channels[:-1]])
    weights, kept = 9 * before * channels, positions * channels
    crossing = np.concatenate([[4096 * 3.0], kept])
    return _on(_network(rng, weights * positions, weights, kept, crossing), devices, room)


def _network(rng: np.random.Generator, work: Floats, weights: Floats, kept: Floats, crossing: Floats) -> Chain:
    """Numbers of four bytes; a link takes a tick for 256 of them, there and back twice that."""
    forward = _whole(work * rng.uniform(0.9, 1.1, len(work)) / 64**2)
    return Chain(
        forward=forward, backward=2 * forward, weights=16 * _whole(weights), activation=4 * _whole(kept),
        output=4 * _whole(crossing), transfers=2 * _whole(crossing[1:-1] / 256),
    )  # fmt: skip


def _whole(values: Floats) -> Ints:
    """Rounded up, at least 1."""
    return np.maximum(1, np.ceil(values)).astype(np.int64)


def _on(chain: Chain, devices: int, room: int) -> PipelineCase:
    return PipelineCase(
        chain=chain, devices=devices, memory=-(-bytes_lacking(chain, Machines.alike(devices, 0)) * room // 100)
    )


def network_dag(rng: np.random.Generator, layers: int, *, tied: float = 0.05) -> LayerDag:
    """One to three edges into each layer, from the last eight, every twentieth from anywhere before; some layers tied.

    Loads are log-normal, about 100 ticks; a transfer is about a tenth of that. `tied`: the share of layers that share
    their device with one other, as those do that share weights.
    """
    src, dst = list[int](), list[int]()
    for layer in range(1, layers):
        many = 1 + int(rng.integers(0, 3) * (rng.random() < 0.5))
        near = layer - 1 - np.minimum(rng.geometric(0.5, many) - 1, min(7, layer - 1))
        from_ = {int(rng.integers(layer)) if rng.random() < 0.05 else int(one) for one in near}
        src += sorted(from_)
        dst += [layer] * len(from_)
    group = np.full(layers, -1)
    pairs = rng.permutation(layers)[: 2 * int(tied * layers / 2)].reshape(-1, 2)
    group[pairs] = np.arange(len(pairs))[:, None]
    return LayerDag(
        loads=np.ceil(rng.lognormal(4.4, 0.6, layers)).astype(np.int64),
        src=np.array(src, dtype=np.int64), dst=np.array(dst, dtype=np.int64),
        transfers=np.ceil(rng.lognormal(2.0, 0.8, len(src))).astype(np.int64), group=group,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFamily:
    """Chains of one structure."""

    function: Callable[..., PipelineCase]
    """Takes the parameters by name, after a random generator where `seeded`."""
    seeded: bool
    parameters: Mapping[str, Parameter]
    help: str
    """Description of the family, one line."""


_DEVICES = Parameter(default=4, least=1, most=256)
_ROOM = Parameter(default=150, least=100, most=10**6)
_WIDTH = Parameter(default=256, least=1, most=10**5)

CHAIN_FAMILIES: dict[str, ChainFamily] = {
    "three-partition": ChainFamily(
        function=three_partition,
        seeded=True,
        parameters={
            "parts": Parameter(default=2, least=1, most=1000), "total": Parameter(default=20, least=3, most=10**6),
        },
        help="a given allocation with holes for a hidden partition of numbers in threes (Th 2)",
    ),
    "many-batches": ChainFamily(
        function=many_batches,
        seeded=False,
        parameters={"k": Parameter(default=3, least=1, most=1000)},
        help="equal layers that need patterns of k batches (Th 4)",
    ),
    "twice-as-long": ChainFamily(
        function=twice_as_long,
        seeded=False,
        parameters={"k": Parameter(default=2, least=2, most=50)},
        help="contiguous stages take almost twice as long as the best allocation (Th 5)",
    ),
    "arbitrarily-longer": ChainFamily(
        function=arbitrarily_longer,
        seeded=False,
        parameters={"k": Parameter(default=3, least=2, most=1000)},
        help="contiguous stages within the memory take k - 1 times as long as the best allocation (Th 6)",
    ),
    "one-two-one": ChainFamily(
        function=one_two_one,
        seeded=False,
        parameters={"bounded": Parameter(default=1, least=0, most=1)},
        help="three layers on two devices; bounded=1: that no contiguous stages fit (Lemma 2)",
    ),
    "random-chain": ChainFamily(
        function=random_chain,
        seeded=True,
        parameters={
            "layers": Parameter(default=12, least=1, most=10_000), "devices": _DEVICES,
            "longest": Parameter(default=20, least=1, most=10**9), "room": _ROOM,
        },
        help="ticks and bytes at random; room: percent of the least memory for contiguous stages",
    ),
    "transformer-chain": ChainFamily(
        function=transformer_chain,
        seeded=True,
        parameters={
            "blocks": Parameter(default=6, least=1, most=5000), "devices": _DEVICES, "width": _WIDTH, "room": _ROOM,
        },
        help="attention and feed-forward layers between an embedding and a softmax",
    ),
    "convolution-chain": ChainFamily(
        function=convolution_chain,
        seeded=True,
        parameters={
            "layers": Parameter(default=20, least=1, most=10_000), "devices": _DEVICES,
            "width": Parameter(default=16, least=1, most=10**4), "room": _ROOM,
        },
        help="convolutions: large activations first, large weights last",
    ),
}  # fmt: skip
"""A new family is one function and one row here."""


def make_case(name: str, seed: int = 0, **parameters: int) -> PipelineCase:
    """The case of a family; equal arguments give equal cases. `seed` counts only where the family is seeded.

    ValueError, with the remedy, for an unknown family or parameter, and for a value out of range.
    """
    if name not in CHAIN_FAMILIES:
        raise ValueError(f"no family is called {name!r} - {_nearest(name, CHAIN_FAMILIES)}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed {seed} is out of range - give 0 to 2^63 - 1")
    family = CHAIN_FAMILIES[name]
    for key, value in parameters.items():
        if key not in family.parameters:
            raise ValueError(f"{name} has no parameter {key!r} - {_nearest(key, family.parameters)}")
        least, most = family.parameters[key].least, family.parameters[key].most
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{name}: {key} is {value!r} - give an integer from {least} to {most}")
    values = {key: parameters.get(key, parameter.default) for key, parameter in family.parameters.items()}
    source = (np.random.default_rng(seed),) if family.seeded else ()
    return family.function(*source, **values)


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1)
    return (f"did you mean {close[0]}? " if close else "") + f"known: {', '.join(names)}"
