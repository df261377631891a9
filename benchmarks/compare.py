"""Every model on every cluster by every method: the tables of docs/comparison.md.

    python benchmarks/compare.py run --graphs FOLDER --out cells.jsonl [--models M/V,...] [--clusters C,...]
    python benchmarks/compare.py tables cells.jsonl

`run` appends a line for each (model, cluster) that the file lacks: what `pesto compare --json` prints, on graph files
that `pesto import` makes on first use. `tables` prints markdown: step times by cluster, and a summary of each method.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pesto.tf.models import FAMILIES

CLUSTERS = ("v100x2-nvlink", "v100x2-pcie", "v100x4", "v100x16")


def main() -> None:
    """Run, or print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "tables"))
    parser.add_argument("cells", type=Path, nargs="?")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--graphs", type=Path)
    parser.add_argument("--models")
    parser.add_argument("--clusters", default=",".join(CLUSTERS))
    parser.add_argument("--methods", default="all")
    parser.add_argument("--time-limit", default="20")
    asked = parser.parse_args()
    if asked.what == "run":
        _run(asked)
    else:
        _tables(_read(asked.cells))


def _read(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """(model, cluster) -> what was found."""
    if not path.exists():
        return {}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        key = (line["model"], line["cluster"])
        # A method that was run again later takes the place of what it was.
        found[key] = line | {"methods": found.get(key, {"methods": {}})["methods"] | line["methods"]}
    return found


def _run(asked: argparse.Namespace) -> None:
    known = [f"{f.name}/{v}" for f in FAMILIES for v in f.variants if v != "tiny"]
    models = asked.models.split(",") if asked.models else known
    for model in models:
        file = asked.graphs / f"{model.replace('/', '-')}.json"
        if not file.exists():
            family, variant = model.split("/")
            _pesto("import", "--model", family, "--variant", variant, "-o", str(file))
        for cluster in asked.clusters.split(","):
            if (model, cluster) not in _read(asked.out):
                _cell(model, cluster, file, asked)


def _cell(model: str, cluster: str, file: Path, asked: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as plans:
        options = ["--cluster", cluster, "--methods", asked.methods, "--time-limit", asked.time_limit]
        done = _pesto("compare", "--graph", str(file), *options, "--json", "-q", "-o", plans)
    if not done.stdout:
        sys.exit(f"{model} on {cluster}: {done.stderr}")
    with asked.out.open("a", encoding="utf-8") as out:
        out.write(json.dumps({"model": model, **json.loads(done.stdout)}) + "\n")
    print(f"{model} on {cluster}", flush=True)


def _pesto(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pesto", *arguments], capture_output=True, text=True, check=False)


def _tables(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    models = list(dict.fromkeys(model for model, _ in cells))
    methods = list(dict.fromkeys(name for cell in cells.values() for name in cell["methods"]))
    for cluster in dict.fromkeys(cluster for _, cluster in cells):
        here = {model: cells[model, cluster] for model in models if (model, cluster) in cells}
        print(
            f"\n### {cluster}\n\nStep time in ms (modelled); OOM: ran out of memory, with what the step would take.\n"
        )
        _table(here, methods)
    print("\n### All clusters\n")
    _summary(list(cells.values()), methods)


def _table(here: dict[str, dict[str, Any]], methods: list[str]) -> None:
    print(f"| model | bound | {' | '.join(methods)} |\n|---|{'---:|' * (1 + len(methods))}")
    for model, cell in here.items():
        fitting = [m["makespan_s"] for m in cell["methods"].values() if m["fits"]]
        best = min(fitting, default=None)
        texts = [_step(cell["methods"].get(name), best) for name in methods]
        print(f"| {model} | {cell['lower_bound_s'] * 1e3:.1f} | {' | '.join(texts)} |")


def _step(found: dict[str, Any] | None, best: float | None) -> str:
    if found is None or found["makespan_s"] is None:
        return "-" if found is None else "refused"
    text = f"{found['makespan_s'] * 1e3:.1f}"
    if not found["fits"]:
        return f"OOM ({text})"
    return f"**{text}**" if found["makespan_s"] == best else text


def _summary(cells: list[dict[str, Any]], methods: list[str]) -> None:
    print("| method | plans that fit | OOM | refused | step to pesto's, geometric mean | place s, median | most |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in methods:
        rows = [(cell["methods"][name], cell["methods"].get("pesto")) for cell in cells if name in cell["methods"]]
        fit = [row for row, _ in rows if row["fits"]]
        ratios = [
            math.log(row["makespan_s"] / own["makespan_s"]) for row, own in rows if own and row["fits"] and own["fits"]
        ]
        seconds = sorted(row["seconds"] for row, _ in rows)
        refused = sum(row["makespan_s"] is None for row, _ in rows)
        mean = f"{math.exp(sum(ratios) / len(ratios)):.3f}" if ratios else "-"
        print(
            f"| {name} | {len(fit)} | {len(rows) - len(fit) - refused} | {refused} | {mean} "
            f"| {seconds[len(seconds) // 2]:.2f} | {seconds[-1]:.1f} |"
        )


if __name__ == "__main__":
    main()
