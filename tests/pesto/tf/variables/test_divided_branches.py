"""An `If` that updates several variables computes the same, bit for bit, as the parts that take its place."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pesto.core.graph import unique_name
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.tf.nodes.captured import redirect_names, replace_branches  # noqa: E402  # after the quiet load
from pesto.tf.private import handle_shape, variable_name  # noqa: E402
from pesto.tf.variables.divided_branches import divide_branches  # noqa: E402
from pesto.tf.variables.variables import BRANCHES  # noqa: E402

v1 = tf.compat.v1
SIZE = 70


def variables(count: int = 3) -> list[Any]:
    return [tf.Variable(tf.range(SIZE, dtype=tf.float32) + k, name=f"v{k}") for k in range(count)]


def whole_graph(step: Any, chosen_by: Any = tf.bool) -> tuple[Any, tuple[str, ...]]:
    """The GraphDef of a function of a predicate (or index) and a tensor, undivided, and what a run of it fetches."""
    specs = tf.TensorSpec([], chosen_by), tf.TensorSpec([SIZE], tf.float32)
    graph = tf.function(step).get_concrete_function(*specs).graph
    graph_def = graph.as_graph_def(add_shapes=True)
    values = {inner.op.name: outer for outer, inner in graph.captures}
    taken: dict[str, int] = {}
    for node in graph_def.node:
        known = handle_shape(values[node.name]) if node.name in values else None
        if known is not None:
            name = unique_name(variable_name(values[node.name]) or node.name, taken)
            handle = v1.NodeDef(name=node.name, op="VarHandleOp")
            handle.attr["dtype"].type = known[0]
            handle.attr["shape"].shape.CopyFrom(known[1])
            handle.attr["shared_name"].s = name.encode()
            handle.attr["container"].s = b""
            handle.attr["_output_shapes"].list.shape.add()
            node.CopyFrom(handle)
    return graph_def, tuple(op.name for op in [*(t.op for t in graph.outputs), *graph.control_outputs])


def first_value(handle: Any, k: int) -> Any:
    shape = [d.size for d in handle.get_attr("shape").dim]
    return np.cos(np.arange(int(np.prod(shape))) + k).reshape(shape).astype(handle.get_attr("dtype").as_numpy_dtype)


def run(graph_def: Any, fetches: tuple[str, ...], given: list[Any]) -> list[bytes]:
    """The variables after each of some runs, and what the runs return."""
    graph, kept = tf.Graph(), []
    with graph.as_default():
        v1.import_graph_def(graph_def, name="")
        handles = [op for op in graph.get_operations() if op.type == "VarHandleOp"]
        start = [
            tf.raw_ops.AssignVariableOp(resource=h.outputs[0], value=first_value(h, k)) for k, h in enumerate(handles)
        ]
        reads = [tf.raw_ops.ReadVariableOp(resource=h.outputs[0], dtype=h.get_attr("dtype")) for h in handles]
        feeds = [op.outputs[0] for op in graph.get_operations() if op.type == "Placeholder"]
        results = [
            op.outputs[0] if op.outputs and "pesto_read" not in op.name else op
            for op in map(graph.get_operation_by_name, fetches)
        ]
    config = v1.ConfigProto(inter_op_parallelism_threads=4)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with v1.Session(graph=graph, config=config) as session:
        session.run(start)
        for values in given:
            out = session.run(results, dict(zip(feeds, values, strict=True)))
            kept += [np.asarray(o).tobytes() for o in out if o is not None]
            kept += [value.tobytes() for value in session.run(reads)]
    return kept


def compared(step: Any, choices: Sequence[Any] = (True, False, True, True, False)) -> tuple[Any, list[Any]]:
    """The graph in which the branches are divided, and its branch ops; the runs of both are equal."""
    graph_def, fetches = whole_graph(step, tf.bool if choices[0] is True else tf.int32)
    divided = type(graph_def)()
    divided.CopyFrom(graph_def)
    made = divide_branches(divided)
    replace_branches(divided, made)
    given = [(p, np.sin(np.arange(SIZE) + k).astype("float32")) for k, p in enumerate(choices)]
    assert run(graph_def, fetches, given) == run(divided, redirect_names(fetches, made), given)
    return divided, [node for node in divided.node if node.op in BRANCHES]


def handles_of(graph_def: Any, node: Any) -> set[str]:
    made = {n.name for n in graph_def.node if n.op == "VarHandleOp"}
    return {text for text in node.input if text in made}


def test_each_variable_has_a_branch_of_its_own() -> None:
    """A counter and a rate that all updates read are read in front of the branches."""
    weights, rate, count = variables(), tf.Variable(0.5), tf.Variable(1.0)

    def step(predicate, x):
        def update():
            for k, v in enumerate(weights):
                v.assign_sub(x * rate * (k + 1) / count)
            count.assign_add(1.0)
            return 0

        def keep():
            count.assign(count * 2.0)
            return 0

        tf.cond(predicate, update, keep)
        return weights[0].read_value()

    graph_def, branches = compared(step)
    assert sorted(len(handles_of(graph_def, node)) for node in branches) == [0, 1, 1, 1, 1]


def test_slots_stay_with_their_variable() -> None:
    weights, slots = variables(2), [tf.Variable(tf.zeros([SIZE])) for _ in range(2)]

    def step(predicate, x):
        def update():
            for v, s in zip(weights, slots, strict=True):
                s.assign_add(x - s)
                v.assign_sub(s)

        def accumulate():
            for s in slots:
                s.assign_add(x)

        tf.cond(predicate, update, accumulate)

    graph_def, branches = compared(step)
    assert [len(handles_of(graph_def, node)) for node in branches] == [2, 2]


def test_a_global_norm_is_computed_once() -> None:
    weights = variables(4)

    def step(predicate, x):
        def update():
            gradients = [x * float(k) * v for k, v in enumerate(weights)]
            clipped, _ = tf.clip_by_global_norm(gradients, 0.25)
            for v, g in zip(weights, clipped, strict=True):
                v.assign_sub(g)

        tf.cond(predicate, update, lambda: None)

    graph_def, branches = compared(step)
    assert sorted((node.op, len(handles_of(graph_def, node))) for node in branches) == [
        *[("If", 1)] * 4,
        ("StatelessIf", 0),
    ]


def test_branches_in_branches_are_divided_with_them() -> None:
    weights, scale, good = variables(3), tf.Variable(8.0), tf.Variable(0)

    def step(predicate, x):
        def outer():
            def inner():
                for v in weights:
                    v.assign_sub(x / scale)

            def other():
                for v in weights:
                    v.assign_add(x)

            tf.cond(good % 2 == 0, inner, other)
            tf.cond(good > 2, lambda: scale.assign(scale * 2.0), lambda: scale.assign(scale + 0.0))
            good.assign_add(1)

        def halve():
            scale.assign(scale * 0.5)

        tf.cond(predicate, outer, halve)

    graph_def, branches = compared(step)
    assert sorted(len(handles_of(graph_def, node)) for node in branches) == [1, 1, 1, 2]


def test_values_changed_before_they_are_read_keep_variables_together() -> None:
    """The second variable takes the new value of the first."""
    weights = variables(3)

    def step(predicate, x):
        def update():
            weights[0].assign(weights[1] + x)
            weights[1].assign(weights[0] * 2.0)
            weights[2].assign_add(x)

        tf.cond(predicate, update, lambda: None)

    graph_def, branches = compared(step)
    assert sorted(len(handles_of(graph_def, node)) for node in branches) == [1, 2]


@pytest.mark.parametrize("what", ["random", "assert", "large"])
def test_what_may_not_be_divided_stays_whole(what: str) -> None:
    """State of other kinds, and a large tensor that all updates are computed from."""
    weights = variables(3)

    def step(predicate, x):
        def update():
            noise = x
            if what == "random":
                noise = tf.random.uniform([SIZE])
            if what == "assert":
                tf.debugging.Assert(tf.reduce_all(x < 2.0), [x])
            if what == "large":
                noise = tf.add_n([v * x for v in weights])
            for v in weights:
                v.assign_sub(noise)

        tf.cond(predicate, update, lambda: None)

    graph_def, _ = whole_graph(step)
    assert not divide_branches(graph_def)


CASES = (0, 1, 2, 1, 7, -1)
"""Indices of branches; one out of range takes the last."""


def test_each_variable_of_a_case_has_one_of_its_own() -> None:
    """A rate that all branches read is read in front of the branches, a norm is computed once for all."""
    weights, rate = variables(), tf.Variable(0.5)

    def step(index, x):
        def descend():
            clipped, _ = tf.clip_by_global_norm([x * float(k + 1) * v for k, v in enumerate(weights)], 0.25)
            for v, g in zip(weights, clipped, strict=True):
                v.assign_sub(rate * g)

        def add():
            for v in weights:
                v.assign_add(x * rate)

        tf.switch_case(index, [descend, add, lambda: None])
        return weights[0].read_value()

    graph_def, branches = compared(step, CASES)
    assert sorted((node.op, len(handles_of(graph_def, node))) for node in branches) == [
        *[("Case", 1)] * 3,
        ("StatelessCase", 0),
    ]


def test_cases_in_branches_and_branches_in_cases_are_divided() -> None:
    weights, count = variables(2), tf.Variable(0)

    def step(index, x):
        def update(by):
            for k, v in enumerate(weights):
                v.assign_sub(x * by * (k + 1))

        def cases():
            tf.switch_case(count % 3, [lambda: update(0.5), lambda: update(0.25), lambda: update(0.125)])

        def one():
            tf.cond(tf.reduce_sum(x) > 0.0, lambda: update(2.0), lambda: update(4.0))

        tf.switch_case(index, [cases, one])
        count.assign_add(1)

    graph_def, branches = compared(step, CASES)
    assert sorted(len(handles_of(graph_def, node)) for node in branches) == [1, 1]


def test_a_case_that_names_a_function_twice_is_divided() -> None:
    weights = variables(2)

    def step(index, x):
        def add():
            for v in weights:
                v.assign_add(x)

        tf.switch_case(index, [add, lambda: None, add])

    graph_def, fetches = whole_graph(step, tf.int32)
    (case,) = (node for node in graph_def.node if node.op == "Case")
    functions = case.attr["branches"].list.func
    functions[2].name = functions[0].name
    divided = type(graph_def)()
    divided.CopyFrom(graph_def)
    made = divide_branches(divided)
    replace_branches(divided, made)
    given = [(i, np.sin(np.arange(SIZE) + i).astype("float32")) for i in CASES]
    assert run(graph_def, fetches, given) == run(divided, redirect_names(fetches, made), given)
    assert sum(node.op == "Case" for node in divided.node) == 2


def random_step(rng: random.Random) -> Any:
    """A step whose branches read, compute and change variables at random, also in branches of branches."""
    weights = [*variables(4), *(tf.Variable(float(k + 1)) for k in range(2))]

    def block(x, depth):
        values = [x]
        for _ in range(rng.randint(1, 7)):
            at, kind = rng.randrange(len(weights)), rng.randrange(6)
            v, value = weights[at], values[rng.randrange(len(values))]
            wide = value if v.shape.rank in {value.shape.rank, 1} else tf.reduce_sum(value)
            if kind == 0:
                values.append(v.read_value())
            elif kind == 1:
                values.append(value * weights[rng.randrange(len(weights))].read_value())
            elif kind == 2:
                values.append(tf.reduce_sum(tf.stack([tf.reduce_sum(o * o) for o in values])))
            elif kind == 3 and depth and rng.random() < 0.3:
                tf.switch_case(
                    tf.cast(tf.reduce_sum(value), tf.int32),
                    [lambda k=k: block(x + k, depth - 1) for k in (1.0, 2.0, 3.0)],
                )
            elif kind == 3 and depth:
                tf.cond(tf.reduce_sum(value) > 0.0, lambda: block(x, depth - 1), lambda: block(x * 2.0, depth - 1))
            elif kind == 4:
                v.assign(tf.broadcast_to(tf.tanh(wide), v.shape))
            else:
                v.assign_add(tf.broadcast_to(tf.sin(wide), v.shape))
        return tf.reduce_sum(values[rng.randrange(len(values))])

    def step(predicate, x):
        before = weights[0].read_value()
        result = tf.cond(predicate, lambda: block(x, 2), lambda: block(x + 1.0, 1))
        weights[4].assign_add(1.0)
        return result + tf.reduce_sum(before) + tf.reduce_sum(weights[1])

    return step


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(s, marks=pytest.mark.property) for s in range(20, 60))])
def test_random_branches_compute_the_same(seed: int) -> None:
    compared(random_step(random.Random(seed)))  # noqa: S311


@pytest.mark.slow
def test_random_branches_are_divided() -> None:
    """The test above is of something."""
    steps = (random_step(random.Random(seed)) for seed in range(20))  # noqa: S311
    divided = [made for step in steps if (made := divide_branches(whole_graph(step)[0]))]
    assert len(divided) > 5
