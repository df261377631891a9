"""A choice among kinds of plans that is to be repeatable: the clock, the load and hash seeds change nothing of it."""

import json
import os
import subprocess
import sys
import time
from itertools import count
from types import SimpleNamespace

import pytest

from pesto.choosing.strategy_choice import choice, partial_split, timed_split
from pesto.choosing.strategy_choice.choice import choose
from pesto.core.costs.analytical import model_costs
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.split import split_search
from pesto.tf import named_sources
from solvers.labels import label_methods

SETTINGS = Settings(time_limit_s=1.0, solver="list", deterministic=True)


def jump_s(seconds):
    """Return a time module whose clocks are so many seconds further at each look."""
    ticks = count()
    return SimpleNamespace(
        monotonic=lambda: time.monotonic() + seconds * next(ticks),
        perf_counter=lambda: time.perf_counter() + seconds * next(ticks),
    )


@pytest.mark.slow
def test_a_clock_that_jumps_changes_no_kind(monkeypatch):
    """Shares of the limit are counted in work, so each kind's step is the same where every look costs 0.4 s."""
    graph, shaped = named_sources.load_typed(Source(model="rnnlm", variant="tiny"))
    cluster, found, partial = load_cluster("v100x4"), [], []
    cut = choice.split_partially
    monkeypatch.setattr(choice, "split_partially", lambda *given: partial.append(cut(*given)) or partial[-1])
    for seconds in (0.0, 0.4):
        for module in (choice, split_search, label_methods, partial_split, timed_split):
            monkeypatch.setattr(module, "time", jump_s(seconds))
        best = choose((graph, shaped), cluster, model_costs(graph, cluster), SETTINGS, lambda _: None, cuts=[(2, 2)])
        found.append([(kind.name, kind.makespan_s, kind.peak_bytes) for kind in best.kinds])
    assert found[0] == found[1]
    assert {name for name, *_ in found[0]} >= {"place", "split 2", "split 2x2"}
    assert partial[0].candidate.makespan == partial[1].candidate.makespan  # also where it has no row


@pytest.mark.slow
def test_a_busy_machine_and_another_hash_seed_change_no_byte(tmp_path):
    """Two runs of the command, the second beside as many busy loops as there are cores: same file, same rows."""
    asked = ["solve", "--model", "rnnlm", "--variant", "tiny", "--cluster", "v100x4", "--split", "4"]
    asked += ["--deterministic", "--time-limit", "1", "--json", "-q"]
    rows = []
    for seed in (1, 77):
        many = 0 if seed == 1 else os.cpu_count() or 1
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(many)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pesto", *asked, "-o", tmp_path / f"{seed}.json"],
                env=os.environ | {"PYTHONHASHSEED": str(seed)}, capture_output=True, check=True,
            )  # fmt: skip
        finally:
            for each in busy:
                each.kill()
                each.wait()
        kinds = json.loads(done.stdout)["kinds"]
        rows.append({name: kind["makespan_s"] for name, kind in kinds.items()})
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "77.json").read_bytes()
    assert rows[0] == rows[1]
