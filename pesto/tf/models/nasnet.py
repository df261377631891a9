"""NASNet-A on ImageNet (Zoph et al. 2018), trained as its TF-Slim version is.

A variant NxF has three stacks of N normal cells with a reduction cell between stacks, F filters in the first stack and
twice as many after each reduction; 6x168 is NASNet-A (6 @ 4032), "large".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import (
    batch_norm,
    channels,
    convolve,
    dense,
    dropout,
    halve,
    placeholders,
    relu,
    scope,
    separable,
)
from pesto.tf.models.step import ModelFeed, ModelStep
from pesto.tf.models.update_step import finish, minimize, new_graph, step_counter


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
        """Return the same site one scope further in."""
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
    """Return the cell's output from those of the last two cells."""
    base = f"{site.path}/base"
    # The output of the cell before last gets the shape of the last one's.
    if before.shape[1] != now.shape[1]:
        fitted = halve(f"{base}/before", relu(f"{base}/before", before), site.filters)
    else:
        fitted = before
        if channels(before) != site.filters:
            fitted = convolve(f"{base}/before", relu(f"{base}/before", before), site.filters, 1)
            fitted = batch_norm(f"{base}/before/norm", fitted)
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
    joined = []
    for i in pattern.joined:
        # With the height and the filters of the cell's other outputs.
        path, x = f"{site.path}/output/{i}", states[i]
        if int(x.shape[1]) != height:
            x = halve(path, x, site.filters)
        elif channels(x) != site.filters:
            x = batch_norm(f"{path}/norm", convolve(path, x, site.filters, 1))
        joined.append(x)
    with scope(f"{site.path}/output"):
        return tf.concat(joined, axis=3)


def _half(half: CellOperation, site: CellSite, x: tf.Tensor) -> tf.Tensor:
    """One operation; only those that read the cell's inputs have a stride."""
    stride = site.stride if half.source < 2 else 1
    if half.kind == "identity":
        if stride == 1 and channels(x) == site.filters:
            return x
        y = convolve(site.path, relu(site.path, x), site.filters, 1, stride=stride)
        return batch_norm(f"{site.path}/norm", y)
    if half.kind == "separable":
        y = x
        for i in range(2):
            path = f"{site.path}/separable_{i}"
            y = separable(path, relu(path, y), site.filters, half.size, stride if i == 0 else 1)
            y = batch_norm(f"{path}/norm", y)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NasnetConfig:
    """Sizes and rates; `stem_cells` are the reduction cells before the first stack."""

    cells: int
    filters: int
    batch: int = 32
    image: int = 331
    classes: int = 1000
    stacks: int = 3
    stem_cells: int = 2
    stem_filters: int = 96
    dropout: float = 0.5
    keep: float = 0.7
    training_steps: int = 250_000
    smoothing: float = 0.1
    auxiliary: float = 0.4
    auxiliary_filters: tuple[int, int] = (128, 768)
    decay: float = 5e-5
    learning_rate: float = 0.015
    norm: float = 10.0

    @property
    def total(self) -> int:
        """Number of cells, stem and reductions included."""
        return self.stem_cells + self.stacks * self.cells + self.stacks - 1


CONFIGS: dict[str, NasnetConfig] = {
    "4x212": NasnetConfig(cells=4, filters=212),
    "6x148": NasnetConfig(cells=6, filters=148),
    "6x168": NasnetConfig(cells=6, filters=168),
    "tiny": NasnetConfig(
        cells=1,
        filters=4,
        batch=4,
        image=16,
        classes=10,
        stacks=2,
        stem_cells=0,
        stem_filters=8,
        dropout=0.1,
        keep=0.9,
        auxiliary_filters=(8, 16),
    ),
}


def construct(config: NasnetConfig) -> ModelStep:
    """Build one step of RMSProp on a batch of images."""
    shape = (config.batch, config.image, config.image, 3)
    feeds = (
        ModelFeed(name="images", shape=shape, dtype="float32", low=-1.0, high=1.0),
        ModelFeed(name="labels", shape=(config.batch,), dtype="int32", low=0, high=config.classes),
    )
    with new_graph().as_default():
        images, labels = placeholders(feeds)
        counter = step_counter()
        with scope("schedule"):
            progress = tf.minimum(1.0, tf.cast(counter.read_value(), tf.float32) / config.training_steps)
        # The last output, and that before the last reduction.
        before, net = _stem(config, images, progress)
        middle, k = net, 0
        for stack in range(config.stacks):
            filters = config.filters * 2**stack
            for i in range(config.cells + (stack > 0)):
                reduces = stack > 0 and i == 0
                if reduces:
                    middle = net
                path = f"cell_{k}"
                keep = _keep(config, path, config.stem_cells + k, progress)
                site = CellSite(path=path, filters=filters, stride=2 if reduces else 1, keep=keep)
                after = cell(REDUCTION if reduces else NORMAL, site, net, before)
                # The cell after a reduction reads what that read, not its input, as in NASNet-A large.
                before, net, k = (before if reduces else net), after, k + 1
        net = relu("head", net)
        with scope("head"):
            pooled = dropout(tf.reduce_mean(net, axis=[1, 2]), config.dropout)
        logits = dense("head/logits", pooled, config.classes, bias=True)
        # Logits [batch, classes] of the auxiliary classifier that helps the lower cells learn.
        auxiliary = relu("head/auxiliary", middle)
        with scope("head/auxiliary"):
            auxiliary = tf.nn.avg_pool2d(auxiliary, 5, 3, "VALID")
        narrow, wide = config.auxiliary_filters
        auxiliary = batch_norm("head/auxiliary/project/norm", convolve("head/auxiliary/project", auxiliary, narrow, 1))
        auxiliary = relu("head/auxiliary/project", auxiliary)
        auxiliary = convolve("head/auxiliary/whole", auxiliary, wide, int(auxiliary.shape[1]), padding="VALID")
        auxiliary = relu("head/auxiliary/whole", batch_norm("head/auxiliary/whole/norm", auxiliary))
        with scope("head/auxiliary"):
            auxiliary = tf.reshape(auxiliary, [config.batch, wide])
        auxiliary = dense("head/auxiliary/logits", auxiliary, config.classes, bias=True)
        # Cross entropy against smoothed labels (Szegedy et al. 2016) of both heads, plus weight decay.
        with scope("head/loss"):
            rest = config.smoothing / config.classes
            smooth = tf.one_hot(labels, config.classes, 1.0 - config.smoothing + rest, rest)
            main = tf.nn.softmax_cross_entropy_with_logits_v2(labels=smooth, logits=logits)
            helper = tf.nn.softmax_cross_entropy_with_logits_v2(labels=smooth, logits=auxiliary)
            decay = config.decay * tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))
            loss = tf.reduce_mean(main + config.auxiliary * helper) + decay
        optimizer = tf.train.RMSPropOptimizer(config.learning_rate, decay=0.9, momentum=0.9, epsilon=1.0)
        train = minimize(loss, optimizer, norm=config.norm, counter=counter)
        return finish(loss, [train, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)], feeds)


def _keep(config: NasnetConfig, path: str, index: int, progress: tf.Tensor) -> tf.Tensor:
    """Drop path keeps less the deeper the cell and the longer the training."""
    dropped = (index + 1) / config.total * (1.0 - config.keep)
    with scope(f"{path}/drop_path"):
        return 1.0 - progress * dropped


def _stem(config: NasnetConfig, images: tf.Tensor, progress: tf.Tensor) -> list[tf.Tensor]:
    """The last two outputs before the first stack, `before` and `now`."""
    if config.stem_cells:
        net = convolve("stem/conv", images, config.stem_filters, 3, stride=2, padding="VALID")
    else:
        net = convolve("stem/conv", images, config.stem_filters, 3)
    outputs = [batch_norm("stem/conv/norm", net)] * 2
    for k in range(config.stem_cells):
        path = f"stem/cell_{k}"
        filters = config.filters // 2 ** (config.stem_cells - k)
        site = CellSite(path=path, filters=filters, stride=2, keep=_keep(config, path, k, progress))
        outputs = [outputs[1], cell(REDUCTION, site, outputs[1], outputs[0])]
    return outputs
