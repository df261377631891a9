"""Functions laid out flat, with no more of the library than they call."""

import pytest

tf = pytest.importorskip("tensorflow")

from pesto.tf.nodes.inline import flatten_function  # noqa: E402


def test_a_body_has_only_the_functions_that_it_calls() -> None:
    @tf.function
    def step(x):
        for _ in range(20):
            x = tf.cond(x > 0, lambda x=x: tf.cond(x > 1, lambda: x + 2, lambda: x * 2), lambda x=x: x - 1)
        return x

    graph_def = step.get_concrete_function(tf.TensorSpec([], tf.float32)).graph.as_graph_def()
    library = {function.signature.name: function for function in graph_def.library.function}
    branch = next(node for node in graph_def.node if node.op == "StatelessIf").attr["then_branch"].func.name
    arguments = [tf.compat.v1.NodeDef(op="Placeholder") for _ in library[branch].signature.input_arg]
    for argument in arguments:
        argument.attr["dtype"].type = tf.float32.as_datatype_enum

    made = flatten_function(library[branch], arguments, library)

    inner = [node for node in library[branch].node_def if node.op == "StatelessIf"]
    called = {node.attr[name].func.name for node in inner for name in ("then_branch", "else_branch")}
    assert len(library) == 80
    assert len(called) == 2
    assert {function.signature.name for function in made.graph_def.library.function} == called
