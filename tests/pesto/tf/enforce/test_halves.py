"""A step in two functions: half of it would run unplaced, so it is refused, with a remedy that works."""

import functools
import json
from pathlib import Path
from typing import Any

import forked
import pytest

pytestmark = pytest.mark.slow  # one worker for all, of 15 seconds
ROOT = Path(__file__).resolve().parents[4]


@functools.cache
def found() -> dict[str, Any]:
    """What the worker saw, by case."""
    done = forked.run("tests/data/halves_worker.py", cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return {row["case"]: row["found"] for row in map(json.loads, done.stdout.splitlines())}


def test_gradients_without_an_update_are_half_of_a_step() -> None:
    """By record and by apply. Not so gradients of inputs, or those that an inner function takes."""
    for case in ("accumulation, recorded", "accumulation, by a plan"):
        assert found()[case].startswith("InputError: function") and "half of a step" in found()[case], found()[case]
        assert "make one tf.function that takes the gradients" in found()[case]
    assert found()["gradients of inputs"] == "done"
    assert found()["gradients by an inner function"] == "done"


def test_two_functions_that_train_are_one_to_be() -> None:
    """A GAN: both are named."""
    said = found()["gan, recorded"]
    assert "discriminate" in said and "generate" in said
    assert "make one tf.function that calls them as plain Python functions" in said


def test_the_remedies_work() -> None:
    """One function of both halves is recorded, planned, runs as planned, and gives what it gives without."""
    for case in ("accumulation in one", "gan in one"):
        assert found()[case] == {"findings": 1, "equal": True}, case
