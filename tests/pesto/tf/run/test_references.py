"""Plans where oneDNN rewrites CPU graphs, as in programs that load TensorFlow themselves."""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]


@functools.cache
def rows() -> dict[str, dict[str, Any]]:
    """What the script prints, in a process that loads TensorFlow with oneDNN on."""
    script = ROOT / "tests/data/onednn_worker.py"
    done = subprocess.run([sys.executable, script], check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {row["case"]: row for row in map(json.loads, done.stdout.splitlines())}
    if not found["session"]["merged"]:
        pytest.skip("oneDNN rewrites nothing on this processor")
    return found


def test_the_unplaced_reference_and_a_plan_have_the_same_ops() -> None:
    """Kernels of two ops are in neither: bits are equal with the order, without it, and nothing is missing."""
    unplaced = rows()["session"]["unplaced"]
    assert unplaced["as_planned"] and unplaced["losses_equal"] and unplaced["unordered_equal"]
    assert "oneDNN's kernels on" in unplaced["reference_is"]


def test_the_stock_reference_differs_in_last_digits() -> None:
    """Its graph is rewritten, so the largest difference is a number above nothing, and far below a step's change."""
    stock = rows()["session"]["stock"]
    assert stock["as_planned"] and stock["losses_equal"] is None
    assert 0 < max(stock["losses_distance"], stock["variables_distance"]) < 0.1 and stock["furthest"]


@pytest.mark.parametrize("order", [False, True])
def test_a_convolution_with_bias_runs_by_a_plan(order: bool) -> None:
    """Each op has a node of its own, on its device."""
    row = rows()[f"fit, order={order}"]
    assert row["moves"] == 0 and row["ops"] > 300
