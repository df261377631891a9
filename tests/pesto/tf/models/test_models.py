"""The model families as training steps: what they compute, and what their graphs promise to a planner."""

import importlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.tf.models import FAMILIES, ModelStep, build, find
from pesto.tf.models.counts import PUBLISHED

NAMES = [family.name for family in FAMILIES]
REPRESENTATIVES = ("rnnlm", "transformer")
"""Families of a default run: a recurrent network, and one of attention and of what surrounds it."""


def families(*names: str) -> list[Any]:
    """Of the families, those that are no representatives are left out of a default run."""
    return [name if name in REPRESENTATIVES else pytest.param(name, marks=pytest.mark.matrix) for name in names]


SCOPES = {
    "rnnlm": ["embedding/", "layer_0/step_5/", "layer_1/step_0/", "softmax/", "loss/"],
    "nmt": [
        "encoder/embedding/",
        "encoder/layer_0/forward/step_0/",
        "encoder/layer_0/backward/step_2/",
        "encoder/layer_1/step_1/",
        "decoder/embedding/",
        "decoder/attention/step_2/",
        "decoder/layer_1/step_2/",
        "softmax/",
    ],
    "transformer": [
        "encoder/embedding/",
        "encoder/layer_0/attention/",
        "encoder/layer_0/feed_forward/",
        "decoder/embedding/",
        "decoder/layer_0/attention/",
        "decoder/layer_0/cross_attention/",
        "softmax/",
    ],
    "nasnet": ["stem/", "head/", *(f"cell_{k}/branch_{j}/" for k in range(3) for j in range(5))],
    "word-rnn": ["embedding/", "layer_0/step_0/", "layer_1/step_4/", "softmax/", "loss/"],
    "char-crn": ["embedding/width_3/", "embedding/highway_1/", "layer_1/step_2/", "softmax/step_2/", "loss/"],
    "wrn": ["stem/", "block_0/shortcut/", "block_1/norm_1/", "block_2/conv_1/", "head/"],
    "pardnn-transformer": [
        "encoder/embedding/",
        "encoder/layer_0/attention/head_1/",
        "encoder/layer_0/feed_forward/",
        "decoder/embedding/",
        "decoder/layer_0/cross_attention/head_0/",
        "softmax/",
    ],
    "e3d": ["stem/step_1/", "layer_0/step_0/", "layer_1/step_1/", "head/step_0/", "loss/"],
    "tofu-rnn": ["layer_0/step_0/", "layer_1/step_3/", "softmax/", "loss/"],
    "tofu-wrn": ["stem/", "block_0/conv_1/", "block_1/shortcut/", "block_1/norm_2/", "head/"],
}
UNCLIPPED = ("tofu-rnn", "tofu-wrn")


@pytest.fixture(scope="module")
def tf():
    return importlib.import_module("tensorflow.compat.v1")


@pytest.fixture(scope="module", params=families(*NAMES))
def model(request, tf) -> tuple[str, ModelStep]:
    return request.param, build(request.param, "tiny")


def altered(monkeypatch, name, **changes) -> ModelStep:
    """The tiny variant of a family with some of its settings changed."""
    module = importlib.import_module(find(name)[0].module)
    monkeypatch.setitem(module.CONFIGS, "tiny", replace(module.CONFIGS["tiny"], **changes))
    return build(name, "tiny")


def pruned(tf, step):
    """The ops of the training step alone, without initialisers."""
    nodes = tf.graph_util.extract_sub_graph(step.graph.as_graph_def(), step.fetches).node
    return [step.graph.get_operation_by_name(node.name) for node in nodes]


def test_three_steps_on_one_batch_reduce_the_loss_and_change_every_variable(tf, model):
    """Training on one batch must lower its loss, and no variable may be left out of the update."""
    _, step = model
    batch = step.feed(np.random.default_rng(0))
    with step.graph.as_default(), tf.Session(graph=step.graph) as session:
        variables = {v.op.name: v for v in tf.global_variables()}
        session.run(step.init)
        before = session.run(variables)
        losses = [session.run([step.loss, *step.fetches], batch)[0] for _ in range(3)]
        after = session.run(variables)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    same = [name for name in variables if np.array_equal(before[name], after[name])]
    assert same == []


def test_every_shape_of_the_step_is_static(tf, model):
    """Bytes of an edge must be known before the first run."""
    _, step = model
    unknown = [t.name for op in pruned(tf, step) for t in op.outputs if not t.shape.is_fully_defined()]
    assert unknown == []


def test_the_step_has_no_loops_no_reference_variables_and_few_ops(tf, model):
    """One node per op and step: a while loop would be a single node no plan can split."""
    _, step = model
    types = {op.type for op in pruned(tf, step)}
    assert not types & {"While", "StatelessWhile", "Enter", "If", "Switch", "VariableV2", "PartitionedCall"}
    assert 300 <= len(pruned(tf, step)) <= 3500


def test_scopes_name_the_structure(tf, model):
    """Expert placement reads layers, cells and branches from the names of forward and gradient ops."""
    name, step = model
    names = [op.name for op in pruned(tf, step)]
    for scope in SCOPES[name]:
        assert any(n.startswith(scope) for n in names), scope
        if scope not in ("loss/", "decoder/embedding/", "stem/step_1/"):
            assert any(n.startswith(f"gradients/{scope}") for n in names), scope


def test_no_scope_was_opened_twice_under_two_names(tf, model):
    """`layer_0_1` beside `layer_0` would be a second layer to whoever reads the names."""
    _, step = model
    doubled = re.compile(r"(^|/)(layer|step|cell|branch)_\d+_\d+/")
    assert [op.name for op in step.graph.get_operations() if doubled.search(op.name)] == []


def test_update_and_clipping_carry_the_name_of_their_variable(tf, model):
    """The ops that update a variable sit with it, so their names must say which one it is."""
    name, step = model
    names = [op.name for op in pruned(tf, step)]
    with step.graph.as_default():
        variables = [v.op.name for v in tf.trainable_variables()]
    for variable in variables:
        assert any(n.startswith(f"clip/{variable}/") for n in names) != (name in UNCLIPPED)
        assert any(f"/update_{variable}/" in n for n in names)


def test_feeds_are_the_placeholders_and_stay_in_range(tf, model):
    """A random batch fits the placeholders exactly: names, shapes and types."""
    _, step = model
    batch = step.feed(np.random.default_rng(1))
    assert set(batch) == {op.outputs[0].name for op in pruned(tf, step) if op.type == "Placeholder"}
    for feed in step.feeds:
        tensor, values = step.graph.get_tensor_by_name(f"{feed.name}:0"), batch[f"{feed.name}:0"]
        assert tensor.shape.as_list() == list(values.shape)
        assert tensor.dtype.as_numpy_dtype == values.dtype
        assert values.min() >= feed.low
        assert values.max() < feed.high


@pytest.mark.parametrize(
    ("name", "changes", "scope"),
    [
        ("rnnlm", {"layers": 4}, "layer_3/step_5/"),
        *(
            pytest.param(*one, marks=pytest.mark.matrix)
            for one in (
                ("nmt", {"layers": 4}, "decoder/layer_3/step_2/add"),  # residual from the third layer on
                ("transformer", {"layers": 2}, "decoder/layer_1/cross_attention/"),
                ("nasnet", {"stem_cells": 2, "image": 67}, "stem/cell_1/branch_4/"),  # sizes 67, 33, 17, 9, 5
                ("word-rnn", {"layers": 4}, "layer_3/step_4/"),
                ("wrn", {"units": 2}, "block_5/conv_1/"),  # three groups of two
                ("e3d", {"given": 2, "frames": 4}, "layer_1/step_2/"),
            )
        ),
    ],
)
def test_what_only_the_larger_variants_have_trains_too(tf, monkeypatch, name, changes, scope):
    """Deeper stacks, residual connections and the ImageNet stem, at a small size."""
    step = altered(monkeypatch, name, **changes)
    assert any(op.name.startswith(scope) for op in pruned(tf, step))
    batch = step.feed(np.random.default_rng(0))
    with tf.Session(graph=step.graph) as session:
        session.run(step.init)
        assert np.isfinite(session.run([step.loss, *step.fetches], batch)[0])


@pytest.mark.parametrize("name", families("nmt", "transformer", "pardnn-transformer"))
def test_words_past_the_end_of_a_sentence_do_not_change_the_loss(tf, monkeypatch, name):
    """Padding is masked in encoder, attention and loss, and the decoder sees no later word."""
    step = altered(monkeypatch, name, dropout=0.0)
    batch = step.feed(np.random.default_rng(0))
    lengths = {key: np.full_like(value, 2) for key, value in batch.items() if "length" in key}
    time_axis = 0 if name == "nmt" else 1
    changed = {key: value.copy() for key, value in batch.items()}
    for key in batch.keys() - lengths.keys():
        np.moveaxis(changed[key], time_axis, 0)[2:] += 1
        changed[key] %= 100
    with tf.Session(graph=step.graph) as session:
        session.run(step.init)
        first, second = (session.run(step.loss, {**words, **lengths}) for words in (batch, changed))
        whole = session.run(step.loss, changed)
    assert first == pytest.approx(second, rel=1e-6)
    assert whole != pytest.approx(first, rel=1e-6)


def test_an_lstm_step_is_the_published_recurrence(tf):
    """c' = s(f + 1) c + s(i) tanh(j), h' = s(o) tanh(c'), with gates i, j, f, o from one kernel."""
    lstm = importlib.import_module("pesto.tf.models.layers")
    rng = np.random.default_rng(0)
    x, c, h = rng.normal(size=(3, 2, 4)).astype(np.float32)
    kernel = rng.normal(size=(8, 16)).astype(np.float32)
    bias = rng.normal(size=16).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        layer = lstm.Lstm(path="layer", kernel=tf.constant(kernel), bias=tf.constant(bias), rate=0.0)
        got = session.run(lstm.advance(layer, tf.constant(x), (tf.constant(c), tf.constant(h))))
    i, j, f, o = np.split(np.concatenate([x, h], axis=1) @ kernel + bias, 4, axis=1)
    cell = c / (1 + np.exp(-f - 1)) + np.tanh(j) / (1 + np.exp(-i))
    np.testing.assert_allclose(got[0], cell, rtol=1e-5)
    np.testing.assert_allclose(got[1], np.tanh(cell) / (1 + np.exp(-o)), rtol=1e-5)


@pytest.mark.parametrize(("norm", "factor"), [(2.5, 0.5), (10.0, 1.0)])
def test_clipping_scales_all_gradients_by_one_factor(tf, norm, factor):
    """Gradients (3, 0) and 4 have the global norm 5: a limit of 2.5 halves them, one of 10 leaves them."""
    training = importlib.import_module("pesto.tf.models.update_step")
    with tf.Graph().as_default(), tf.Session() as session:
        gradients = [tf.constant([3.0, 0.0]), tf.constant(4.0)]
        first, second = session.run(training.clip(gradients, ["a", "b"], norm))
    np.testing.assert_allclose(first, [3.0 * factor, 0.0])
    np.testing.assert_allclose(second, 4.0 * factor)


def test_a_shared_variables_gradients_are_added_one_by_one(tf):
    """Tofu's models hold no more than two gradients of a kernel at once, where one AddN would hold one a step."""
    step = build("tofu-rnn", "tiny")
    sums = [op for op in pruned(tf, step) if op.type == "AddN" and op.outputs[0].shape.as_list()[-1] == 4 * 32]
    assert len(sums) >= 2 * 3 and {len(op.inputs) for op in sums} == {2}


@pytest.mark.parametrize("name", families(*NAMES))
def test_batch_size_is_an_argument(name):
    """Every feed holds one entry per example."""
    assert all(3 in feed.shape for feed in build(name, "tiny", batch=3).feeds)


@pytest.mark.parametrize("name", NAMES)
def test_table_and_module_list_the_same_variants(name):
    """A variant exists where it is found."""
    family, variant = find(name)
    assert variant == family.default == family.variants[0]
    assert tuple(importlib.import_module(family.module).CONFIGS) == family.variants


def test_two_builds_are_one_graph(tf):
    """A plan is keyed by the graph, so a second build must give the same one."""
    first, second = (build("rnnlm", "tiny").graph.as_graph_def() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("name", "variant", "said"),
    [
        ("rnnml", None, "rnnlm, nmt, transformer, nasnet, word-rnn, .*; did you mean rnnlm?"),
        ("zzz", None, "there are rnnlm, nmt, .*, tofu-wrn$"),
        ("nasnet", "4x221", "4x212, 6x148, 6x168, tiny; did you mean 4x212?"),
    ],
)
def test_unknown_names_are_refused_with_what_exists(name, variant, said):
    """The error lists the choices and the nearest one."""
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        find(name, variant)


def test_an_empty_batch_is_refused():
    """A batch of nothing is a mistake, not the default."""
    with pytest.raises(ValueError, match="at least one example"):
        build("rnnlm", "tiny", batch=0)


def test_listing_models_does_not_import_tensorflow():
    """`pesto --help` lists the models and must stay fast."""
    code = "import sys, pesto.tf.models; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("model", "variant"), list(PUBLISHED))
def test_own_batches_are_those_published_for_four_gpus(model: str, variant: str) -> None:
    """ParDNN, Table 6.1: what a variant has without --batch; no smaller batch on more GPUs."""
    family, _ = find(model, variant)
    batches = PUBLISHED[model, variant]
    assert importlib.import_module(family.module).CONFIGS[variant].batch == batches[4]
    assert set(batches) in ({1, 2, 4, 8, 16}, {4, 8, 16})
    assert list(batches.values()) == sorted(batches.values())


def test_published_batches_are_listed() -> None:
    """`pesto models --json` has them by GPUs, and nothing for what ParDNN did not run."""
    done = CliRunner().invoke(pesto, ["models", "--json"], standalone_mode=False)
    rows = {(row["model"], row["variant"]): row["batch_by_gpus"] for row in json.loads(done.stdout)["models"]}
    assert rows["wrn", "304x28"] == {"4": 4, "8": 16, "16": 32}
    assert rows["nmt", "2x1024"] is None
    assert "-, -, 4, 16, 32" in CliRunner().invoke(pesto, ["models"], standalone_mode=False).stdout
