"""Variables whole on every worker, as far as a limit of what one may hold goes: least bytes, and what is proven."""

import sys
from dataclasses import replace
from itertools import product
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import InfeasibleError, NothingFoundError, UsageError, VerificationError
from pesto.split.files.split_check import certify_bounds, verify_split
from pesto.split.files.split_file import dumps_split, loads_split
from pesto.split.methods.cut import held_bytes
from pesto.split.program import Rules, build_program
from pesto.split.split_search import divide
from pesto.tf.tensorflow_start import load_tensorflow
from solvers.labels.label_methods import solve
from solvers.labels.labelling import pinned

tf = load_tensorflow()

from pesto.tf.shaping.shaping import shape  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

KIB = 1 << 10
BYTES = (16 * KIB, 32 * KIB, 32 * KIB, 16 * KIB)
"""Of the weights: three that are only read, which whole cost nothing and in parts are sent, and one that is trained."""


def training():
    """Three matmuls by weights that stay as they are, and one by a weight that is trained."""
    frozen = [tf.Variable(tf.ones(extents)) for extents in ((64, 64), (64, 128), (128, 64))]
    last = tf.Variable(tf.ones([64, 64]))

    @tf.function(input_signature=[tf.TensorSpec([1024, 64])])
    def step(x):
        for weight in frozen:
            x = tf.nn.relu(x @ weight)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x @ last)
        last.assign_sub(0.1 * tape.gradient(loss, last))
        return loss

    return step


@pytest.fixture(scope="module")
def shaped():
    """That step."""
    return shape(sources.capture_function(training()))[1]


def within(shaped, memory_bytes, factors=(2,)):
    """The split under a limit."""
    return divide(shaped, factors, "exact", Rules(replicate=True, memory_bytes=memory_bytes), seconds=30)


def test_bytes_against_memory(shaped) -> None:
    """Enumerated over the layouts of all weights: bound, optimum, bytes; more memory sends no more; least is proven."""
    made = build_program(shaped, None, (2,), Rules(replicate=True))
    held, first = held_bytes(shaped, made), made.problem.first
    points = []
    for labels in product(*(range(len(found)) for found in made.tied)):
        fixed = np.full(max(made.tie) + 1, -1)
        fixed[list(made.tie)] = labels
        value = solve(pinned(made.problem, fixed).problem).value
        points.append((sum(int(held[first[v] + k]) for v, k in zip(made.tie, labels, strict=True)), value))
    least, most = sum(BYTES) // 2, sum(BYTES)
    assert (min(points)[0], max(points)[0]) == (least, most)
    sent = []
    for limit in (least, least + 10 * KIB, least + 20 * KIB, most - 1, most):
        found = within(shaped, limit)
        best = min(value for weight, value in points if value is not None and weight <= limit)
        assert found.bound_bytes <= best <= found.counted_bytes and found.parameter_bytes <= limit
        assert (found.status == "optimal") == (found.bound_bytes == found.counted_bytes)
        sent.append(found.moved_bytes)
    assert sent == sorted(sent, reverse=True) and sent[-1] < sent[0] / 2
    with pytest.raises(InfeasibleError, match=r"holds 48\.00 KiB .* at least, 1\.00 KiB more"):
        within(shaped, least - KIB)


def test_cuts_after_cuts_keep_to_it(shaped) -> None:
    """The last cut has to meet the limit, those before it what the rest can still take apart."""
    least = sum(BYTES) // 4
    for limit in (least, 2 * least, 4 * least):
        assert within(shaped, limit, (2, 2)).parameter_bytes <= limit
    with pytest.raises((InfeasibleError, NothingFoundError), match="more than the"):
        within(shaped, least - 1, (2, 2))


def test_a_split_under_a_limit_is_verified(shaped) -> None:
    """Its file keeps the limit: the bound is found again under it, and what holds more is refused."""
    limit = sum(BYTES) * 3 // 4
    rules = Rules(replicate=True, memory_bytes=limit)
    split = within(shaped, limit)
    text = dumps_split(shaped, split, time_limit_s=30)
    found = loads_split(text, "split")
    assert found.rules == rules and verify_split(found, shaped) == split.division
    assert certify_bounds(found, shaped, seconds=30).confirmed
    less = Rules(replicate=True, memory_bytes=split.parameter_bytes - 1)
    tight = dumps_split(shaped, replace(split, rules=less), time_limit_s=30)
    with pytest.raises(VerificationError, match="by its rules"):
        verify_split(loads_split(tight, "split"), shaped)


def test_the_verb_and_its_limit(monkeypatch) -> None:
    """GiB on the command line; a method that keeps to no limit, and no number, are refused."""
    module = ModuleType("limited_training")
    module.step = training()
    monkeypatch.setitem(sys.modules, "limited_training", module)
    words = ["split", "--function", "limited_training:step", "--workers", "2", "--replicate", "--memory"]
    run = CliRunner().invoke
    assert "optimal" in run(pesto, [*words, "1", "--json"]).output
    assert isinstance(run(pesto, [*words, str(40 * KIB / 2**30)]).exception, InfeasibleError)
    assert isinstance(run(pesto, [*words, "1", "--method", "tofu"]).exception, UsageError)
    assert isinstance(run(pesto, [*words, "nan"]).exception, UsageError)
