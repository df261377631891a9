"""Steps of a DLRM by `fit` with and without a plan, by turns in one process: CPU and wall seconds.

    pip install keras-rs
    python -m benchmarks.third_party_steps [--tables 26] [--steps 100] [--rounds 2]

A DLRM of keras-rs layers (embeddings of 100 rows, dot products, two perceptrons) under Adagrad, planned for two logical
CPUs. `whole` is one epoch with its trace, `step` the median from its sixth step on.
"""

import argparse
import os
import time
from contextlib import nullcontext
from typing import Any

import numpy as np

import pesto

BATCH, ROWS, WIDTH = 64, 100, 16


def model(tables: int) -> Any:
    """The compiled model, always with the same weights."""
    import keras
    import keras_rs

    keras.utils.set_random_seed(1)
    numbers = keras.Input((13,))
    classes = [keras.Input((1,), dtype="int32") for _ in range(tables)]
    bottom = _perceptron(numbers, (64, 32, WIDTH))
    rows = [keras.layers.Flatten()(keras.layers.Embedding(ROWS, WIDTH)(each)) for each in classes]
    products = keras_rs.layers.DotInteraction()([bottom, *rows])
    top = _perceptron(keras.layers.Concatenate()([bottom, products]), (64, 32))
    made = keras.Model([numbers, *classes], keras.layers.Dense(1)(top))
    made.compile("adagrad", keras.losses.BinaryCrossentropy(from_logits=True), jit_compile=False)
    return made


def _perceptron(result: Any, widths: tuple[int, ...]) -> Any:
    from keras import layers

    for width in widths:
        result = layers.Dense(width, "relu")(result)
    return result


def fitted(made: Any, tables: int, steps: int) -> tuple[float, float, float, float]:
    """(CPU, wall) seconds of one epoch, and the medians of its steps."""
    import keras

    rng, many = np.random.default_rng(0), BATCH * steps
    x = [rng.random((many, 13), dtype="float32")]
    x += [rng.integers(0, ROWS, (many, 1)).astype("int32") for _ in range(tables)]
    y = rng.integers(0, 2, (many, 1)).astype("float32")
    seen = [(time.process_time(), time.perf_counter())]
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda *_, **__: seen.append((time.process_time(), time.perf_counter()))
    )
    made.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False, callbacks=[note])
    cpu_s, wall_s = np.median(np.diff(np.array(seen[6:]), axis=0), axis=0).tolist()
    return seen[-1][0] - seen[0][0], seen[-1][1] - seen[0][1], cpu_s, wall_s


def main() -> None:
    """Print a line for each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=26)
    parser.add_argument("--steps", type=int, default=100, help="of an epoch, 10 or more")
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    pesto.logical_cpus(2)
    from pesto.tf.sources import sources

    graph = sources.from_keras(model(asked.tables), BATCH, static=True)
    plan = pesto.solve(graph, cluster="cpux2", time_limit_s=5)
    print(f"{graph.ops} ops; seconds: whole CPU, whole wall, step CPU, step wall")
    for _ in range(asked.rounds):
        for name, context in (("without", nullcontext()), ("by plan", pesto.apply(plan, devices="cpu"))):
            made = model(asked.tables)
            with context:
                took = fitted(made, asked.tables, asked.steps)
            print(f"{name}: {' '.join(f'{each:.4f}' for each in took)}; load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
