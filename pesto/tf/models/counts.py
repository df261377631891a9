"""Ops of one training step of every variant: as recorded when this version was made, or counted afresh."""

import json
from collections.abc import Mapping
from importlib.resources import files

from pesto.tf.models import FAMILIES, build

RECORD = "counts.json"


def recorded() -> Mapping[str, Mapping[str, int]]:
    """Ops by model and variant, measured with the TensorFlow that this version is pinned to; tests hold it to that."""
    counts: dict[str, dict[str, int]] = json.loads((files("pesto.tf.models") / RECORD).read_text())
    return counts


def measure(model: str, variant: str) -> int:
    """Ops of the step's graph once pruned to its fetches. Builds the model: seconds to half a minute."""
    step = build(model, variant)
    import tensorflow as tf

    pruned = tf.compat.v1.graph_util.extract_sub_graph(step.graph.as_graph_def(), list(step.fetches))
    return len(pruned.node)


def measure_all() -> Mapping[str, Mapping[str, int]]:
    """`measure` for every variant of every model: minutes."""
    return {f.name: {v: measure(f.name, v) for v in f.variants} for f in FAMILIES}
