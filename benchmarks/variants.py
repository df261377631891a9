"""Prints the results tables of docs/results.md: every paper variant, and nmt 2x1024 on every cluster preset.

    python benchmarks/variants.py [variants|clusters] [--time-limit 60] [--graphs FOLDER]

Runs the command line as a user would, one solve after another. With --graphs, models are read from graph files in that
folder (made by pesto import on first use), so that TensorFlow builds each only once; "graph" then is the time to read.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pesto.inputs.cluster_file import cluster_names
from pesto.tf.models import FAMILIES

HEAD = (
    "ops", "coarse", "graph s", "problem s", "baselines s", "coarsen s", "solve s", "verify s", "single ms",
    "expert ms", "list ms", "levels ms", "coarse ms", "chosen", "step ms", "bound ms", "gap", "first plan s",
    "coarse solver: ms / bound",
)  # fmt: skip
CANDIDATES = ("single", "expert", "list", "levels", "coarse")
STAGES = ("graph", "problem", "baselines", "coarsen", "solve", "verify")


def main() -> None:
    """Print the table that is asked for, or both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", choices=("variants", "clusters"))
    parser.add_argument("--time-limit", default="60")
    parser.add_argument("--graphs", type=Path)
    asked = parser.parse_args()
    if asked.table in (None, "variants"):
        _head("model on v100x2-nvlink")
        for family in FAMILIES:
            for variant in family.variants:
                if variant != "tiny":
                    _row(f"{family.name} {variant}", (family.name, variant), "v100x2-nvlink", asked)
    if asked.table in (None, "clusters"):
        _head("nmt 2x1024 on")
        for cluster in cluster_names():
            _row(cluster, ("nmt", "2x1024"), cluster, asked)


def _head(first: str) -> None:
    print(f"\n| {first} | {' | '.join(HEAD)} |\n|---|{'---:|' * len(HEAD)}")


def _row(name: str, model: tuple[str, str], cluster: str, asked: argparse.Namespace) -> None:
    source = ["--model", model[0], "--variant", model[1]]
    if asked.graphs is not None:
        file = asked.graphs / f"{'-'.join(model)}.json"
        if not file.exists():
            _pesto("import", *source, "-o", str(file))
        source = ["--graph", str(file)]
    options = ["--cluster", cluster, "--time-limit", asked.time_limit, "--json", "--out", "plan.json"]
    done = _pesto("solve", *source, *options)
    Path("plan.json").unlink(missing_ok=True)
    first = next((line.split("after ")[1].split(" s")[0] for line in done.stderr.splitlines() if "first" in line), "-")
    cells = _cells(json.loads(done.stdout), first) if done.stdout else [done.stderr.strip().splitlines()[-1]]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _cells(found: dict[str, Any], first: str) -> list[str]:
    def ms(name: str) -> str:
        value = found["candidates"][name]
        return "-" if value is None else f"{value * 1e3:.1f}{'' if found['fits'][name] else ' (OOM)'}"

    coarse = found["coarse"]
    solver = "-"
    if coarse and coarse["makespan_s"] is not None:
        solver = f"{coarse['makespan_s'] * 1e3:.1f} / {coarse['lower_bound_s'] * 1e3:.1f} ({coarse['status']})"
    return [
        str(found["ops"]), str(found["coarse_ops"] or "-"),
        *(f"{found['stages_s'].get(stage, 0):.2f}" for stage in STAGES),
        *(ms(name) for name in CANDIDATES), found["chosen"], f"{found['makespan_s'] * 1e3:.1f}",
        f"{found['lower_bound_s'] * 1e3:.1f}", f"{found['gap']:.1%}", first, solver,
    ]  # fmt: skip


def _pesto(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pesto", *arguments], capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
