"""Seconds of every op on one GPU, and which form of kernel takes them.

Of a matmul the best of all tile shapes and splits counts, in whole waves over the multiprocessors. Convolutions and
their gradients are implicit matmuls, or Winograd's algorithm where that is quicker. All else is on the roofline.
"""

from dataclasses import dataclass, field

import numpy as np

from pesto.core.costs.kernel_rates import Constants, ConvConstants, Machine, engine, kernel_fits
from pesto.core.costs.presets import Preset
from pesto.core.graph import (
    CONV,
    CONV_FILTER,
    CONV_INPUT,
    DEPTHWISE,
    DEPTHWISE_FILTER,
    LOOP,
    MATMUL,
    PASSES,
    Graph,
    kernel_counts,
)  # fmt: skip
from solvers.arrays import Floats, Ints

ALGORITHMS = ("implicit matmul", "Winograd 4x4", "Winograd 2x2, fused")
"""Algorithms of convolutions."""
FORMS = ("nothing launched", "bytes and operations", "matmul", *ALGORITHMS, "depthwise", "passes", "loop")
"""Forms of kernels, the values of `KernelTimes.form`."""
_NOTHING, _ROOFLINE, _MATMUL, _FIRST_CONV = range(4)
_DEPTHWISE, _PASSES, _LOOP = range(_FIRST_CONV + len(ALGORITHMS), len(FORMS))
_VOLUME = "Conv3D"
"""Part of the names of ops that convolve volumes."""
_DEPTHWISE_REACH = 0.4
"""Share of an element-wise op's arithmetic that depthwise kernels reach: an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelTimes:
    """Seconds of n ops on one device."""

    seconds: Floats
    """[n] seconds of each op."""
    form: Ints
    """[n] index into FORMS."""


def gpu_op_times(graph: Graph, device: Preset) -> KernelTimes:
    """Time every op on a GPU: by its kernel where the graph says its form, else by launch and roofline."""
    engines = [engine(name, device) for name in graph.dtypes] + [engine("", device)]
    of = graph.dtype_of
    # The roofline: launches + max(operations, bytes) at the rates that are reached.
    kind = graph.kernels[:, 0]
    multiplies = (kind >= DEPTHWISE) & (kind <= DEPTHWISE_FILTER)
    # What has much arithmetic beside its bytes are loops and products whose sizes are not known: tensor cores' work.
    rate = np.array([e.peak_flops for e in engines])[of]
    rate = np.where(multiplies, np.array([e.plain_flops for e in engines])[of] * _DEPTHWISE_REACH, rate)
    rate = rate / device.reach * device.flop_efficiency
    moved = graph.moved_bytes + np.where(kind == PASSES, graph.kernels[:, 2], 0)
    work = np.maximum(graph.flops / rate, moved / (device.bandwidth * device.bandwidth_efficiency))
    launched = kernel_counts(graph.kernels, graph.launches) * device.launch_s + work
    form = np.select(
        [~graph.launches, multiplies, kind == PASSES, kind == LOOP], [_NOTHING, _DEPTHWISE, _PASSES, _LOOP], _ROOFLINE
    )
    seconds = np.where(graph.launches, launched, device.bookkeeping_s)
    known = graph.launches & (kind > 0) & (kind <= CONV_FILTER)
    volume = np.isin(graph.type_of, [k for k, name in enumerate(graph.types) if _VOLUME in name])
    for d in np.unique(of[known]).tolist():
        own = known & (of == d)
        for one, deep in np.unique(np.column_stack([kind[own], volume[own]]), axis=0).tolist():
            ops = np.flatnonzero(own & (kind == one) & (volume == deep))
            rows, which = np.unique(graph.kernels[ops], axis=0, return_inverse=True)
            timed, label = kernel_times(rows, engines[d], volumes=bool(deep))
            seconds[ops], form[ops] = timed[which.ravel()], label[which.ravel()]
    return KernelTimes(seconds=seconds, form=form)


def kernel_times(rows: Ints, machine: Machine, *, volumes: bool = False) -> tuple[Floats, Ints]:
    """Return [n] seconds and forms of rows of `Graph.kernels`, all matmuls or all convolutions of one pass.

    volumes: True where the convolutions are of three dimensions, for which no library has Winograd's algorithm.
    """
    form, fit = int(rows[0, 0]), kernel_fits()[machine.fitted_to, machine.tensor]
    if form == MATMUL:
        return matmul_seconds(rows, machine, fit.matmul), np.full(len(rows), _MATMUL)
    own = fit.passes[form - CONV]
    timed, algorithm = conv_seconds(rows, machine, own.matmul, own.conv, winograd=not volumes)
    return timed, _FIRST_CONV + algorithm


# Matmuls

_SIDES = (
    (16, 16), (32, 16), (16, 32), (32, 32), (64, 16), (16, 64), (64, 32), (32, 64), (64, 64), (128, 32), (32, 128),
    (128, 64), (64, 128), (128, 128), (256, 64), (64, 256), (256, 128), (128, 256),
)  # fmt: skip
_SPLITS = (1, 2, 4, 8, 16, 32, 64)
_REGISTER_OUTPUTS = 32768
"""Outputs that the registers of one multiprocessor hold, at 4 bytes each half of its 256 KiB."""
_MOST_RESIDENT = 8
_STEP = 8
"""Steps of the reduction that are loaded at once."""
_L2_BYTES_S = 3e12
_BATCH = 64
"""Products whose candidates stay in a core's cache."""
_REACHABLE = 0.93
"""Share of the memory's bandwidth that nothing passes."""
_WHOLE_STEPS = 1024
"""Reductions of a multiple of this are quick in every layout, as measured: their splits need no remainder."""
_ALIGNED = 16
"""Bytes to which rows have to be aligned for the widest loads."""


def matmul_seconds(rows: Ints, machine: Machine, own: Constants) -> Floats:
    """Return [n] seconds of products C[m, n] = A[m, k] B[k, n], row by row of `Graph.kernels`."""
    m, n, k, batch, a_transposed, b_transposed = rows[:, 1:7].astype(np.float64).T
    size = machine.element_bytes
    rough = ((k % _WHOLE_STEPS > 0) | (not machine.tensor)).astype(np.float64)
    odd = ((n % 2 > 0) | (k % 2 > 0)) & machine.tensor
    stored = np.column_stack([n, np.where(a_transposed, m, k), np.where(b_transposed, k, n)]).astype(np.int64)
    # [n] how many times an alignment to 16 bytes has to be halved until rows of so many bytes keep it.
    row_bytes = stored * size
    halvings = np.log2(_ALIGNED / np.clip(row_bytes & -row_bytes, 1, _ALIGNED))
    misaligned = halvings.max(axis=1) * machine.tensor
    extra = own.transposed * b_transposed * rough
    written = m * n * batch
    slower = (1 + own.unaligned * odd * rough + own.misaligned * misaligned) * (1 + own.transposed_work * b_transposed)
    products = Products(
        m=m, n=n, k=k, batch=batch, written=written, speed=np.ones(1),
        read_bytes=size * (batch * (m * k + k * n * (1 + extra)) + written),
        least_bytes=size * (batch * (m * k + k * n) + written), slower=slower - 1,
    )  # fmt: skip
    return product_seconds(products, machine, own, splits=machine.most_splits) + own.latency_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Products:
    """n products [m, k] x [k, n], `batch` of each; any field may be of length 1."""

    m: Floats
    n: Floats
    k: Floats
    batch: Floats
    read_bytes: Floats
    """[n] bytes of the factors, with what slow reading adds."""
    least_bytes: Floats
    """[n] bytes read and written at least."""
    written: Floats
    """[n] numbers that a split has to add up."""
    speed: Floats
    """[n] times the rate of plain matmuls."""
    slower: Floats = field(default_factory=lambda: np.zeros(1))
    """[n] how much longer both the multiplication and the loads from L2 take."""


def product_seconds(
    p: Products, machine: Machine, fitted: Constants, *, splits: int = 64, narrowest: int = 16
) -> Floats:
    """Return [n] seconds of each product, launch included, by the best tile and split."""
    narrowest = max(narrowest, machine.least_tile)
    least = max(machine.least_tile, min(narrowest, 32))
    sides = [(a, b) for a, b in _SIDES if a >= narrowest and b >= least]
    tried = np.array([(a, b, s) for a, b in sides for s in _SPLITS if s <= splits], dtype=np.float64)
    held_up = (1 + p.slower) / p.speed
    columns = np.stack(
        np.broadcast_arrays(p.m, p.n, p.k, p.batch, p.read_bytes, p.least_bytes, p.written, held_up), axis=1
    )
    best = [_best_seconds(columns[i : i + _BATCH], tried, machine, fitted) for i in range(0, len(columns), _BATCH)]
    return fitted.launch * machine.launch_s + np.concatenate(best)


def _best_seconds(columns: Floats, tried: Floats, machine: Machine, fitted: Constants) -> Floats:
    """[n] seconds without the launch, of the best of `tried` (tile rows and columns, splits)."""
    m, n, k, batch, read, least, written, held_up = columns.T[:, :, None]
    tile_m, tile_n, split = tried[:, 0], tried[:, 1], tried[:, 2]
    steps = np.ceil(k / split / _STEP) * _STEP
    tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n) * (batch * split)
    area, sides = tile_m * tile_n, tile_m + tile_n
    resident = np.clip(np.floor(_REGISTER_OUTPUTS / area), 1, _MOST_RESIDENT)
    each = np.ceil(tiles / machine.sms)
    under_way = np.minimum(each, resident) * area
    half = fitted.half * machine.width
    rate = (
        machine.peak_flops / machine.sms * fitted.efficiency * (1 + half / _REGISTER_OUTPUTS) / (1 + half / under_way)
    )
    work = each * (2 * area * (1 + 16 * fitted.small * sides / area)) * (steps + fitted.fill) / rate
    l2 = _L2_BYTES_S * fitted.l2 * machine.l2
    loads = tiles * steps * (sides * (machine.element_bytes / l2))
    share = fitted.bandwidth
    if fitted.spread:
        lines = np.minimum(tiles, machine.sms * resident) * sides
        share = share * lines / (lines + fitted.spread * machine.sms)
    partial = 8.0 * written * np.where(split > 1, split, 0)
    beyond_l2 = np.maximum(least + partial - machine.l2_bytes, 0)
    memory = np.maximum((read + partial) / (machine.bandwidth * share), beyond_l2 / (machine.bandwidth * _REACHABLE))
    # What overlaps takes as long as its longest, a little longer where two take equally long: the norm of order 4.
    squares = [np.square(s) for s in (work * held_up, loads * held_up, memory)]
    busy = np.sqrt(np.sqrt(sum((np.square(s) for s in squares[1:]), start=np.square(squares[0]))))
    waits = np.ceil(each / resident) * fitted.wave_s + np.where(split > 1, fitted.split_s, 0.0)
    return (busy + waits * machine.cycles).min(axis=1)


# Convolutions

IMPLICIT, NOT_FUSED, FUSED = range(3)
_FEW = 16
"""Channels below which the kernels waste most of what they load."""
_PADDED, _LEAST_TILE = 4, 32
"""Few channels of an input gradient, the columns of its matmul, are padded to 4 and not to a tile's 32."""
_MULTIPLE = 8
_POINTS = 36
"""Points of Winograd's F(4x4, 3x3): 6x6 transformed ones, each a matmul of its own."""


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
        kernel = self.filters * self.channels * self.taps
        return image, kernel, self.batch * self.filters * self.out_height * self.out_width

    @property
    def map(self) -> tuple[Floats, Floats]:
        """Height and width of what is written, or summed over."""
        forward = (self.out_height, self.out_width)
        return (self.height, self.width) if self.form == CONV_INPUT else forward


def conv_seconds(
    rows: Ints, machine: Machine, fitted: Constants, conv: ConvConstants, *, winograd: bool = True
) -> tuple[Floats, Ints]:
    """Return [n] seconds, and the algorithm that takes them, of rows of `Graph.kernels` of one pass of convolutions.

    winograd: True where Winograd's algorithm may be used; otherwise all are implicit matmuls.
    """
    n, c, h, w, k, r, s, down, across, oh, ow = rows[:, 1:].astype(np.float64).T
    shapes = _Shapes(
        form=int(rows[0, 0]), batch=n, channels=c, height=h, width=w, filters=k, taps=r * s, stride=down * across,
        out_height=oh, out_width=ow,
    )  # fmt: skip
    # [n] shapes that tensor cores do not take: channels and filters have to be multiples of 8 in half precision.
    plain = ((c % _MULTIPLE > 0) | (k % _MULTIPLE > 0)) & machine.tensor
    # [n] times the rate of a plain matmul, by the kind of filter.
    strided = shapes.stride > 1
    kind = np.where(
        shapes.taps == 1,
        np.where(strided, conv.strided_pointwise, conv.pointwise),
        np.where(strided, conv.strided, np.where(shapes.taps >= 25, conv.large, 1.0)),
    )
    missing = np.log2(_FEW / np.minimum(c, _FEW)) / np.log2(_FEW)
    padded = _LEAST_TILE / np.maximum(c, _PADDED) if shapes.form == CONV_INPUT else 1.0
    speed = conv.gathered * kind * conv.few**missing * np.where(c < _FEW, padded, 1.0)
    # [n] how much a map grows that is rounded up to tiles of 2x2.
    high, wide = shapes.map
    rounded = np.ceil(high / 2) * np.ceil(wide / 2) * 4 / (high * wide)
    timed = np.stack([
        _time_implicit(shapes, speed * np.where(plain, conv.plain, 1.0), machine, fitted, conv),
        _time_winograd(shapes, machine, fitted, conv),
        _time_implicit(shapes, conv.gathered * conv.fused / rounded, machine, fitted, conv),
    ])  # fmt: skip
    timed[1:, ~((shapes.taps == 9) & (shapes.stride == 1) & ~plain & winograd)] = np.inf
    return timed.min(axis=0) + conv.extra_s, timed.argmin(axis=0)


def _time_implicit(s: _Shapes, speed: Floats, machine: Machine, fitted: Constants, conv: ConvConstants) -> Floats:
    """[n] seconds as one matmul."""
    image, kernel, output = s.sizes
    pixels = s.batch * s.out_height * s.out_width
    if s.form == CONV:
        (m, n, k), written = (pixels, s.filters, s.channels * s.taps), output
    elif s.form == CONV_INPUT:
        positions = s.batch * s.height * s.width
        (m, n, k), written = (positions, s.channels, s.filters * s.taps / s.stride), image
    else:
        (m, n, k), written = (s.channels * s.taps, s.filters, pixels), kernel
    cleared = conv.zeroed * written * (s.stride > 1) * (s.form == CONV_INPUT)
    least = machine.element_bytes * (np.sum(s.sizes, axis=0) + cleared)
    one = np.ones(1)
    products = Products(m=m, n=n, k=k, batch=one, read_bytes=least, least_bytes=least, written=written, speed=speed)
    return product_seconds(products, machine, fitted, splits=conv.splits, narrowest=conv.narrowest)


def _time_winograd(s: _Shapes, machine: Machine, fitted: Constants, conv: ConvConstants) -> Floats:
    """[n] seconds by F(4x4, 3x3): both factors are transformed, 36 products computed and transformed back."""
    high, wide = s.map
    tiles = s.batch * np.ceil(high / 4) * np.ceil(wide / 4)
    inner = _POINTS * (tiles * (s.channels + s.filters) + s.channels * s.filters)
    m, n, k = {
        CONV: (tiles, s.filters, s.channels), CONV_INPUT: (tiles, s.channels, s.filters),
        CONV_FILTER: (s.channels, s.filters, tiles),
    }[s.form]  # fmt: skip
    size, one = machine.element_bytes, np.ones(1)
    products = Products(
        m=m, n=n, k=k, batch=_POINTS * one, read_bytes=size * inner, least_bytes=size * inner, written=0 * one,
        speed=conv.winograd * one,
    )  # fmt: skip
    transforms = size * (np.sum(s.sizes, axis=0) + inner) / (machine.bandwidth * conv.transforms)
    timed = product_seconds(products, machine, fitted, splits=conv.splits, narrowest=conv.narrowest)
    return timed + transforms + 2 * fitted.launch * machine.launch_s
