"""Costs of each op on each device, and their origin. Add a cost model: one file here and one row in `load_costs`."""

from dataclasses import dataclass

import numpy as np

from pesto.core.errors import InputError
from pesto.core.source import Origin
from solvers.arrays import Floats, Ints, floats, ints

MODELLED = 0
"""The roofline of `pesto.core.costs.analytical`; also where neither of the others holds on every device of the op's."""
GIVEN = 1
"""The graph's own source, or a file of the user's own times."""
MEASURED = 2
"""A profile."""
ORIGINS = ("modelled", "given", "measured")
"""Names of the three, by number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """Seconds of every op on every device of a cluster, each op labelled with where its times come from.

    InputError when a time is negative or infinite, or an origin is not one of the three.
    """

    compute_s: Floats
    """[n, d] seconds; NaN where the op cannot run."""
    origin: Ints
    """[n] where the op's times come from on devices where it may be placed: modelled (0), given (1) or measured (2)."""
    source: str
    """One line that goes on from `basis`: model and presets, or the profile's file and date-free description."""
    files: tuple[Origin, ...] = ()
    """Files that the times rest on, the one that holds before the others first."""
    note: str = ""
    """One line on what the times leave out, of which callers are warned; empty where there is nothing to say."""
    noise: str = ""
    """One line on how far measured times can be trusted; empty where nothing is measured."""

    launch_s: Floats | None = None
    """[n, d] seconds in which the host was seen to launch an op, NaN where it was not; None without such a profile."""

    @property
    def said(self) -> str:
        """Note and noise on one line, for pages and their JSON; empty where there is neither."""
        return "; ".join(text for text in (self.note, self.noise) if text)

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        object.__setattr__(self, "compute_s", floats(self.compute_s))
        object.__setattr__(self, "origin", ints(self.origin))
        if self.launch_s is not None:
            object.__setattr__(self, "launch_s", floats(self.launch_s))
        if self.compute_s.ndim != 2 or self.origin.shape != self.compute_s.shape[:1]:
            raise InputError(f"costs: compute_s {self.compute_s.shape} and origin {self.origin.shape} do not fit")
        if ((self.origin < MODELLED) | (self.origin > MEASURED)).any():
            raise InputError("costs: an origin is none of modelled (0), given (1) and measured (2)")
        if (np.isinf(self.compute_s) | (self.compute_s < 0)).any():
            raise InputError("costs: a time is negative or infinite")

    @property
    def basis(self) -> str:
        """The origin that all ops share, 'modelled' without ops, or 'mixed' with the number of ops of each origin."""
        count = np.bincount(self.origin, minlength=len(ORIGINS))
        # The best known first, as its count is what a reader asks for; never a share, which rounds 1374 of 1379 to all.
        found = [(int(count[k]), ORIGINS[k]) for k in (MEASURED, GIVEN, MODELLED) if count[k]]
        if len(found) <= 1:
            return found[0][1] if found else ORIGINS[MODELLED]
        (first, word), *rest = found
        others = ", ".join(f"{n} {name}" for n, name in rest)
        return f"mixed: {first} of {len(self.origin)} ops {word}, {others}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchTimes:
    """Each op of an accelerator in two: its launch on the host, and its kernels."""

    launch_s: Floats
    """[n, d] seconds of the host; 0 where nothing is launched, as on hosts themselves."""
    kernel_s: Floats
    """[n, d] seconds of the device; NaN where the op cannot run."""
    source: str
    """One line for people: where the launches' times come from."""
