"""Keras programs run by plans exactly, and what cannot be run by one is refused; checked in processes of their own."""

import functools
import json
from pathlib import Path
from typing import Any

import forked
import pytest

ROOT = Path(__file__).resolve().parents[4]
QUICK = ("benchmarks/enforce_fit.py", "--quick", "--plans=1")
CASES = "tests/data/enforce_worker.py"
REFUSED = (
    ("eager", "UsageError", "outside of a tf.function"),
    ("compiled", "InputError", "jit_compile=False"),
    ("traced before", "UsageError", "traced before pesto.apply"),
    ("other model", "MismatchError", "the same by name, of other sizes"),
    ("nothing", "MismatchError", "nothing ran by the plan"),
)
"""Cases that are refused, with the error and words of it."""
REFUSED_TOO = (
    ("eager later", "UsageError", "outside of a tf.function"),
    ("tape", "UsageError", "outside of a tf.function"),
    ("steps", "InputError", "steps_per_execution=1"),
    ("mirrored", "InputError", "without the strategy"),
    ("clustering", "InputError", "set_jit(False)"),
)
"""More of them, which a default run leaves out."""
SCRIPTS = {
    "fit": (*QUICK, "--devices=3", "--ways=fit", "--models=mlp"),
    "fit more": (*QUICK, "--devices=3", "--ways=fit", "--models=cnn,attention,lstm-unrolled,lstm-loop"),
    "ways": (*QUICK, "--devices=2", "--models=mlp", "--ways=batches,place-nested"),
    "ways more": (*QUICK, "--devices=2", "--models=mlp", "--ways=record,place"),
    "cases": (CASES, "everything", "tape on inputs", *(row[0] for row in REFUSED)),
    "cases more": (
        CASES,
        "again",
        "few rows",
        "interrupted",
        "both of a GAN",
        "two models",
        "rate",
        "accumulation",
        *(row[0] for row in REFUSED_TOO),
    ),
    "branches": (CASES, "loss scaling", "loss scaling and accumulation"),
    "order": ("tests/data/order_worker.py",),
    "barrier": ("tests/data/barrier_worker.py",),
}
"""Scripts that print a row for each case; the second of a kind is for the tests that a default run leaves out."""
MORE = pytest.mark.matrix


@functools.cache
def rows(script: str) -> tuple[dict[str, Any], ...]:
    """What a script prints."""
    done = forked.run(*SCRIPTS[script], cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return tuple(json.loads(line) for line in done.stdout.splitlines())


def exact(row: dict[str, Any]) -> bool:
    """Nothing moved, nothing out of order, every bit as without a plan."""
    right = all(row[f"{what}_equal"] for what in ("losses", "variables", "checkpoints")) and row["devices_right"]
    return right and row["moves"] == row["inversions"] == 0 and row["ops"] > 100 and row["variables"] > 0


@pytest.mark.parametrize(
    ("model", "script"),
    [
        ("mlp", "fit"),
        *(pytest.param(model, "fit more", marks=MORE) for model in ("cnn", "attention", "lstm-unrolled", "lstm-loop")),
    ],
)
def test_fit_by_a_random_plan_is_fit(model: str, script: str) -> None:
    """Losses of every batch, weights, slots, metrics and seeds; variables live where planned, and come back."""
    (row,) = [r for r in rows(script) if r["model"] == model]
    assert exact(row), row
    assert row["steps"] == 4
    assert row["checkpoints"] == (model in ("mlp", "cnn"))  # the first model of each script


@pytest.mark.parametrize(
    ("way", "script"),
    [
        *(pytest.param(way, "ways", marks=pytest.mark.slow) for way in ("batches", "place-nested")),
        *(pytest.param(way, "ways more", marks=MORE) for way in ("record", "place")),
    ],
)
def test_other_ways_to_train(way: str, script: str) -> None:
    """train_on_batch, a recorded step, and loops of one's own with pesto.place, one with an inner tf.function."""
    (row,) = [r for r in rows(script) if r["way"] == way]
    assert exact(row), row


def case(name: str) -> dict[str, Any]:
    script = next(script for script in ("cases", "cases more") if name in SCRIPTS[script])
    (row,) = [r for r in rows(script) if r["case"] == name]
    return row


@pytest.mark.parametrize(
    ("name", "findings"),
    [
        pytest.param("everything", 1, marks=MORE),
        pytest.param("again", [1, 1, 0, 1], marks=MORE),
        pytest.param("few rows", [1, 1], marks=MORE),
        pytest.param("both of a GAN", 1, marks=MORE),
        *(pytest.param(*one, marks=MORE) for one in (("two models", 2), ("rate", 1), ("accumulation", 1))),
    ],
)
def test_programs_run_as_without_a_plan(name: str, findings: Any) -> None:
    """Callbacks and validation, several models, schedules, branches in the optimizer, and context after context."""
    row = case(name)
    assert row.get("equal"), row
    assert row["findings"] == findings


@MORE
def test_plans_that_want_a_shared_variable_elsewhere_name_both_models_and_the_remedy() -> None:
    """The variable by its own name; that the remedy works is a case above."""
    text = case("both of a GAN")["text"]
    assert "variable critic/" in text
    assert "by the plan of keras both, and" in text
    assert "by that of keras critic, which is in use - plan this step beside that plan, pesto.solve(graph, be" in text
    assert "or both steps as one: a Keras model whose train_step does both, as of a GAN" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loss scaling", "loss scaling and accumulation"])
def test_an_optimizer_in_a_branch_is_on_two_devices(name: str) -> None:
    """Each variable has a branch of its own; losses, scales and variables are equal, also where steps are left out."""
    (row,) = [r for r in rows("branches") if r["case"] == name]
    assert row == {"case": name, "equal": True, "findings": 1, "both": True, "devices": 2}


def test_variables_are_elsewhere_inside_only() -> None:
    """On both devices in a context, on the first outside of it."""
    assert case("everything")["where"] == ["0", "1"]


@MORE
def test_variables_are_elsewhere_inside_each_context() -> None:
    """On both devices in each, on the first between them."""
    assert case("again")["where"] == [["0", "1"], ["0", "1"], ["0"], ["0", "1"]]


@MORE
def test_interrupting_fit_undoes_everything() -> None:
    """Devices, settings, and what the model does next."""
    assert case("interrupted").get("equal")


@pytest.mark.parametrize(
    ("name", "error", "text"), [*REFUSED, *(pytest.param(*row, marks=MORE) for row in REFUSED_TOO)]
)
def test_what_no_plan_can_hold_for_is_refused(name: str, error: str, text: str) -> None:
    """Before a step is trained, with the remedy, and everything is undone."""
    row = case(name)
    assert (row["error"], row["undone"], row["trained"]) == (error, True, False), row
    assert text in row["text"]


def test_gradients_of_inputs_are_let_through() -> None:
    """They train nothing."""
    assert case("tape on inputs")["shape"] == [20, 6]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["function", "session"])
def test_the_order_holds_when_the_ops_run(how: str) -> None:
    """A trace of the run: every op once, each after its neighbour; clocks in the chain over many runs say the same."""
    (row,) = [r for r in rows("order") if r["how"] == f"{how}, order=True"]
    assert row["trace"]["pairs"] > 250
    assert row["clocks"]["pairs"] > 600
    assert (row["trace"]["wrong"], row["clocks"]["wrong"], row["dropped"], row["again"]) == (0, 0, 0, 0)


@pytest.mark.slow
def test_without_an_order_the_trace_shows_another() -> None:
    """What the test above would see without chains; the optimiser then drops ops of a function, too."""
    free = [r for r in rows("order") if r["how"].endswith("order=False")]
    assert all(r["trace"]["wrong"] > 20 for r in free)
    assert next(r for r in free if r["how"].startswith("function"))["dropped"] > 0


@pytest.mark.slow
def test_nothing_is_sent_to_a_barrier() -> None:
    """All that a planned function runs is needed: no IdentityN that is led around, to which gradients would travel."""
    (row,) = rows("barrier")
    kept, gone = row["kept"], row["gone"]
    assert gone["equal"] and gone["moves"] == gone["inversions"] == gone["barriers"] == 0
    assert kept["equal"] and kept["barriers"] == 1  # where nothing is left out
    assert 0 < gone["bytes"] < kept["bytes"]
