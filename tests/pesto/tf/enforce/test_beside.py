"""Two steps that share variables, the second planned beside the first: they lie in the same places under both."""

import json
from pathlib import Path

import forked
import pytest

pytestmark = pytest.mark.slow  # one worker for both, of 15 CPU seconds
ROOT = Path(__file__).resolve().parents[4]


def test_a_gan_trains_under_two_plans() -> None:
    """Its own train functions, and two compiled models by train_on_batch, read and recorded: equal bit for bit."""
    done = forked.run("tests/data/beside_worker.py", cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    example, *rows = (json.loads(line) for line in done.stdout.splitlines())
    assert example["findings"] == 2 and example["beside"] >= 4, example
    assert [row["case"] for row in rows] == ["functions", "train_on_batch", "recorded"]
    assert rows[0]["sources"] == ["function gan.train_critic", "function gan.train_generator"]
    assert rows[1]["sources"] == rows[2]["sources"] == ["keras critic", "keras both"]
    for row in rows:
        assert row["shared"] >= 4 and row["same places"] and row["devices"] == 2, row
        assert row["equal"] and row["findings"] == 2, row
        assert row["unchanged"], row
        assert f"{row['shared']} variables pinned" in row["bound"], row
