"""One training step: a graph, what to fetch from it, and random batches to feed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pesto.tf.feed_values import FeedValues

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFeed:
    """A placeholder, and the half-open range [low, high) its values are drawn from, uniformly."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> NDArray[Any]:
        """Return a random array of this shape and type; integers for an integer type."""
        if np.issubdtype(np.dtype(self.dtype), np.integer):
            return rng.integers(int(self.low), int(self.high), self.shape, dtype=self.dtype)
        return rng.uniform(self.low, self.high, self.shape).astype(self.dtype)

    def values(self) -> FeedValues:
        """Return the range for messages, where whole numbers include the last."""
        is_integer = bool(np.issubdtype(np.dtype(self.dtype), np.integer))
        return FeedValues(
            name=self.name, shape=self.shape, dtype=self.dtype, low=self.low, high=self.high - is_integer,
            whole=is_integer, why="as the model has it",
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStep:
    """One training step of a TensorFlow v1 graph with fully static shapes.

    `fetches` are the ops that make up the step (the update and the loss), `loss` a tensor name, `init` the op that
    initialises every variable.
    """

    graph: tf.Graph
    fetches: tuple[str, ...]
    loss: str
    init: str
    feeds: tuple[ModelFeed, ...]

    def feed(self, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Return a random valid batch, by tensor name."""
        return {f"{feed.name}:0": feed.draw(rng) for feed in self.feeds}

    @property
    def batch_start(self) -> None:
        """None, since no feed comes from an iterator."""

    @property
    def feed_values(self) -> tuple[FeedValues, ...]:
        """Values that `feed` draws."""
        return tuple(feed.values() for feed in self.feeds)
