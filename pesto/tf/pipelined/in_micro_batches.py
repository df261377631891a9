"""A training step of a whole batch made one that cuts it into micro-batches, and does what it did with each."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.source import Cut, check_cut
from pesto.tf.pipelined.passes import MicroBatchPasses, computed_from
from pesto.tf.private import autograph_of


def in_micro_batches(step: Callable[..., Any], cut: Cut, label: str) -> Callable[..., Any]:
    """`step`, done with each of the equal pieces of its arguments, with gradients added up before one update.

    Every argument with a first dimension is cut, scalars are given whole. Results of all pieces are put together:
    scalars averaged, rows put one behind the other. What is made of the mean of all gradients, or of no piece but of
    variables, as results of metrics are, is what the last pass gives. Of a cut with late weights
    (`pesto.tf.pipelined.weight_versions`) every piece updates.
    UsageError for a batch that cannot be cut so; InputError for one of open size, and as of `MicroBatchPasses`.
    """

    @tf.autograph.experimental.do_not_convert
    def whole(*args: Any, **kwargs: Any) -> Any:
        pieces = _pieces((args, kwargs), cut.batches, label)
        passes = MicroBatchPasses(cut, label)
        with passes.watched():
            results = [passes.run(step, batch, *given) for batch, given in enumerate(pieces)]
        rows = {one.name for one in tf.nest.flatten(pieces) if _has_rows(one)}
        return _joined(results, rows, passes.means)

    return whole


def train_in_micro_batches(model: Any, cut: Cut) -> Callable[..., Any]:
    """The train step of a compiled Keras model in micro-batches; metrics have seen them all, other losses are means."""
    return in_micro_batches(model.train_step, cut, f"keras {model.name}")


def convert_control_flow(step: Any) -> Callable[..., Any]:
    """The Python function of a step, its control flow converted where its tf.function would do so."""
    function: Any = getattr(step, "python_function", step)
    if not autograph_of(step):
        return function
    inner = getattr(function, "__func__", function)
    try:
        made = tf.autograph.to_graph(inner)
    except Exception:  # what has no source is called as it is, as tf.function does
        return function
    return functools.partial(made, function.__self__) if inner is not function else made


def _pieces(given: Any, batches: int, label: str) -> list[Any]:
    """The arguments of each micro-batch."""
    flat = tf.nest.flatten(given)
    rows: set[int | None] = {value.shape[0] if value.shape.rank else None for value in flat if _has_rows(value)}
    known = sorted(n for n in rows if n is not None)
    if not rows or None in rows:
        what = "the size of its batch is open" if rows else "no argument has a batch"
        raise InputError.build(
            f"{what}, and micro-batches are equal pieces of one size",
            where=label,
            remedy=(
                "give a model a batch (batch=64), write "
                "a tf.function's into its input_signature (tf.TensorSpec([64, ...])), and train on "
                "batches of that size "
                "alone (drop_remainder=True, or arrays that it divides)"
            ),
        )
    if len(known) > 1:
        raise InputError.build(
            f"its arguments have {' and '.join(map(str, known))} rows, so which are cut is not known",
            where=label,
            remedy=("give every argument the batch as its first dimension, and let the step close over the others"),
        )
    check_cut(known[0], batches, label)
    cut = [tf.split(value, batches) if _has_rows(value) else [value] * batches for value in flat]
    return [tf.nest.pack_sequence_as(given, [pieces[batch] for pieces in cut]) for batch in range(batches)]


def _has_rows(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and value.shape.rank != 0


def _joined(results: Sequence[Any], pieces: set[str], means: set[str]) -> Any:
    """The mean of scalars, rows one behind the other, and of all else what the last micro-batch gave.

    pieces, means: the names of what the passes are given, and of the means of all gradients.
    """
    flat = [tf.nest.flatten(result) for result in results]
    last = [isinstance(one, tf.Tensor) and _stands_for_all(one, pieces, means) for one in flat[-1]]
    every = [
        values[-1] if alone else _of_all(values) for values, alone in zip(zip(*flat, strict=True), last, strict=True)
    ]
    return tf.nest.pack_sequence_as(results[-1], every)


def _stands_for_all(one: Any, pieces: set[str], means: set[str]) -> bool:
    """Return True if a result is made of the mean of all gradients, or of no piece."""
    made_of = computed_from([one], pieces | means)
    return bool(made_of & means) or not made_of


def _of_all(values: Sequence[Any]) -> Any:
    last = values[-1]
    if not isinstance(last, tf.Tensor) or last.shape.rank is None:
        return last
    if last.shape.rank:
        return tf.concat(values, 0)
    return tf.add_n(values) / len(values) if last.dtype.is_floating else last
