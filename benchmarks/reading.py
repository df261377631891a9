"""Reads Keras training steps of growing size: ops and processor seconds of every stage, and how they grow with the ops.

    python benchmarks/reading.py [--json] [--models cnn-16,cnn-32,cnn-64,cnn-128,mobilenetv2,resnet50]

Each model in a process of its own. Stages: `start` loads TensorFlow and Keras, `model` makes the network, `build` what
training adds to it (slots, metrics), `trace` has TensorFlow trace its train step once: these are Keras' and
TensorFlow's own. `capture` and `graph` are Pesto's: the GraphDef made flat, its shapes, work, bytes and edges. The
exponent is the slope of log seconds over log ops between the smallest and the largest `cnn`.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

BATCH = 8
Row = dict[str, float]


def main() -> None:
    """Read each model; print a table or, with --json, one object a model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--models", default="cnn-16,cnn-32,cnn-64,cnn-128,mobilenetv2,resnet50")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(read(asked.one)))
        return
    rows = {name: _apart(name) for name in asked.models.split(",")}
    slopes = _slopes([row for name, row in rows.items() if name.startswith("cnn-")])
    if asked.json:
        print(json.dumps({"models": rows, "exponents": slopes}))
        return
    stages = list(next(iter(rows.values())))
    print(f"| model | {' | '.join(stages)} |\n|---|{'---:|' * len(stages)}")
    for name, row in rows.items():
        print(f"| {name} | {' | '.join(f'{row[s]:.0f}' if s == 'ops' else f'{row[s]:.2f}' for s in stages)} |")
    print(f"| exponent | {' | '.join(f'{slopes[s]:.2f}' if s in slopes else '' for s in stages)} |")


def read(name: str) -> Row:
    """Ops, and processor seconds of each stage."""
    row: Row = {"ops": 0}

    def timed(stage: str, act: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = act()
        row[stage] = time.process_time() - began
        return result

    timed("start", _start)
    from pesto.tf.importer.importer import build_graph
    from pesto.tf.sources import sources
    from pesto.tf.sources.keras_step import keras_step

    model = timed("model", lambda: _made(name))
    step, specs = timed("build", lambda: keras_step(model, None))
    concrete = timed("trace", lambda: _traced(step, specs))
    captured = timed("capture", lambda: sources.capture_func_graph(concrete.graph, name))
    row["ops"] = timed("graph", lambda: build_graph(captured, batch=BATCH)).ops
    row["all"] = sum(row.values()) - row["ops"]
    return row


def _apart(name: str) -> Row:
    command = [sys.executable, __file__, "--one", name]
    row: Row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return row


def _start() -> None:
    from pesto.tf.tensorflow_start import load_tensorflow

    load_tensorflow()
    import keras

    assert keras.applications


def _traced(step: Callable[..., Any], specs: tuple[Any, ...]) -> Any:
    import tensorflow as tf

    return tf.function(step).get_concrete_function(*specs)


def _made(name: str) -> Any:
    """`cnn-N`, N blocks of convolution, batch norm and ReLU, or one of Keras' networks; with Adam."""
    import keras
    from keras import applications, layers

    if name.startswith("cnn-"):
        blocks = [
            layer
            for _ in range(int(name[4:]))
            for layer in (layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization(), layers.ReLU())
        ]
        ends = [layers.GlobalAveragePooling2D(), layers.Dense(10, "softmax")]
        model = keras.Sequential([keras.Input((16, 16, 3)), *blocks, *ends])
    else:
        kinds = {"mobilenetv2": applications.MobileNetV2, "resnet50": applications.ResNet50}
        model = kinds[name](weights=None)
    model.compile("adam", "categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    return model


def _slopes(rows: list[Row]) -> Row:
    """Exponents of the stages of networks of one kind; none of a single one."""
    if len(rows) < 2:
        return {}
    least, most = (end(rows, key=lambda row: row["ops"]) for end in (min, max))
    growth = math.log(most["ops"] / least["ops"])
    return {s: math.log(most[s] / least[s]) / growth for s in ("build", "trace", "capture", "graph") if least[s] > 0}


if __name__ == "__main__":
    main()
