"""Whether a plan fits: batches open or fixed, smaller or larger; else the one cause, with its remedy."""

import functools
import json
import re
from pathlib import Path
from typing import Any

import forked
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]


@functools.cache
def cases() -> dict[str, dict[str, Any]]:
    """What the worker saw, by case."""
    done = forked.run("tests/data/fitting_worker.py", cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return {row.pop("case"): row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize(
    "name", ["remainder", "whole", "whole, by name", "smaller", "whole, fixed", "as planned, iterator"]
)
def test_a_plan_fits_whatever_the_batches_leave_over(name: str) -> None:
    """200 and 96 rows at 32, and batches of 8, by one plan of an open batch; every bit as without it."""
    found = cases()[name]
    assert found.get("equal") and found["findings"] == 1, found


def test_smaller_batches_run_in_loops_and_sessions_too() -> None:
    """By pesto.place, and fed to a placeholder."""
    assert cases()["smaller, placed"]["loss"] > 0
    assert cases()["smaller, fed"]["findings"] == 2  # the initialiser's op is of no plan, the step ran twice


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("larger", 64),
        ("larger, whole", 64),
        ("larger later", 64),
        ("larger, iterator", 40),
        ("larger, placed", 40),
        ("larger, fed", 40),
    ],
)
def test_larger_batches_are_refused(name: str, batch: int) -> None:
    """At the first step and later, of arrays, iterators and feeds; nothing of them is trained."""
    found = cases()[name]
    assert found.get("error") == "MismatchError" and found.get("untouched", True), found
    assert re.search(f"a batch of {batch} is larger than the 32 that .* - plan with batch={batch}, or", found["text"])


CAUSES = {
    "remainder, fixed": "its batch is open, .* of one fixed size - plan it open, .*batch=32",
    "other size, fixed": "its batch is 16, the plan's is fixed at 32 - train with batches of 32, or plan batch=16",
    "labels": r"data\[1\] \(y of fit\) is int64, planned as int32 - give int32, or plan .*batch=32",
    "labels, whole": r"data\[1\] \(y of fit\) is int64, planned as int32 - give",
    "labels, fixed": r"data\[1\] \(y of fit\) is int64, planned as int32 - give",
    "ids and labels": r"data\[0\] \(x of fit\) and data\[1\] \(y of fit\) are int64, planned as int32 - give",
    "class_weight": r"an input more than the plan, data\[2\]: .* class_weight of fit - leave",
    "sample_weight, whole": r"an input more than the plan, data\[2\]: .* sample_weight .* - leave",
    "no weights": r"the plan has an input more, data\[2\]: .* - give fit sample_weight or class_weight",
    "optimizer": "the plan is for the optimizer adam, this step has sgd .* - plan",
    "clipnorm": r"its optimizer \(adam\) is set otherwise: \d+ ops more \(\d+ clip_by_norm/mul.* - plan",
    "weight decay": r"its optimizer \(adam\) is set otherwise: \d+ ops more \(.*AssignSubVariableOp.* - plan",
    "hidden": "the same by name, of other sizes, types of data or pins .* float32 .* - plan",
    "function, other size": r"of other sizes: its batch is 11, .* plan up to 11, .*\(None\), with batch=11",
    "function in a function": "^function both calls another tf.function .* - decorate only the step itself, or use",
    "strangers": "optimizer adam, this step has sgd .* - plan",
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_one_cause_is_named_with_its_remedy(name: str) -> None:
    """What is otherwise than planned, by the argument's name."""
    found = cases()[name]
    assert found.get("error") == "MismatchError", found
    assert re.search(CAUSES[name], found["text"]), found["text"]
