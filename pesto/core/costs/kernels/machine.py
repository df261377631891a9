"""What a kernel's time depends on beside its shape: the device's rates in one precision, and fitted constants."""

from dataclasses import dataclass

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
    """Whether these are tensor cores."""
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
