"""Seconds of convolutions and their gradients: implicit matmuls, or Winograd's algorithm where that is quicker."""

from dataclasses import dataclass

import numpy as np

from pesto.core.costs.kernels.machine import Constants, ConvConstants, Machine
from pesto.core.costs.kernels.tiles import Products, seconds
from pesto.core.graph import CONV, CONV_FILTER, CONV_INPUT
from solvers.arrays import Floats, Ints

IMPLICIT, NOT_FUSED, FUSED = range(3)
ALGORITHMS = ("implicit matmul", "Winograd 4x4", "Winograd 2x2, fused")
_FEW = 16
"""Channels below which the kernels waste most of what they load."""
_PADDED, _LEAST_TILE = 4, 32
"""Few channels of an input gradient, the columns of its matmul, are padded to 4 and not to a tile's 32."""
_MULTIPLE = 8
_POINTS = 36
"""Of Winograd's F(4x4, 3x3): 6x6 transformed points, each a matmul of its own."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shapes:
    """Columns [n] of `Graph.kernels`, and what follows from them."""

    form: int
    batch: Floats
    channels: Floats
    height: Floats
    width: Floats
    filters: Floats
    taps: Floats
    """Filter height times width."""
    stride: Floats
    """Stride down times across."""
    out_height: Floats
    out_width: Floats

    @property
    def sizes(self) -> tuple[Floats, Floats, Floats]:
        """Numbers in the input, the filter and the output."""
        image = self.batch * self.channels * self.height * self.width
        return (image, self.filters * self.channels * self.taps,
                self.batch * self.filters * self.out_height * self.out_width)  # fmt: skip

    @property
    def product(self) -> tuple[Floats, Floats, Floats]:
        """m, n and k of the matmul that the pass is."""
        pixels = self.batch * self.out_height * self.out_width
        if self.form == CONV:
            return pixels, self.filters, self.channels * self.taps
        if self.form == CONV_INPUT:
            image = self.batch * self.height * self.width
            return image, self.channels, self.filters * self.taps / self.stride
        return self.channels * self.taps, self.filters, pixels

    def pick(self, forward: Floats, to_input: Floats, to_filter: Floats) -> Floats:
        """What holds for this pass."""
        return {CONV: forward, CONV_INPUT: to_input, CONV_FILTER: to_filter}[self.form]


def conv_seconds(
    rows: Ints, machine: Machine, fitted: Constants, conv: ConvConstants, *, winograd: bool = True
) -> tuple[Floats, Ints]:
    """[n] seconds, and which algorithm takes them, of rows of `Graph.kernels` of one pass of convolutions.

    winograd: whether Winograd's algorithm may; otherwise all are implicit matmuls.
    """
    n, c, h, w, k, r, s, down, across, oh, ow = rows[:, 1:].astype(np.float64).T
    shapes = _Shapes(
        form=int(rows[0, 0]), batch=n, channels=c, height=h, width=w, filters=k, taps=r * s, stride=down * across,
        out_height=oh, out_width=ow,
    )  # fmt: skip
    # [n] shapes that tensor cores do not take: channels and filters have to be multiples of 8 in half precision.
    plain = ((shapes.channels % _MULTIPLE > 0) | (shapes.filters % _MULTIPLE > 0)) & machine.tensor
    speed = _speed(shapes, conv) * np.where(plain, conv.plain, 1.0)
    # [n] how much a map grows that is rounded up to tiles of 2x2.
    high, wide = _map(shapes)
    rounded = np.ceil(high / 2) * np.ceil(wide / 2) * 4 / (high * wide)
    found = np.stack([
        _implicit(shapes, speed, machine, fitted, conv),
        _not_fused(shapes, machine, fitted, conv),
        _implicit(shapes, conv.gathered * conv.fused / rounded, machine, fitted, conv),
    ])  # fmt: skip
    found[1:, ~((shapes.taps == 9) & (shapes.stride == 1) & ~plain & winograd)] = np.inf
    best = found.argmin(axis=0)
    return found.min(axis=0) + conv.extra_s, best


def _speed(s: _Shapes, conv: ConvConstants) -> Floats:
    """[n] times the rate of a plain matmul, by the kind of filter."""
    strided, pointwise = s.stride > 1, s.taps == 1
    kind = np.where(
        pointwise,
        np.where(strided, conv.strided_pointwise, conv.pointwise),
        np.where(strided, conv.strided, np.where(s.taps >= 25, conv.large, 1.0)),
    )
    missing = np.log2(_FEW / np.minimum(s.channels, _FEW)) / np.log2(_FEW)
    padded = _LEAST_TILE / np.maximum(s.channels, _PADDED) if s.form == CONV_INPUT else 1.0
    return conv.gathered * kind * conv.few**missing * np.where(s.channels < _FEW, padded, 1.0)


def _implicit(s: _Shapes, speed: Floats, machine: Machine, fitted: Constants, conv: ConvConstants) -> Floats:
    m, n, k = s.product
    written = s.pick(s.sizes[2], s.sizes[0], s.sizes[1])
    cleared = conv.zeroed * written * (s.stride > 1) * (s.form == CONV_INPUT)
    least = machine.element_bytes * (np.sum(s.sizes, axis=0) + cleared)
    one = np.ones(1)
    products = Products(m=m, n=n, k=k, batch=one, read_bytes=least, least_bytes=least, written=written, speed=speed)
    return seconds(products, machine, fitted, splits=conv.splits, narrowest=conv.narrowest)


def _not_fused(s: _Shapes, machine: Machine, fitted: Constants, conv: ConvConstants) -> Floats:
    """F(4x4, 3x3): both factors are transformed, 36 matmuls multiplied, the products transformed back."""
    high, wide = _map(s)
    tiles = s.batch * np.ceil(high / 4) * np.ceil(wide / 4)
    inner = _POINTS * (tiles * (s.channels + s.filters) + s.channels * s.filters)
    m, n, k = {
        CONV: (tiles, s.filters, s.channels), CONV_INPUT: (tiles, s.channels, s.filters),
        CONV_FILTER: (s.channels, s.filters, tiles),
    }[s.form]  # fmt: skip
    size = machine.element_bytes
    one = np.ones(1)
    products = Products(
        m=m, n=n, k=k, batch=_POINTS * one, read_bytes=size * inner, least_bytes=size * inner,
        written=0 * one, speed=conv.winograd * one,
    )  # fmt: skip
    transforms = size * (np.sum(s.sizes, axis=0) + inner) / (machine.bandwidth * conv.transforms)
    twice = 2 * fitted.launch * machine.launch_s
    return seconds(products, machine, fitted, splits=conv.splits, narrowest=conv.narrowest) + transforms + twice


def _map(s: _Shapes) -> tuple[Floats, Floats]:
    """Height and width of what is written, or summed over."""
    return s.pick(s.out_height, s.height, s.out_height), s.pick(s.out_width, s.width, s.out_width)
