"""pesto inspect: what a step is, told by hand for small programs; what would refuse a plan, and its exit code."""

import json
from pathlib import Path
from typing import Any

import forked
import pytest

PROGRAM = """
import keras
import tensorflow as tf

def model(**optimizer):
    made = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, use_bias=False)])
    made.compile(keras.optimizers.Adam(**optimizer), "mse", jit_compile=False)
    return made

def accumulates():
    return model(gradient_accumulation_steps=2)

W = tf.Variable(tf.ones([6, 4]))

@tf.function(input_signature=[tf.TensorSpec([3, 6], name="x")])
def infers(x):
    return x @ W

@tf.function(input_signature=[tf.TensorSpec([3, None], tf.int64, name="ids")])
def open_rows(ids):
    return tf.cast(ids, tf.float32) + 1.0

TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], [0, 1]), 0)

@tf.function(input_signature=[tf.TensorSpec([3], tf.int32, name="ids")])
def looks_up(ids):
    return tf.gather(W, tf.ensure_shape(TABLE.lookup(ids), [3]))

@tf.function
def inner(x):
    return tf.reduce_sum(x @ W)

@tf.function(input_signature=[tf.TensorSpec([3, 6], name="x")])
def outer(x):
    W.assign_sub(inner(x) * tf.ones_like(W))

def rows():
    return inner, tf.TensorSpec([None, 6])

def v1():
    graph = tf.Graph()
    with graph.as_default():
        w = tf.compat.v1.get_variable("w", [6, 4], use_resource=True)
        loss = tf.reduce_sum(tf.compat.v1.placeholder(tf.float32, [3, 6], name="x") @ w, name="loss")
        tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        tf.compat.v1.global_variables_initializer()
    with open("program.pb", "wb") as file:
        file.write(graph.as_graph_def().SerializeToString())
    return graph, ["train"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inspected")
    (made / "their_steps.py").write_text(PROGRAM)
    return made


def inspect(folder: Path, *words: str, code: int = 0) -> dict[str, Any]:
    done = forked.run("pesto", "inspect", *words, "--json", cwd=folder)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def page(folder: Path, *words: str, code: int = 0) -> str:
    done = forked.run("pesto", "inspect", *words, cwd=folder)
    assert done.returncode == code, done.stderr
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    return " ".join(done.stdout.split())


@pytest.mark.slow
def test_a_keras_model_with_an_open_batch(folder: Path) -> None:
    """6 x 4 floats of a kernel and two slots, beside counters; each group is around one variable."""
    said = inspect(folder, "their_steps:model")
    shapes = [(each["dtype"], each["shape"]) for each in said["inputs"]]
    assert shapes == [("float32", [None, 6]), ("float32", [None, 4])]
    assert said["batch"] == {"open": True, "given": None} and said["trains"] and said["refused"] == []
    assert said["optimizer"]["class"] == "Adam" and said["optimizer"]["updates"]["AssignSubVariableOp"] == 1
    assert 3 * 96 < said["variable_bytes"] < 3 * 96 + 64
    assert {each["variables"] for each in said["groups"]} == {1} and len(said["groups"]) == said["variables"]
    assert [each["variable_bytes"] for each in said["groups"]][:4] == [96, 96, 96, 8]
    assert all(each["why"].startswith("touch variable ") for each in said["groups"])
    assert said["loops_and_branches"] == []
    assert inspect(folder, "--function", "their_steps:model", "--batch", "8")["batch"] == {"open": True, "given": 8}


@pytest.mark.slow
def test_a_batch_that_open_specs_were_given_is_said(folder: Path) -> None:
    """Traced with it, the step has no open dimension any more."""
    told = page(folder, "their_steps:rows", "--batch", "5")
    assert "[5, 6]" in told and "fixed by the shapes, or none; 5 was given for open first dimensions" in told


@pytest.mark.slow
def test_a_branch_that_holds_the_variables_is_named(folder: Path) -> None:
    """Accumulation of gradients: the kernel, its two slots and its accumulator within one If, 4 x 96 bytes."""
    said = inspect(folder, "their_steps:accumulates", "--batch", "8")
    first = said["groups"][0]
    assert first["variable_bytes"] >= 4 * 96 and first["variables"] >= 4
    assert first["why"] == f"If adam/cond takes {first['variables']} of its variables"
    (branch,) = said["loops_and_branches"]
    assert branch["why"] == "If adam/cond" and branch["variable_bytes"] == first["variable_bytes"]
    assert said["optimizer"]["updates"]["If"] == 1
    text = page(folder, "their_steps:accumulates", "--batch", "8")
    assert "tied" in text and "holds" in text and "optimizer Adam" in text and "nothing: it can be planned" in text


def test_inference_is_said(folder: Path) -> None:
    """No variable is updated: one variable, one op that reads it."""
    said = inspect(folder, "their_steps:infers")
    assert (said["trains"], said["updated_variables"], said["variables"], said["variable_bytes"]) == (False, 0, 1, 96)
    assert said["inputs"] == [{"name": "x", "dtype": "float32", "shape": [3, 6]}] and said["batch"]["open"] is False
    assert "trains no: it updates no variable, which is inference" in page(folder, "their_steps:infers")


@pytest.mark.slow
def test_a_table_is_no_variable(folder: Path) -> None:
    """6 x 4 floats in one group, a table of no known bytes in the other."""
    said = inspect(folder, "their_steps:looks_up")
    assert [(g["variables"], g["variable_bytes"]) for g in said["groups"]] == [(1, 96), (0, 0)]
    assert said["groups"][1]["why"].startswith("hand on a table or another resource of ")
    assert said["variables"] == 1 and not said["trains"]
    assert "tied 2 ops, no variable: hand on a table" in page(folder, "their_steps:looks_up")


@pytest.mark.slow
def test_what_would_be_refused_is_said_beside_what_was_found(folder: Path) -> None:
    """A second dimension that is open: the reason, the remedy, and the exit code that a solve ends with."""
    said = inspect(folder, "their_steps:open_rows", code=3)
    assert said["inputs"] == [{"name": "ids", "dtype": "int64", "shape": [3, None]}]
    (refusal,) = said["refused"]
    assert (
        "[3, ?]" in refusal["error"] and "its shape (shape ids=3,N" in refusal["remedy"] and refusal["exit_code"] == 3
    )
    assert forked.run("pesto", "solve", "--function", "their_steps:open_rows", "-q", cwd=folder).returncode == 3
    assert "refused function their_steps:open_rows" in page(folder, "their_steps:open_rows", code=3)


@pytest.mark.slow
def test_what_pesto_apply_would_refuse_is_said_though_it_can_be_planned(folder: Path) -> None:
    """A step that calls another tf.function; without one there is nothing to be careful of."""
    said = inspect(folder, "their_steps:outer")
    (text,) = said["careful"]
    assert text.startswith("in pesto.apply, function their_steps:outer calls another tf.function (__inference_inner_")
    assert "pesto.place" in text and "SavedModel" in text and said["refused"] == [] and said["trains"]
    assert "careful in pesto.apply" in page(folder, "their_steps:outer")
    assert inspect(folder, "their_steps:infers")["careful"] == []


def test_what_cannot_be_found_is_an_error_as_anywhere(folder: Path) -> None:
    """The object of an error, and its code."""
    assert "no_such" in inspect(folder, "no_such:step", code=2)["error"]


@pytest.mark.slow
def test_a_graph_def_of_several_ends_lists_them(folder: Path) -> None:
    """Without --fetch a solve refuses it; with it, only the step is left."""
    fetched = inspect(folder, "their_steps:v1")
    assert fetched["ends"] == ["train"] and fetched["trains"]
    whole = inspect(folder, "--graph", "program.pb", code=3)
    assert {"train", "init"} <= set(whole["ends"]) and whole["ops"] > fetched["ops"]
    (refusal,) = whole["refused"]
    assert "train" in refusal["error"] and "such as train" in refusal["remedy"]
    one = inspect(folder, "--graph", "program.pb", "--fetch", "train")
    assert one["refused"] == [] and one["ops"] == fetched["ops"]
    assert one["optimizer"] == {"class": None, "updates": {"ResourceApplyGradientDescent": 1}}


@pytest.mark.slow
def test_a_built_in_model_and_a_file_of_the_projects_own(folder: Path) -> None:
    """The file has the same groups, and nothing of types, feeds or updates."""
    told = inspect(folder, "--model", "nmt", "--variant", "tiny")
    assert told["trains"] and told["variables"] == 18 and told["inputs"][0]["dtype"] == "int32"
    done = forked.run("pesto", "import", "--model", "nmt", "--variant", "tiny", "-o", "nmt.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    said = inspect(folder, "--graph", "nmt.json")
    sizes = [sorted((g["ops"], g["variable_bytes"]) for g in found["groups"]) for found in (told, said)]
    assert sizes[0] == sizes[1] and said["ops"] == told["ops"] and said["variable_bytes"] == told["variable_bytes"]
    assert said["inputs"] is None and said["trains"] is None
    assert "batch as the file has it" in page(folder, "--graph", "nmt.json")
