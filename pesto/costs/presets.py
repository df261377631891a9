"""What one device can do: published peaks, and the share of them that training steps reach."""

from dataclasses import dataclass

from pesto.errors import InputError
from pesto.files.toml import closest


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One model of device; `docs/costs.md` says how the numbers are used and where each comes from."""

    name: str
    kind: str
    """What graphs ask for: gpu, cpu."""
    peak_flops: float
    """Floating point operations per second, in the precision that `source` names."""
    bandwidth: float
    """Bytes per second of the device's memory."""
    flop_efficiency: float
    """Share of `peak_flops` that large matmuls and convolutions of a training step reach."""
    bandwidth_efficiency: float
    """Share of `bandwidth` that large element-wise ops reach."""
    launch_s: float
    """Seconds that every kernel takes on top of its work."""
    bookkeeping_s: float
    """Seconds of an op that launches nothing: a constant, a reshape, a variable's handle."""
    source: str
    """Where the two peaks come from, and the precision."""


def _gpu(name: str, peaks: tuple[float, float], shares: tuple[float, float], launch_us: float, source: str) -> Preset:
    """Peaks in TFLOP/s and GB/s. Bookkeeping is the executor's, on the host, and takes no time of the stream."""
    return Preset(
        name=name, kind="gpu", peak_flops=peaks[0] * 1e12, bandwidth=peaks[1] * 1e9,
        flop_efficiency=shares[0], bandwidth_efficiency=shares[1],
        launch_s=launch_us / 1e6, bookkeeping_s=0.0, source=source,
    )  # fmt: skip


def _core(name: str, peaks: tuple[float, float], source: str) -> Preset:
    """Peaks in GFLOP/s and GB/s of one core."""
    return Preset(
        name=name, kind="cpu", peak_flops=peaks[0] * 1e9, bandwidth=peaks[1] * 1e9,
        flop_efficiency=0.7, bandwidth_efficiency=0.7,
        launch_s=2e-6, bookkeeping_s=0.5e-6, source=source,
    )  # fmt: skip


_ALL = (
    _gpu("K80", (4.37, 240.0), (0.6, 0.7), 8.0, "fp32; one GK210 die, half a board's 8.73 TFLOP/s (boost), 480 GB/s"),
    _gpu("V100", (15.7, 900.0), (0.7, 0.8), 5.0, "fp32; V100 SXM2 datasheet"),
    _gpu("T4", (8.1, 320.0), (0.5, 0.75), 5.0, "fp32; T4 datasheet; 70 W hold its clock below boost"),
    _gpu("A100", (156.0, 1555.0), (0.45, 0.8), 4.0, "TF32 tensor cores, dense; A100 SXM 40 GB datasheet"),
    _gpu("H100", (494.7, 3350.0), (0.4, 0.8), 3.5, "TF32 tensor cores, dense; H100 SXM datasheet, half its sparse 989"),
    _gpu("H200", (494.7, 4800.0), (0.4, 0.8), 3.5, "TF32 tensor cores, dense; H200 SXM datasheet, half its sparse 989"),
    _core("xeon-core", (67.2, 9.6), "fp32; Xeon Silver 4116, 2.1 GHz x 32 flops; 6 x DDR4-2400 over 12 cores"),
    _core("epyc-core", (72.0, 3.2), "fp32; EPYC 7742, 2.25 GHz x 32 flops; 8 x DDR4-3200 over 64 cores"),
)

PRESETS: dict[str, Preset] = {p.name: p for p in _ALL}
"""Every preset by name."""


def preset(name: str) -> Preset:
    """The preset of that name; InputError with a suggestion when there is none."""
    found = PRESETS.get(name)
    if found is None:
        raise InputError(f"no device preset is named {name!r} - {closest(name, PRESETS)}")
    return found


def named_in(text: str) -> Preset | None:
    """The preset that a device's own description names, such as V100 in "Tesla V100-SXM2-16GB"; None for none."""
    words = "".join(c if c.isalnum() else " " for c in text).split()
    return next((p for p in _ALL if p.name in words), None)
