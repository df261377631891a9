"""Ops of one training step of every variant: as recorded when this version was made, or counted afresh."""

import json
from collections.abc import Mapping
from importlib.resources import files

from pesto.tf.models import FAMILIES, build

RECORD = "counts.json"


def recorded() -> Mapping[str, Mapping[str, int]]:
    """Return recorded ops by model and variant, measured with the pinned TensorFlow; tests build some."""
    counts: dict[str, dict[str, int]] = json.loads((files("pesto.tf.models") / RECORD).read_text())
    return counts


def measure(model: str, variant: str) -> int:
    """Return the ops of the step's graph pruned to its fetches; building the model takes seconds to half a minute."""
    step = build(model, variant)
    import tensorflow as tf

    pruned = tf.compat.v1.graph_util.extract_sub_graph(step.graph.as_graph_def(), list(step.fetches))
    return len(pruned.node)


def measure_all() -> Mapping[str, Mapping[str, int]]:
    """Return `measure` for every variant of every model; takes minutes."""
    return {f.name: {v: measure(f.name, v) for v in f.variants} for f in FAMILIES}


GPUS = (1, 2, 4, 8, 16)
"""Columns of the table; where a model does not fit so few GPUs, its row has none for them."""

PUBLISHED: dict[tuple[str, str], dict[int, int]] = {
    name: dict(zip(GPUS[-len(batches) :], batches, strict=True))
    for name, batches in {
        ("word-rnn", "8x2048"): (16, 512, 1024, 2048, 2048),
        ("char-crn", "8x2048"): (8, 256, 512, 1024, 2048),
        ("wrn", "610x14"): (1, 4, 16, 32, 64),
        ("pardnn-transformer", "24x5120"): (1, 32, 64, 128, 256),
        ("e3d", "320"): (1, 4, 16, 32, 64),
        ("word-rnn", "8x4096"): (32, 1024, 2048),
        ("char-crn", "32x2048"): (128, 512, 1024),
        ("wrn", "304x28"): (4, 16, 32),
        ("pardnn-transformer", "48x8192"): (2, 16, 32),
        ("e3d", "512"): (8, 16, 32),
    }.items()
}
"""Batch by number of GPUs. WRN-3's 2, 4 and 8 are not here: the text gives its layers and its width nowhere."""
