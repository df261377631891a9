"""Bounds of sizes that are computed from sizes of the data: intervals, checked by running what they bound."""

import random

import numpy as np
import pytest

from pesto.core.errors import InputError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.importer.size_rules import AT_MOST  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402

ROWS = 12
SPEC = tf.TensorSpec([ROWS])


def chosen(x):
    """Between 0 and 12 elements."""
    return tf.boolean_mask(x, x > 0)


def bound_of(fn):
    """The upper bound of what a function of 12 numbers returns."""
    nodes = resolve_shapes(sources.capture_function(lambda x: tf.identity(fn(x), name="bounded"), SPEC), None)
    (i,) = [j for j, node in enumerate(nodes.defs) if node.name == "bounded"]
    return nodes.upper_bound(i, 0)


def count(x):
    """The number of chosen elements."""
    return tf.shape(chosen(x))[0]


def gradient_of_largest(x):
    """The gradient of the two largest chosen elements, or fewer, through a range up to a multiple of its step."""
    y = chosen(x)
    largest = tf.math.top_k(y, k=tf.minimum(2, tf.size(y)))[0]
    return tf.gradients(tf.reduce_sum(largest), y)[0]


def multiples(x):
    """Up to 5 multiples of a number that may be 0, as far as bounds tell."""
    n = count(x)
    return tf.range(0, n * count(x[:5]), n)


def sparse_shape(x, d):
    """A size of the shape of a sparse tensor of up to 12 x 4 elements in rows of 6."""
    before = tf.cast(tf.stack([count(x), 4]), tf.int64)
    at = tf.zeros([0, 2], tf.int64)
    return tf.raw_ops.SparseReshape(input_indices=at, input_shape=before, new_shape=[-1, 6])[1][d]


def in_a_branch(x, some):
    """A size that shrinks as that of a branch's argument grows."""
    return tf.cond(x > 0, lambda: tf.zeros([16 - tf.size(some)]), lambda: some * 2.0)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: tf.zeros([16 - count(x)]), 16),
        (lambda x: tf.zeros([20 - tf.shape(tf.concat([x[:4], chosen(x)], 0))[0]]), 16),
        (lambda x: tf.zeros([30 // (1 + count(x))]), 30),
        (lambda x: tf.range(count(x), 20, 2), 10),
        (multiples, 5),
        (lambda x: tf.scatter_nd([[0]], [1.0], [16 - count(x)]), 16),
        (gradient_of_largest, 12),
        (lambda x: chosen(x)[-4:2], 2),
        (lambda x: chosen(x)[count(x) - 3 :], 12),
        (lambda x: tf.slice(x, [count(x)], [-1]), 12),
        (lambda x: tf.pad(x, [[0, 16 - count(x)]]), 28),
        (lambda x: tf.tile(x[:2], [13 - count(x)]), 26),
        (lambda x: tf.split(chosen(x), 5)[0], 2),
        (lambda x: tf.zeros([tf.reduce_prod(tf.stack([count(x), 3]))]), 36),
        (lambda x: tf.zeros([tf.minimum(7, tf.cast(x[0], tf.int32))]), 7),
        (lambda x: tf.zeros([tf.where(x[0] > 0, 16 - count(x), 3)]), 16),
        (lambda x: tf.cond(x[0] > 0, lambda: tf.zeros([16 - count(x)]), lambda: chosen(x)), 16),
        (lambda x: in_a_branch(x[0], chosen(x)), 16),
        (lambda x: tf.zeros([sparse_shape(x, 0)]), 8),
        (lambda x: tf.zeros([sparse_shape(x, 1)]), 6),
    ],
)
def test_sizes_that_shrink_as_others_grow(fn, expected) -> None:
    """Where upper bounds were put in for values, most of these had 4, 0 or too few elements."""
    assert bound_of(fn) == (expected,)


def expression(draw, n, m, depth):
    """A random whole number made of two sizes."""
    if not depth:
        return draw.choice([n, m, tf.constant(draw.randint(-4, 9))])
    a, b = (expression(draw, n, m, depth - 1) for _ in range(2))
    return draw.choice([
        lambda: a + b, lambda: a - b, lambda: a * b, lambda: -a, lambda: tf.abs(a), lambda: tf.minimum(a, b),
        lambda: tf.maximum(a, b), lambda: a // tf.maximum(b, 1), lambda: a // draw.choice([-3, -1, 2, 5]),
        lambda: a % draw.choice([-4, 3, 7]), lambda: tf.where(a > b, a, b - 1), lambda: tf.square(a),
        lambda: tf.cast(tf.math.ceil(tf.cast(a, tf.float32) * 0.3), tf.int32),
        lambda: tf.reduce_max(tf.stack([a, b])), lambda: tf.reduce_sum(tf.stack([a, b, a])),
        lambda: tf.clip_by_value(a, -3, 8), lambda: tf.math.sign(a) * b, lambda: tf.truncatediv(a, 3),
        lambda: tf.stack([a, b])[draw.choice([0, 1, -1])], lambda: tf.shape(tf.range(tf.clip_by_value(a, 0, 50)))[0],
    ])()  # fmt: skip


@pytest.mark.slow
def test_random_sizes_lie_below_their_bounds(seeds) -> None:
    """Of 200 expressions in 5 graphs, each also negated, so that its lower bound is seen, as TensorFlow runs them.

    What a size is computed from is cut off at 0 and 1 000, as a tensor is of so many elements.
    """
    limited = 0
    for seed in seeds(5):
        bounds, sizes = bounds_and_sizes(random.Random(seed))  # noqa: S311  # expressions, not secrets
        for name, found in sizes.items():
            assert max(found) <= bounds[name][0], (seed, name, found, bounds[name])
        limited += sum(0 < bound[0] < 1000 for bound in bounds.values())
    assert limited > 150 * len(seeds(1))


def bounds_and_sizes(draw):
    """Bounds of 80 tensors of random sizes, by name, and their sizes for 0 to 12 chosen elements in one session."""

    @tf.autograph.experimental.do_not_convert
    def step(x):
        n = tf.shape(tf.boolean_mask(x, x > 0))[0]
        m = tf.shape(tf.concat([x[:3], tf.boolean_mask(x[:7], x[:7] > 0)], 0))[0]
        sizes = [expression(draw, n, m, draw.randint(1, 3)) for _ in range(40)]
        return [
            tf.identity(tf.zeros([tf.clip_by_value(size, 0, 1000)], tf.int8), name=f"s{k}")
            for k, size in enumerate([*sizes, *(100 - size for size in sizes)])
        ]

    captured = sources.capture_function(step, SPEC)
    nodes = resolve_shapes(captured, None)
    bounds = {node.name: nodes.upper_bound(i, 0) for i, node in enumerate(nodes.defs) if node.name.startswith("s")}
    names = [f"s{k}" for k in range(80)]
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(captured.graph_def, name="")
        fed = next(op.name for op in graph.get_operations() if op.type == "Placeholder")
        with tf.compat.v1.Session() as session:
            wanted = [tf.size(graph.get_tensor_by_name(f"{name}:0")) for name in names]
            orders = [np.random.default_rng(n).permutation(ROWS) for n in range(ROWS + 1)]
            found = [
                session.run(wanted, {f"{fed}:0": np.where(order < n, 1.0, -1.0)}) for n, order in enumerate(orders)
            ]
    return {name: bounds[name] for name in names}, dict(zip(names, zip(*found, strict=True), strict=True))


def test_what_has_no_interval_is_named() -> None:
    """The op behind which a size has no bound, and a remedy that works."""

    def logarithm(x):
        return tf.cast(tf.math.log(tf.cast(count(x), tf.float32)), tf.int32)

    with pytest.raises(InputError, match=r"\(Fill\) is \[\?\].* through op Log \(Log\).* by tf.minimum"):
        bound_of(lambda x: tf.zeros([logarithm(x)]))
    assert bound_of(lambda x: tf.zeros([tf.minimum(logarithm(x), 9)])) == (9,)


def test_rules_are_for_registered_ops() -> None:
    """A rule for an op that TensorFlow does not have would never be used."""
    assert all(tf.raw_ops.__dict__.get(op) or op in ("RefMerge", "SetDiff1D") for op in AT_MOST)
