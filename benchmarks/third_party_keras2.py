"""Small models of tf_keras, transformers, TFRS and deepctr, each with a batch, as `pesto solve --function` takes them.

TF_USE_LEGACY_KERAS=1 must be set before TensorFlow is imported.
"""

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

BATCH = 8
_rng = np.random.default_rng(0)
_tokens = _rng.integers(1, 200, (BATCH, 16)).astype("int32")


def _classes(count: int, *shape: int) -> Any:
    return _rng.integers(0, count, (BATCH, *shape)).astype("int32")


def _transformer(made: Any, batch: dict[str, Any]) -> Any:
    """A model of transformers that computes its own loss, built by a call."""
    made.compile(tf_keras.optimizers.Adam(1e-3))
    made(batch)
    return made, (batch,)


def mobilenet() -> Any:
    """MobileNetV2 with ten classes."""
    tf_keras.utils.set_random_seed(1)
    model = tf_keras.applications.MobileNetV2(
        weights=None, input_shape=(32, 32, 3), classes=10, classifier_activation=None
    )
    model.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, (_rng.random((BATCH, 32, 32, 3), dtype="float32"), _classes(10))


def lstm() -> Any:
    """An LSTM behind an embedding."""
    tf_keras.utils.set_random_seed(1)
    layers = [tf_keras.layers.Embedding(100, 16, input_length=12), tf_keras.layers.LSTM(16), tf_keras.layers.Dense(2)]
    model = tf_keras.Sequential(layers)
    model.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, (_classes(100, 12), _classes(2))


def bert() -> Any:
    """BERT of transformers with three classes."""
    from transformers import BertConfig, TFBertForSequenceClassification

    tf_keras.utils.set_random_seed(1)
    sizes = BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=3
    )
    batch = {"input_ids": _tokens, "attention_mask": np.ones_like(_tokens), "labels": _classes(3)}
    return _transformer(TFBertForSequenceClassification(sizes), batch)


def distilbert() -> Any:
    """DistilBERT of transformers with three classes."""
    from transformers import DistilBertConfig, TFDistilBertForSequenceClassification

    tf_keras.utils.set_random_seed(1)
    sizes = DistilBertConfig(vocab_size=200, dim=32, n_layers=2, n_heads=2, hidden_dim=64, num_labels=3)
    batch = {"input_ids": _tokens, "attention_mask": np.ones_like(_tokens), "labels": _classes(3)}
    return _transformer(TFDistilBertForSequenceClassification(sizes), batch)


def gpt2() -> Any:
    """GPT-2 of transformers that predicts each next word."""
    from transformers import GPT2Config, TFGPT2LMHeadModel

    tf_keras.utils.set_random_seed(1)
    sizes = GPT2Config(vocab_size=200, n_embd=32, n_layer=2, n_head=2, n_positions=32)
    return _transformer(TFGPT2LMHeadModel(sizes), {"input_ids": _tokens, "labels": _tokens})


def vit() -> Any:
    """A vision transformer of transformers with five classes."""
    from transformers import TFViTForImageClassification, ViTConfig

    tf_keras.utils.set_random_seed(1)
    sizes = ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        num_labels=5,
    )  # fmt: skip
    images = _rng.random((BATCH, 3, 32, 32), dtype="float32")
    return _transformer(TFViTForImageClassification(sizes), {"pixel_values": images, "labels": _classes(5)})


def retrieval() -> Any:
    """Two towers of TFRS under Adagrad."""
    import tensorflow_recommenders as tfrs

    tf_keras.utils.set_random_seed(1)

    class Towers(tfrs.Model):  # type: ignore[misc]  # TFRS is not typed
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = tf_keras.layers.Embedding(50, 16), tf_keras.layers.Embedding(80, 16)
            self.task = tfrs.tasks.Retrieval()

        def compute_loss(self, inputs: Any, training: bool = False) -> Any:
            users, items = self.users(inputs["user"]), self.items(inputs["item"])
            return self.task(users, items, compute_metrics=not training)

    model = Towers()
    model.compile(tf_keras.optimizers.Adagrad(0.1))
    return model, ({"user": _classes(50), "item": _classes(80)},)


def ranking() -> Any:
    """A rating of TFRS by two layers behind two embeddings, under Adagrad."""
    import tensorflow_recommenders as tfrs

    tf_keras.utils.set_random_seed(1)

    class Ratings(tfrs.Model):  # type: ignore[misc]  # TFRS is not typed
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = tf_keras.layers.Embedding(50, 16), tf_keras.layers.Embedding(80, 16)
            self.top = tf_keras.Sequential([tf_keras.layers.Dense(32, "relu"), tf_keras.layers.Dense(1)])
            self.task = tfrs.tasks.Ranking(loss=tf_keras.losses.MeanSquaredError())

        def call(self, inputs: Any, training: bool = False) -> Any:
            del training
            return self.top(tf.concat([self.users(inputs["user"]), self.items(inputs["item"])], 1))

        def compute_loss(self, inputs: Any, training: bool = False) -> Any:
            return self.task(labels=inputs["rating"], predictions=self(inputs, training=training))

    model = Ratings()
    model.compile(tf_keras.optimizers.Adagrad(0.1))
    ratings = _rng.random((BATCH, 1), dtype="float32")
    return model, ({"user": _classes(50), "item": _classes(80), "rating": ratings},)


def deepfm() -> Any:
    """DeepFM of deepctr on four columns of classes and one number."""
    from deepctr.feature_column import DenseFeat, SparseFeat
    from deepctr.models import DeepFM

    tf_keras.utils.set_random_seed(1)
    columns = [*(SparseFeat(f"c{k}", 100, embedding_dim=8) for k in range(4)), DenseFeat("d", 1)]
    model = DeepFM(columns, columns, task="binary")
    model.compile("adam", "binary_crossentropy")
    batch = {**{f"c{k}": _classes(100, 1) for k in range(4)}, "d": _rng.random((BATCH, 1), dtype="float32")}
    return model, (batch, _classes(2, 1).astype("float32"))
