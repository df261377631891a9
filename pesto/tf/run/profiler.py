"""Op times of a training step on this machine (Pesto, section 3.1): full traces of many undisturbed iterations."""

import math
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pesto.core.costs.disturbance import NAMED, DisturbanceWatch, run_undisturbed
from pesto.core.costs.measured import Noise, Profile
from pesto.core.costs.presets import gpu_clocks
from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.tf.enforce.partitions import is_duplicate_device
from pesto.tf.nodes.graph_def_bytes import op_name
from pesto.tf.run.runnable import BatchesEndedError, RunnableStep, detect_batch_end, explain_failure, start_batch
from pesto.tf.session_config import disable_optimizers
from solvers.arrays import Floats

v1 = tf.compat.v1

DROPPED = 0.1
"""Share of the slowest samples of each op that is left out: other programs and the clock, not the op."""
LOW = 0.1
"""Share of the samples of each op that are at most its lower decile."""
WARMEST = 50
"""Largest number of warm-up runs on a GPU."""
_STREAMED = ("/stream:all", "/memcpy")
"""Suffixes of the devices in a trace that list a GPU's kernels and copies, each once."""

Samples = npt.NDArray[np.float64]


def profile(
    graph: Graph,
    step: RunnableStep,
    *,
    iterations: int = 100,
    warmup: int = 5,
    seed: int = 0,
    watch: DisturbanceWatch | None = None,
) -> Profile:
    """Measure the seconds of each op of `graph` over `iterations` traced runs of `step`.

    The step's op names are the graph's. On a GPU an op's time is that of its kernels, or of its launch where it has
    none; ops that the GPU's host runs have none. On a CPU each op runs alone on one core. Ops that are fed take no
    time. Grappler is off, so that every op exists. Runs that other programs disturbed do not count, unless the `watch`
    keeps them.

    Raise InputError when the step does not run, UsageError when `iterations` < 1, NothingFoundError, with the busy
    programs, when the machine is too busy to measure anything.
    """
    if iterations < 1 or warmup < 0:
        raise UsageError.build(f"profile: {iterations} iterations after {warmup}", remedy="give at least 1")
    kind, device = _describe_device()
    watch = DisturbanceWatch() if watch is None else watch
    try:
        with v1.Session(graph=step.graph, config=single_thread_config()) as session:
            session.run(step.graph.get_operation_by_name(step.init))
            runs = ProfiledStep(graph, step, session, np.random.default_rng(seed), kind, (warmup, iterations))
            # The first runs compile kernels, fill caches and choose algorithms; they would dominate the mean of a short
            # profile.
            warm_up(runs.untraced, warmup, WARMEST if kind == "gpu" else warmup, watch.clock)
            watched_runs = run_undisturbed(runs.traced, iterations, watch)
            clocks = gpu_clocks() if kind == "gpu" else ""
    except (tf.errors.OpError, BatchesEndedError, ValueError, KeyError, TypeError) as error:
        raise explain_failure("profile", graph.source, error) from error
    rows = np.array(watched_runs.samples)
    samples = combine_op_seconds(rows)
    seconds, spread = trimmed_mean(samples)
    low = lower_decile(samples)
    total = float(np.nansum(low))
    others = watched_runs.others
    noise = Noise(
        runs=watched_runs.runs,
        refused=watched_runs.refused,
        others_cores=None if others is None else others.cores,
        busy=() if others is None else tuple((shown(name, 40), cores) for name, cores in others.who[:NAMED]),
        kept=watch.keep,
        excess=max(float(np.nansum(seconds)) / total - 1, 0.0) if total > 0 else 0.0,
        clocks=clocks,
    )
    return Profile(
        fingerprint=graph.fingerprint(), kind=kind, device=device, iterations=iterations, seconds=seconds, low=low,
        median=medians(samples), mean=_compute_mean(samples), launch=launch_seconds(rows), spread=spread,
        raw_spread=_compute_spread(samples), source=graph.source, noise=noise,
    )  # fmt: skip


class ProfiledStep:
    """Runs of one step in one session."""

    def __init__(
        self, graph: Graph, step: RunnableStep, session: Any, rng: np.random.Generator, kind: str,
        run_counts: tuple[int, int],
    ) -> None:  # fmt: skip
        """Prepare the runs; `run_counts` are the least number that warm up and the number of iterations."""
        self.step, self.session, self.rng, self.kind = step, session, rng, kind
        self.index = {name: i for i, name in enumerate(graph.names)}
        self.done, (self.warm, self.iterations) = 0, run_counts
        # Ops are run and not fetched: a copy of the loss to the host is no part of the step.
        self.ops = [step.graph.as_graph_element(name.partition(":")[0]) for name in step.fetches]

    def untraced(self) -> None:
        """Run the step once without tracing."""
        with self._fold_samples():
            self.session.run(self.ops, feed_dict=start_batch(self.session, self.step, self.rng))
        self.warm = max(self.warm, self.done)

    def traced(self) -> Samples:
        """Return [2, n] seconds of each op in one run by the executor and by a GPU's streams; NaN where unseen."""
        feed = start_batch(self.session, self.step, self.rng)
        rows = np.full((2, len(self.index)), np.nan)
        with self._fold_samples():
            options, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
            self.session.run(self.ops, feed_dict=dict(feed), options=options, run_metadata=metadata)
        _record_iteration(rows, self.index, metadata.step_stats, self.kind)
        # An op that is fed never runs: it takes no time, and that is known.
        rows[0][[self.index[name] for name in map(op_name, feed) if name in self.index]] = 0.0
        return rows

    @contextmanager
    def _fold_samples(self) -> Iterator[None]:
        with detect_batch_end(self.done, self.warm, (self.iterations, "iterations")):
            yield
        self.done += 1


def warm_up(run: Callable[[], None], least: int, most: int, clock: Callable[[], float]) -> int:
    """Run at least `least` times, and at most `most`, until runs no longer get quicker; return the number of runs.

    A GPU raises its clocks under load: of the last five runs the quickest must be no more than 5 % quicker than of the
    five before.
    """
    took: list[float] = []
    while len(took) < least or (len(took) < most and (len(took) < 10 or min(took[-5:]) < 0.95 * min(took[-10:-5]))):
        began = clock()
        run()
        took.append(clock() - began)
    return len(took)


def combine_op_seconds(samples: Samples) -> Samples:
    """Return [iterations, n] seconds: those in streams for ops that were ever seen there, else the executor's.

    samples: [iterations, 2, n] seconds by the executor and by a GPU's streams.
    """
    # On a GPU the executor's time of an op is that of launching its kernels, which run later in a stream. A trace may
    # lose kernels of a run: that is no sample.
    executed, streamed = samples[:, 0], samples[:, 1]
    return np.where((~np.isnan(streamed)).any(axis=0), streamed, executed)


def launch_seconds(samples: Samples) -> Floats | None:
    """Return [n] lower deciles of the seconds of launching ops that a GPU's streams have; NaN for other ops.

    samples: [iterations, 2, n]. None where no stream was seen, as on a CPU.
    """
    streamed = (~np.isnan(samples[:, 1])).any(axis=0)
    return lower_decile(np.where(streamed, samples[:, 0], np.nan)) if streamed.any() else None


def lower_decile(samples: Samples) -> Floats:
    """Return the lower decile of each column of [iterations, n]; NaN for a column without samples."""
    order = np.sort(samples, axis=0)  # NaN goes last
    count = (~np.isnan(samples)).sum(axis=0)
    place = np.maximum(np.ceil(LOW * count).astype(np.int64) - 1, 0)
    deciles: Floats = np.take_along_axis(order, place[None, :], axis=0)[0]
    return deciles


def trimmed_mean(samples: Samples) -> tuple[Floats, Floats]:
    """Return (mean, standard deviation over mean) of each column of [iterations, n] without its slowest tenth.

    At least one sample is dropped when there are two or more; NaN for a column without samples.
    """
    order = np.sort(samples, axis=0)  # NaN goes last
    count = (~np.isnan(samples)).sum(axis=0)
    kept_count = count - np.where(count > 1, np.maximum(1, np.ceil(DROPPED * count)), 0)
    order[np.arange(len(samples))[:, None] >= kept_count] = np.nan
    return _compute_mean(order), _compute_spread(order)


def medians(samples: Samples) -> Floats:
    """Return the median of each column of [iterations, n]; NaN for a column without samples."""
    order = np.sort(samples, axis=0)  # NaN goes last
    count = (~np.isnan(samples)).sum(axis=0)
    places = np.minimum(np.maximum(np.stack([(count - 1) // 2, count // 2]), 0), len(samples) - 1)
    middle: Floats = np.take_along_axis(order, places, axis=0).mean(axis=0)
    return middle


def _compute_mean(samples: Samples) -> Floats:
    total, count = np.nansum(samples, axis=0), (~np.isnan(samples)).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), math.nan)


def _compute_spread(samples: Samples) -> Floats:
    mean = _compute_mean(samples)
    deviation = np.sqrt(_compute_mean((samples - mean) ** 2))
    return np.where(mean > 0, deviation / np.where(mean > 0, mean, 1), np.where(np.isnan(mean), math.nan, 0.0))


def single_thread_config() -> Any:
    """Return the configuration of a session that runs each op by itself, without graph optimizer."""
    return disable_optimizers(
        v1.ConfigProto(allow_soft_placement=True, intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    )


def _record_iteration(rows: Samples, index: dict[str, int], stats: Any, kind: str) -> None:
    """Put one iteration's seconds into `rows` [2, n]; the pieces of an op add up."""
    for device_stats in stats.dev_stats:
        device = device_stats.device
        streamed = device.endswith(_STREAMED)
        if streamed:
            if kind != "gpu":
                continue
        elif f"device:{kind.upper()}:" not in device or is_duplicate_device(device):
            continue
        row = rows[1] if streamed else rows[0]
        for entry in device_stats.node_stats:
            # Kernel entries are called name:type.
            i = index.get(entry.node_name)
            if i is None:
                i = index.get(entry.node_name.partition(":")[0])
            if i is None:
                continue
            # Times in a stream come in whole microseconds, cut off: half of one more is nearest on average.
            seconds = max(entry.op_end_rel_nanos - entry.op_start_rel_nanos, 0) * 1e-9
            if streamed:
                seconds = (entry.op_end_rel_micros - entry.op_start_rel_micros + 0.5) * 1e-6
            row[i] = seconds + (0.0 if np.isnan(row[i]) else row[i])


def _describe_device() -> tuple[str, str]:
    """Return kind and product name of the first GPU, or of the CPU when there is none."""
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        return "gpu", str(details.get("device_name", gpu.name))
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return "cpu", models[0] if models else platform.machine()
