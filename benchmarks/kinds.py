"""Split, place, or both: the step of the best of each, and what no placement can beat, for each variant.

    python -m benchmarks.kinds [--clusters v100x2-nvlink,v100x4,v100x8] [--time-limit 20] [--models nmt,rnnlm]

The 11 variants of the Pesto paper. A split is each of the cuts of `pesto solve --split auto`, proven one by one; a
placement is that of `pesto solve --split` with the time limit for search; both is that placement, or that of one board,
with its long ops cut, with the time limit again. A line a case as it ends, then the means; all is modelled.
"""

import argparse
import os
import time
from dataclasses import dataclass
from math import prod

from pesto.choosing.strategy_choice.choice import place_from_board
from pesto.choosing.strategy_choice.partial_split import split_partially
from pesto.choosing.strategy_choice.timed_split import cut_and_time, factorings, quickest
from pesto.core.cluster import Cluster
from pesto.core.costs.analytical import model_costs
from pesto.core.errors import InfeasibleError, NothingFoundError
from pesto.core.graph import Graph
from pesto.core.problem import TICK_S
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_shaped
from pesto.planning.solving.candidates import formulate
from pesto.split.typed_graph import TypedGraph
from solvers.bounds import quick_bounds

VARIANTS = {
    "rnnlm": ("2x2048", "4x2048", "16x1024"),
    "nmt": ("2x1024", "4x1024"),
    "transformer": ("10x8x1024", "12x8x1024", "6x16x2048"),
    "nasnet": ("4x212", "6x148", "6x168"),
}
"""Of the Pesto paper's section 5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindsRow:
    """One variant on one cluster, in seconds; None where nothing fits the memory."""

    workers: int
    split_s: float | None
    place_s: float | None
    both_s: float | None
    bound_s: float | None

    @property
    def ratio(self) -> float | None:
        """The best of all kinds by the best placement."""
        if self.place_s is None:
            return None
        return min(self.split_s or self.place_s, self.both_s or self.place_s, self.place_s) / self.place_s


def main() -> None:
    """A line a case, then a line a cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", default="v100x2-nvlink,v100x4,v100x8")
    parser.add_argument("--models", default=",".join(VARIANTS))
    parser.add_argument("--time-limit", type=float, default=20.0)
    asked = parser.parse_args()
    clusters = {name: load_cluster(name) for name in asked.clusters.split(",")}
    rows: dict[str, list[KindsRow]] = {name: [] for name in clusters}
    print("| variant | cluster | cuts | split ms | peak GiB | place ms | both ms | no placement below | CPU s | load |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for model in asked.models.split(","):
        for variant in VARIANTS[model]:
            step = load_shaped(Source(model=model, variant=variant), quiet=True)
            for name, cluster in clusters.items():
                rows[name].append(_case(f"{model} {variant}", step, cluster, asked.time_limit))
    for name, result in rows.items():
        ratios = [row.ratio for row in result if row.ratio is not None]
        shares = [row.split_s / row.bound_s for row in result if row.split_s and row.bound_s]
        print(f"{name}: best of all / placement, mean of {len(ratios)}: {sum(ratios) / max(1, len(ratios)):.3f}")
        print(f"{name}: split / what no placement can beat, mean: {sum(shares) / max(1, len(shares)):.3f}")


def _case(name: str, step: tuple[Graph, TypedGraph], cluster: Cluster, limit: float) -> KindsRow:
    graph, _ = step
    began, settings, costs = time.process_time(), Settings(time_limit_s=limit), model_costs(graph, cluster)
    splits = []
    for factors in factorings(len(cluster.accelerators)):
        *_, quickest_splits = cut_and_time(step, factors, cluster, Settings(), seconds=120)
        splits += quickest_splits
    cut = quickest(splits)
    place, both, bound = None, None, None
    try:
        bound = quick_bounds.best(formulate(graph, costs, cluster, settings))[0] * TICK_S
        placements = place_from_board(graph, cluster, costs, settings, lambda _: None)
        place = placements[-1][1].plan.makespan_s
        mixed = split_partially(step, cluster, settings, placements, lambda _: None, [cut.split])
        both = mixed.candidate.makespan * TICK_S if mixed is not None and mixed.candidate.fits else None
    except (InfeasibleError, NothingFoundError):
        pass
    result, factors = cut.candidate, cut.split.division.factors
    split = result.makespan * TICK_S if result.fits else None
    took, load = time.process_time() - began, os.getloadavg()[0]
    cells = [name, cluster.name, "x".join(map(str, factors)), _ms(split), f"{result.peak.max() / 2**30:.1f}"]
    print(f"| {' | '.join([*cells, _ms(place), _ms(both), _ms(bound), f'{took:.0f}', f'{load:.1f}'])} |", flush=True)
    return KindsRow(workers=prod(factors), split_s=split, place_s=place, both_s=both, bound_s=bound)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


if __name__ == "__main__":
    main()
