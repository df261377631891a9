"""Values that a step is fed when Pesto runs it: how they are drawn, and why in that range."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORDS = 1000
"""Number of different strings: decimal numbers below it, which an op that parses numbers takes, too."""
SPECIAL = 0.25
"""Share of the values that are one of `specials`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedValues:
    """The values that one feed gets in every run that is compared; equal seeds draw equal values."""

    name: str
    """Name of the op that is fed."""
    shape: tuple[int, ...]
    dtype: str
    """numpy's name of the type; `object` for strings."""
    low: float = 0.0
    """Smallest value that is drawn."""
    high: float = 1.0
    """Largest whole number that is drawn; of other numbers, what all are below."""
    whole: bool = False
    """True draws whole numbers, whatever the dtype."""
    specials: tuple[float, ...] = ()
    """Values drawn more often, since ops compare with them."""
    ordered: bool = False
    """True sorts values along the first dimension, as segment ids need."""
    distinct: bool = False
    """True makes rows ascending and distinct, as indices of a sparse tensor are."""
    why: str = ""
    """Reason for the range."""
    file: str | None = None
    """The file that the values come from; None where they are drawn."""

    def draw(self, rng: np.random.Generator) -> NDArray[Any]:
        """Return an array of this shape and type."""
        if self.dtype == "object":
            words = rng.integers(0, WORDS, self.shape).astype("S")
            return np.asarray(words, dtype=object)
        kind = np.dtype(self.dtype)
        if kind.kind == "b":
            return rng.random(self.shape) < 0.5
        if kind.kind == "c":
            return (rng.random(self.shape) + 1j * rng.random(self.shape)).astype(kind)
        if self.distinct and self.whole:
            return self._draw_distinct_rows(rng).astype(kind)
        if self.whole:
            values: NDArray[Any] = rng.integers(int(self.low), int(self.high), self.shape, endpoint=True)
        else:
            values = rng.uniform(self.low, self.high, self.shape)
        if self.specials:
            # Reals are compared row by row where a row is one example or time step, as by a Masking layer.
            rows = self.shape if self.whole or len(self.shape) < 3 else (*self.shape[:-1], 1)
            chosen = rng.random(rows) < SPECIAL
            values = np.where(chosen, rng.choice(np.array(self.specials), rows), values)
        return (np.sort(values, axis=0) if self.ordered and values.ndim else values).astype(kind)

    def _draw_distinct_rows(self, rng: np.random.Generator) -> NDArray[Any]:
        """Draw rows of whole numbers, ascending; all different where the range has so many."""
        columns = self.shape[-1] if len(self.shape) > 1 else 1
        span = int(self.high - self.low) + 1
        rows = math.prod(self.shape[:-1]) if len(self.shape) > 1 else math.prod(self.shape)
        total = span**columns
        if rows > total or total > np.iinfo(np.int64).max:
            return rng.integers(int(self.low), int(self.high), self.shape, endpoint=True)
        flat = np.unique(rng.integers(0, total, rows))
        while len(flat) < rows:
            flat = np.unique(np.concatenate([flat, rng.integers(0, total, rows - len(flat))]))
        places = np.stack([flat // span ** (columns - 1 - k) % span for k in range(columns)], axis=-1)
        return (places + int(self.low)).reshape(self.shape)

    def as_object(self) -> dict[str, Any]:
        """Return the keys of an entry of `feeds` in `pesto run --json`; None where no range is drawn from."""
        drawn = self.file is None and self.dtype not in ("object", "bool") and np.dtype(self.dtype).kind != "c"
        return {
            "name": self.name, "dtype": self.dtype, "shape": list(self.shape), "file": self.file,
            "low": self.low if drawn else None, "high": self.high if drawn else None,
            "whole_numbers": self.whole if drawn else None, "specials": list(self.specials) if drawn else [],
            "why": self.why,
        }  # fmt: skip

    def __str__(self) -> str:
        """Return one line for people."""
        kind = "string" if self.dtype == "object" else self.dtype
        head = f"{self.name}: {kind} [{', '.join(map(str, self.shape))}]"
        if self.file is not None:
            return f"{head}, from {self.file}"
        specials = "".join(f", often {value:g}" for value in self.specials)
        if self.dtype == "object":
            drawn = f"numbers below {WORDS} as text"
        elif np.dtype(self.dtype).kind == "b":
            drawn = "true or false"
        elif self.whole:
            only = self.low == self.high
            drawn = (f"all {self.low:.0f}" if only else f"{self.low:.0f} to {self.high:.0f}") + specials
        else:
            drawn = f"reals from {self.low:g} to {self.high:g}{specials}"
        return f"{head}, {drawn}{f' ({self.why})' if self.why else ''}"
