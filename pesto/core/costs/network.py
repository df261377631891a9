"""Seconds of a transfer over a path, the line through measured transfers, and kinds of links."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pesto.core.cluster import Path
from pesto.core.errors import InputError
from pesto.core.files.toml import suggest
from solvers.arrays import Floats

LEAST_SAMPLES = 3
"""Two points always lie on a line; a fit says something from three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The line through measured transfers of one type (Pesto, section 3.1, Fig 4b)."""

    latency_s: float
    s_per_byte: float
    r2: float
    """Share of the variance of the seconds that the line explains; 0 when the seconds do not vary."""
    samples: int


def transfer_s(path: Path, payload_bytes: npt.ArrayLike) -> Floats:
    """Return the seconds of payloads of so many bytes over an idle path; same shape as `payload_bytes`."""
    size = np.asarray(payload_bytes, dtype=np.float64)
    seconds = np.maximum(path.floor_s, path.latency_s + size * path.s_per_byte)
    for latency_s, s_per_byte in path.pieces:
        seconds = np.maximum(seconds, latency_s + size * s_per_byte)
    return seconds


def fit(payload_bytes: npt.ArrayLike, seconds: npt.ArrayLike, *, robust: bool = False) -> Fit:
    """Least squares of seconds = latency + bytes * s_per_byte with both coefficients >= 0.

    `robust` weighs samples far off the line down (Huber 1964), for traces with queueing in them; R² is always that of
    all samples. Raise InputError when fewer than three samples are given, their sizes are all equal, or a number is
    negative or not finite.
    """
    size, time = np.asarray(payload_bytes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if size.ndim != 1 or size.shape != time.shape:
        raise InputError.build(
            f"link fit: {size.shape} sizes and {time.shape} times", remedy="give one time per size, as flat lists"
        )
    if len(size) < LEAST_SAMPLES:
        raise InputError.build(f"link fit: {len(size)} samples are too few", remedy=f"measure at least {LEAST_SAMPLES}")
    bad = np.flatnonzero(~(np.isfinite(size) & np.isfinite(time) & (size >= 0) & (time >= 0)))
    if len(bad):
        at = bad[0]
        raise InputError(f"link fit: sample {at} ({size[at]} bytes, {time[at]} s) is negative or not finite")
    if np.ptp(size) < 1:
        raise InputError.build(
            f"link fit: all {len(size)} samples are of {size[0]:.0f} bytes", remedy="measure several sizes"
        )
    largest, longest = float(size.max()), float(time.max()) or 1.0
    # Squares of numbers near one neither vanish nor overflow.
    x, y = size / largest, time / longest
    line = weighted_line(x, y, np.ones_like(x))
    for _ in range(30 if robust else 0):
        # Huber's weights: 1 near the line, falling with the distance beyond. 1.4826 makes the median of deviations a
        # standard deviation; 1.345 keeps 95 % efficiency on clean samples.
        off = np.abs(y - line[0] - line[1] * x)
        scale = 1.345 * 1.4826 * float(np.median(off))
        weight = np.divide(scale, off, out=np.ones_like(off), where=off > scale)
        weight = np.where(weight < 1e-9, 0.0, weight)
        if np.ptp(size[weight > 0]) < 1:
            break
        line = weighted_line(x, y, weight)
    spread = float(((y - y.mean()) ** 2).sum())
    left = float(((y - line[0] - line[1] * x) ** 2).sum())
    return Fit(
        latency_s=line[0] * longest,
        s_per_byte=line[1] * longest / largest,
        r2=1.0 - left / spread if spread > 0 else 0.0,
        samples=len(x),
    )


def weighted_line(x: Floats, y: Floats, weight: Floats) -> tuple[float, float]:
    """Fit by weighted least squares with both coefficients >= 0: the free optimum, or the better of the two edges."""
    total = weight.sum()
    mean_x, mean_y = float((weight * x).sum() / total), float((weight * y).sum() / total)
    slope = float((weight * (x - mean_x) * (y - mean_y)).sum() / (weight * (x - mean_x) ** 2).sum())
    free = (mean_y - slope * mean_x, slope)
    if min(free) >= 0:
        return free
    edges = ((0.0, float((weight * x * y).sum() / (weight * x * x).sum())), (mean_y, 0.0))
    return min(edges, key=lambda e: float((weight * (y - e[0] - e[1] * x) ** 2).sum()))


# Kinds of links: Pesto's published coefficients, and wires by datasheet and by the share that is reached


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkModel:
    """seconds = max(floor, latency + bytes * s_per_byte) of one type of link."""

    latency_s: float
    s_per_byte: float
    floor_s: float = 0.0
    source: str


@dataclass(frozen=True, slots=True)
class Wire:
    """A kind of link, in one direction; `docs/guides/clusters.md` says where each number comes from."""

    name: str
    lane_gb_s: float
    """10^9 bytes per second of one lane in one direction, after line coding; a lane of NVLink is one link of it."""
    lanes: int
    """Lanes side by side, where a file does not say otherwise."""
    share: float
    """Share of that rate that large transfers reach."""
    latency_us: float
    """Microseconds before the first byte."""
    source: str
    """Source of rate, share and latency, for people."""

    def model(self, lanes: int | None = None) -> LinkModel:
        """Return the model of so many lanes as one link; by default those that it usually has."""
        width = self.lanes if lanes is None else lanes
        rate = self.lane_gb_s * width * self.share
        made = f"{width} x {self.lane_gb_s:g} GB/s, {self.share:.0%} of it reached: {rate:.4g} GB/s"
        return LinkModel(latency_s=self.latency_us / 1e6, s_per_byte=1e-9 / rate, source=f"{made}; {self.source}")


_PCIE = "published coefficients of Pesto (Middleware '21), PCIe box"
_NVLINK = "published coefficients of Pesto (Middleware '21), NVLink box"

PUBLISHED: dict[str, LinkModel] = {
    "paper-pcie-cpu-gpu": LinkModel(latency_s=21.48e-6, s_per_byte=7.81e-11, source=_PCIE),
    "paper-pcie-gpu-gpu": LinkModel(latency_s=5.581e-6, s_per_byte=1.00244e-10, floor_s=15e-6, source=_PCIE),
    "paper-nvlink-cpu-gpu": LinkModel(latency_s=7.0e-6, s_per_byte=7.7778e-11, source=_NVLINK),
    "paper-nvlink-gpu-gpu": LinkModel(latency_s=40.771e-6, s_per_byte=2.07573e-11, source=_NVLINK),
}
"""Coefficients that were fitted to traces of a framework, by the name that a cluster file gives as `model`."""


# Latencies are the framework's, not the wire's (1 to 2 us): between GPUs and over PCIe as a DGX A100 has them in
# configs/clusters, half of what Pesto measured over NVLink; over a network two such copies at either end.
_GPU_US = 20.0
_CPU_US = 7.0
_NET_US = 25.0
_V100 = "V100 whitepaper; 47.9 of 50 GB/s by p2pBandwidthLatencyTest (Dell, PowerEdge C4130 with V100-SXM2)"
_A100 = "A100 whitepaper; 518 of 600 GB/s both ways at once, on an HGX A100 (github.com/NVIDIA/nccl-tests, issue 100)"
_H100 = "H100 whitepaper; 376 of 450 GB/s by p2pBandwidthLatencyTest (github.com/NVIDIA/nccl, issue 1264)"
_B200 = "Blackwell datasheet; no measurement found, the H100's share is assumed"
_GEN3 = "PCIe 3.0: 8 GT/s, 128b/130b; 12.2 there and 12.9 back, pinned (github.com/mpicbg-scicomp/gearshifft, pull 82)"
_GEN4 = "PCIe 4.0: 16 GT/s, 128b/130b; 25 of 31.5 GB/s on an A100 (github.com/ZaidQureshi/bam, issue 54)"
_GEN5 = "PCIe 5.0: 32 GT/s, 128b/130b; 54.3 of 63 GB/s between GPUs (github.com/lukealonso/p2pmark)"
_GEN6 = "PCIe 6.0: 64 GT/s, 242 of 256 bytes of a flit; no measurement found, PCIe 5.0's share is assumed"
_EDR = "InfiniBand EDR 4x; 95.4 of 100 Gb/s between GPUs' memories (github.com/linux-rdma/perftest, pull 98)"
_IB = "InfiniBand {} 4x; the share of EDR is assumed"
_ETH = "Ethernet; 94 % is what TCP leaves at 1500-byte frames"

_ALL = (
    Wire("nvlink2", 25.0, 1, 0.958, _GPU_US, f"NVLink 2: 25 GB/s a link and direction; {_V100}"),
    Wire("nvlink3", 25.0, 1, 0.864, _GPU_US, f"NVLink 3: 25 GB/s a link and direction; {_A100}"),
    Wire("nvlink4", 25.0, 1, 0.836, _GPU_US, f"NVLink 4: 25 GB/s a link and direction; {_H100}"),
    Wire("nvlink5", 50.0, 1, 0.836, _GPU_US, f"NVLink 5: 50 GB/s a link and direction; {_B200}"),
    Wire("nvswitch-v100", 25.0, 6, 0.958, _GPU_US, f"a GPU's port, 6 NVLinks 2; {_V100}"),
    Wire("nvswitch-a100", 25.0, 12, 0.864, _GPU_US, f"a GPU's port, 12 NVLinks 3; {_A100}"),
    Wire("nvswitch-h100", 25.0, 18, 0.836, _GPU_US, f"a GPU's port, 18 NVLinks 4; {_H100}"),
    Wire("nvswitch-b200", 50.0, 18, 0.836, _GPU_US, f"a GPU's port, 18 NVLinks 5; {_B200}"),
    Wire("pcie3", 8 / 8 * 128 / 130, 16, 0.795, _CPU_US, _GEN3),
    Wire("pcie4", 16 / 8 * 128 / 130, 16, 0.793, _CPU_US, _GEN4),
    Wire("pcie5", 32 / 8 * 128 / 130, 16, 0.862, _CPU_US, _GEN5),
    Wire("pcie6", 64 / 8 * 242 / 256, 16, 0.862, _CPU_US, _GEN6),
    Wire("infiniband-edr", 25 / 8, 4, 0.954, _NET_US, _EDR),
    Wire("infiniband-hdr", 50 / 8, 4, 0.954, _NET_US, _IB.format("HDR")),
    Wire("infiniband-ndr", 100 / 8, 4, 0.954, _NET_US, _IB.format("NDR")),
    Wire("infiniband-xdr", 200 / 8, 4, 0.954, _NET_US, _IB.format("XDR")),
    Wire("ethernet-25g", 25 / 8, 1, 0.94, 50.0, _ETH),
    Wire("ethernet-100g", 25 / 8, 4, 0.94, 50.0, _ETH),
    Wire("ethernet-400g", 100 / 8, 4, 0.94, 50.0, _ETH),
)

WIRES: dict[str, Wire] = {wire.name: wire for wire in _ALL}
"""Every wire by name."""


def link_model(name: str, lanes: int | None = None) -> LinkModel:
    """Return the link model of that name and so many lanes. Raise InputError, with a suggestion, for an unknown one."""
    if name in WIRES:
        return WIRES[name].model(lanes)
    found = PUBLISHED.get(name)
    if found is None:
        raise InputError.build(f"no link model is named {name!r}", remedy=suggest(name, [*PUBLISHED, *WIRES]))
    if lanes is not None:
        raise InputError.build(
            f"link model {name} was fitted to one box", remedy=f"drop lanes, or name one of {', '.join(WIRES)}"
        )
    return found
