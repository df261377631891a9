"""Seconds of a transfer over a path, and the line through transfers that were measured."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pesto.core.cluster import Path
from pesto.core.errors import InputError
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
    """Seconds of payloads of so many bytes over an idle path; same shape as `payload_bytes`."""
    size = np.asarray(payload_bytes, dtype=np.float64)
    seconds = np.maximum(path.floor_s, path.latency_s + size * path.s_per_byte)
    for latency_s, s_per_byte in path.pieces:
        seconds = np.maximum(seconds, latency_s + size * s_per_byte)
    return seconds


def fit(payload_bytes: npt.ArrayLike, seconds: npt.ArrayLike, *, robust: bool = False) -> Fit:
    """Least squares of seconds = latency + bytes * s_per_byte with both coefficients >= 0.

    `robust` weighs samples far off the line down (Huber 1964), for traces with queueing in them; R² is always that of
    all samples. InputError when fewer than three samples are given, their sizes are all equal, or a number is
    negative or not finite.
    """
    size, time = _samples(payload_bytes, seconds)
    largest, longest = float(size.max()), float(time.max()) or 1.0
    # Squares of numbers near one neither vanish nor overflow.
    x, y = size / largest, time / longest
    line = weighted_line(x, y, np.ones_like(x))
    for _ in range(30 if robust else 0):
        weight = _weights(np.abs(y - line[0] - line[1] * x))
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


def _weights(off: Floats) -> Floats:
    """Huber's: 1 near the line, falling with the distance beyond."""
    # 1.4826 makes the median of deviations a standard deviation; 1.345 keeps 95 % efficiency on clean samples.
    scale = 1.345 * 1.4826 * float(np.median(off))
    far = off > scale
    weight = np.ones_like(off)
    weight[far] = scale / off[far]
    return np.where(weight < 1e-9, 0.0, weight)


def _samples(payload_bytes: npt.ArrayLike, seconds: npt.ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.asarray(payload_bytes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise InputError.build(
            f"link fit: {x.shape} sizes and {y.shape} times", remedy="give one time per size, as flat lists"
        )
    if len(x) < LEAST_SAMPLES:
        raise InputError.build(f"link fit: {len(x)} samples are too few", remedy=f"measure at least {LEAST_SAMPLES}")
    bad = np.flatnonzero(~(np.isfinite(x) & np.isfinite(y) & (x >= 0) & (y >= 0)))
    if len(bad):
        raise InputError(f"link fit: sample {bad[0]} ({x[bad[0]]} bytes, {y[bad[0]]} s) is negative or not finite")
    if np.ptp(x) < 1:
        raise InputError.build(
            f"link fit: all {len(x)} samples are of {x[0]:.0f} bytes", remedy="measure several sizes"
        )
    return x, y


def weighted_line(x: Floats, y: Floats, weight: Floats) -> tuple[float, float]:
    """Weighted least squares with both coefficients >= 0: the free optimum, or the better of the two edges."""
    total = weight.sum()
    mean_x, mean_y = float((weight * x).sum() / total), float((weight * y).sum() / total)
    slope = float((weight * (x - mean_x) * (y - mean_y)).sum() / (weight * (x - mean_x) ** 2).sum())
    free = (mean_y - slope * mean_x, slope)
    if min(free) >= 0:
        return free
    edges = ((0.0, float((weight * x * y).sum() / (weight * x * x).sum())), (mean_y, 0.0))
    return min(edges, key=lambda e: float((weight * (y - e[0] - e[1] * x) ** 2).sum()))
