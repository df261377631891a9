"""Op-level search on every model and cluster, beside the best rival and beside MCMC with the same time.

    python benchmarks/search.py run --graphs FOLDER --out F.jsonl [--seconds 60] [--models M/V,...] [--clusters C,...]
    python benchmarks/search.py mcmc --graphs FOLDER --out F.jsonl [--seconds 60] ...
    python benchmarks/search.py table F.jsonl --rivals CELLS.jsonl

`run` solves each (model, cluster, seconds) that the file lacks, with `pesto.solving.flow.solve`; `mcmc` gives Markov
chains as long. Graph files are those of `pesto import`; benchmarks/compare.py makes them, and CELLS.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from pesto.files.graph_file import load
from pesto.inputs.load import load_cluster, load_costs
from pesto.settings import Settings
from pesto.solving.candidates import Bench
from pesto.solving.flow import formulate, solve
from pesto.solving.tracker import Incumbent
from solvers.heuristics.clusters import mcmc
from solvers.result import Options

MODELS = (
    "rnnlm/2x2048", "rnnlm/4x2048", "rnnlm/16x1024", "nmt/2x1024", "nmt/4x1024", "transformer/10x8x1024",
    "transformer/12x8x1024", "transformer/6x16x2048", "nasnet/4x212", "nasnet/6x148", "nasnet/6x168",
)  # fmt: skip
CLUSTERS = ("v100x2-nvlink", "v100x2-pcie", "v100x4", "v100x8")
OURS = frozenset({"mcmc", "pesto"})


def main() -> None:
    """Run, or print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "mcmc", "table"))
    parser.add_argument("cells", type=Path, nargs="?")
    parser.add_argument("--graphs", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rivals", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--clusters", default=",".join(CLUSTERS))
    asked = parser.parse_args()
    if asked.what == "table":
        _table(_read(asked.cells), _rivals(asked.rivals))
        return
    for cluster in asked.clusters.split(","):
        for model in asked.models.split(","):
            known = {(c["what"], c["model"], c["cluster"], c["seconds"]) for c in _read(asked.out)}
            if (asked.what, model, cluster, asked.seconds) not in known:
                cell = (_ours if asked.what == "run" else _chains)(asked.graphs, model, cluster, asked.seconds)
                head = {"what": asked.what, "model": model, "cluster": cluster, "seconds": asked.seconds}
                with asked.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(head | cell) + "\n")
                print(head, cell, flush=True)


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _ours(graphs: Path, model: str, cluster: str, seconds: float) -> dict[str, Any]:
    graph, machine = load(graphs / f"{model.replace('/', '-')}.json"), load_cluster(cluster)
    seen: list[tuple[float, float, str]] = []

    def watch(incumbent: Incumbent) -> None:
        seen.append((round(incumbent.seconds, 2), incumbent.makespan_s, incumbent.name))

    began = time.perf_counter()
    outcome = solve(graph, machine, load_costs(graph, machine, None), Settings(time_limit_s=seconds), watch)
    made = outcome.plan.provenance
    return {
        "step_s": outcome.plan.makespan_s,
        "bound_s": made.lower_bound_ticks * outcome.plan.tick_s,
        "bound": made.lower_bound_name,
        "gap": outcome.plan.gap,
        "chosen": made.chosen,
        "first_s": seen[0][0],
        "total_s": time.perf_counter() - began,
        "fifo_gain": outcome.order.gain,
        "candidates_s": {k: c.makespan * outcome.plan.tick_s for k, c in outcome.candidates.items() if c and c.fits},
    }


def _chains(graphs: Path, model: str, cluster: str, seconds: float) -> dict[str, Any]:
    """The best placement of Markov chains, in its own order; null where it does not fit."""
    graph, machine = load(graphs / f"{model.replace('/', '-')}.json"), load_cluster(cluster)
    problem = formulate(graph, load_costs(graph, machine, None), machine, Settings())
    bench = Bench.of(graph, problem)
    mcmc.MOST_SECONDS = seconds
    found = mcmc.place(replace(problem, memory=np.zeros_like(problem.memory)), Options(seconds=seconds))
    assert found.rank is not None
    candidate = bench.ordered("mcmc", "", found.device, found.rank)
    return {"step_s": candidate.timeline.makespan_s if candidate.fits else None, "any_s": candidate.timeline.makespan_s}


def _rivals(path: Path) -> dict[tuple[str, str], tuple[float, str]]:
    """The best method that fits, of all but ours and MCMC."""
    best: dict[tuple[str, str], tuple[float, str]] = {}
    for cell in _read(path):
        fit = [(m["makespan_s"], name) for name, m in cell["methods"].items() if m["fits"] and name not in OURS]
        key = (cell["model"], cell["cluster"])
        if fit or key in best:
            best[key] = min([*fit, *([best[key]] if key in best else [])])
    return best


def _table(cells: list[dict[str, Any]], rivals: dict[tuple[str, str], tuple[float, str]]) -> None:
    ours = {(c["model"], c["cluster"], c["seconds"]): c for c in cells if c["what"] == "run"}
    chains = {(c["model"], c["cluster"], c["seconds"]): c for c in cells if c["what"] == "mcmc"}
    for cluster in dict.fromkeys(c["cluster"] for c in cells):
        for seconds in sorted({s for _, at, s in ours if at == cluster}):
            print(f"\n### {cluster}, {seconds:g} s\n")
            print("| model | step ms | bound ms | gap | best rival ms | ratio | MCMC ms | ratio | first plan s |")
            print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
            rows = [(m, ours[m, cluster, seconds]) for m in MODELS if (m, cluster, seconds) in ours]
            to_rival, to_chain = [], []
            for model, cell in rows:
                step, rival = cell["step_s"], rivals.get((model, cluster))
                chain = chains.get((model, cluster, seconds))
                other = chain["step_s"] if chain else None
                to_rival += [step / rival[0]] if rival else []
                to_chain += [step / other] if other else []
                print(
                    f"| {model} | {step * 1e3:.1f} | {cell['bound_s'] * 1e3:.1f} | {cell['gap']:.1%} | "
                    + (f"{rival[0] * 1e3:.1f} ({rival[1]}) | {step / rival[0]:.3f} | " if rival else "- | - | ")
                    + (f"{other * 1e3:.1f} | {step / other:.3f} | " if other else f"{_lost(chain)} | - | ")
                    + f"{cell['first_s']:.1f} |"
                )
            print(f"| mean | | | {mean(c['gap'] for _, c in rows):.1%} | | {_mean(to_rival)} | | {_mean(to_chain)} | |")


def _lost(chain: dict[str, Any] | None) -> str:
    return "-" if chain is None else f"OOM ({chain['any_s'] * 1e3:.1f})"


def _mean(ratios: list[float]) -> str:
    return f"{mean(ratios):.3f} (worst {max(ratios):.3f})" if ratios else "-"


if __name__ == "__main__":
    main()
