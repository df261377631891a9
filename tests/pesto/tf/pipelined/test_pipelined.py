"""Models and steps in micro-batches by plans, on stock TensorFlow: as plain accumulation, bit for bit; or refused."""

import functools
import json
import re
from pathlib import Path
from typing import Any

import forked
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
TABLES = ["rows", "bert", "vit"]
"""Models whose gradients are of rows of a table."""
SCHEDULES = ["1f1b*", "gpipe", "1f1b", "interleaved-2", "zero-bubble", "zero-bubble-v"]


def worker(*words: str) -> list[dict[str, Any]]:
    """What it printed; a plan that TensorFlow would not run as it is ends it."""
    done = forked.run("tests/data/pipelined_worker.py", *words, cwd=ROOT, TF_ENABLE_ONEDNN_OPTS="0")
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@functools.cache
def cases() -> dict[str, dict[str, Any]]:
    """What is done by one plan, by case."""
    return {row.pop("case"): row for row in worker()}


PROGRAMS = ["dense", "convolution", "attention", "recurrent", "shared", *TABLES]
SOME = [(program, [SCHEDULES[k % 6], SCHEDULES[(k + 3) % 6]]) for k, program in enumerate(PROGRAMS)]
"""Each program by two schedules, each schedule with two programs at least."""


@pytest.mark.parametrize(
    ("program", "schedules"),
    [*SOME, *(pytest.param(program, SCHEDULES, marks=pytest.mark.night) for program in PROGRAMS)],
)
def test_all_schedules_are_plain_accumulation(program: str, schedules: list[str]) -> None:
    """Each verified on three devices, no op moved and no order inverted; 20 steps have its losses and variables."""
    found = worker(program, ",".join(schedules))
    assert [row["schedule"] for row in found] == schedules
    for row in found:
        assert row["losses"] and row["variables"] and row["verified"] == 1 and row["devices"] == 3, row


LATE = [
    ("dense", "cpux3", "SGD"), ("dense", "cpux2", "Adam"), ("convolution", "cpux2", "Adam"),
    ("shared", "cpux3", "Adam"), ("attention", "cpux3", "AdamW"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "cluster", "optimizer"), LATE)
def test_late_weights_are_numbered_versions(program: str, cluster: str, optimizer: str) -> None:
    """As late as batches are in flight, less 1; losses, weights, slots, statistics are a loop's that keeps versions."""
    (row,) = worker(program, cluster, optimizer)
    assert {*row["late"]} <= {min(many, 6) - 1 for many in row["flight"]} and row["late"][-1] > 0, row
    assert row["given"] == row["weights"] and row["devices"] == int(cluster[-1])
    assert row["verified"] == 1 and row["moved"] == 0
    assert row["losses"] and row["variables"] and not row["plain"], row


TWO = [
    ("dense", "cpux3", "SGD", 12, 4), ("convolution", "cpux2", "AdamW", 8, 4), ("shared", "cpux3", "Adam", 12, 4),
]  # fmt: skip


@pytest.mark.parametrize(("program", "cluster", "optimizer", "batches", "every"), TWO)
def test_two_versions_are_numbered_versions(
    program: str, cluster: str, optimizer: str, batches: int, every: int
) -> None:
    """All weights one update late, gradients of an update added up in order; else as above."""
    (row,) = worker(program, cluster, optimizer, str(batches), str(every))
    assert row["late"] == [1] and 1 < max(row["flight"]) <= every, row
    assert row["given"] == row["weights"] and row["devices"] == int(cluster[-1])
    assert row["verified"] == 1 and row["moved"] == 0
    assert row["losses"] and row["variables"] and not row["plain"], row


def test_fit_trains_in_the_plans_micro_batches() -> None:
    """As calls of `pesto.pipeline` do; afterwards a model trains as before."""
    assert cases()["fit"] == {"equal": True, "verified": 2, "after": True}


def test_a_function_is_done_in_pieces() -> None:
    """With its control flow converted."""
    assert cases()["function"] == {"equal": True, "verified": 1}


REFUSED = {
    "open": ("InputError", "its batch is open, .*drop_remainder=True"),
    "size": ("MismatchError", "its batch is 8, the plan's is fixed at 12 - train with batches of 12"),
    "cut": ("UsageError", "a batch of 11 cannot be cut into 2 equal micro-batches - give a batch of 10 or 12"),
    "whole": ("UsageError", "is for no model that cuts its batch - make one"),
    "mixed": ("UsageError", "2 and none micro-batches - apply each in a context of its own"),
    "step": ("MismatchError", r"is of no plan: .* call pesto\.pipeline\(step, plan\) in its place"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case: str) -> None:
    """In one line that says what to do."""
    kind, said = REFUSED[case]
    found = cases()[case]
    assert found["error"] == kind and re.search(said, found["text"]) and "\n" not in found["text"], found
