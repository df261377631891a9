"""Seconds of every op on one GPU, and which form of kernel takes them."""

from dataclasses import dataclass

import numpy as np

from pesto.core.costs.kernels import fitted, fitted_h200
from pesto.core.costs.kernels.convolutions import ALGORITHMS, conv_seconds
from pesto.core.costs.kernels.engines import engine
from pesto.core.costs.kernels.machine import Constants, Machine
from pesto.core.costs.kernels.tiles import Products, seconds
from pesto.core.costs.presets import Preset
from pesto.core.graph import CONV, CONV_FILTER, DEPTHWISE, DEPTHWISE_FILTER, LOOP, MATMUL, PASSES, Graph, kernel_counts
from solvers.arrays import Floats, Ints

FORMS = ("nothing launched", "bytes and operations", "matmul", *ALGORITHMS, "depthwise", "passes", "loop")
"""Forms of kernels, the values of `KernelTimes.form`."""
_VOLUME = "Conv3D"
"""Part of the names of ops that convolve volumes."""
_NOTHING, _ROOFLINE, _MATMUL, _FIRST_CONV = range(4)
_DEPTHWISE, _PASSES, _LOOP = range(_FIRST_CONV + len(ALGORITHMS), len(FORMS))
_WHOLE_STEPS = 1024
"""Reductions of a multiple of this are quick in every layout, as measured: their splits need no remainder."""

_MATMULS = {"V100": fitted.MATMULS, "H200": fitted_h200.MATMULS}
_CONVOLUTIONS = {"V100": fitted.CONVOLUTIONS, "H200": fitted_h200.CONVOLUTIONS}
_ALIGNED = 16
"""Bytes to which rows have to be aligned for the widest loads."""

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
    """Seconds of every op on a GPU: its kernel's where the graph says its form, else launch and the roofline."""
    engines = [engine(name, device) for name in graph.dtypes] + [engine("", device)]
    of = graph.dtype_of
    found, form = _roofline(graph, device, of, engines)
    known = graph.launches & (graph.kernels[:, 0] > 0) & (graph.kernels[:, 0] <= CONV_FILTER)
    volume = np.isin(graph.type_of, [k for k, name in enumerate(graph.types) if _VOLUME in name])
    for d in np.unique(of[known]).tolist():
        own = known & (of == d)
        for kind, deep in np.unique(np.column_stack([graph.kernels[own, 0], volume[own]]), axis=0).tolist():
            at = np.flatnonzero(own & (graph.kernels[:, 0] == kind) & (volume == deep))
            rows, which = np.unique(graph.kernels[at], axis=0, return_inverse=True)
            timed, label = kernel_times(rows, engines[d], volumes=bool(deep))
            found[at], form[at] = timed[which.ravel()], label[which.ravel()]
    return KernelTimes(seconds=found, form=form)


def kernel_times(rows: Ints, machine: Machine, *, volumes: bool = False) -> tuple[Floats, Ints]:
    """[n] seconds and forms of rows of `Graph.kernels`, all matmuls or all convolutions of one pass.

    volumes: whether the convolutions are of three dimensions, for which no library has Winograd's algorithm.
    """
    form = int(rows[0, 0])
    if form == MATMUL:
        return matmul_seconds(rows, machine, _MATMULS[machine.fitted_to][machine.tensor]), np.full(len(rows), _MATMUL)
    own = _CONVOLUTIONS[machine.fitted_to][machine.tensor][form - CONV]
    timed, algorithm = conv_seconds(rows, machine, *own, winograd=not volumes)
    return timed, _FIRST_CONV + algorithm


def matmul_seconds(rows: Ints, machine: Machine, own: Constants) -> Floats:
    """[n] seconds of products C[m, n] = A[m, k] B[k, n], row by row of `Graph.kernels`."""
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
    timed = seconds(
        Products(
            m=m, n=n, k=k, batch=batch, written=written, speed=np.ones(1),
            read_bytes=size * (batch * (m * k + k * n * (1 + extra)) + written),
            least_bytes=size * (batch * (m * k + k * n) + written),
            slower=(1 + own.unaligned * odd * rough + own.misaligned * misaligned)
            * (1 + own.transposed_work * b_transposed)
            - 1,
        ),
        machine,
        own,
        splits=machine.most_splits,
    )  # fmt: skip
    return timed + own.latency_s


def _roofline(graph: Graph, device: Preset, of: Ints, engines: list[Machine]) -> tuple[Floats, Ints]:
    """[n] seconds and forms of what the roofline times: launches + max(operations, bytes) at the rates reached."""
    kind = graph.kernels[:, 0]
    multiplies = (kind >= DEPTHWISE) & (kind <= DEPTHWISE_FILTER)
    # What has much arithmetic beside its bytes are loops and products whose sizes are not known: tensor cores' work.
    rate = np.array([e.peak_flops for e in engines])[of]
    rate = np.where(multiplies, np.array([e.plain_flops for e in engines])[of] * _DEPTHWISE_REACH, rate)
    rate = rate / device.reach * device.flop_efficiency
    moved = graph.moved_bytes + np.where(kind == PASSES, graph.kernels[:, 2], 0)
    work = np.maximum(graph.flops / rate, moved / (device.bandwidth * device.bandwidth_efficiency))
    found = kernel_counts(graph.kernels, graph.launches) * device.launch_s + work
    form = np.select(
        [~graph.launches, multiplies, kind == PASSES, kind == LOOP], [_NOTHING, _DEPTHWISE, _PASSES, _LOOP], _ROOFLINE
    )
    return np.where(graph.launches, found, device.bookkeeping_s), form
