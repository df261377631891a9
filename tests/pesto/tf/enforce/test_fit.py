"""Keras programs run by plans exactly, and what cannot be run by one is refused; checked in processes of their own."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]
QUICK = ("benchmarks/enforce_fit.py", "--quick", "--plans=1")
SCRIPTS = {
    "matrix": [*QUICK, "--devices=3", "--ways=fit"],
    "custom": [*QUICK, "--devices=2", "--models=mlp", "--ways=batches,record,place,place-nested"],
    "cases": ["tests/data/enforce_worker.py"],
    "order": ["tests/data/order_worker.py"],
}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rows() -> Iterator[Callable[[str], Rows]]:
    """What a script prints; two run at a time."""
    running: dict[str, subprocess.Popen[str]] = {}
    done: dict[str, Rows] = {}

    def start() -> None:
        waiting = [name for name in SCRIPTS if name not in running]
        for name in waiting[: max(0, 2 - (len(running) - len(done)))]:
            command = [sys.executable, *SCRIPTS[name]]
            running[name] = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )

    def of(name: str) -> Rows:
        start()
        while name not in done:
            first = next(n for n in running if n not in done)
            done[first] = [json.loads(line) for line in running[first].communicate()[0].splitlines()]
            start()
        return done[name]

    yield of
    for process in running.values():
        process.kill()
        process.wait()


def exact(row: dict[str, Any]) -> bool:
    """Nothing moved, nothing out of order, every bit as without a plan."""
    right = all(row[f"{what}_equal"] for what in ("losses", "variables", "checkpoints")) and row["devices_right"]
    return right and row["moves"] == row["inversions"] == 0 and row["ops"] > 100 and row["variables"] > 0


@pytest.mark.parametrize("model", ["mlp", "cnn", "attention", "lstm-unrolled", "lstm-loop"])
def test_fit_by_a_random_plan_is_fit(model: str, rows: Callable[[str], Rows]) -> None:
    """Losses of every batch, weights, slots, metrics and seeds; variables live where planned, and come back."""
    (row,) = [r for r in rows("matrix") if r["model"] == model]
    assert exact(row), row
    assert row["steps"] == 4
    assert row["checkpoints"] == (model == "mlp")


@pytest.mark.parametrize("way", ["batches", "record", "place", "place-nested"])
def test_other_ways_to_train(way: str, rows: Callable[[str], Rows]) -> None:
    """train_on_batch, a recorded step, and loops of one's own with pesto.place, one with an inner tf.function."""
    (row,) = [r for r in rows("custom") if r["way"] == way]
    assert exact(row), row


def case(rows: Callable[[str], Rows], name: str) -> dict[str, Any]:
    (row,) = [r for r in rows("cases") if r["case"] == name]
    return row


@pytest.mark.parametrize(
    ("name", "findings"),
    [("everything", 1), ("two models", 2), ("rate", 1), ("accumulation", 1), ("again", [1, 1, 0, 1])],
)
def test_programs_run_as_without_a_plan(name: str, findings: Any, rows: Callable[[str], Rows]) -> None:
    """Callbacks and validation, several models, schedules, branches in the optimizer, and context after context."""
    row = case(rows, name)
    assert row.get("equal"), row
    assert row["findings"] == findings


def test_variables_are_elsewhere_inside_only(rows: Callable[[str], Rows]) -> None:
    """On both devices in a context, on the first outside of it."""
    assert case(rows, "everything")["where"] == ["0", "1"]
    assert case(rows, "again")["where"] == [["0", "1"], ["0", "1"], ["0"], ["0", "1"]]


def test_interrupting_fit_undoes_everything(rows: Callable[[str], Rows]) -> None:
    """Devices, settings, and what the model does next."""
    assert case(rows, "interrupted").get("equal")


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("eager", "UsageError", "outside of a tf.function"),
        ("eager later", "UsageError", "outside of a tf.function"),
        ("tape", "UsageError", "outside of a tf.function"),
        ("steps", "InputError", "steps_per_execution=1"),
        ("compiled", "InputError", "jit_compile=False"),
        ("mirrored", "InputError", "without the strategy"),
        ("clustering", "InputError", "set_jit(False)"),
        ("traced before", "UsageError", "traced before pesto.apply"),
        ("other model", "MismatchError", "plan with the batch size"),
        ("nothing", "MismatchError", "nothing ran by the plan"),
    ],
)
def test_what_no_plan_can_hold_for_is_refused(name: str, error: str, text: str, rows: Callable[[str], Rows]) -> None:
    """Before a step is trained, with the remedy, and everything is undone."""
    row = case(rows, name)
    assert (row["error"], row["undone"], row["trained"]) == (error, True, False), row
    assert text in row["text"]


def test_gradients_of_inputs_are_let_through(rows: Callable[[str], Rows]) -> None:
    """They train nothing."""
    assert case(rows, "tape on inputs")["shape"] == [20, 6]


@pytest.mark.parametrize("how", ["function", "session"])
def test_the_order_holds_when_the_ops_run(how: str, rows: Callable[[str], Rows]) -> None:
    """A trace of the run: every op once, each after its neighbour; clocks in the chain over many runs say the same."""
    (row,) = [r for r in rows("order") if r["how"] == f"{how}, order=True"]
    assert row["trace"]["pairs"] > 250
    assert row["clocks"]["pairs"] > 600
    assert (row["trace"]["wrong"], row["clocks"]["wrong"], row["dropped"], row["again"]) == (0, 0, 0, 0)


def test_without_an_order_the_trace_shows_another(rows: Callable[[str], Rows]) -> None:
    """What the test above would see without chains; the optimiser then drops ops of a function, too."""
    free = [r for r in rows("order") if r["how"].endswith("order=False")]
    assert all(r["trace"]["wrong"] > 20 for r in free)
    assert next(r for r in free if r["how"].startswith("function"))["dropped"] > 0
