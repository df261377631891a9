"""From measured transfers to a path: latency, bandwidth, a convex piecewise line, held against other sizes."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pesto.core.cluster import Path
from pesto.core.costs.network import Fit, fit, transfer_s, weighted_line
from pesto.core.errors import InputError, NothingFoundError
from pesto.core.quantities import duration, percent, plural
from solvers.arrays import Floats, Ints, floats, ints

SIZES = tuple(4**k for k in range(1, 14))
"""Bytes from 4 to 64 MiB."""
LEAST_SIZES = 6
"""Sizes that a calibration needs: three to fit, and three to hold against."""
LOW = 0.05
"""The share of samples of one size that are at most the time it is taken to need: others waited for programs."""
APART = 0.25
"""How far apart two halves of the samples may be on average, each by its quickest samples."""
AT_ONCE = 1.5
"""Two transfers at once that take so many times as long as one by itself share a link."""
LEAST_S = 1e-9
"""Seconds below which no transfer is believed: what is left of a chain is less than a clock tells."""
_MOST_LINES = 3
_WORTH = (0.8, 0.01)
"""A further line must leave at most this share of the error, and lessen it by so much at least."""
_MEASURED = ("alone", "both", "twice")
_EMPTY = np.zeros((0, 0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """Measured transfers from one device to another; what was measured at once may be missing.

    Raise InputError for sizes or seconds that cannot be, and for fewer than LEAST_SIZES sizes.
    """

    source: str
    """Name of the device that sends."""
    target: str
    """Name of the device that gets."""
    sizes: Ints
    """[k] bytes, ascending."""
    alone: Floats
    """[k, r] seconds of a transfer while no other is under way, in the order in which they were measured."""
    both: Floats = field(default_factory=_EMPTY.copy)
    """[k, r] seconds while another goes the other way."""
    twice: Floats = field(default_factory=_EMPTY.copy)
    """[k, r] seconds while another goes the same way."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        where = f"calibration: {self.source} to {self.target}"
        object.__setattr__(self, "sizes", ints(self.sizes))
        if len(self.sizes) < LEAST_SIZES or (np.diff(self.sizes) <= 0).any() or self.sizes[0] < 0:
            raise InputError.build(
                f"{len(self.sizes)} sizes are too few, or not in order",
                where=where,
                remedy=f"measure {LEAST_SIZES} or more, from few bytes to many",
            )
        for name in _MEASURED:
            values = floats(getattr(self, name))
            object.__setattr__(self, name, values)
            if values.size == 0 and name != "alone":
                continue
            if values.ndim != 2 or len(values) != len(self.sizes) or values.shape[1] < 2:
                raise InputError.build(
                    f"sizes have samples of shape {values.shape}", where=where, remedy="measure each twice or more"
                )
            bad = np.argwhere(~np.isfinite(values) | (values < 0))
            if len(bad):
                size, value = self.sizes[bad[0][0]], values[tuple(bad[0])]
                raise InputError.build(
                    f"{size} bytes took {value} s", where=where, remedy="leave such a sample out, or measure again"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Times of transfers from one device to another, and how well they are known."""

    source: str
    """Name of the device that sends."""
    target: str
    """Name of the device that gets."""
    lines: tuple[tuple[float, float], ...]
    """(seconds of no bytes, seconds of each byte), the flattest first; a transfer takes what the longest says."""
    line: Fit
    """The one line through all fitted sizes, as Pesto fits it (section 3.1)."""
    fitted: tuple[int, ...]
    """Sizes in bytes that the lines were fitted to."""
    fitted_s: tuple[float, ...]
    """Measured seconds of these."""
    held_out: tuple[tuple[int, float, float], ...]
    """(bytes, measured seconds, predicted seconds) of sizes that they were not fitted to."""
    apart: float
    """How far apart two halves of the samples are on average, as a share."""
    shares: str
    """Part of the link that two transfers at once share: nothing, one way, both ways; empty if not measured."""
    samples: int
    """Samples of each size."""

    @property
    def error(self) -> float:
        """Mean of |predicted / measured - 1| over the sizes that were held out."""
        return float(np.mean([abs(predicted / measured - 1) for _, measured, predicted in self.held_out]))

    @property
    def line_error(self) -> float:
        """Mean error of the one line, likewise."""
        guesses = [(self.line.latency_s + size * self.line.s_per_byte) / took for size, took, _ in self.held_out]
        return float(np.mean(np.abs(np.array(guesses) - 1)))

    @property
    def latency_s(self) -> float:
        """Seconds of a transfer of no bytes."""
        return max(latency_s for latency_s, _ in self.lines)

    @property
    def s_per_byte(self) -> float:
        """Seconds of a further byte of a large transfer; 0 where bytes are free."""
        return max(s_per_byte for _, s_per_byte in self.lines)

    def path(self, links: tuple[int, ...] = (), source: str = "") -> Path:
        """Return the path that takes such times."""
        (latency_s, s_per_byte), *more = self.lines
        return Path(latency_s=latency_s, s_per_byte=s_per_byte, pieces=tuple(more), links=links, source=source)

    def __str__(self) -> str:
        """Return one line."""
        rate = f"{1e-9 / self.s_per_byte:.3g} GB/s" if self.s_per_byte else "bytes free"
        lines = f"{plural(len(self.lines), 'line')} of {plural(self.samples, 'sample')} a size"
        off = f"{percent(self.error)} off on {plural(len(self.held_out), 'size')} held out"
        return f"{duration(self.latency_s)}, {rate}; {lines}, {off}, halves {percent(self.apart)} apart"


def calibrate(samples: Samples, back: Samples | None = None) -> Calibration:
    """Fit lines through every second size, held against the others; the smallest and the largest are fitted.

    Each size takes what a twentieth of its samples do not exceed. `back`: the other way, to tell what both share.

    Raise NothingFoundError when the samples do not settle: two halves of them differ by more than APART on average, or
    transfers take no time that can be told from none.
    """
    sizes, took = samples.sizes, low_quantile(samples.alone)
    apart = half_difference(samples.alone)
    where = f"calibration: {samples.source} to {samples.target}"
    if not (took >= LEAST_S).all():
        raise NothingFoundError.build(
            f"{sizes[int(np.argmin(took))]} bytes take no time that can be told from none",
            where=where,
            remedy="measure on a machine at rest, or more often",
        )
    if apart > APART:
        raise NothingFoundError.build(
            f"does not settle, two halves of the samples are {percent(apart)} apart on average, at most "
            f"{percent(APART)} will do",
            where=where,
            remedy="measure on a machine at rest, or more often",
        )
    fitted = (len(sizes) - 1 - np.arange(len(sizes))) % 2 == 0
    fitted[0] = True
    lines = convex_lines(sizes[fitted], took[fitted])
    path = Path(latency_s=lines[0][0], s_per_byte=lines[0][1], pieces=lines[1:])
    rows = zip(sizes[~fitted].tolist(), took[~fitted].tolist(), transfer_s(path, sizes[~fitted]).tolist(), strict=True)
    # What two transfers at once share is told at the largest size; nothing where its bytes hardly count.
    shares = ""
    if samples.twice.size and samples.both.size:
        other = took if back is None else low_quantile(back.alone)
        if took[-1] < 2 * took[0] or low_quantile(samples.twice)[-1] < AT_ONCE * took[-1]:
            shares = "nothing"
        elif low_quantile(samples.both)[-1] >= AT_ONCE * max(took[-1], other[-1]):
            shares = "both ways"
        else:
            shares = "one way"
    return Calibration(
        source=samples.source, target=samples.target, lines=lines, line=fit(sizes[fitted], took[fitted], robust=True),
        fitted=tuple(sizes[fitted].tolist()), fitted_s=tuple(took[fitted].tolist()),
        held_out=tuple(rows), apart=apart, shares=shares,
        samples=samples.alone.shape[1],
    )  # fmt: skip


def fits_by_type(found: Sequence[Calibration]) -> dict[str, Fit]:
    """Fit one line with its R² for each type of transfer, such as cpu to gpu (Pesto, 3.1, Fig 4b).

    Through all measured sizes of all pairs of the type, held out or not; robustly.
    """
    points: dict[str, list[tuple[int, float]]] = {}
    for one in found:
        ends = (name.partition(":")[0] for name in (one.source, one.target))
        sizes = [*zip(one.fitted, one.fitted_s, strict=True), *((size, took) for size, took, _ in one.held_out)]
        points.setdefault(" to ".join(ends), []).extend(sizes)
    return {name: fit(*zip(*rows, strict=True), robust=True) for name, rows in points.items()}


def join_samples(one: Samples, other: Samples) -> Samples:
    """Join samples of one pair and of the same sizes with those that were measured after them."""
    alone, both, twice = (np.concatenate([getattr(one, name), getattr(other, name)], axis=1) for name in _MEASURED)
    return replace(one, alone=alone, both=both, twice=twice)


def low_quantile(seconds: npt.NDArray[np.float64]) -> Floats:
    """Return [k] the sample of each row of [k, r] that a twentieth of them do not exceed."""
    place = max(int(np.ceil(LOW * seconds.shape[1])) - 1, 0)
    found: Floats = np.sort(seconds, axis=1)[:, place]
    return found


def half_difference(seconds: Floats) -> float:
    """Return the mean distance, over sizes, of the first and the second half of the samples, by `low_quantile`."""
    middle = seconds.shape[1] // 2
    one, other = low_quantile(seconds[:, :middle]), low_quantile(seconds[:, middle:])
    low, high = np.minimum(one, other), np.maximum(one, other)
    return float(np.mean(np.where(high > 0, (high - low) / np.where(low > 0, low, np.maximum(high, 1e-12)), 0.0)))


def convex_lines(sizes: Ints, seconds: Floats) -> tuple[tuple[float, float], ...]:
    """Return up to three lines whose maximum is near the points, the flattest first, fewer where more hardly help.

    The first is one in which bytes are free. Neighbouring points are split into as many stretches as there are lines,
    in every way; each gets the line of least squared relative error with both coefficients >= 0, to six digits. Of all
    ways the one with the least mean error is taken.
    """
    free = (float(f"{np.average(seconds, weights=1 / seconds**2):.6g}"), 0.0)
    best: tuple[tuple[float, float], ...] = (free,)
    least = float(np.mean(np.abs(free[0] / seconds - 1)))
    for count in range(1, _MOST_LINES + 1):
        cuts = itertools.combinations(range(2, len(sizes) - 1), count - 1)
        ways = [list(itertools.pairwise((0, *cut, len(sizes)))) for cut in cuts]
        lines, error = best, least
        for way in ways:
            if any(b - a < 2 for a, b in way):
                continue
            fitted = []
            for a, b in way:
                largest, longest = float(sizes[a:b].max()) or 1.0, float(seconds[a:b].max())
                x, y = sizes[a:b] / largest, seconds[a:b] / longest
                latency, slope = weighted_line(x, y, 1 / y**2)
                fitted.append((float(f"{latency * longest:.6g}"), float(f"{slope * longest / largest:.6g}")))
            # Lines that are nowhere the longest are left out.
            kept = [one for one in fitted if not any(o != one and o[0] >= one[0] and o[1] >= one[1] for o in fitted)]
            tried = tuple(sorted(dict.fromkeys(kept), key=lambda line: (line[1], line[0])))
            guess = np.max([latency_s + sizes * s_per_byte for latency_s, s_per_byte in tried], axis=0)
            off = float(np.mean(np.abs(guess / seconds - 1)))
            if lines is best or off < error:
                lines, error = tried, off
        if error <= _WORTH[0] * least and least - error >= _WORTH[1]:
            best, least = lines, error
    return best
