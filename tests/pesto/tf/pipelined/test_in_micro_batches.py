"""A step done with each piece of its batch: gradients summed in order, one update, what cannot be done so refused."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from pesto.core.errors import InputError, UsageError
from pesto.core.source import Cut
from pesto.tf.pipelined.in_micro_batches import convert_control_flow, in_micro_batches
from pesto.tf.sources.sources import capture_pieces

X = np.arange(12, dtype=np.float32).reshape(6, 2) / 8
"""Three micro-batches of two examples."""


class Step:
    """The mean of (x w)^2, by SGD of rate 1; gradients are handed on as `between` makes them."""

    def __init__(self, between=lambda gradients: gradients, optimizer=None):
        self.w = tf.Variable([1.0, -2.0])
        self.between, self.seen = between, []
        self.optimizer = optimizer or keras.optimizers.SGD(1.0)
        self.optimizer.build([self.w])

    def __call__(self, x):
        with tf.GradientTape() as tape:
            each = tf.square(tf.linalg.matvec(x, self.w))
            loss = tf.reduce_mean(each)
        gradients = self.between(tape.gradient(loss, [self.w]))
        self.optimizer.apply_gradients([(gradients[0], self.w)])
        return loss, each, tf.shape(x)[0]


def by_hand(w):
    """The mean over micro-batches, in their order, of the gradient of the mean of (x w)^2: 2 (x w) x."""
    of = [np.mean(2 * (part @ w)[:, None] * part, axis=0, dtype=np.float32) for part in np.split(X, 3)]
    return (of[0] + of[1] + of[2]) / np.float32(3)


def run(step, *args, pieces=3):
    whole = in_micro_batches(step, Cut(pieces), "function step")
    return tf.function(whole, autograph=False)(*map(tf.constant, args))


def test_one_update_by_the_mean_of_all():
    """Scalars of reals are averaged, rows are in their order, what is counted is the last's."""
    step, w = Step(), np.float32([1, -2])
    loss, each, rows = run(step, X)
    assert np.allclose(step.w, w - by_hand(w), rtol=1e-6)
    assert np.allclose(each, (X @ w) ** 2) and np.allclose(loss, np.mean((X @ w) ** 2)) and rows == 2
    assert int(step.optimizer.iterations) == 1


def test_what_counts_over_all_pieces_is_the_lasts():
    """As results of metrics, which are no means of what they were; a loss beside them is one."""
    step, count = Step(), tf.Variable(0.0, trainable=False)

    def counting(x):
        loss, _, _ = step(x)
        return {"loss": loss, "count": count.assign_add(1.0) * 2}

    whole = in_micro_batches(counting, Cut(3), "function step")
    found = tf.function(whole, autograph=False)(tf.constant(X))
    assert float(found["count"]) == 6 and np.allclose(found["loss"], np.mean((X @ np.float32([1, -2])) ** 2))


def test_what_a_step_does_with_its_gradients_it_does_with_the_mean():
    """Clipped by their norm: of the mean, not of each micro-batch's."""
    step, w = Step(lambda gradients: tf.clip_by_global_norm(gradients, 0.5)[0]), np.float32([1, -2])
    run(step, X)
    mean = by_hand(w)
    assert np.allclose(step.w, w - 0.5 * mean / np.linalg.norm(mean), rtol=1e-5)


def test_what_is_made_of_the_mean_of_all_gradients_is_the_lasts():
    """Its norm, which a function may return beside its loss, and a variable as it is behind the update."""
    norms = []
    step, w = Step(lambda gradients: norms.append(tf.linalg.global_norm(gradients)) or gradients), np.float32([1, -2])

    def told(x):
        step(x)
        return norms[-1], step.w.read_value()

    norm, after = run(told, X)
    assert np.allclose(norm, np.linalg.norm(by_hand(w))) and np.allclose(after, w - by_hand(w))


def test_what_a_step_assigns_of_pieces_it_assigns_for_each():
    """Behind the update, too: what it has seen of rows and of losses, and how often."""
    step, seen, losses = Step(), tf.Variable([0.0, 0.0], trainable=False), tf.Variable(0.0, trainable=False)
    count = tf.Variable(0, trainable=False)

    def counting(x):
        loss, _, _ = step(x)
        seen.assign_add(tf.reduce_sum(x, 0))
        losses.assign_add(loss)
        return count.assign_add(1)

    w = step.w.numpy()
    run(counting, X)
    assert np.allclose(seen, X.sum(0)) and count.numpy() == 3
    assert np.allclose(losses, 3 * np.mean((X @ w) ** 2))


def test_an_optimizer_within_another_updates_once():
    """As one that scales the loss does, which hands on to its own."""
    step, plain = Step(optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), 1.0)), Step()
    run(step, X)
    run(plain, X)
    assert np.array_equal(step.w, plain.w) and int(step.optimizer.inner_optimizer.iterations) == 1


def test_what_a_gradient_takes_itself_is_no_gradient_of_the_step():
    """As tf.recompute_grad does, which makes activations anew."""
    step, plain = Step(), Step()

    def anew(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.recompute_grad(lambda rows: tf.square(tf.linalg.matvec(rows, step.w)))(x))
        step.optimizer.apply_gradients([(tape.gradient(loss, [step.w])[0], step.w)])

    run(anew, X)
    run(plain, X)
    assert np.array_equal(step.w, plain.w) and int(step.optimizer.iterations) == 1


def test_hooks_are_gone_afterwards():
    """Also where the step is refused."""
    before = tf.GradientTape.gradient, keras.optimizers.Optimizer.apply
    run(Step(), X)
    with pytest.raises(InputError):
        run(lambda x: x, X)
    assert before == (tf.GradientTape.gradient, keras.optimizers.Optimizer.apply)


def test_rows_of_a_table_are_put_one_behind_the_other():
    """Each row that a micro-batch has read gets its part of the mean."""
    table, optimizer = tf.Variable(tf.zeros([5, 1])), keras.optimizers.SGD(1.0)
    optimizer.build([table])

    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table.read_value(), ids))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])

    run(step, np.int32([0, 1, 1, 4]), pieces=2)
    assert np.array_equal(table, [[-0.5], [-1.0], [0.0], [0.0], [-0.5]])


def twice():
    step = Step()
    return lambda x: (step(x), step(x))


def bare():
    w = Step().w

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x) * tf.reduce_sum(w)
        w.assign_sub(tape.gradient(loss, w))

    return step


def unled():
    w = Step().w

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x)
        tape.gradient(loss, [w])

    return step


def averaged():
    step, average = Step(), tf.Variable([1.0, -2.0], trainable=False)

    def whole(x):
        step(x)
        average.assign(0.5 * average + 0.5 * step.w)

    return whole


def guarded():
    """A guard in a branch, which would see the loss of the last micro-batch alone."""
    step = Step()

    @tf.function
    def whole(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.linalg.matvec(x, step.w))
        gradients = tape.gradient(loss, [step.w])
        if tf.math.is_finite(loss):
            step.optimizer.apply_gradients([(gradients[0], step.w)])
        return loss

    return convert_control_flow(whole)


def repeated():
    step = Step()

    @tf.function
    def whole(x):
        for _ in tf.range(2):
            step(x)

    return convert_control_flow(whole)


def called():
    return functools.partial(tf.function(Step()))


WITHIN = r"inside a branch, a loop or a tf.function .* in the step itself .* or let it loop"
REFUSED = {
    "a guarded update": (guarded, (X,), InputError, f"it updates {WITHIN}"),
    "in a loop": (repeated, (X,), InputError, f"it takes its gradients and updates {WITHIN}"),
    "in a function": (called, (X,), InputError, f"it takes its gradients and updates {WITHIN}"),
    "an average of weights": (averaged, (X,), InputError, r"assigns what it makes of .*use_ema=True\), or let it loop"),
    "no gradient": (lambda: tf.reduce_sum, (X,), InputError, "takes no gradients .* give a training step"),
    "no loss": (unled, (X,), InputError, "all gradients are None - compute the loss"),
    "own update": (bare, (X,), InputError, "no Keras optimizer .* call optimizer.apply_gradients"),
    "twice": (twice, (X,), InputError, "gradients 2 times and updates 2 times.* leave out their number"),
    "not divisible": (Step, (X[:5],), UsageError, "a batch of 5 cannot .* 3 equal .* give a batch of 3 or 6"),
    "too small": (Step, (X[:2],), UsageError, "a batch of 2 cannot .* give a batch of 3, or another"),
    "two sizes": (lambda: tf.add, (X, X[:2]), InputError, "have 2 and 6 rows, .* close over the others"),
    "no batch": (Step, (np.float32(1),), InputError, "no argument has a batch, .* give a model a batch"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_in_pieces_is_refused(case):
    """In one line that says what to do."""
    make, args, kind, said = REFUSED[case]
    with pytest.raises(kind, match=said) as found:
        run(make(), *args)
    assert "\n" not in str(found.value)


def test_an_open_batch_is_refused():
    """As fit has where the last batch is smaller."""
    with pytest.raises(InputError, match=r"size of its batch is open, .*drop_remainder=True"):
        capture_pieces(Step(), tf.TensorSpec([None, 2]), batch=None, cut=Cut(3), source="function step")


def test_control_flow_is_converted_as_by_the_steps_own_function():
    """And left where that does not do so."""

    def step(x):
        if tf.reduce_sum(x) > 0:
            x = x + 1
        return x

    assert np.array_equal(convert_control_flow(tf.function(step))(tf.constant([1.0])), [2.0])
    assert convert_control_flow(tf.function(step, autograph=False)) is step
    assert convert_control_flow(len) is len
