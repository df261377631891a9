"""What contexts refuse at their borders, and that each stands for itself."""

import json
import re
from pathlib import Path
from typing import Any

import forked
import pytest

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What the worker saw."""
    done = forked.run("tests/data/context_worker.py", cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_every_context_verifies_its_own_first_run(found: dict[str, Any]) -> None:
    """What an earlier context traced is never taken for a later one's, whatever the memory holds."""
    assert found["contexts"] == [1] * 5


def test_captured_constants_are_arguments(found: dict[str, Any]) -> None:
    """They have no place in a chain: TensorFlow makes them outside of the function."""
    assert found["constants"] == [1, 0]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("data", "InputError: .*tf.data pipeline.* - loop"),
        ("retuned", "UsageError: Grappler or soft placement was turned on.* - set"),
        ("traced only", "MismatchError: nothing ran .* - put"),
        ("traced times", "InputError: .*trace=True.* - leave it out"),
        ("inside a function", "UsageError: place: .* - call it from eager code"),
        ("compiled", "InputError: place: XLA .* - pass jit_compile=False"),
        ("concrete", "UsageError: place: a concrete function .* - give the tf.function itself"),
        ("no step", "UsageError: place: NoneType .* - give"),
        ("order", "UsageError: order and trace"),
        ("devices", "UsageError: devices: a int .* - give"),
        ("strange device", "UsageError: devices: 'gpu:9' is no device of the plan - it has cpu:0, cpu:1"),
        ("not entered", "UsageError: apply: no plan is given - give"),
        ("not called", "UsageError: devices: 'tpu' is not known - give"),
        ("no such device", "InputError: the plan's device cpu:1 is /device:GPU:7, which this program does not have"),
        ("lacking device", "UsageError: devices: the plan's 'cpu:1' has no entry - map"),
        ("an op taken out", r"MismatchError: the plan places \d+ ops, .* file was changed - solve again"),
        ("applied twice", "UsageError: pesto.apply: this context was entered before - call"),
        ("recorded twice", "UsageError: pesto.record: this context was entered before - call"),
        ("mirrored", r"InputError: function .*: a tf\.distribute strategy .* - train without"),
        ("nested", "UsageError: a plan is being applied already - give"),
    ],
)
def test_refusals_say_why_and_what_to_do(found: dict[str, Any], what: str, words: str) -> None:
    """One line each, never TensorFlow's own error."""
    assert re.match(words, found[what]), found[what]


def test_wrong_types_are_refused_at_the_border(found: dict[str, Any]) -> None:
    """Plans, counts and batches."""
    assert all(re.match("UsageError: plan is .* - give", told) for told in found["no plan"])
    assert all(re.match("UsageError: count is .* - give", told) for told in found["counts"])
    assert all(re.match("UsageError: batch is .* - give", told) for told in found["batches"])


def test_short_device_names_and_threads_work(found: dict[str, Any]) -> None:
    """CPU:1 is /device:CPU:1; placed steps of two threads take turns."""
    assert found["short names"] == "done" and found["threads"] == ["done", "done"]
