"""Prints the ops per duration class of the four models of the paper's Table 1, beside the paper's counts.

    python benchmarks/duration_classes.py

Durations are modelled for a V100 (see docs/costs.md); the paper's were measured on one.
"""

import numpy as np

from pesto.costs.analytical import modelled
from pesto.inputs.load import load_cluster, load_graph
from pesto.source import Source

TABLE_1 = {
    ("transformer", "6x16x2048"): (14511, 4119, 763),
    ("rnnlm", "2x2048"): (3401, 973, 240),
    ("nasnet", "4x212"): (14191, 1677, 1033),
    ("nmt", "2x1024"): (21243, 8114, 703),
}


def main() -> None:
    """One Markdown row a model."""
    cluster = load_cluster("v100x2-nvlink")
    print("| model | < 10 µs | 10-100 µs | > 100 µs | paper: < 10 µs | 10-100 µs | > 100 µs |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for (model, variant), paper in TABLE_1.items():
        seconds = np.nanmin(modelled(load_graph(Source(model=model, variant=variant)), cluster).compute_s, axis=1)
        ours = np.histogram(seconds, bins=[0, 10e-6, 100e-6, np.inf])[0]
        print(f"| {model} {variant} | {' | '.join(map(str, ours))} | {' | '.join(map(str, paper))} |", flush=True)


if __name__ == "__main__":
    main()
