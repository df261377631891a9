"""What of a step is done for each micro-batch, and what once: held against steps of which that is known."""

import numpy as np
import pytest
from training_steps import BACKWARD as BACK
from training_steps import FORWARD as AHEAD
from training_steps import HELD, SOURCE, UPDATE, training_step

from pesto.core.errors import InputError
from pesto.core.source import Source
from pesto.core.step_parts import AFTER, BACKWARD, BEFORE, FORWARD, step_parts
from pesto.inputs.load import load_graph

TRUTH = {SOURCE: FORWARD, AHEAD: FORWARD, BACK: BACKWARD, UPDATE: AFTER, HELD: BEFORE}


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_every_op_has_its_part(make_graph, seed, momentum, clipped):
    """Through optimizers with slots and over a norm of all gradients, which is of their sums."""
    step = training_step(seed, momentum=momentum, clipped=clipped)
    graph = make_graph(step.ops)
    found = step_parts(graph)
    assert found.part.tolist() == [TRUTH[step.kind[name]] for name in graph.names]
    added = {graph.names[op] for op in graph.tensor_op[found.added].tolist()}
    assert added == {f"dw{k}" for k in range(6)} and not found.joined.any()


def test_rows_are_joined(make_graph):
    """What an update reads that is not as large as its variable, nor a number, is put one behind the other."""
    step = training_step(0, layers=2)
    rows = {"name": "rows", "inputs": ["x"], "bytes": 40}
    update = next(op for op in step.ops if op["name"] == "u0")
    graph = make_graph([*step.ops[:-2], rows, {**update, "inputs": ["w0", "rows"]}, step.ops[-1]])
    found = step_parts(graph)
    assert {graph.names[op] for op in graph.tensor_op[found.joined].tolist()} == {"rows"}


def test_steps_that_are_none_are_refused(make_graph):
    """Each with what lacks: a batch, an update."""
    ops = training_step(1, layers=3).ops
    held = [op for op in ops if op["name"][0] in "wr"]
    forward = [op for op in ops if op["name"][0] in "wrxfl"]
    for some, what in ((held, "fed or drawn"), (forward, "updates no variable")):
        with pytest.raises(InputError, match=what):
            step_parts(make_graph(some))


@pytest.mark.parametrize("seed", range(4))
def test_halves_are_told_apart_without_a_loss(make_graph, seed):
    """Where only metrics read it: by the level at which what is kept is used last in, first out."""
    step = training_step(seed, layers=12)
    graph = make_graph([op for op in step.ops if op["name"] != "loss"])
    part = dict(zip(graph.names, step_parts(graph).part.tolist(), strict=True))
    # At the turn itself either is right.
    assert {part[f"f{k}"] for k in range(11)} == {FORWARD} and {part[f"dw{k}"] for k in range(11)} == {BACKWARD}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rnnlm", "nmt", "transformer", "nasnet", "wrn", "char-crn", "e3d", "tofu-rnn"])
def test_built_in_models_have_a_gradient_a_variable(model):
    """Forward and backward are what TensorFlow names so, but for what batch statistics are updated with."""
    graph = load_graph(Source(model=model, variant="tiny"), quiet=True)
    found = step_parts(graph)
    own = np.array([name.startswith("gradients") for name in graph.names])
    costly = graph.flops > 0
    assert not (own & costly & (found.part == FORWARD)).any()
    # Beside gradients: what moving averages are updated with, and norms of rows.
    others = [graph.names[op] for op in np.flatnonzero(~own & costly & (found.part == BACKWARD)).tolist()]
    assert all("norm" in name or name.endswith("L2Loss") for name in others)
    updates = np.array(["Apply" in graph.types[k] or "Assign" in graph.types[k] for k in graph.type_of.tolist()])
    assert updates.any() and np.isin(found.part[updates], (BEFORE, AFTER)).all()
    assert found.added.sum() + found.joined.sum() >= 6
