"""Rates of device models: published peaks by precision, and the share of them that training steps reach."""

import os
import subprocess
from dataclasses import dataclass, replace

from pesto.core.cluster import PRECISIONS, Device
from pesto.core.errors import InputError
from pesto.core.files.toml import suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One model of device; `docs/guides/costs.md` says how the numbers are used and where each comes from."""

    name: str
    kind: str
    """Kind of device, as graphs have it: gpu, cpu."""
    peaks: tuple[tuple[str, float], ...]
    """Dense operations per second by precision: fp64, fp32, tf32, fp16, bf16, int8; those that it has."""
    tensor: tuple[str, ...] = ()
    """Precisions whose peak is that of tensor (matrix) cores."""
    bandwidth: float
    """Bytes per second of the device's memory."""
    flop_efficiency: float
    """Share of a peak that ops without a kernel model reach."""
    bandwidth_efficiency: float
    """Share of `bandwidth` that large element-wise ops reach."""
    reach: float = 1.0
    """Share of the kernels' rates that power and clocks leave, over the V100's."""
    sms: int = 0
    """Multiprocessors; 0 for cores, of which no kernel is modelled."""
    clock_hz: float = 0.0
    """Boost clock."""
    l2_bytes: float = 0.0
    """Second-level cache."""
    memory_gib: float = 0.0
    """GiB of the device's memory, nominal."""
    least_tile: int = 16
    """Narrowest tile of a matmul that the libraries for its generation have."""
    most_splits: int = 64
    """Splits along the reduction at most."""
    fitted_to: str = "V100"
    """The GPU whose measured kernels the constants of its kernels were fitted to."""
    launch_s: float
    """Seconds that every kernel takes on top of its work."""
    bookkeeping_s: float
    """Seconds of an op that launches nothing: a constant, a reshape, a variable's handle."""
    source: str
    """Where the numbers come from."""
    complete: bool = False
    """True if a precision without a peak is refused: where a file describes the device, nothing else does."""

    @property
    def peak_flops(self) -> float:
        """The peak of float32 as TensorFlow computes it: TF32 where there is one, else fp32, else the largest."""
        own = dict(self.peaks)
        return own.get("tf32") or own.get("fp32") or max(own.values())


_TENSOR = ("fp16", "bf16", "int8")


_Sheet = tuple[tuple[float, float, float, float, float, float], tuple[float, int, float, float, float]]
"""TFLOP/s by precision in the order of PRECISIONS, 0 for none; GB/s, multiprocessors, GHz, MiB of L2, GiB of memory."""


def _tensor(peaks: dict[str, float]) -> tuple[str, ...]:
    """Precisions with tensor cores: all low ones beside TF32, else those beyond what vector units can do."""
    least = 0.0 if "tf32" in peaks else 3 * peaks.get("fp32", 0.0)
    return tuple(p for p, x in peaks.items() if p == "tf32" or (p in _TENSOR and x > least))


def _gpu(
    name: str, sheet: _Sheet, shares: tuple[float, float, float], launch_us: float, source: str, fitted_to: str = "V100"
) -> Preset:
    """`shares`: of peaks, of the bandwidth, and `reach`. Bookkeeping is the host's, and takes no time of the stream."""
    tflops, (gb_s, sms, ghz, l2_mib, gib) = sheet
    peaks = tuple((p, x * 1e12) for p, x in zip(PRECISIONS, tflops, strict=True) if x)
    tensor = _tensor(dict(peaks))
    old = not tensor
    return Preset(
        name=name, kind="gpu", peaks=peaks, tensor=tensor, bandwidth=gb_s * 1e9, sms=sms,
        clock_hz=ghz * 1e9, l2_bytes=l2_mib * 2**20, memory_gib=gib,
        flop_efficiency=shares[0], bandwidth_efficiency=shares[1], reach=shares[2],
        least_tile=32 if old else 16, most_splits=8 if old else 64,
        fitted_to=fitted_to, launch_s=launch_us / 1e6, bookkeeping_s=0.0, source=source,
    )  # fmt: skip


def _core(name: str, peaks: tuple[float, float], source: str) -> Preset:
    """Peaks in GFLOP/s (fp32) and GB/s of one core."""
    return Preset(
        name=name, kind="cpu", peaks=(("fp64", peaks[0] * 5e8), ("fp32", peaks[0] * 1e9)), bandwidth=peaks[1] * 1e9,
        flop_efficiency=0.7, bandwidth_efficiency=0.7,
        launch_s=2e-6, bookkeeping_s=0.5e-6, source=source,
    )  # fmt: skip


_ALL = (
    _gpu("K80", ((1.46, 4.37, 0, 0, 0, 0), (240, 13, 0.875, 1.5, 12)), (0.6, 0.7, 0.85), 8.0,
         "K80 board specification, one GK210 die: half of 8.73 TFLOP/s (boost) and 480 GB/s"),
    _gpu("P100", ((5.3, 10.6, 0, 21.2, 0, 0), (732, 56, 1.48, 4, 16)), (0.7, 0.75, 1.0), 5.0,
         "P100 SXM2 datasheet and Pascal whitepaper"),
    _gpu("V100", ((7.8, 15.7, 0, 125, 0, 0), (900, 80, 1.53, 6, 16)), (0.7, 0.8, 1.0), 5.0,
         "V100 SXM2 datasheet and Volta whitepaper; kernels fitted to measurements"),
    _gpu("T4", ((0.25, 8.1, 0, 65, 0, 130), (320, 40, 1.59, 4, 16)), (0.5, 0.75, 0.7), 5.0,
         "T4 datasheet and Turing whitepaper; 70 W hold its clock below boost"),
    _gpu("A100", ((9.7, 19.5, 156, 312, 312, 624), (1555, 108, 1.41, 40, 40)), (0.45, 0.8, 0.9), 4.0,
         "A100 SXM 40 GB datasheet, dense"),
    _gpu("A10G", ((0.55, 35, 35, 70, 70, 140), (600, 80, 1.71, 6, 24)), (0.5, 0.8, 0.7), 4.0,
         "A10G datasheet, dense; multiprocessors follow from its 35 TFLOP/s"),
    _gpu("RTX 3090", ((0.56, 35.6, 35.6, 71, 71, 284), (936, 82, 1.695, 6, 24)), (0.5, 0.8, 0.9), 4.0,
         "GA102 whitepaper, dense, accumulated in fp32"),
    _gpu("H100", ((33.5, 66.9, 494.7, 989.4, 989.4, 1978.9), (3350, 132, 1.98, 50, 80)), (0.4, 0.8, 0.8), 3.5,
         "H100 SXM datasheet, half its sparse rates; kernels fitted to measurements of an H200", "H200"),
    _gpu("H100 PCIe", ((25.6, 51.2, 378, 756, 756, 1513), (2039, 114, 1.755, 50, 80)), (0.4, 0.8, 0.7), 3.5,
         "H100 PCIe datasheet, half its sparse rates; 350 W hold its clock below boost"),
    _gpu("H200", ((33.5, 66.9, 494.7, 989.4, 989.4, 1978.9), (4800, 132, 1.98, 50, 141)), (0.4, 0.8, 0.8), 3.5,
         "H200 SXM datasheet, half its sparse rates; kernels fitted to measurements of an H200", "H200"),
    _gpu("B200", ((37, 75, 1100, 2250, 2250, 4500), (7700, 148, 1.965, 126, 180)), (0.35, 0.8, 0.75), 3.5,
         "HGX B200 datasheet at 1000 W, half its sparse rates; multiprocessors and L2 as its driver says"),
    _gpu("L4", ((0.47, 30.3, 60.5, 121, 121, 242), (300, 58, 2.04, 48, 24)), (0.4, 0.8, 0.55), 4.0,
         "L4 datasheet, half its sparse rates; 72 W hold its clock far below boost"),
    _gpu("L40S", ((1.43, 91.6, 183, 362, 362, 733), (864, 142, 2.52, 96, 48)), (0.4, 0.8, 0.8), 4.0,
         "L40S datasheet, half its sparse rates"),
    _gpu("RTX 4090", ((1.29, 82.6, 82.6, 165.2, 165.2, 660.6), (1008, 128, 2.52, 72, 24)), (0.5, 0.8, 0.9), 4.0,
         "Ada whitepaper, dense, accumulated in fp32"),
    _gpu("MI250X", ((47.85, 47.85, 0, 191.5, 191.5, 191.5), (1638, 110, 1.7, 8, 64)), (0.5, 0.75, 0.7), 6.0,
         "MI250X datasheet, matrix rates of one of its two dies (what frameworks see as a device)"),
    _gpu("MI300X", ((81.7, 163.4, 653.7, 1307.4, 1307.4, 2614.9), (5300, 304, 2.1, 32, 192)), (0.35, 0.75, 0.6),
         6.0, "MI300X datasheet, dense"),
    _core("xeon-core", (67.2, 9.6), "fp32; Xeon Silver 4116, 2.1 GHz x 32 flops; 6 x DDR4-2400 over 12 cores"),
    _core("epyc-core", (72.0, 3.2), "fp32; EPYC 7742, 2.25 GHz x 32 flops; 8 x DDR4-3200 over 64 cores"),
)  # fmt: skip

PRESETS: dict[str, Preset] = {p.name: p for p in _ALL}
"""Every preset by name."""


def preset(name: str) -> Preset:
    """Return the preset of that name. Raise InputError with a suggestion when there is none."""
    if name not in PRESETS:
        raise InputError.build(f"no device preset is named {name!r}", remedy=suggest(name, PRESETS))
    return PRESETS[name]


def device_preset(device: Device) -> Preset:
    """Return the rates of a device: its preset's numbers, with its own in their place.

    Raise InputError when its preset is unknown, or it has neither a preset nor all rates.
    """
    own = device.rates
    if own is None:
        return preset(device.preset)
    if device.preset not in PRESETS:
        # A device that no preset knows: estimates for what a datasheet does not say.
        if not own.peaks or own.bandwidth is None or own.sms is None or own.clock_hz is None:
            raise InputError.build(
                f"device {device.name}: no device preset is named {device.preset!r}, and not all of peak_tflops, "
                "memory_gb_s, sms and clock_ghz are given",
                remedy="give these, or a preset",
            )
        return Preset(
            name=device.preset, kind=device.kind, peaks=own.peaks, tensor=_tensor(dict(own.peaks)),
            bandwidth=own.bandwidth, sms=own.sms, clock_hz=own.clock_hz, l2_bytes=own.l2_bytes or 0.0,
            flop_efficiency=0.5, bandwidth_efficiency=0.8, launch_s=4e-6 if own.launch_s is None else own.launch_s,
            bookkeeping_s=0.0, source="the cluster file", complete=True,
        )  # fmt: skip
    base = preset(device.preset)
    peaks = {**dict(base.peaks), **dict(own.peaks)}
    given = {name: getattr(own, name) for name in ("bandwidth", "l2_bytes", "sms", "clock_hz", "launch_s")}
    return replace(
        base,
        peaks=tuple(peaks.items()),
        tensor=_tensor(peaks) if own.peaks and base.sms else base.tensor,
        **{name: value for name, value in given.items() if value is not None},
    )


def preset_named_in(text: str) -> Preset | None:
    """Return the preset that a device's own description names, such as V100 in "Tesla V100-SXM2-16GB", or None.

    Of several the one with most words counts: an "H100 PCIe" is no H100.
    """
    words = "".join(c if c.isalnum() else " " for c in text).split()
    named = [p for p in _ALL if set(p.name.split()) <= set(words)]
    return max(named, key=lambda p: len(p.name.split()), default=None)


# The driver's own program tells a GPU's clocks.

_QUERY = ("--query-gpu=clocks.sm,clocks.max.sm", "--format=csv,noheader,nounits")
PROGRAM = "nvidia-smi"
"""Program that is run, where it is installed."""


def gpu_clocks() -> str:
    """Return the SM clock of the first GPU that this process sees, and the highest, in MHz; empty if not known."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip() or "0"
    try:
        asked = [PROGRAM, f"--id={seen}", *_QUERY]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True)
        now, most = (int(part) for part in done.stdout.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return ""
    return f"SM clock {now} of {most} MHz after the runs"
