"""The benchmark of lives holds what docs/concepts/memory.md promises of tight memories."""

import pytest

from benchmarks.lives import SHARES, instance, refuted, row, verdict
from solvers import Status, check


@pytest.mark.slow
def test_repair_is_never_shorter_and_what_it_refuses_is_decided() -> None:
    """Problems of 8 to 12 tasks: a proof of each, repair is never shorter; up to 9 tasks are enumerated."""
    verdicts = []
    for seed in range(0, 30, 3):
        p = instance(seed, SHARES[seed // 5 % 5])
        found = row(p, 60.0)
        verdicts.append(verdict(found))
        assert found.exact.status in (Status.OPTIMAL, Status.INFEASIBLE), seed
        assert found.exact.schedule is None or check(p, found.exact.schedule) == (), seed
        if p.tasks <= 9 or found.exact.schedule is None:
            assert refuted(p, found.exact), seed
    assert "repair is shorter" not in verdicts
    assert {"repair finds nothing", "repair is longer", "proven that nothing fits"} <= set(verdicts)
