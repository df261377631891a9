"""The model of kernels holds on measured ones that it was not fitted to, as docs/guides/costs.md says."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import kernels
from pesto.core.graph import CONV_FILTER, MATMUL

ROOT = Path(__file__).resolve().parents[2]
PROMISED = {
    ("V100", "fp32", "matmul"): (0.06, 0.02), ("V100", "fp16", "matmul"): (0.08, 0.02),
    ("V100", "fp32", "conv forward"): (0.14, 0.12), ("V100", "fp32", "conv input gradient"): (0.13, 0.05),
    ("V100", "fp32", "conv filter gradient"): (0.16, 0.05), ("V100", "fp16", "conv forward"): (0.15, 0.15),
    ("V100", "fp16", "conv input gradient"): (0.21, 0.05), ("V100", "fp16", "conv filter gradient"): (0.20, 0.30),
    ("P100", "fp32", "matmul"): (0.15, 0.03), ("P100", "fp32", "conv forward"): (0.27, 0.16),
    ("P100", "fp32", "conv input gradient"): (0.37, 0.27), ("P100", "fp32", "conv filter gradient"): (0.26, 0.23),
}  # fmt: skip
"""Mean error, and distance of the sums' ratio from one, at most."""


def test_errors_are_the_promised_ones() -> None:
    """Of every table, on the rows that were not fitted to."""
    found = {(r["device"], r["dtype"], r["kind"]): r for t in kernels.tables() for r in [kernels.row(t, ~t.fitted)]}
    assert set(found) == set(PROMISED)
    for key, (error, off) in PROMISED.items():
        assert found[key]["mean_error"] <= error and abs(found[key]["sum_ratio"] - 1) <= off, found[key]


def test_halves_are_made_by_a_rule() -> None:
    """Every second row of the file, those without a value counted; of the P100 none is fitted."""
    for t in kernels.tables():
        assert bool(t.fitted.any()) is (t.device == "V100") and (t.seconds > 0).all()
    assert kernels.table("V100", "fp32", "matmul").fitted.tolist() == [True, False] * 40
    gradient = kernels.table("V100", "fp32", "conv input gradient")
    # Five of the 45 rows have none; those that are left keep the half that they were in.
    assert len(gradient.rows) == 40 and gradient.fitted[:4].tolist() == [True, False, False, False]


def test_rows_are_read_as_tensorflow_stores_them() -> None:
    """cuBLAS's columns are rows here, so factors and their transpositions change places; convolutions do not."""
    gemm = kernels.table("V100", "fp32", "matmul")
    assert gemm.rows[0, :7].tolist() == [MATMUL, 16, 1760, 1760, 1, 0, 0]
    assert (gemm.rows[:, 6] == 1).sum() > (gemm.rows[:, 5] == 1).sum()
    conv = kernels.table("V100", "fp32", "conv filter gradient").rows[0].tolist()
    assert conv == [CONV_FILTER, 4, 1, 161, 700, 32, 5, 20, 2, 2, 79, 341]


@pytest.mark.slow
def test_the_program_prints_what_it_promises() -> None:
    """`--json` has the keys, on as many rows as are not fitted."""
    command = [sys.executable, "benchmarks/kernels.py", "--json"]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    rows = json.loads(done.stdout)
    keys = {"device", "dtype", "kind", "n", "mean_error", "median_ratio", "p10", "p90", "sum_ratio"}
    assert all(set(r) == keys for r in rows)
    assert np.sum([r["n"] for r in rows]) == 40 + 22 + 20 + 22 + 40 + 22 + 20 + 22 + 159 + 3 * 90
