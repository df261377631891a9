"""The two cells of NASNet-A (Zoph et al. 2018, figure 4): five parallel branches, each the sum of two operations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import tensorflow.compat.v1 as tf

from pesto.tf.models.convolution import batch_norm, channels, convolve, halve, relu, separable
from pesto.tf.models.layers import scope


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOperation:
    """One operation of a branch: its kind, its size, and which state it reads (0, 1: inputs; 2 + j: branch j)."""

    kind: str
    size: int = 1
    source: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPattern:
    """The branches of a cell in order, and the states that make up its output."""

    branches: tuple[tuple[CellOperation, CellOperation], ...]
    joined: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSite:
    """Position of a cell: its scope, filters and stride, and the probability that drop path keeps an operation."""

    path: str
    filters: int
    stride: int
    keep: tf.Tensor

    def inside(self, name: str) -> CellSite:
        """The same site one scope further in."""
        return replace(self, path=f"{self.path}/{name}")


NORMAL = CellPattern(
    branches=(
        (CellOperation(kind="separable", size=5, source=0), CellOperation(kind="separable", size=3, source=1)),
        (CellOperation(kind="separable", size=5, source=1), CellOperation(kind="separable", size=3, source=1)),
        (CellOperation(kind="average", size=3, source=0), CellOperation(kind="identity", source=1)),
        (CellOperation(kind="average", size=3, source=1), CellOperation(kind="average", size=3, source=1)),
        (CellOperation(kind="separable", size=3, source=0), CellOperation(kind="identity", source=0)),
    ),
    joined=(1, 2, 3, 4, 5, 6),
)
REDUCTION = CellPattern(
    branches=(
        (CellOperation(kind="separable", size=5, source=0), CellOperation(kind="separable", size=7, source=1)),
        (CellOperation(kind="max", size=3, source=0), CellOperation(kind="separable", size=7, source=1)),
        (CellOperation(kind="average", size=3, source=0), CellOperation(kind="separable", size=5, source=1)),
        (CellOperation(kind="identity", source=3), CellOperation(kind="average", size=3, source=2)),
        (CellOperation(kind="separable", size=3, source=2), CellOperation(kind="max", size=3, source=0)),
    ),
    joined=(3, 4, 5, 6),
)


def cell(pattern: CellPattern, site: CellSite, now: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
    """The cell's output from those of the last two cells."""
    base = f"{site.path}/base"
    fitted = _fit(f"{base}/before", before, now, site.filters)
    squeezed = convolve(f"{base}/now", relu(f"{base}/now", now), site.filters, 1)
    states = [batch_norm(f"{base}/now/norm", squeezed), fitted]
    for j, halves in enumerate(pattern.branches):
        branch = site.inside(f"branch_{j}")
        sides = [
            _half(half, branch.inside(name), states[half.source])
            for half, name in zip(halves, ("left", "right"), strict=True)
        ]
        with scope(branch.path):
            states.append(tf.add(*sides))
    height = int(states[-1].shape[1])
    joined = [_reduced(f"{site.path}/output/{i}", states[i], site.filters, height) for i in pattern.joined]
    with scope(f"{site.path}/output"):
        return tf.concat(joined, axis=3)


def _fit(path: str, before: tf.Tensor, now: tf.Tensor, filters: int) -> tf.Tensor:
    """The cell before last's output in the last one's shape."""
    if before.shape[1] != now.shape[1]:
        return halve(path, relu(path, before), filters)
    if channels(before) == filters:
        return before
    return batch_norm(f"{path}/norm", convolve(path, relu(path, before), filters, 1))


def _half(half: CellOperation, site: CellSite, x: tf.Tensor) -> tf.Tensor:
    """One operation; only those that read the cell's inputs have a stride."""
    stride = site.stride if half.source < 2 else 1
    if half.kind == "identity":
        return x if stride == 1 and channels(x) == site.filters else _fitted(site, x, stride)
    if half.kind == "separable":
        y = _separable_twice(half, site, x, stride)
    else:
        pool = tf.nn.avg_pool2d if half.kind == "average" else tf.nn.max_pool2d
        with scope(site.path):
            y = pool(x, half.size, stride, "SAME")
        if channels(y) != site.filters:
            y = batch_norm(f"{site.path}/norm", convolve(site.path, y, site.filters, 1))
    # Drop the operation for whole examples at random (`scheduled drop path`).
    with scope(f"{site.path}/drop_path"):
        chosen = tf.floor(site.keep + tf.random_uniform([int(y.shape[0]), 1, 1, 1]))
        return y / site.keep * chosen


def _fitted(site: CellSite, x: tf.Tensor, stride: int) -> tf.Tensor:
    y = convolve(site.path, relu(site.path, x), site.filters, 1, stride=stride)
    return batch_norm(f"{site.path}/norm", y)


def _separable_twice(half: CellOperation, site: CellSite, x: tf.Tensor, stride: int) -> tf.Tensor:
    for i in range(2):
        path = f"{site.path}/separable_{i}"
        x = separable(path, relu(path, x), site.filters, half.size, stride if i == 0 else 1)
        x = batch_norm(f"{path}/norm", x)
    return x


def _reduced(path: str, x: tf.Tensor, filters: int, height: int) -> tf.Tensor:
    """x with the height and the filters of the cell's other outputs."""
    if int(x.shape[1]) != height:
        return halve(path, x, filters)
    if channels(x) == filters:
        return x
    return batch_norm(f"{path}/norm", convolve(path, x, filters, 1))
