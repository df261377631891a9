"""Variables whole and in parts: one is the other."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pesto.split import geometry
from pesto.split.geometry import WHOLE
from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.partition.part_variables import PartVariable, join_values, split_values  # noqa: E402
from pesto.tf.partition.partitioned import partition  # noqa: E402
from pesto.tf.shaping.shaping import shape  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


@st.composite
def variables(draw):
    factors = draw(st.sampled_from([(2,), (3,), (2, 2), (2, 3)]))
    shape = draw(st.sampled_from([(), (12,), (6, 4), (12, 1, 6)]))
    fitting = [
        layouts
        for layouts in product((WHOLE, *range(len(shape))), repeat=len(factors))
        if geometry.divides(shape, layouts, factors)
    ]
    parts = tuple(f"w{k}/v" for k in range(int(np.prod(factors))))
    return PartVariable(
        name="v", parts=parts, dtype="float32", shape=shape, layouts=draw(st.sampled_from(fitting)), factors=factors,
        places=tuple(range(len(parts))),
    )  # fmt: skip


@given(variables())
def test_parts_are_the_whole(variable):
    """A checkpoint of the whole, cut and put together, is itself; each part is of the shape that a worker holds."""
    value = np.arange(np.prod(variable.shape)).reshape(variable.shape).astype(np.float32)
    parts = split_values([variable], {"v": value, "other": value})
    assert set(parts) == set(variable.parts)
    assert {part.size for part in parts.values()} == {variable.part_elements}
    joined = join_values([variable], parts)["v"]
    assert joined.dtype == value.dtype and (joined == value).all()


def test_what_is_not_there_is_left_out():
    """A checkpoint without a part has no whole."""
    variable = PartVariable(
        name="v", parts=("w0/v", "w1/v"), dtype="float32", shape=(2,), layouts=(0,), factors=(2,), places=(0, 1)
    )
    assert join_values([variable], {"w0/v": np.zeros(1)}) == {} == split_values([variable], {})


def test_checkpoints_are_those_of_the_whole_step(tmp_path):
    """What the whole step saved is restored in parts, trained, saved in parts, and restored whole, as it would be."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [32, 48], name="x")
        w = v1.get_variable("w", [48, 48], use_resource=True)
        v1.get_variable("steps", [], tf.int64, use_resource=True, trainable=False)
        loss = tf.reduce_mean(tf.tanh(x @ w) ** 2, name="loss")
        count = v1.train.get_or_create_global_step()
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, global_step=count, name="train")
        saver, ready = v1.train.Saver(), v1.global_variables_initializer()
        trained = v1.train.Saver([v for v in v1.global_variables() if v.op.name != "steps"])
    captured = sources.capture_v1(graph, ["train", "loss"], source="a step")
    shaped = shape(captured)[1]
    division = divide(shaped, (2, 2), "exact", Rules(), seconds=60).division
    made = partition(captured.graph_def, shaped, division, captured.fetches, devices=["/device:CPU:0"] * 4)
    assert {v.part_elements for v in made.variables} == {1, 48 * 12}
    feed = {"x:0": np.ones((32, 48), np.float32)}
    with v1.Session(graph=graph) as session:
        session.run(ready)
        first = saver.save(session, str(tmp_path / "whole"))
        before = session.run("loss:0", feed)
        session.run("train", feed)
        after, weights = session.run(["loss:0", w], feed)
    with tf.Graph().as_default() as parts:
        tf.import_graph_def(made.graph_def, name="")
    names, second = made.checkpoints, str(tmp_path / "parts")
    with v1.Session(graph=parts) as session:
        session.run(names.restore, {f"{names.prefix}:0": first})
        np.testing.assert_allclose(session.run("loss:0", feed), before, rtol=1e-6)
        session.run("train", feed)
        session.run(names.save, {f"{names.prefix}:0": second})
    reader = tf.train.load_checkpoint(second)
    assert reader.get_variable_to_shape_map() == {v.name: list(v.shape) for v in made.variables}
    np.testing.assert_allclose(reader.get_tensor("w"), weights, rtol=1e-5, atol=1e-7)
    assert reader.get_tensor("global_step") == 1
    with v1.Session(graph=graph) as session:
        session.run(ready)
        trained.restore(session, second)
        np.testing.assert_allclose(session.run("loss:0", feed), after, rtol=1e-6)
