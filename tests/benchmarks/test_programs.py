"""The benchmark of users' programs holds what docs/guides/enforce.md promises of each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_program_runs_as_planned_and_computes_the_same() -> None:
    """Its smallest, by a plan of quick candidates: nothing moves, no bit differs, of stock the last digits."""
    script = ROOT / "benchmarks/programs.py"
    command = [sys.executable, script, "--program", "v1 session", "--limit", "0", "--steps", "2", "--json"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    row = json.loads(done.stdout)
    assert (row["moves"], row["inversions"], row["reference"]) == (0, 0, 0)
    assert row["verified_ops"] >= row["ops"] > 200 and row["gain"] >= 0
    assert max(row["stock_losses"], row["stock_variables"]) < 0.01
