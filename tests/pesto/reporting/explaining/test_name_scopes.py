"""Scopes as people name them: gradients with their layers, without what a whole model shares."""

import numpy as np
import pytest

from pesto.reporting.explaining.name_scopes import common_scope, name_scopes, without_scope
from pesto.reporting.show.plan_graph import short_label

BERT = (
    "bert_1/backbone_1/table/Gather", "bert_1/backbone_1/layer_0/MatMul", "bert_1/backbone_1/layer_1/MatMul",
    "bert_1/head/MatMul", "bert_1/mask/Cast",
    "gradient_tape/bert_1/backbone_1/layer_1/MatMul/MatMul", "loss/crossentropy/Mean", "adam/Sub", "cond",
)  # fmt: skip

KERAS = (
    "net_1/body_1/layer_0/MatMul", "net_1/body_1/layer_1/MatMul", "net_1/head_1/MatMul", "net_1/Add/Size",
    "gradient_tape/net_1/body_1/layer_0/MatMul/MatMul", "gradient_tape/net_1/head_1/MatMul/MatMul",
    "gradient_tape/loss/entropy/Mul/Mul", "loss/entropy/Mean", "Add/ReadVariableOp",
    *(f"adam_1/Add_{k}/ReadVariableOp" for k in range(30)),
)  # fmt: skip
"""An open batch and an optimizer whose updates are scopes, which have no gradients."""


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (BERT, ("bert_1", "backbone_1")),
        (KERAS, ("net_1",)),
        (("encoder/a/x", "encoder/b/x", "decoder/a/x", "decoder/b/x"), ()),
        (("model/a/x", "model/b/x", "model/c/x", "a/Sub"), ()),
        (("model/a/x", "model/a/y", "adam/Sub"), ()),
        (("gradients_2/model/a/x_grad/y", "model/b/x", "model/c/x"), ("model",)),
        (("model/b/x", "model/c/x", "a/x"), ()),
        (("x", "y"), ()),
    ],
    ids=[
        "one model",
        "scopes of an optimizer",
        "two parts",
        "a name beside",
        "one layer",
        "gradients of version 1",
        "few layers",
        "no scopes",
    ],
)
def test_what_a_whole_model_shares(names, common):
    """The outer scopes that tell no two of its layers apart."""
    assert common_scope(names) == common


def test_layers_are_named_without_it():
    """And what does not share all of it loses what it shares."""
    _, labels = name_scopes(BERT, np.array([1, 9, 8, 2, 1, 7, 1, 1, 1]))
    assert {"layer_0", "layer_1", "head"} <= set(labels) and not any("bert" in label for label in labels)
    assert without_scope(("bert_1",), ("bert_1", "backbone_1")) == ("bert_1",)


def test_pictures_mark_gradients_of_tapes_too():
    """As those of `tf.gradients`, whose last scope says so again."""
    assert short_label("gradient_tape/layer_0/dense", 34) == "∇ layer_0/dense"
    assert short_label("gradients/layer_0/dense_grad", 34) == "∇ layer_0/dense"
