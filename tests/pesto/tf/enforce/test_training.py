"""Which traced functions train: only those are held to a plan."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pesto.core.errors import InputError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.tf import private  # noqa: E402
from pesto.tf.enforce import context as recorder  # noqa: E402
from pesto.tf.enforce import functions  # noqa: E402
from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load
from pesto.tf.variables.variables import touches  # noqa: E402

X = tf.TensorSpec([3, 4])
Function = Callable[..., Any]


def weight(size: int = 4) -> Any:
    return tf.Variable(tf.ones([4, size]), name="w")


def descend(w: Any, x: Any) -> Any:
    """One step of gradient descent."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.tanh(x @ w))
    w.assign_sub(0.1 * tape.gradient(loss, w))
    return loss


def traced(python: Function, *specs: Any) -> Any:
    return tf.function(python).get_concrete_function(*specs or (X,)).graph


def trains(python: Function, *specs: Any) -> bool:
    return functions.trains(traced(python, *specs))


def repeated(body: Function) -> Any:
    """`body` three times in a loop of TensorFlow's."""
    return tf.while_loop(lambda i, _: i < 3, lambda i, s: (i + 1, s + body()), [0, 0.0])[1]


def alias(variable: Any) -> Any:
    variable.read_value()  # else TensorFlow does not count the variable as one of the function's
    return tf.raw_ops.Identity(input=variable.handle)


def subtract(handle: Any) -> Any:
    with tf.control_dependencies([tf.raw_ops.AssignSubVariableOp(resource=handle, value=tf.ones([4, 4]))]):
        return tf.constant(0.0)


def test_a_step_of_gradient_descent_trains_and_a_prediction_does_not() -> None:
    w = weight()
    assert trains(lambda x: descend(w, x))
    assert not trains(lambda x: x @ w)


def test_what_is_read_in_loops_and_branches_is_not_trained() -> None:
    w, u = weight(), weight()
    score = tf.function(lambda x: tf.reduce_sum(x @ w))
    assert not trains(lambda x: repeated(lambda: score(x)))
    assert not trains(lambda x: repeated(lambda: repeated(lambda: tf.reduce_sum(x @ w))))
    assert not trains(lambda x: repeated(lambda: tf.cond(x[0, 0] > 0, lambda: score(x), lambda: 0.0)))
    assert not trains(
        lambda x, i: tf.switch_case(i, [lambda: tf.reduce_sum(x @ w), lambda: tf.reduce_sum(x @ u)]),
        X,
        tf.TensorSpec([], tf.int32),
    )


def test_an_evaluation_that_counts_in_a_loop_does_not_train_what_it_reads() -> None:
    """As Keras does with steps_per_execution: metrics are written next to weights that are read."""
    w, total = weight(), tf.Variable(0.0, trainable=False)
    seen = tf.function(lambda x: total.assign_add(tf.reduce_sum(x @ w)))

    def evaluate(x: Any) -> Any:
        return repeated(lambda: repeated(lambda: seen(x)) + tf.reduce_sum(x @ w))

    assert not trains(evaluate)


@pytest.mark.parametrize("inside", ["loop", "loops", "cond", "switch", "call"])
def test_what_is_written_in_loops_and_branches_is_trained(inside: str) -> None:
    w, u = weight(), weight()
    called = tf.function(lambda x: descend(w, x))

    def step(x: Any) -> Any:
        update = {
            "loop": lambda: repeated(lambda: descend(w, x)),
            "loops": lambda: repeated(lambda: repeated(lambda: descend(w, x))),
            "cond": lambda: tf.cond(x[0, 0] > 0, lambda: descend(w, x), lambda: 0.0),
            "switch": lambda: tf.switch_case(
                tf.cast(x[0, 0], tf.int32), [lambda: tf.reduce_sum(x @ u), lambda: 0.0, lambda: descend(w, x)]
            ),
            "call": lambda: repeated(lambda: called(x)),
        }
        return update[inside]()

    assert trains(step)


def test_a_handle_is_followed_through_what_hands_it_on() -> None:
    w = weight()
    assert trains(lambda _: subtract(alias(w)))
    assert not trains(lambda _: tf.raw_ops.ReadVariableOp(resource=alias(w), dtype=tf.float32))
    assert trains(lambda _: repeated(lambda: subtract(alias(w))))
    assert trains(lambda _: subtract(tf.raw_ops.IdentityN(input=[tf.constant(1), alias(w)])[1]))
    value = tf.raw_ops.ReadVariableOp
    assert not trains(lambda _: repeated(lambda: tf.reduce_sum(value(resource=alias(w), dtype=tf.float32))))


def test_a_loop_that_exchanges_two_handles_may_write_both() -> None:
    counter, w = tf.Variable(tf.ones([4, 4]), trainable=False), weight()

    def exchanging(write: bool) -> Function:
        def body(i: Any, a: Any, b: Any) -> Any:
            with tf.control_dependencies([subtract(a)] if write else []):
                return i + 1, tf.identity(b), tf.identity(a)

        return lambda _: tf.while_loop(lambda i, *_: i < 3, body, [0, alias(counter), alias(w)])[0]

    assert trains(exchanging(write=True))
    assert not trains(exchanging(write=False))


def test_a_step_that_asks_whether_its_variable_has_a_value_trains_all_the_same() -> None:
    w = weight()

    def step(x: Any) -> Any:
        has_value = w.is_initialized()
        scale = tf.cond(has_value, lambda: tf.reduce_sum(w), lambda: 1.0)
        return descend(w, x * scale), has_value

    assert trains(step)


@pytest.mark.parametrize(("if_it_has_one", "trained"), [(False, False), (True, True)])
def test_a_variable_that_is_written_only_while_it_has_no_value_is_not_trained(
    if_it_has_one: bool, trained: bool
) -> None:
    """Nothing but the handle goes into the branches, so that its place among their arguments counts."""
    w = weight()

    def step(x: Any) -> Any:
        has_value = w.is_initialized()
        scale = tf.cond(has_value, lambda: subtract(w.handle) if if_it_has_one else 0.0, lambda: subtract(w.handle))
        return tf.reduce_sum(x @ w) * scale

    assert trains(step) == trained


def test_the_trace_that_creates_the_variable_is_not_a_step() -> None:
    made: list[Any] = []

    @tf.function
    def step(x: Any) -> Any:
        if not made:
            made.append(weight())
        return descend(made[0], x)

    graphs: list[Any] = []
    with private.watch_traces(graphs.append, lambda _: None):
        step(tf.ones([3, 4]))
    assert [functions.trains(g) for g in graphs if g.name == "step"] == [False, True]


def test_saving_a_model_is_not_training(tmp_path: Path) -> None:
    model = tf.Module()
    model.w = weight()
    model.predict = tf.function(lambda x: x @ model.w, input_signature=[X])
    graphs: list[Any] = []
    with private.watch_traces(graphs.append, lambda _: None):
        tf.saved_model.save(model, str(tmp_path))
    reads = [op.type for g in graphs for op in g.get_operations()]
    assert "DisableCopyOnRead" in reads
    assert [g.name for g in graphs if functions.trains(g)] == []


def test_what_a_loop_only_reads_is_ordered_with_no_other_read() -> None:
    """A loop that writes one variable and reads another is a reader of the other."""
    w, total = weight(), tf.Variable(0.0, trainable=False)

    def step(x: Any) -> Any:
        looped = repeated(lambda: total.assign_add(tf.reduce_sum(x @ w)))
        return looped, tf.reduce_mean(w), total.assign_sub(1.0)

    nodes = resolve_shapes(sources.capture_func_graph(traced(step), "step"), None)
    found = {nodes.defs[variable].name: touched for variable, touched in touches(nodes).items()}
    kinds = sorted(
        [(nodes.defs[t.op].op, t.writes) for t in touched if "While" in nodes.defs[t.op].op]
        for touched in found.values()
    )
    assert len(found) == 2
    assert [writes for ((_, writes),) in kinds] == [False, True]


def test_record_refuses_two_different_functions_of_one_name() -> None:
    def made(*, squared: bool) -> Any:
        w = weight()

        @tf.function
        def step(x: Any) -> Any:
            return descend(w, x * x if squared else x)

        return step

    with recorder.record(None) as recorded:
        made(squared=False)(tf.ones([3, 4]))
    ops = recorded.graph.ops
    with recorder.record(None) as recorded:
        made(squared=False)(tf.ones([3, 4]))
        made(squared=False)(tf.ones([3, 4]))
    assert recorded.graph.ops == ops
    with recorder.record(None) as recorded:
        made(squared=False)(tf.ones([3, 4]))
        made(squared=True)(tf.ones([3, 4]))
    with pytest.raises(InputError, match=f"function step was traced as 2 different .* {ops} ops"):
        _ = recorded.graph


class Part:
    """An object of which several may be in one program, each with a step of its own."""

    def __init__(self, name: str) -> None:
        self.name, self.w = name, weight()

    def train(self, x: Any) -> Any:
        return descend(self.w, x)

    def made(self) -> Any:
        @tf.function
        def inner(x: Any) -> Any:
            return descend(self.w, x)

        return inner


def test_record_names_steps_by_their_object() -> None:
    """Twins of two objects are two steps, also where the functions are made inside methods; the remedy is followed."""
    for made in (lambda part: tf.function(part.train), Part.made):
        with recorder.record(None) as recorded:
            steps = [made(Part(name)) for name in ("critic", "generator")]
            for step in steps:
                step(tf.ones([3, 4]))
        name = "train" if made is not Part.made else "inner"
        both = f"found function critic.{name}, function generator.{name} - record each in a context of its own"
        with pytest.raises(InputError, match=both):
            _ = recorded.graph
        for step, of in zip(steps, ("critic", "generator"), strict=True):
            with recorder.record(None) as alone:
                step(tf.ones([3, 4]))
            assert alone.graph.source == f"function {of}.{name}"


@pytest.mark.slow
def test_a_large_graph_of_many_variables_is_judged_at_once() -> None:
    weights = [tf.Variable(1.0) for _ in range(300)]

    def evaluate(x: Any) -> Any:
        for _ in range(10):
            x = tf.while_loop(lambda i, _: i < 3, lambda i, s: (i + 1, s + tf.add_n(weights)), [0, x])[1]
        for i in range(4000):
            x = tf.raw_ops.AddV2(x=x, y=weights[i % 300]) if i % 20 == 0 else tf.raw_ops.Tanh(x=x)
        return x

    graph = traced(evaluate, tf.TensorSpec([]))
    assert len(graph.get_operations()) > 4000
    start = time.process_time()
    assert not functions.trains(graph)
    assert time.process_time() - start < 20.0


def test_a_variable_that_is_an_argument_is_trained() -> None:
    """The handle comes with the call; whether it is trainable is in the function's signature."""

    def update(w: Any) -> None:
        w.assign_sub(tf.ones_like(w))

    for trainable in (True, False):
        variable = tf.Variable([1.0], trainable=trainable)
        graph = tf.function(update).get_concrete_function(variable).graph
        assert functions.trains(graph) is trainable


def test_functions_that_were_traced_elsewhere_are_looked_through(tmp_path: Path) -> None:
    """A loaded SavedModel knows no variables and wraps its function; what is called and not seen here counts."""
    module = tf.Module()
    module.w = tf.Variable([1.0])
    module.step = tf.function(lambda: module.w.assign_sub([0.5]))
    module.read = tf.function(lambda: module.w + 1.0)
    signatures = {name: getattr(module, name).get_concrete_function() for name in ("step", "read")}
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    loaded = tf.saved_model.load(str(tmp_path))
    assert functions.trains_untraced(loaded.signatures["step"])
    assert not functions.trains_untraced(loaded.signatures["read"])
    inner = module.step.get_concrete_function()
    graph = tf.function(lambda: module.step() + 0.0).get_concrete_function().graph
    assert not functions.trains(graph) and functions.trains(graph, ())
    assert not functions.trains(graph, (private.name_of(inner),))
