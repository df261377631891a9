"""Whether the cuts of every built-in variant are proven to send least, on the full graph, and what that takes.

    python -m benchmarks.proven_cuts [--workers 2,2x2x2] [--models rnnlm,nmt] [--time-limit 300]

A markdown row for each variant and way to cut it, as it ends: `gap` is between the bytes sent and the bound of the
worst cut after those before it. Seconds are of the cuts, without reading the step; CPU seconds are of all processes.
"""

import argparse
import os
import resource

from pesto.core.errors import PestoError
from pesto.core.source import Source
from pesto.inputs.load import load_shaped
from pesto.split.program import Rules
from pesto.split.split_search import Split, divide, parse_factors
from pesto.split.typed_graph import TypedGraph
from pesto.tf.models import FAMILIES, find


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--models", default=",".join(family.name for family in FAMILIES))
    asked.add_argument("--workers", default="2,2x2x2")
    asked.add_argument("--time-limit", type=float, default=300.0)
    given = asked.parse_args()
    print("| step | ops | workers | GB sent | status | gap | s | CPU s | load |")
    print("|---|---:|---|---:|---|---:|---:|---:|---:|")
    for model in given.models.split(","):
        for variant in find(model)[0].variants:
            shaped = load_shaped(Source(model=model, variant=variant), quiet=True)[1]
            for workers in given.workers.split(","):
                print(row(f"{model} {variant}", shaped, workers, given.time_limit), flush=True)


def row(name: str, shaped: TypedGraph, workers: str, seconds: float) -> str:
    """One split."""
    before = cpu_s()
    try:
        split = divide(shaped, parse_factors(workers), "exact", Rules(), seconds=seconds)
    except PestoError as none:
        return f"| {name} | {shaped.ops} | {workers} | - | {none} | - | - | - | - |"
    took, load = cpu_s() - before, os.getloadavg()[0]
    cells = [f"{split.moved_bytes / 1e9:.4g}", split.status, f"{100 * gap(split):.2g} %", f"{split.seconds:.1f}"]
    return f"| {name} | {shaped.ops} | {workers} | {' | '.join([*cells, f'{took:.1f}', f'{load:.1f}'])} |"


def gap(split: Split) -> float:
    """Of the cut whose bound is furthest from its bytes."""
    return max((1 - cut.bound / cut.value if cut.value else 0.0) for cut in split.cuts)


def cpu_s() -> float:
    """CPU seconds of this process and of those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
