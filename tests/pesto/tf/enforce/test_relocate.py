"""What holds a variable that a plan moves goes with it, or is refused; in a process of its own."""

import json
from pathlib import Path
from typing import Any

import forked
import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    """What each case of the script returned."""
    done = forked.run("tests/data/relocate_worker.py", cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_an_outer_function_reads_what_the_inner_one_trains(said: dict[str, Any]) -> None:
    """It captured the variable before the step inside it was traced."""
    before, inside = said["outer_function_read_before"]
    assert before == inside
    assert len({first for first, _ in before}) == 4


def test_a_wrapped_function_reads_the_moved_variable(said: dict[str, Any]) -> None:
    """Inside and afterwards."""
    inside, after = said["wrapped_function"]
    assert inside[0] == inside[1] != after[0] == after[1]


def test_a_loaded_model_serves_what_was_trained(said: dict[str, Any]) -> None:
    """Its function and its signature give what its variables say."""
    before, *later = said["loaded_model"]
    for function, signature, true in (before, *later):
        assert function == signature == pytest.approx(true)
    assert before[0] != later[0][0] == later[1][0]


def test_a_pipeline_that_reads_the_variable_is_refused(said: dict[str, Any]) -> None:
    """Nothing has moved then; a pipeline made after the first step reads what is trained."""
    row = said["pipeline_that_reads"]
    assert row["error"][0] == "InputError"
    assert "tf.data" in row["error"][1] and "w0" in row["error"][1]
    assert row["moved"] == ["0", "0"]
    assert row["findings"] == 2
    assert row["reads"][0] == row["reads"][1]


def test_two_plans_that_disagree_on_a_variable_are_refused(said: dict[str, Any]) -> None:
    """A verified step stays as it was verified; contexts one after another may disagree, and plans may agree."""
    row = said["two_plans_in_one_context"]
    assert row["error"][0] == "MismatchError"
    assert "CPU:0" in row["error"][1] and "CPU:1" in row["error"][1]
    assert row["places"] == ["0", "0"]
    assert row["after"] == ["1", "0"]
    assert row["agreed"] == ["", ""]


def test_two_placed_steps_that_disagree_on_a_variable_are_refused(said: dict[str, Any]) -> None:
    """For as long as both exist."""
    row = said["two_placed_steps"]
    assert row["error"][0] == "MismatchError"
    assert row["places"] == ["0", "0"]
    assert row["freed"] == ["", ""]
    assert row["after"] == ["1", "0"]


def test_a_step_traced_before_is_refused_also_when_its_variables_have_moved(said: dict[str, Any]) -> None:
    """A trace is known by its captures, which move too."""
    for name, text in said["traced_before"]:
        assert name == "UsageError"
        assert "traced before pesto.apply" in text


def test_copies_that_moved_on_are_freed(said: dict[str, Any]) -> None:
    """The first while it is away, and each context's afterwards; traces and contexts are kept meanwhile."""
    alive, inside = said["old_copies"]
    assert alive == [False, False, False]
    assert inside == 0


def test_an_open_tape_follows_a_variable(said: dict[str, Any]) -> None:
    """Both reads count: 48 each."""
    places, gradient = said["open_tape"]
    assert places == ["1", "1"]
    assert gradient == 96.0


def test_a_variable_that_is_only_written_moves(said: dict[str, Any]) -> None:
    """A trace lists only variables that it reads."""
    inside, after, right = said["only_written"]
    assert inside == ["1"]
    assert after == ["0"]
    assert right
