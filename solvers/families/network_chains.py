"""Random chains, and chains whose layers are as those of networks; on devices with little memory more than the least.

Weights are held four times (the weights, their gradient, two moments of Adam); the backward half takes twice as long
as the forward half.
"""

import numpy as np

from solvers.arrays import Floats, Ints
from solvers.families.pipeline_case import PipelineCase
from solvers.pipelining.chain import Chain
from solvers.pipelining.contiguous import least_memory


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
    return PipelineCase(chain=chain, devices=devices, memory=-(-least_memory(chain, devices) * room // 100))
