"""A step that is fed a batch of one's own, from a file or from Python, in place of drawn values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.errors import InputError
from pesto.core.files.batch_file import read_batch
from pesto.core.files.json import shown
from pesto.core.quantities import plural
from pesto.tf.feed_values import FeedValues
from pesto.tf.run.run_options import Batch
from pesto.tf.run.runnable import BatchStart, RunnableStep, tensor_name

_PYTHON = "the caller's arrays"
_NAMED = 6
_TEXTS = "OSU"
"""Kinds of numpy that hold texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserBatchStep:
    """A `RunnableStep` whose feeds have the values of a batch; those that it does not name are drawn as before."""

    step: RunnableStep
    arrays: Mapping[str, Any]
    """Arrays by the name of the op that is fed."""
    origin: str
    """Source of the arrays, for people."""
    graph: Any = field(init=False)
    fetches: tuple[str, ...] = field(init=False)
    init: str = field(init=False)
    batch_start: BatchStart | None = field(init=False)

    def __post_init__(self) -> None:
        """Take over what the step has."""
        for name in ("graph", "fetches", "init", "batch_start"):
            object.__setattr__(self, name, getattr(self.step, name))

    @property
    def feed_values(self) -> tuple[FeedValues, ...]:
        """Values of each feed."""
        return tuple(
            replace(values, file=self.origin, why="") if values.name in self.arrays else values
            for values in self.step.feed_values
        )

    def feed(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """The batch, and what is drawn for the other feeds."""
        return {**self.step.feed(rng), **{tensor_name(name): array for name, array in self.arrays.items()}}


def use_batch(step: RunnableStep, batch: Batch | None) -> RunnableStep:
    """`step` fed with `batch`; itself without one.

    InputError when an array has no feed of its name, or another shape or type than that.
    """
    if batch is None:
        return step
    origin = shown(batch) if isinstance(batch, Path) else _PYTHON
    feeds = {values.name: values for values in step.feed_values}

    def check(name: str, shape: tuple[int, ...], dtype: Any) -> None:
        _check(_feed(name, feeds, origin), shape, dtype, origin)

    if isinstance(batch, Path):
        given: Mapping[str, Any] = read_batch(batch, check)
    else:
        given = {name: np.asarray(array) for name, array in batch.items()}
        for name, array in given.items():
            check(name, array.shape, array.dtype)
    if not given:
        raise InputError.build(
            "there is no array", where=origin, remedy=f"name arrays as the feeds are: {_names(feeds)}"
        )
    arrays = {name.removesuffix(":0"): array for name, array in given.items()}
    return UserBatchStep(step=step, arrays={n: _typed(a, feeds[n].dtype) for n, a in arrays.items()}, origin=origin)


def _feed(name: str, feeds: Mapping[str, FeedValues], origin: str) -> FeedValues:
    feed = feeds.get(name.removesuffix(":0"))
    if feed is None:
        raise InputError.build(
            f"no feed is named {shown(name)}", where=origin, remedy=f"name arrays as the feeds are: {_names(feeds)}"
        )
    return feed


def _names(feeds: Mapping[str, FeedValues]) -> str:
    names = [shown(name) for name in feeds]
    if not names:
        return "the step has none, so leave the batch out"
    return ", ".join(names[:_NAMED]) + (f" and {plural(len(names) - _NAMED, 'other')}" if len(names) > _NAMED else "")


def _check(feed: FeedValues, shape: tuple[int, ...], dtype: Any, origin: str) -> None:
    is_text = feed.dtype == "object"
    if (dtype.kind not in _TEXTS) if is_text else (dtype.name != feed.dtype and not _rounds(dtype, feed.dtype)):
        kind = "bytes" if is_text else feed.dtype
        remedy = "save texts as numpy.array(texts, dtype='S')" if is_text else f"save it with .astype('{_saved(kind)}')"
        raise InputError.build(
            f"{shown(feed.name)} is of {dtype.name}, the feed of {kind}", where=origin, remedy=remedy
        )
    if shape != feed.shape:
        raise InputError.build(
            f"{shown(feed.name)} is {list(shape)}, the feed {list(feed.shape)}",
            where=origin,
            remedy="give it in this shape, or plan for that batch",
        )


def _rounds(dtype: Any, wanted: str) -> bool:
    """Return True if numbers are rounded to a type that no file can hold."""
    return dtype.kind == "f" and _saved(wanted) != wanted


def _saved(kind: str) -> str:
    """The type that a file may hold in place of one that is not numpy's own."""
    return "float32" if kind.startswith(("bfloat", "float8", "float4")) else kind


def _typed(array: Any, dtype: str) -> Any:
    if dtype == "object":
        return np.array([text.encode() if isinstance(text, str) else text for text in array.ravel().tolist()],
                        dtype=object).reshape(array.shape)  # fmt: skip
    return array.astype(dtype, copy=False)
