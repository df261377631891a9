"""Op times of a training step on this machine (Pesto, section 3.1): full traces of many iterations, trimmed."""

import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pesto.costs.measured import Profile
from pesto.errors import InputError, UsageError
from pesto.files.json import shown
from pesto.graph import Graph
from pesto.tf.enforce.partitions import repeats
from pesto.tf.nodes.fetches import op_name
from pesto.tf.run.runnable import Runs
from pesto.tf.unoptimized import unoptimized
from solvers.arrays import Floats

v1 = tf.compat.v1

DROPPED = 0.1
"""Share of the slowest samples of each op that is left out: other programs and the clock, not the op."""

Samples = npt.NDArray[np.float64]


def profile(graph: Graph, step: Runs, *, iterations: int = 100, warmup: int = 5, seed: int = 0) -> Profile:
    """Seconds of each op of `graph` over `iterations` traced runs of `step`, whose op names are the graph's.

    On a GPU an op's time is that of its kernels, or of its launch where it has none; ops that the GPU's host runs
    have none. On a CPU each op runs alone on one core. Ops that are fed take no time. Grappler is off, so that every
    op exists. InputError when the step does not run, UsageError when `iterations` < 1.
    """
    if iterations < 1 or warmup < 0:
        raise UsageError(f"profile: {iterations} iterations after {warmup} - give at least 1")
    kind, device = _device()
    index = {name: i for i, name in enumerate(graph.names)}
    samples = np.full((iterations, graph.ops), np.nan)
    rng = np.random.default_rng(seed)
    try:
        with v1.Session(graph=step.graph, config=_config()) as session:
            session.run(step.graph.get_operation_by_name(step.init))
            # Ops are run and not fetched: a copy of the loss to the host is no part of the step.
            ops = [step.graph.as_graph_element(name.partition(":")[0]) for name in step.fetches]
            for _ in range(warmup):
                session.run(ops, feed_dict=dict(step.feed(rng)))
            for row in samples:
                feed = step.feed(rng)
                _record(row, index, _trace(session, ops, feed), kind)
                _fed(row, index, feed)
    except (tf.errors.OpError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"profile: {graph.source} does not run: {shown(error)} - run it on its own first") from error
    seconds, spread = trimmed(samples)
    return Profile(
        fingerprint=graph.fingerprint(), kind=kind, device=device, iterations=iterations, seconds=seconds,
        spread=spread, raw_spread=_spread(samples), source=graph.source,
    )  # fmt: skip


def trimmed(samples: Samples) -> tuple[Floats, Floats]:
    """(mean, standard deviation over mean) of each column of [iterations, n] without its slowest tenth.

    At least one sample is dropped when there are two or more; NaN where there is none.
    """
    order = np.sort(samples, axis=0)  # NaN goes last
    count = (~np.isnan(samples)).sum(axis=0)
    kept = count - np.where(count > 1, np.maximum(1, np.ceil(DROPPED * count)), 0)
    order[np.arange(len(samples))[:, None] >= kept] = np.nan
    return _mean(order), _spread(order)


def _mean(samples: Samples) -> Floats:
    total, count = np.nansum(samples, axis=0), (~np.isnan(samples)).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), math.nan)


def _spread(samples: Samples) -> Floats:
    mean = _mean(samples)
    deviation = np.sqrt(_mean((samples - mean) ** 2))
    return np.where(mean > 0, deviation / np.where(mean > 0, mean, 1), np.where(np.isnan(mean), math.nan, 0.0))


def _config() -> Any:
    return unoptimized(
        v1.ConfigProto(allow_soft_placement=True, intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    )


def _trace(session: Any, ops: list[Any], feed: Any) -> Any:
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    found = v1.RunMetadata()
    session.run(ops, feed_dict=dict(feed), options=options, run_metadata=found)
    return found.step_stats


def _record(row: Samples, index: dict[str, int], stats: Any, kind: str) -> None:
    """Put one iteration's seconds into `row`; what an op does in several pieces adds up."""
    kernels = np.full(len(row), np.nan)
    for found in stats.dev_stats:
        device = found.device
        if kind == "gpu" and device.endswith("stream:all"):
            _add(kernels, index, found.node_stats)
        elif f"device:{kind.upper()}:" in device and not repeats(device):
            _add(row, index, found.node_stats)
    ran = ~np.isnan(kernels)
    row[ran] = kernels[ran]


def _fed(row: Samples, index: dict[str, int], feed: Mapping[str, Any]) -> None:
    """An op that is fed never runs: it takes no time, and that is known."""
    row[[index[name] for name in map(op_name, feed) if name in index]] = 0.0


def _add(row: Samples, index: dict[str, int], node_stats: Any) -> None:
    for entry in node_stats:
        # Kernel entries are called name:type.
        i = index.get(entry.node_name)
        if i is None:
            i = index.get(entry.node_name.partition(":")[0])
        if i is not None:
            spent = (entry.op_end_rel_nanos - entry.op_start_rel_nanos) * 1e-9
            row[i] = max(spent, 0.0) + (0.0 if np.isnan(row[i]) else row[i])


def _device() -> tuple[str, str]:
    """(kind, what it calls itself) of the first GPU, or of the CPU when there is none."""
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        return "gpu", str(details.get("device_name", gpu.name))
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return "cpu", models[0] if models else platform.machine()
