"""What 8 workers send each other by each method of `pesto split`; bytes are counted, nothing is run.

    python benchmarks/split_methods.py [--models rnnlm,nmt,transformer,wrn] [--variant tiny] [--workers 2x2x2,8]
        [--methods exact,joint,tofu,chop,rows,spartan,data-parallel,megatron] [--time-limit 60]

A markdown row for each step and way to cut it: GB sent a step by each method, "-" where it finds nothing or refuses,
and the ratio of the better of exact and joint to Tofu; then the mean of these ratios. `bound`: no division by these
cuts sends less, as joint says. The time limit is each method's, without reading the step; CPU seconds are of all
processes.
"""

import argparse
import os

from benchmarks.proven_cuts import cpu_s
from pesto.core.errors import PestoError
from pesto.core.source import Source
from pesto.inputs.load import load_shaped
from pesto.split.program import Rules
from pesto.split.split_search import Split, divide, parse_factors
from pesto.split.typed_graph import TypedGraph

METHODS = "exact,joint,tofu,chop,rows,rows-random,spartan,data-parallel,megatron"


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--models", default="rnnlm,nmt,transformer,wrn", help="names, or name:variant")
    asked.add_argument("--variant", default="tiny")
    asked.add_argument("--workers", default="2x2x2,8")
    asked.add_argument("--methods", default=METHODS)
    asked.add_argument("--time-limit", type=float, default=60.0)
    given = asked.parse_args()
    methods = given.methods.split(",")
    print("| step | workers | " + " | ".join(methods) + " | bound | best / tofu | CPU s | load |")
    print("|---|---|" + "---:|" * (len(methods) + 4))
    ratios: list[float] = []
    for each in given.models.split(","):
        model, _, variant = each.partition(":")
        shaped = load_shaped(Source(model=model, variant=variant or given.variant), quiet=True)[1]
        for workers in given.workers.split(","):
            before = cpu_s()
            result = {name: tried(shaped, workers, name, given.time_limit) for name in methods}
            took, load = cpu_s() - before, os.getloadavg()[0]
            row = f"{model} {variant or given.variant} | {workers} | {cells(result)} | {took:.0f} | {load:.1f}"
            print(f"| {row} |", flush=True)
            ratios += [less for less in [ratio(result)] if less is not None]
    if ratios:
        mean, most = sum(ratios) / len(ratios), max(ratios)
        print(f"best of exact and joint / tofu: mean of {len(ratios)} {mean:.3f}, most {most:.3f}")


def tried(shaped: TypedGraph, workers: str, method: str, seconds: float) -> Split | None:
    """What a method finds; None where it finds nothing."""
    try:
        return divide(shaped, parse_factors(workers), method, Rules(), seconds=seconds)
    except PestoError:
        return None


def cells(splits: dict[str, Split | None]) -> str:
    """The columns after the workers."""
    sent = {name: split.moved_bytes for name, split in splits.items() if split is not None}
    less, joint = ratio(splits), splits.get("joint")
    bound = f"{joint.bound_bytes / 1e9:.4g}" if joint is not None else "-"
    shown = [f"{sent[name] / 1e9:.4g}" if name in sent else "-" for name in splits]
    return " | ".join([*shown, bound, "-" if less is None else f"{less:.2f}"])


def ratio(splits: dict[str, Split | None]) -> float | None:
    """Bytes of the better of exact and joint by those of Tofu; None where either is not known."""
    best = [each.moved_bytes for name in ("exact", "joint") if (each := splits.get(name)) is not None]
    tofu = splits.get("tofu")
    return min(best) / tofu.moved_bytes if best and tofu is not None and tofu.moved_bytes else None


if __name__ == "__main__":
    main()
