"""Small models of keras-hub, each with a batch, as functions that `pesto solve --function` takes."""

from typing import Any

import keras
import keras_hub
import numpy as np
from third_party_batches import BATCH, LENGTH, WORDS, classes, reals, tokens

_padding = np.ones((BATCH, LENGTH), "int32")
_padding[:, 12:] = 0
_text = {"token_ids": tokens, "padding_mask": _padding}
_segments = {**_text, "segment_ids": np.zeros((BATCH, LENGTH), "int32")}
_SMALL = {"num_layers": 2, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 64}


def _compiled(model: Any, optimizer: str = "adam") -> Any:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)
    return model


def bert_mlm() -> Any:
    """BERT that predicts three masked words."""
    keras.utils.set_random_seed(1)
    body = keras_hub.models.BertBackbone(WORDS, max_sequence_length=LENGTH, **_SMALL)
    places = np.tile(np.array([1, 3, 5], "int32"), (BATCH, 1))
    model = _compiled(keras_hub.models.BertMaskedLM(body, preprocessor=None))
    return model, ({**_segments, "mask_positions": places}, classes(WORDS, 3))


def bert_classifier() -> Any:
    """BERT with three classes."""
    keras.utils.set_random_seed(1)
    body = keras_hub.models.BertBackbone(WORDS, max_sequence_length=LENGTH, **_SMALL)
    return _compiled(keras_hub.models.BertTextClassifier(body, 3, preprocessor=None)), (_segments, classes(3))


def roberta() -> Any:
    """RoBERTa with three classes."""
    keras.utils.set_random_seed(1)
    body = keras_hub.models.RobertaBackbone(WORDS, max_sequence_length=LENGTH, **_SMALL)
    return _compiled(keras_hub.models.RobertaTextClassifier(body, 3, preprocessor=None)), (_text, classes(3))


def gpt2() -> Any:
    """GPT-2 that predicts each next word."""
    keras.utils.set_random_seed(1)
    body = keras_hub.models.GPT2Backbone(WORDS, max_sequence_length=LENGTH, **_SMALL)
    return _compiled(keras_hub.models.GPT2CausalLM(body, preprocessor=None)), (_text, classes(WORDS, LENGTH))


def llama() -> Any:
    """Llama with grouped queries, under AdamW."""
    keras.utils.set_random_seed(1)
    body = keras_hub.models.LlamaBackbone(
        WORDS, num_layers=2, num_query_heads=4, num_key_value_heads=2, hidden_dim=32, intermediate_dim=64
    )
    model = _compiled(keras_hub.models.LlamaCausalLM(body, preprocessor=None), "adamw")
    return model, (_text, classes(WORDS, LENGTH))


def vit() -> Any:
    """A vision transformer with five classes."""
    keras.utils.set_random_seed(1)
    body = keras_hub.models.ViTBackbone(
        image_shape=(32, 32, 3), patch_size=(8, 8), num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64
    )
    model = _compiled(keras_hub.models.ViTImageClassifier(body, 5, preprocessor=None))
    return model, (reals(32, 32, 3), classes(5))
