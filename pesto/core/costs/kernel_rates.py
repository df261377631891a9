"""Rates of a device in one precision, and fitted constants: a kernel's time depends on them and on its shape."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pesto.core.costs.presets import Preset
from pesto.core.files import toml

REFERENCE_CLOCK = 1.53e9
"""Hz of the V100 whose kernels the constants are fitted to; what takes cycles scales with the clock."""
REFERENCE_SMS = 80
REFERENCE_PER_SM = {False: 15.7e12 / REFERENCE_SMS, True: 125e12 / REFERENCE_SMS}
"""Operations per second of one of its multiprocessors, without and with tensor cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A device as the kernels of one precision see it."""

    peak_flops: float
    """Operations per second in this precision, of the units that `tensor` names."""
    bandwidth: float
    """Bytes per second of its memory."""
    sms: int
    """Multiprocessors (compute units of an AMD GPU)."""
    clock_hz: float
    """Boost clock."""
    launch_s: float
    """Seconds that every kernel takes on top of its work."""
    element_bytes: int
    """Bytes of one number."""
    tensor: bool
    """True for tensor cores."""
    plain_flops: float
    """Operations per second of the vector units, which all ops but matmuls and convolutions use."""
    l2_bytes: float
    """Second-level cache."""
    least_tile: int = 16
    """Narrowest tile that the libraries for this generation have."""
    most_splits: int = 64
    """Splits along the reduction at most."""
    fitted_to: str = "V100"
    """The GPU whose measured kernels its constants were fitted to."""

    @property
    def cycles(self) -> float:
        """Seconds of a cycle over those of the reference."""
        return REFERENCE_CLOCK / self.clock_hz

    @property
    def l2(self) -> float:
        """Loads from L2 in a second, over the reference's.

        They go by multiprocessors and clock, and keep up with units that multiply more in each cycle: by wider ports,
        and by copies and tiles that later generations share.
        """
        usual = 2 if self.tensor else 4
        keeps_up = max(1.0, self.width * self.element_bytes / usual)
        return self.sms / REFERENCE_SMS / self.cycles * keeps_up

    @property
    def width(self) -> float:
        """Work that a multiprocessor needs under way, over the reference's: it does more in each cycle."""
        return self.peak_flops / self.sms / REFERENCE_PER_SM[self.tensor] * self.cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Fitted to measured kernels of one form and precision (`benchmarks/kernels_fit.py`)."""

    launch: float
    """Times the device's launch."""
    efficiency: float
    """Share of the peak that a full tile reaches while it is multiplied."""
    small: float
    """How much longer a tile takes for each of its 16 rows and columns that it shares with less others."""
    split_s: float
    """Seconds of a split along the reduction: the second kernel, or the atomic additions."""
    wave_s: float
    """Seconds of latency of each wave of tiles."""
    half: float
    """Outputs under way in one multiprocessor at which it reaches half of its rate."""
    l2: float
    """Bytes per second between L2 and the multiprocessors, over 3 TB/s."""
    fill: float
    """Steps of the reduction that filling a tile's pipeline takes."""
    bandwidth: float
    """Share of the memory's bandwidth."""
    spread: float = 0.0
    """Rows and columns under way in each multiprocessor at which half of that bandwidth is reached."""
    transposed: float = 0.0
    """How much longer reading a transposed second factor takes."""
    transposed_work: float = 0.0
    """How much longer multiplying with it takes."""
    unaligned: float = 0.0
    """How much longer work takes on tensor cores that an odd dimension keeps from wide loads."""
    latency_s: float = 0.0
    """Seconds of a kernel beside its launch and its waves."""
    misaligned: float = 0.0
    """How much longer work takes on tensor cores for each halving of the 16 bytes to which rows are aligned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvConstants:
    """Fitted to measured convolutions of one pass and precision on a V100, beside those of their matmuls."""

    gathered: float
    """Speed over that of a plain matmul: the reduction runs over windows, or a better kernel is used."""
    pointwise: float
    """The same for filters of 1x1 with stride 1, times `gathered`."""
    strided: float
    """With a stride."""
    strided_pointwise: float
    """With a stride and 1x1."""
    large: float
    """For filters of 5x5 and more with stride 1, where FFTs win."""
    few: float
    """With one channel; with up to 16 its share by the logarithm."""
    extra_s: float
    """Seconds on top of the launch."""
    winograd: float
    """Efficiency of the 36 matmuls of Winograd's F(4x4, 3x3)."""
    transforms: float
    """Share of the memory's bandwidth that its transforms reach."""
    fused: float
    """Speed of the fused F(2x2, 3x3) over a plain matmul, times `gathered`."""
    zeroed: float
    """Writes of a strided input gradient beyond its own bytes: it is cleared first."""
    plain: float
    """Speed of shapes that tensor cores do not take."""
    splits: int
    """Splits along the reduction at most."""
    narrowest: int
    """Least rows of a tile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassFit:
    """Constants of one pass of convolutions."""

    matmul: Constants
    conv: ConvConstants


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFit:
    """Constants that were fitted to the measured kernels of a GPU, with or without tensor cores."""

    gpu: str
    tensor: bool
    matmul: Constants
    passes: tuple[PassFit, ...]
    """The forward pass of convolutions, and the gradients towards input and filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FitFile:
    fits: tuple[KernelFit, ...]


@cache
def kernel_fits() -> dict[tuple[str, bool], KernelFit]:
    """Return the fits by GPU and by whether tensor cores are used."""
    fits = toml.load(Path(__file__).with_name("kernel_fits.toml"), _FitFile).fits
    return {(fit.gpu, fit.tensor): fit for fit in fits}


_PRECISION: dict[str, tuple[str, ...]] = {
    "float64": ("fp64",), "float32": ("tf32", "fp32"), "float16": ("fp16",), "bfloat16": ("bf16",),
    "int8": ("int8", "fp32"), "uint8": ("int8", "fp32"), "qint8": ("int8", "fp32"), "quint8": ("int8", "fp32"),
    "complex64": ("fp32",), "complex128": ("fp64",),
}  # fmt: skip
"""Precisions that a data type computes in; the first that a device has counts."""
_NO_FLOATS = ("int", "uint", "qint", "quint", "bool", "string", "resource", "variant")
"""Beginnings of the names of data types that are no precision to train in."""
_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int8": 1}


def missing_precision(dtype: str, device: Preset) -> str:
    """Return the precision of a data type that the device has no peak for; empty where it has, and for no floats.

    Ops of such a type get the rates of float32.
    """
    if dtype.startswith(_NO_FLOATS):
        return ""
    wanted = _PRECISION.get(dtype or "float32", (dtype,))
    # A preset has a rate for float32 whatever it is called.
    there = any(p in dict(device.peaks) for p in wanted) or (not device.complete and dtype in ("", "float32"))
    return "" if there else wanted[-1]


def engine(dtype: str, device: Preset) -> Machine:
    """Return the device as kernels of a data type see it; float32's where it has no peak for the type."""
    peaks = dict(device.peaks)
    precisions = (*_PRECISION.get(dtype, _PRECISION["float32"]), "tf32", "fp32", *peaks)
    own = next((p for p in precisions if p in peaks), "fp32")
    vector = peaks.get("fp64", peaks[own]) if own == "fp64" else peaks.get("fp32", peaks[own])
    tensor = own in device.tensor
    return Machine(
        peak_flops=peaks[own] * device.reach, bandwidth=device.bandwidth, sms=device.sms, clock_hz=device.clock_hz,
        launch_s=device.launch_s, element_bytes=_BYTES[own], tensor=tensor, l2_bytes=device.l2_bytes,
        plain_flops=vector * device.reach, least_tile=device.least_tile, most_splits=device.most_splits,
        fitted_to=device.fitted_to,
    )  # fmt: skip
