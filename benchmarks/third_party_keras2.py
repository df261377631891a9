"""Small models of tf_keras, transformers, TFRS and deepctr, each with a batch, as `pesto solve --function` takes them.

TF_USE_LEGACY_KERAS=1 must be set before TensorFlow is imported.
"""

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from third_party_batches import WORDS, classes, reals, tokens


def _with_own_loss(family: str, head: str, batch: dict[str, Any], **sizes: Any) -> Any:
    """A model of transformers that computes its own loss, built by a call, and a batch."""
    import transformers

    tf_keras.utils.set_random_seed(1)
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = getattr(transformers, f"TF{family}{head}")(config)
    model.compile(tf_keras.optimizers.Adam(1e-3))
    model(batch)
    return model, (batch,)


def _rated(model: Any) -> Any:
    """A model of TFRS under Adagrad, and a batch of users, items and ratings."""
    model.compile(tf_keras.optimizers.Adagrad(0.1))
    return model, ({"user": classes(50), "item": classes(80), "rating": reals(1)},)


def _sparse_classes(model: Any, inputs: Any, count: int) -> Any:
    """A model whose last layer is of classes, and a batch."""
    model.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, (inputs, classes(count))


def _embeddings() -> tuple[Any, Any]:
    return tf_keras.layers.Embedding(50, 16), tf_keras.layers.Embedding(80, 16)


def mobilenet() -> Any:
    """MobileNetV2 with ten classes."""
    tf_keras.utils.set_random_seed(1)
    model = tf_keras.applications.MobileNetV2(
        weights=None, input_shape=(32, 32, 3), classes=10, classifier_activation=None
    )
    return _sparse_classes(model, reals(32, 32, 3), 10)


def lstm() -> Any:
    """An LSTM behind an embedding."""
    tf_keras.utils.set_random_seed(1)
    layers = [tf_keras.layers.Embedding(100, 16, input_length=12), tf_keras.layers.LSTM(16), tf_keras.layers.Dense(2)]
    return _sparse_classes(tf_keras.Sequential(layers), classes(100, 12), 2)


def bert() -> Any:
    """BERT of transformers with three classes."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    batch = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "labels": classes(3)}
    return _with_own_loss("Bert", "ForSequenceClassification", batch, vocab_size=WORDS, num_labels=3, **sizes)


def distilbert() -> Any:
    """DistilBERT of transformers with three classes."""
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
    batch = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "labels": classes(3)}
    return _with_own_loss("DistilBert", "ForSequenceClassification", batch, vocab_size=WORDS, num_labels=3, **sizes)


def gpt2() -> Any:
    """GPT-2 of transformers that predicts each next word."""
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
    return _with_own_loss("GPT2", "LMHeadModel", {"input_ids": tokens, "labels": tokens}, vocab_size=WORDS, **sizes)


def t5() -> Any:
    """T5 of transformers from a text to another."""
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
    batch = {"input_ids": tokens, "labels": tokens[:, ::-1].copy()}
    return _with_own_loss("T5", "ForConditionalGeneration", batch, vocab_size=WORDS, **sizes)


def vit() -> Any:
    """A vision transformer of transformers with five classes."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    batch = {"pixel_values": reals(3, 32, 32), "labels": classes(5)}
    return _with_own_loss("ViT", "ForImageClassification", batch, image_size=32, patch_size=8, num_labels=5, **sizes)


def retrieval() -> Any:
    """Two towers of TFRS."""
    import tensorflow_recommenders as tfrs

    tf_keras.utils.set_random_seed(1)

    class Towers(tfrs.Model):  # type: ignore[misc]  # TFRS is not typed
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = _embeddings()
            self.task = tfrs.tasks.Retrieval()

        def compute_loss(self, inputs: Any, training: bool = False) -> Any:
            users, items = self.users(inputs["user"]), self.items(inputs["item"])
            return self.task(users, items, compute_metrics=not training)

    return _rated(Towers())


def ranking() -> Any:
    """A rating of TFRS by two layers behind two embeddings."""
    import tensorflow_recommenders as tfrs

    tf_keras.utils.set_random_seed(1)

    class Ratings(tfrs.Model):  # type: ignore[misc]  # TFRS is not typed
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = _embeddings()
            self.top = tf_keras.Sequential([tf_keras.layers.Dense(32, "relu"), tf_keras.layers.Dense(1)])
            self.task = tfrs.tasks.Ranking(loss=tf_keras.losses.MeanSquaredError())

        def compute_loss(self, inputs: Any, training: bool = False) -> Any:
            del training
            pair = tf.concat([self.users(inputs["user"]), self.items(inputs["item"])], 1)
            return self.task(labels=inputs["rating"], predictions=self.top(pair))

    return _rated(Ratings())


def deepfm() -> Any:
    """DeepFM of deepctr on four columns of classes and one number."""
    from deepctr.feature_column import DenseFeat, SparseFeat
    from deepctr.models import DeepFM

    tf_keras.utils.set_random_seed(1)
    columns = [*(SparseFeat(f"c{k}", 100, embedding_dim=8) for k in range(4)), DenseFeat("d", 1)]
    model = DeepFM(columns, columns, task="binary")
    model.compile("adam", "binary_crossentropy")
    return model, ({**{f"c{k}": classes(100, 1) for k in range(4)}, "d": reals(1)}, classes(2, 1).astype("float32"))
