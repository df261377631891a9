"""Training steps in a v1 session: their results, their times, and the variables at the end."""

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.tf.run.input_sources import counting_batches
from pesto.tf.run.runnable import RunnableStep, start_batch
from pesto.tf.session_config import disable_optimizers

v1 = tf.compat.v1

WARMUP = 3
"""Steps that are not timed; they are the traced ones, and their results count as all others do."""
SEED = 0
_RESOURCES = ("resource", "variant")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Record of a run of `WARMUP` and further steps from the initial variables."""

    losses: tuple[Mapping[str, bytes], ...]
    """For each step, the digest of each tensor that it fetched."""
    variables: Mapping[str, bytes]
    """The digest of each variable at the end."""
    finite: bool
    """True if no number in either was infinite or NaN."""
    seconds: tuple[float, ...]
    """Seconds of each step after the warm-up."""
    opened_s: float
    """Seconds of opening the session."""
    traced: tuple[Any, ...]
    """RunMetadata of the warm-up steps, when they were traced."""
    kept: tuple[Mapping[str, Any], ...] = ()
    """The tensors that each step fetched, and last the variables, where they were kept."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepDriver:
    """A step, and how often and with which settings it runs; see `of`."""

    step: RunnableStep
    steps: int
    gpu: bool
    config: Any
    tensors: Mapping[str, Any]
    """Tensors that a step fetches, by name."""
    updates: tuple[Any, ...]
    """Ops that a step runs."""
    values: Mapping[str, Any]
    """The tensor that holds each variable's value."""
    keep: bool = False
    """True keeps the numbers themselves, to compute distances between two runs."""

    @staticmethod
    def of(step: RunnableStep, *, steps: int, threads: int, gpu: bool, keep: bool = False) -> "StepDriver":
        """`step` with Grappler off, one core an op and at least `threads` ops at a time; its graph gets readers."""
        config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=max(2, threads))
        disable_optimizers(config)
        ops = [step.graph.as_graph_element(name.partition(":")[0]) for name in step.fetches]
        return StepDriver(
            step=step, steps=steps, gpu=gpu, keep=keep, config=config, updates=tuple(ops), values=_readers(step.graph),
            # A reference may be written to while it is fetched; what it holds is compared at the end.
            tensors={t.name: t for op in ops for t in op.outputs if _is_value(t.dtype)},
        )  # fmt: skip

    def run(self, *, traced: bool = False) -> RunRecord:
        """Initialise, take all steps, read all variables; the same initial values and batches every time."""
        began = time.perf_counter()
        with v1.Session(graph=self.step.graph, config=self.config) as session:
            opened_s = time.perf_counter() - began
            session.run(self.step.graph.get_operation_by_name(self.step.init))
            rng = np.random.default_rng(SEED)
            losses, seconds, metadata, kept, finite = [], [], [], [], True
            for k in range(WARMUP + self.steps):
                extra = _tracing() if traced and k < WARMUP else {}
                feed = start_batch(session, self.step, rng)
                began = time.perf_counter()
                with counting_batches(k, WARMUP, (self.steps, "steps")):
                    fetched, _ = session.run((dict(self.tensors), self.updates), feed, **extra)
                seconds.append(time.perf_counter() - began)
                # Digests instead of tensors: all steps of all runs are compared bit for bit without keeping their
                # numbers.
                losses.append(_digests(fetched))
                kept += [fetched] if self.keep else []
                finite = finite and _finite(fetched)
                metadata += [extra["run_metadata"]] if extra else []
            values = session.run(dict(self.values))
        return RunRecord(
            losses=tuple(losses), variables=_digests(values), finite=finite and _finite(values),
            seconds=tuple(seconds[WARMUP:]), opened_s=opened_s, traced=tuple(metadata),
            kept=(*kept, values) if self.keep else (),
        )  # fmt: skip

    def stock_open_s(self) -> float:
        """Seconds of opening a session without a plan, the devices being started already."""
        began = time.perf_counter()
        with v1.Session(graph=self.step.graph, config=self.config):
            return time.perf_counter() - began


def differing_names(one: RunRecord, other: RunRecord | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the fetched tensors and of the variables that are not the same in both, bit for bit."""
    if other is None:
        return (), ()
    losses = {
        name: None
        for a, b in zip(one.losses, other.losses, strict=True)
        for name, digest in a.items()
        if b[name] != digest
    }
    return tuple(losses), tuple(name for name, digest in one.variables.items() if other.variables[name] != digest)


def relative_distances(one: RunRecord, other: RunRecord) -> tuple[dict[str, float], dict[str, float]]:
    """Return relative distances between two runs that kept their numbers: of each fetched tensor and of each variable.

    It is the largest difference between two numbers of a tensor over the largest magnitude in it; infinite where a
    number is finite or a text is given in one run alone.
    """
    losses: dict[str, float] = {}
    for a, b in zip(one.kept[:-1], other.kept[:-1], strict=True):
        for name, value in a.items():
            losses[name] = max(losses.get(name, 0.0), relative_distance(np.asarray(value), np.asarray(b[name])))
    last = other.kept[-1]
    return losses, {name: relative_distance(np.asarray(v), np.asarray(last[name])) for name, v in one.kept[-1].items()}


def relative_distance(one: Any, other: Any) -> float:
    """The largest difference between two numbers of two tensors over the largest magnitude in either."""
    if one.dtype.kind in "OSU":
        return 0.0 if np.array_equal(one, other) else math.inf
    kind = np.complex128 if one.dtype.kind == "c" else np.float64
    a, b = one.astype(kind), other.astype(kind)
    unlike = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not unlike.any():
        return 0.0
    if not (np.isfinite(a[unlike]).all() and np.isfinite(b[unlike]).all()):
        return math.inf
    magnitudes = np.abs(np.concatenate([a.ravel(), b.ravel()]))
    return float(np.abs(a - b)[unlike].max() / magnitudes[np.isfinite(magnitudes)].max())


def _readers(graph: Any) -> dict[str, Any]:
    """The tensor to fetch for the value of each variable; a resource gets an op that reads it."""
    readers = {}
    with graph.as_default():
        for op in graph.get_operations():
            if op.type in ("VariableV2", "Variable"):
                readers[op.name] = op.outputs[0]
            elif op.type == "VarHandleOp":
                with tf.control_dependencies(None):
                    readers[op.name] = tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=op.get_attr("dtype"))
    return readers


def _is_value(dtype: Any) -> bool:
    return dtype == dtype.base_dtype and dtype.name not in _RESOURCES


def _tracing() -> dict[str, Any]:
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
    return {"options": options, "run_metadata": v1.RunMetadata()}


def _finite(values: Mapping[str, Any]) -> bool:
    arrays = [np.asarray(value) for value in values.values()]
    return all(np.isfinite(array).all() for array in arrays if array.dtype.kind in "fc")


def _digests(values: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: _digest(np.asarray(value)) for name, value in values.items()}


def _digest(value: Any) -> bytes:
    """Hash type, shape and bits, so that 0.0 differs from -0.0; all NaNs are equal."""
    if value.dtype.kind == "f":
        value = np.where(np.isnan(value), value.dtype.type(np.nan), value)
    content = repr(value.tolist()).encode() if value.dtype == object else np.ascontiguousarray(value).tobytes()
    return hashlib.sha256(f"{value.dtype} {value.shape}\n".encode() + content).digest()
