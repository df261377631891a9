"""Train a Keras model by a plan: one line, `with pesto.apply(...)`, around an ordinary `fit`.

    pesto solve --function keras_mlp:model --batch 64 --cluster cpux2 --time-limit 10 -o mlp.plan.json
    python keras_mlp.py

With two GPUs, plan for them instead: --cluster v100x2-nvlink. The script stays as it is.
"""

import keras
import numpy as np
import tensorflow as tf

import pesto

BATCH = 64


def model() -> keras.Model:
    """The compiled model, whose train step `pesto solve --function keras_mlp:model` plans."""
    keras.utils.set_random_seed(1)
    image = keras.Input((64,))
    left = keras.layers.Dense(256, "relu")(image)
    right = keras.layers.Dense(256, "tanh")(image)
    made = keras.Model(image, keras.layers.Dense(10)(keras.layers.Concatenate()([left, right])))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # On a GPU Keras would have XLA compile the step into one kernel, of which nothing can be placed.
    made.compile("adam", loss, jit_compile=False)
    return made


def batches() -> tf.data.Dataset:
    """1000 made-up examples; the labels are int32, as `pesto solve` assumes for a sparse loss."""
    rng = np.random.default_rng(0)
    x = rng.random((1000, 64), dtype=np.float32)
    y = x[:, :10].argmax(axis=1).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)


def main() -> None:
    """Train three epochs by the plan."""
    if not tf.config.list_physical_devices("GPU"):
        pesto.logical_cpus(2)  # two devices of one CPU, for a plan on cpux2
    trained = model()
    with pesto.apply("mlp.plan.json") as applied:
        losses = trained.fit(batches(), epochs=3, verbose=0, shuffle=False).history["loss"]
    print(f"{applied.ops} ops ran where and when planned; loss {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
