"""A training step traced once for each micro-batch: gradients added up in the order of the batches, one update."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.source import Cut
from pesto.tf.pipelined.weight_versions import WeightVersions
from pesto.tf.private import replace_attributes

_ASSIGNMENTS = {"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"}


class MicroBatchPasses:
    """The passes of one step, one a micro-batch: what is taken of gradients and of updates in each.

    In all but the last the optimizer updates nothing, and in the last a step is given the mean of all gradients. What
    it does with its gradients before it hands them on, as clipping by the norm of all, it so does with the mean. Where
    weights are late, this holds for the passes of each update, which read the weights that `WeightVersions` gives them.
    """

    def __init__(self, cut: Cut, label: str) -> None:
        """label: what the step is called in errors."""
        self.batches, self.label = cut.batches, label
        itself = "let it loop over micro-batches itself, and leave out their number where it does so"
        self._remedy = itself if cut.late is None else "plan it with a flush, as no update of its own can be late"
        self._versions = None if cut.late is None else WeightVersions(cut, cut.late)
        self._every = cut.batches if cut.late is None else cut.every
        self._batch, self._derived, self._applied, self._inside = 0, 0, 0, False
        self._sums: list[Any] = []
        self._trained, self._update_at = set[int](), 0
        self.means = set[str]()
        """The names of the means of all gradients."""
        self._graph: Any = None
        self._deriving = False
        self._within = dict[str, None]()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Intercept gradients of variables and updates by Keras' optimizers for these passes."""
        with ExitStack() as stack:
            stack.enter_context(
                replace_attributes(tf.GradientTape, {"gradient": self._gradient(tf.GradientTape.gradient)})
            )
            for kind in _kinds():
                stack.enter_context(replace_attributes(kind, {"apply": self._apply(vars(kind)["apply"])}))
            if self._versions is not None:
                stack.enter_context(self._versions.watched())
            yield

    def run(self, step: Callable[..., Any], batch: int, args: Any, kwargs: Any) -> Any:
        """Run one pass; InputError for one that does not take gradients once and update once."""
        self._batch, self._derived, self._applied = batch, 0, 0
        self._graph = tf.compat.v1.get_default_graph()
        if self._versions is not None:
            self._versions.begin(batch)
        result = step(*args, **kwargs)
        if self._within:
            raise InputError.build(
                f"it {' and '.join(self._within)} inside a branch, a loop or a tf.function that it "
                "calls, which is not done for all micro-batches together",
                where=self.label,
                remedy=(f"do so in the step itself (of a tf.function f, call f.python_function), or {self._remedy}"),
            )
        if not self._derived:
            raise InputError.build(
                "it takes no gradients of trainable variables (tf.GradientTape.gradient), so there are "
                "none to add up over micro-batches",
                where=self.label,
                remedy="give a training step",
            )
        if not self._applied:
            raise InputError.build(
                "no Keras optimizer applies its gradients, and no other update is known here",
                where=self.label,
                remedy=f"call optimizer.apply_gradients in it, or {self._remedy}",
            )
        if self._derived > 1 or self._applied > 1:
            raise InputError.build(
                f"it takes gradients {self._derived} times and updates {self._applied} times, and one may need another",
                where=self.label,
                remedy=f"{self._remedy}",
            )
        if not self._updates and (wrong := self._of_old_weights((args, kwargs))):
            raise InputError.build(
                f"behind its update it assigns what it makes of trained variables ({wrong}), which "
                "would be done for each micro-batch, before the update of all",
                where=self.label,
                remedy=(f"leave it to the optimizer, as a moving average (use_ema=True), or {self._remedy}"),
            )
        return result

    def _is_within(self, what: str) -> bool:
        """Return True if tracing is in another graph than the pass's; `run` reports it, as AutoGraph changes errors."""
        within = tf.compat.v1.get_default_graph() is not self._graph
        if within:
            self._within[what] = None
        return within

    def _of_old_weights(self, given: Any) -> str:
        """The name of an op behind an update that was left out, which assigns what is of weights alone; else empty."""
        graph = tf.compat.v1.get_default_graph()
        weights = {inner.name for outer, inner in graph.captures if id(outer) in self._trained}
        pieces = {one.name for one in tf.nest.flatten(given) if isinstance(one, tf.Tensor) and one.shape.rank != 0}
        for op in graph.get_operations()[self._update_at :]:
            if op.type in _ASSIGNMENTS:
                of = computed_from(op.inputs[1:], weights | pieces)
                if of & weights and not of & pieces:
                    return str(op.name)
        return ""

    @property
    def _updates(self) -> bool:
        """True if this pass ends a group of passes, whose update it makes."""
        return (self._batch + 1) % self._every == 0

    def _gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def gradient(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            if self._deriving:  # what a gradient takes itself, as tf.recompute_grad does
                return original(tape, target, sources, *args, **kwargs)
            self._deriving = True
            try:
                gradients = original(tape, target, sources, *args, **kwargs)
            finally:
                self._deriving = False
            if not any(getattr(source, "trainable", False) for source in tf.nest.flatten(sources)):
                return gradients
            if self._is_within("takes its gradients"):
                return gradients
            self._derived += 1
            self._trained |= {id(_handle(source)) for source in tf.nest.flatten(sources)}
            flat = tf.nest.flatten(gradients)
            if all(one is None for one in flat):
                raise InputError.build(
                    "no variable leads to the loss, all gradients are None",
                    where=self.label,
                    remedy="compute the loss of trainable variables inside the tape",
                )
            if self._every == 1:
                return gradients
            self._sums = [_added(a, b) for a, b in zip(self._sums or [None] * len(flat), flat, strict=True)]
            if not self._updates:
                return gradients
            # The step gets the mean as its gradient, so clipping and schedules see what they would see of the whole
            # batch.
            means, self._sums = [_mean(one, self._every) for one in self._sums], []
            self.means |= {one.name for one in tf.nest.flatten(means, expand_composites=True) if one is not None}
            return tf.nest.pack_sequence_as(gradients, means)

        return gradient

    def _apply(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside:  # what one optimizer hands on to another
                return original(optimizer, *args, **kwargs)
            # Raising here would reach AutoGraph, which rewrites errors; the pass notes the fault and reports it at its
            # end.
            if self._is_within("updates"):
                return None
            self._applied += 1
            if not self._updates:
                self._update_at = len(tf.compat.v1.get_default_graph().get_operations())
                return None
            if self._versions is not None:
                self._versions.end()
            self._inside = True
            try:
                return original(optimizer, *args, **kwargs)
            finally:
                self._inside = False

        return apply


def _handle(source: Any) -> Any:
    """Return the handle of a variable of Keras or TensorFlow; None for a tensor."""
    return getattr(source.value if isinstance(source, keras.Variable) else source, "handle", None)


def computed_from(tensors: Iterable[Any], named: set[str]) -> set[str]:
    """Return the names among `named` that the tensors are computed from."""
    left, seen, sources = list(tensors), set[str](), set[str]()
    while left:
        one = left.pop()
        if one.name in named:
            sources.add(one.name)
        elif one.op.name not in seen:
            seen.add(one.op.name)
            left += one.op.inputs
    return sources


def _kinds() -> list[type]:
    """All classes of Keras' optimizers that say how gradients are applied."""
    top = keras.optimizers.Optimizer
    kinds, left = dict.fromkeys(top.__mro__), [top]
    while left:
        further = left.pop().__subclasses__()
        kinds.update(dict.fromkeys(further))
        left += further
    return [kind for kind in kinds if "apply" in vars(kind)]


def _added(total: Any, one: Any) -> Any:
    """A sum with one more gradient; of rows of a table, all of them."""
    if total is None or one is None:
        return total if one is None else one
    if isinstance(one, tf.IndexedSlices) != isinstance(total, tf.IndexedSlices):
        return tf.convert_to_tensor(total) + tf.convert_to_tensor(one)
    if not isinstance(one, tf.IndexedSlices):
        return total + one
    return tf.IndexedSlices(
        tf.concat([total.values, one.values], 0), tf.concat([total.indices, one.indices], 0), one.dense_shape
    )


def _mean(total: Any, batches: int) -> Any:
    if isinstance(total, tf.IndexedSlices):
        return tf.IndexedSlices(total.values / batches, total.indices, total.dense_shape)
    return None if total is None else total / batches
