"""How a tensor lies on k workers, and how an op is divided among them (Tofu, arXiv:1807.08887v1, sections 2.1, 3)."""

from dataclasses import dataclass
from typing import NamedTuple

Layout = int
"""Layout of a tensor by one cut: a dimension >= 0, cut in k equal parts of which worker p has part p; or as below."""
WHOLE = -1
"""Every worker holds all of it."""
PARTIAL = -2
"""Each worker holds a partial result (a summand, a maximum) of all of it; only as what an op computes."""
ONE = -3
"""The first worker alone holds it: an op that must run once computes it there, as random numbers and loops."""


class Rim(NamedTuple):
    """A dimension of which parts read a little more than their share: part p reads `size` elements from p * step + low.

    What lies beyond the tensor is not read.
    """

    dimension: int
    step: int
    """How far apart two neighbours begin; a part reads `size - step` elements that its neighbour reads too."""
    low: int
    size: int


Rims = tuple[Rim, ...]
"""Rims of one tensor by dimension; empty if all parts are shares."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to divide an op among k workers: partition-n-reduce with the op's own kernel (Tofu, section 2.1)."""

    name: str
    """The index variable that is cut, such as b, co or ci; "whole" where none is."""
    needs: tuple[Layout, ...]
    """The layout that each data input must have."""
    gives: tuple[Layout, ...]
    """The layout in which each output comes."""
    reducer: str = ""
    """Reduction that combines PARTIAL results: sum, max, min or prod; empty without them."""
    scaled: bool = False
    """True if the parts are means, which add up to k times the mean of all."""
    rims: tuple[Rims, ...] = ()
    """Rims of each data input whose parts read beyond their shares; empty if none does."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An index variable that cannot be cut, and why."""

    variable: str
    reason: str


@dataclass(frozen=True, slots=True)
class Strategies:
    """Every way to divide an op, and why there are no others."""

    found: tuple[Strategy, ...]
    refused: tuple[Refusal, ...]
