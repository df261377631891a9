"""A training step of a whole batch turned into one that cuts it into micro-batches and runs each through the step.

The step is traced once for each micro-batch, a pass. Gradients add up in the order of the batches until an update;
where weights are late, each pass reads trained variables as they were some updates ago.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.ops import resource_variable_ops as variables

from pesto.core.errors import InputError, UsageError
from pesto.core.plans.plan import Plan
from pesto.core.source import READ_SCOPE, Cut, check_cut
from pesto.tf.private import autograph_of, replace_attributes

# Private names of TensorFlow by which variables are read, and tapes told so: what to mend for a new release.


def get_variable_class() -> type:
    """Return the class with the methods that read variables: `_read_variable_op`, `sparse_read`, `gather_nd`."""
    kind: type = variables.BaseResourceVariable
    missing = [name for name in ("_read_variable_op", "sparse_read", "gather_nd") if not hasattr(kind, name)]
    if missing:
        raise InputError.build(
            f"tensorflow {tf.__version__}: a variable has no {missing[0]}", remedy="install tensorflow>=2.21,<2.22"
        )
    return kind


def pause_tapes() -> contextlib.AbstractContextManager[None]:
    """Stop gradient tapes from recording inside the context."""
    stopped: contextlib.AbstractContextManager[None] = record.stop_recording()
    return stopped


def record_read(variable: Any, value: Any) -> None:
    """Record in the open gradient tapes that a tensor was read of a variable, as its own reads do."""
    variables.variable_accessed(variable)
    record.record_operation(
        "ReadVariableOp", [value], [variable.handle], lambda gradient: [gradient], lambda tangent: [tangent]
    )


class WeightVersions:
    """Versions of trained variables that the passes of a step read, each a given number of updates late.

    A read is a tensor that no update changes, as updates copy a variable that still has readers: the tensor that a
    batch's forward half reads is the version that its backward half needs (weight stashing, PipeDream). Each variable
    is read once for the passes of each update. The control edges between reads and updates of a variable keep their
    order under any plan.
    """

    def __init__(self, cut: Cut, late: tuple[int, ...]) -> None:
        """late: as `pesto.core.source.Cut.late`."""
        self.updates, self._every, self._late = cut.batches // cut.every, cut.every, late
        self._variables, self._known = list[Any](), dict[int, int]()
        self._reads = dict[tuple[int, int], Any]()
        self._turn, self._serving = 0, False
        self._graph: Any = None
        self._read: Any = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Make passes read these versions inside the context."""
        kind: Any = get_variable_class()
        self._read = kind._read_variable_op
        rows, points = kind.sparse_read, kind.gather_nd

        def read(variable: Any, *args: Any, **kwargs: Any) -> Any:
            return self._serve_read(variable) if self._get_lateness(variable) else self._read(variable, *args, **kwargs)

        def sparse_read(variable: Any, indices: Any, name: str | None = None) -> Any:
            late = self._get_lateness(variable)
            return tf.gather(self._serve_read(variable), indices) if late else rows(variable, indices, name)

        def gather_nd(variable: Any, indices: Any, name: str | None = None) -> Any:
            late = self._get_lateness(variable)
            return tf.gather_nd(self._serve_read(variable), indices) if late else points(variable, indices, name)

        with replace_attributes(kind, {"_read_variable_op": read, "sparse_read": sparse_read, "gather_nd": gather_nd}):
            yield

    def begin(self, batch: int) -> None:
        """Begin the pass of a batch, which reads versions until `end`."""
        self._turn, self._serving, self._graph = batch // self._every, True, tf.compat.v1.get_default_graph()

    def end(self) -> None:
        """End the pass, whose gradients are there and whose update follows: read the versions of later passes."""
        self._serving = False
        # Versions are read before the update that follows, since afterwards the old value is gone; the read tensor
        # keeps it alive.
        for k, by in enumerate(self._late[: len(self._variables)]):
            first = 1 if self._turn == 0 else self._turn + by
            for turn in range(first, min(self._turn + by, self.updates - 1) + 1):
                self._version(k, turn)

    def _get_lateness(self, variable: Any) -> bool:
        return self._serving and bool(variable.trainable)

    def _serve_read(self, variable: Any) -> Any:
        k = self._known.setdefault(id(variable), len(self._variables))
        if k == len(self._variables):
            self._variables.append(variable)
        value = self._version(k, self._turn)
        record_read(variable, value)
        return value

    def _version(self, k: int, turn: int) -> Any:
        if (k, turn) not in self._reads:
            with self._graph.as_default(), tf.name_scope(f"{READ_SCOPE}{k}/"), pause_tapes():
                self._reads[k, turn] = self._read(self._variables[k])
        return self._reads[k, turn]


_ASSIGNMENTS = {"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"}


class MicroBatchPasses:
    """The passes of one step, one a micro-batch, with their gradients and updates.

    In all but the last the optimizer updates nothing, and in the last the step gets the mean of all gradients, so that
    it clips and transforms the mean. Where weights are late, this holds for the passes of each update, which read the
    weights of `WeightVersions`.
    """

    def __init__(self, cut: Cut, label: str) -> None:
        """Take the cut, and the name of the step in errors."""
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
            # All classes of Keras' optimizers that define how gradients are applied.
            kinds, left = dict.fromkeys(keras.optimizers.Optimizer.__mro__), [keras.optimizers.Optimizer]
            while left:
                further = left.pop().__subclasses__()
                kinds.update(dict.fromkeys(further))
                left += further
            for kind in [kind for kind in kinds if "apply" in vars(kind)]:
                stack.enter_context(replace_attributes(kind, {"apply": self._apply(vars(kind)["apply"])}))
            if self._versions is not None:
                stack.enter_context(self._versions.watched())
            yield

    def run(self, step: Callable[..., Any], batch: int, args: Any, kwargs: Any) -> Any:
        """Run one pass; raise InputError for one that does not take gradients once and update once."""
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
        if not self._updates and (wrong := self._find_old_weight_op((args, kwargs))):
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

    def _find_old_weight_op(self, result: Any) -> str:
        """Return an op behind an update that was left out, which assigns values of weights alone; empty without one."""
        graph = tf.compat.v1.get_default_graph()
        weights = {inner.name for outer, inner in graph.captures if id(outer) in self._trained}
        pieces = {one.name for one in tf.nest.flatten(result) if isinstance(one, tf.Tensor) and one.shape.rank != 0}
        for op in graph.get_operations()[self._update_at :]:
            if op.type in _ASSIGNMENTS:
                of = find_sources(op.inputs[1:], weights | pieces)
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
            for source in tf.nest.flatten(sources):
                variable = source.value if isinstance(source, keras.Variable) else source
                self._trained.add(id(getattr(variable, "handle", None)))
            flat = tf.nest.flatten(gradients)
            if all(one is None for one in flat):
                raise InputError.build(
                    "no variable leads to the loss, all gradients are None",
                    where=self.label,
                    remedy="compute the loss of trainable variables inside the tape",
                )
            if self._every == 1:
                return gradients
            self._sums = [_add_gradients(a, b) for a, b in zip(self._sums or [None] * len(flat), flat, strict=True)]
            if not self._updates:
                return gradients
            # The step gets the mean as its gradient, so clipping and schedules see what they would see of the whole
            # batch.
            means: list[Any] = []
            for total in self._sums:
                if isinstance(total, tf.IndexedSlices):
                    values = total.values / self._every
                    means.append(tf.IndexedSlices(values, total.indices, total.dense_shape))
                else:
                    means.append(None if total is None else total / self._every)
            self._sums = []
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


def find_sources(tensors: Iterable[Any], named: set[str]) -> set[str]:
    """Return the names among `named` that the tensors are computed from."""
    left, visited, sources = list(tensors), set[str](), set[str]()
    while left:
        one = left.pop()
        if one.name in named:
            sources.add(one.name)
        elif one.op.name not in visited:
            visited.add(one.op.name)
            left += one.op.inputs
    return sources


def _add_gradients(total: Any, one: Any) -> Any:
    """Return a sum with one more gradient; of two with rows of a table, the rows of both."""
    if total is None or one is None:
        return total if one is None else one
    if isinstance(one, tf.IndexedSlices) != isinstance(total, tf.IndexedSlices):
        return tf.convert_to_tensor(total) + tf.convert_to_tensor(one)
    if not isinstance(one, tf.IndexedSlices):
        return total + one
    return tf.IndexedSlices(
        tf.concat([total.values, one.values], 0), tf.concat([total.indices, one.indices], 0), one.dense_shape
    )


def in_micro_batches(step: Callable[..., Any], cut: Cut, label: str) -> Callable[..., Any]:
    """Return `step` applied to each of the equal pieces of its arguments, with gradients added up before one update.

    Every argument with a first dimension is cut, scalars are given whole. Results of the pieces are joined: scalars
    averaged, rows concatenated. A result made of the mean of all gradients, or of no piece but of variables, as those
    of metrics are, is that of the last pass. With late weights (`WeightVersions`) every piece updates. Raise UsageError
    for a batch that cannot be cut so, InputError for one of open size, and as `MicroBatchPasses`.
    """

    @tf.autograph.experimental.do_not_convert
    def whole(*args: Any, **kwargs: Any) -> Any:
        pieces = _split_arguments((args, kwargs), cut.batches, label)
        passes = MicroBatchPasses(cut, label)
        with passes.watched():
            results = [passes.run(step, batch, *arguments) for batch, arguments in enumerate(pieces)]
        rows = {one.name for one in tf.nest.flatten(pieces) if _has_rows(one)}
        return _join_results(results, rows, passes.means)

    return whole


@contextmanager
def fit_in_micro_batches(plans: Sequence[Plan]) -> Iterator[None]:
    """Make `fit` and train_on_batch of Keras models use the micro-batches of these plans, if they have any.

    UsageError where some plans have other micro-batches than others.
    """
    cuts = [plan.provenance.graph_origin.cut_function for plan in plans]
    distinct = {None if cut is None else cut.cut for cut in cuts}
    if len(distinct) > 1:
        counts = " and ".join(sorted({"none" if cut is None else str(cut.batches) for cut in distinct}))
        counts = counts if " and " in counts else f"{counts}, updated in several ways,"
        raise UsageError.build(
            f"apply: these plans have {counts} micro-batches", remedy="apply each in a context of its own"
        )
    cut = next(iter(distinct), None)
    if cut is None:
        yield
        return
    # Keras picks its trainer class by backend; the class that defines the method is patched, so that subclasses which
    # override it keep their own.
    trainer = next(kind for kind in keras.Model.__mro__ if "make_train_function" in vars(kind))
    original, cached = trainer.make_train_function, weakref.WeakSet[Any]()

    def make(model: Any, force: bool = False) -> Any:
        if model in cached and not force:
            return None
        # make_train_function reads model.train_step once and closes over it, so the replacement is needed only during
        # this call.
        before = dict(vars(model))
        vars(model)["train_step"] = train_in_micro_batches(model, cut)
        try:
            return original(model, force=True)
        finally:
            del vars(model)["train_step"]
            vars(model).update({name: before[name] for name in ("train_step",) if name in before})
            cached.add(model)

    trainer.make_train_function = make
    try:
        yield
    finally:
        trainer.make_train_function = original
        for model in cached:
            # Keras caches the compiled train function; without this, training after the context would still cut the
            # batch.
            model.train_function = None


def train_in_micro_batches(model: Any, cut: Cut) -> Callable[..., Any]:
    """Return a compiled Keras model's train step in micro-batches; metrics see all of them, other losses are means."""
    return in_micro_batches(model.train_step, cut, f"keras {model.name}")


def convert_control_flow(step: Any) -> Callable[..., Any]:
    """Return the Python function of a step, its control flow converted where its tf.function would do so."""
    function: Any = getattr(step, "python_function", step)
    if not autograph_of(step):
        return function
    inner = getattr(function, "__func__", function)
    try:
        converted = tf.autograph.to_graph(inner)
    except Exception:  # a function without source is called as it is, as tf.function does
        return function
    return functools.partial(converted, function.__self__) if inner is not function else converted


def _split_arguments(arguments: Any, batches: int, label: str) -> list[Any]:
    """Return the arguments of each micro-batch."""
    flat = tf.nest.flatten(arguments)
    rows: set[int | None] = {value.shape[0] if value.shape.rank else None for value in flat if _has_rows(value)}
    row_counts = sorted(n for n in rows if n is not None)
    if not rows or None in rows:
        what = "the size of its batch is open" if rows else "no argument has a batch"
        raise InputError.build(
            f"{what}, and micro-batches are equal pieces of one size",
            where=label,
            remedy="give a model a batch (batch=64), write a tf.function's into its input_signature "
            "(tf.TensorSpec([64, ...])), and train on batches of that size alone (drop_remainder=True, or arrays that "
            "it divides)",
        )
    if len(row_counts) > 1:
        raise InputError.build(
            f"its arguments have {' and '.join(map(str, row_counts))} rows, so which are cut is not known",
            where=label,
            remedy=("give every argument the batch as its first dimension, and let the step close over the others"),
        )
    check_cut(row_counts[0], batches, label)
    cut = [tf.split(value, batches) if _has_rows(value) else [value] * batches for value in flat]
    return [tf.nest.pack_sequence_as(arguments, [pieces[batch] for pieces in cut]) for batch in range(batches)]


def _has_rows(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and value.shape.rank != 0


def _join_results(results: Sequence[Any], pieces: set[str], means: set[str]) -> Any:
    """Return the means of scalars, the concatenated rows, and for other results those of the last micro-batch.

    pieces, means: names of the tensors given to the passes, and of the means of all gradients.
    """
    joined = []
    for values in zip(*(tf.nest.flatten(result) for result in results), strict=True):
        last = values[-1]
        joined.append(last)
        if isinstance(last, tf.Tensor) and last.shape.rank is not None:
            origins = find_sources([last], pieces | means)
            # A result of the mean of all gradients, or of no piece, stands for all micro-batches already.
            if not origins or origins & means:
                continue
            if last.shape.rank:
                joined[-1] = tf.concat(values, 0)
            elif last.dtype.is_floating:
                joined[-1] = tf.add_n(values) / len(values)
    return tf.nest.pack_sequence_as(results[-1], joined)
