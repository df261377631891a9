"""What `mixed_float16` gains on an encoder's training step, by type of op, as modelled.

    python benchmarks/mixed_precision.py [--preset V100] [--json]

One Keras encoder is traced twice, in float32 and under the policy `mixed_float16`; nothing is run. Ops are summed by
type on one device; matmuls are also compared one by one, by their place among those of the same sizes.
"""

import argparse
import json
import os
from collections import defaultdict
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from pesto.core.costs.kernel_times import gpu_op_times
from pesto.core.costs.presets import preset
from pesto.core.graph import MATMUL, Graph
from pesto.tf.tensorflow_start import load_tensorflow
from solvers.arrays import Floats

BATCH, LENGTH, WIDTH, HEADS, INNER, LAYERS, CLASSES = 32, 128, 1024, 16, 4096, 2, 1000


def main() -> None:
    """Print the sums of both by type of op, and the matmuls' gains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--preset", default="V100")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    asked = parser.parse_args()
    full, mixed = traced("float32"), traced("mixed_float16")
    able = preset(asked.preset)
    seconds = {name: gpu_op_times(graph, able).seconds for name, graph in (("float32", full), ("mixed", mixed))}
    rows = {"float32": by_type(full, seconds["float32"]), "mixed": by_type(mixed, seconds["mixed"])}
    gains = matmul_gains(full, mixed, seconds["float32"], seconds["mixed"])
    said = {
        "preset": asked.preset, "seconds": {name: float(s.sum()) for name, s in seconds.items()}, "types": rows,
        "matmuls": len(gains), "matmul_gain": {"least": min(gains), "median": float(np.median(gains))},
    }  # fmt: skip
    print(json.dumps(said, indent=1)) if asked.json else _print(said)


def traced(policy: str) -> Graph:
    """The training step of the encoder under a policy."""
    from pesto.tf.sources import sources

    tf = load_tensorflow()
    keras = tf.keras
    keras.mixed_precision.set_global_policy(policy)
    try:
        given = x = keras.Input((LENGTH, WIDTH))
        for _ in range(LAYERS):
            attended = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS, flash_attention=False)(x, x)
            x = keras.layers.LayerNormalization()(x + attended)
            inner = keras.layers.Dense(WIDTH)(keras.layers.Dense(INNER, activation="relu")(x))
            x = keras.layers.LayerNormalization()(x + inner)
        scores = keras.layers.Dense(CLASSES, dtype="float32")(keras.layers.GlobalAveragePooling1D()(x))
        model = keras.Model(given, scores)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="adam", loss=loss)
        return sources.from_keras(model, BATCH, static=True)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def by_type(graph: Graph, seconds: Floats) -> dict[str, float]:
    """Seconds by type of op."""
    result: dict[str, float] = defaultdict(float)
    for kind, took in zip(graph.type_of.tolist(), seconds.tolist(), strict=True):
        result[graph.types[kind]] += took
    return dict(result)


def matmul_gains(full: Graph, mixed: Graph, before: Floats, after: Floats) -> list[float]:
    """Seconds in float32 over those in float16, of each product that both have and that is in float16."""
    half = mixed.dtypes.index("float16")
    queues: dict[Any, list[float]] = defaultdict(list)
    for i in np.flatnonzero(full.kernels[:, 0] == MATMUL).tolist():
        queues[tuple(full.kernels[i].tolist())].append(float(before[i]))
    chosen = np.flatnonzero((mixed.kernels[:, 0] == MATMUL) & (mixed.dtype_of == half)).tolist()
    pairs = [(queues[tuple(mixed.kernels[i].tolist())], float(after[i])) for i in chosen]
    return [queue.pop() / took for queue, took in pairs if queue]


def _print(values: dict[str, Any]) -> None:
    full, mixed = values["types"]["float32"], values["types"]["mixed"]
    print("| type | float32, ms | mixed_float16, ms | ratio |\n|---|---:|---:|---:|")
    for name in sorted({*full, *mixed}, key=lambda n: -full.get(n, 0.0) - mixed.get(n, 0.0))[:16]:
        a, b = full.get(name, 0.0) * 1e3, mixed.get(name, 0.0) * 1e3
        print(f"| {name} | {a:.3f} | {b:.3f} | {f'{a / b:.2f}' if a and b else ''} |")
    a, b = (1e3 * values["seconds"][name] for name in ("float32", "mixed"))
    print(f"| all | {a:.3f} | {b:.3f} | {a / b:.2f} |")
    gain = values["matmul_gain"]
    print(f"\n{values['matmuls']} matmuls in float16: {gain['least']:.1f} times at least, {gain['median']:.1f} mostly")


if __name__ == "__main__":
    main()
