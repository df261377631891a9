"""Loops that read variables themselves are refused with a remedy that holds."""

import pytest

import pesto

keras = pytest.importorskip("keras")

from pesto.tf.shaping.shaping import shape  # noqa: E402
from pesto.tf.sources.sources import capture_keras  # noqa: E402


def captured(*, unroll: bool):
    inputs = keras.Input((6, 4))
    outputs = keras.layers.Dense(4)(keras.layers.LSTM(8, unroll=unroll, use_cudnn=False)(inputs))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse", jit_compile=False)
    return capture_keras(model, 8)


def test_a_recurrent_layer_is_to_be_unrolled() -> None:
    with pytest.raises(pesto.InputError, match="unroll=True"):
        shape(captured(unroll=False), batch=8)
    assert "While" not in shape(captured(unroll=True), batch=8)[0].types
