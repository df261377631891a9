"""Which statistic of traced runs is nearest to a step that has the machine for itself, while it has not.

    python benchmarks/profile_noise.py --model rnnlm [--variant tiny --profiles 25 --iterations 100 --pause 45] [--json]

A number of profiles over some time, disturbed runs kept: each one's op times summed by their minima, lower deciles,
medians, trimmed means and means, beside what the step takes untraced on one thread and the cores that others used.
"""

import argparse
import json
import time

import numpy as np
from numpy.typing import NDArray

from pesto.core.costs.disturbance import DisturbanceWatch, run_undisturbed
from pesto.core.source import Source
from pesto.tf import named_sources
from pesto.tf.tensorflow_start import load_tensorflow

COLUMNS = ("others", "minimum", "decile", "median", "trimmed", "mean", "least step", "median step")


def main() -> None:
    """Print a row for each profile, and the least, median and largest of each column."""
    given = _parser().parse_args()
    rows = profiles(given)
    if given.json:
        print(json.dumps([dict(zip(COLUMNS, row, strict=True)) for row in rows.tolist()]))
        return
    print("".join(f"{name:>13s}" for name in COLUMNS) + "  (cores, then ms)")
    for row in rows:
        print("".join(f"{value:13.3f}" for value in row))
    for name, value in (
        ("least", rows.min(axis=0)),
        ("median", np.median(rows, axis=0)),
        ("largest", rows.max(axis=0)),
    ):
        print("".join(f"{x:13.3f}" for x in value) + f"  {name}")


def profiles(arguments: argparse.Namespace) -> NDArray[np.float64]:
    """[profiles, columns] cores and milliseconds."""
    graph, step = named_sources.load_runnable(Source(model=arguments.model, variant=arguments.variant))
    from pesto.tf.run import profiler

    rows = []
    with load_tensorflow().compat.v1.Session(graph=step.graph, config=profiler.single_thread_config()) as session:
        session.run(step.graph.get_operation_by_name(step.init))
        runs = profiler.ProfiledStep(graph, step, session, np.random.default_rng(0), "cpu")
        profiler.warm_up(runs.untraced, 5, 5, time.perf_counter)
        for k in range(arguments.profiles):
            time.sleep(arguments.pause if k else 0)
            rows.append(_row(runs, arguments.iterations))
    return np.array(rows)


def _row(runs: "object", iterations: int) -> list[float]:
    from pesto.tf.run import profiler

    assert isinstance(runs, profiler.ProfiledStep)

    def untraced() -> float:
        began = time.perf_counter()
        runs.untraced()
        return time.perf_counter() - began

    keep = DisturbanceWatch(keep=True)
    result, steps = run_undisturbed(runs.traced, iterations, keep), run_undisturbed(untraced, iterations, keep)
    samples = profiler.combine_op_seconds(np.array(result.samples))
    each = (samples.min(axis=0), profiler.lower_decile(samples), np.median(samples, axis=0),
            profiler.trimmed_mean(samples)[0], samples.mean(axis=0))  # fmt: skip
    sums = [float(np.nansum(one)) * 1e3 for one in each]
    others = result.others.cores if result.others is not None else float("nan")
    return [others, *sums, min(steps.samples) * 1e3, float(np.median(steps.samples)) * 1e3]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="rnnlm")
    parser.add_argument("--variant", default="tiny")
    parser.add_argument("--profiles", type=int, default=25)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--pause", type=float, default=45.0, help="seconds between two profiles")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    main()
