"""Prints, for every variant of every model, the size of its pruned training step and what one device would need.

    python benchmarks/models_table.py [model ...]

"As built" are the ops before pruning, initialisers included. Memory is an estimate from static shapes: ops run one at a
time in the order they were built, a tensor lives until its last reader has run, reshapes and reads cost nothing, and
kernels need no workspace. Build times are processor seconds.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow.compat.v1 as tf

from pesto.tf.models import FAMILIES, ModelStep, build

SHARED = frozenset({"Identity", "Reshape", "ReadVariableOp", "Squeeze", "ExpandDims", "StopGradient"})


def main(names: Sequence[str]) -> None:
    """One row of a Markdown table per variant of the named models, of all if none is named."""
    tf.logging.set_verbosity(tf.logging.ERROR)
    print("| model | variant | ops | of them Const | as built | parameters | variables | tensors at peak | build |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for family in FAMILIES:
        if names and family.name not in names:
            continue
        for variant in family.variants:
            begun = time.process_time()
            step = build(family.name, variant)
            seconds = time.process_time() - begun
            print(f"| {family.name} | {variant} | {_sizes(step)} | {seconds:.1f} s |", flush=True)


def _sizes(step: ModelStep) -> str:
    """The table's cells between the names and the build time."""
    pruned = tf.graph_util.extract_sub_graph(step.graph.as_graph_def(), step.fetches)
    kept = {node.name for node in pruned.node}
    ops = [op for op in step.graph.get_operations() if op.name in kept]
    whole = len(step.graph.get_operations())
    constants = sum(op.type == "Const" for op in ops)
    with step.graph.as_default():
        parameters = sum(math.prod(v.shape.as_list()) for v in tf.trainable_variables())
        variables = sum(math.prod(v.shape.as_list()) * v.dtype.size for v in tf.global_variables())
    gigabytes = f"{variables / 1e9:.1f} GB | {_peak_bytes(ops) / 1e9:.1f} GB"
    return f"{len(ops)} | {constants} | {whole} | {parameters / 1e6:.2f} M | {gigabytes}"


def _peak_bytes(ops: Sequence[tf.Operation]) -> int:
    """The most bytes of live tensors, constants and variables apart."""
    owner: dict[str, str] = {}  # of a tensor's memory: the tensor itself, or the one it shares with
    size: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, op in enumerate(ops):
        for tensor in op.outputs:
            shares = op.type in SHARED and len(op.inputs) > 0
            owner[tensor.name] = owner[op.inputs[0].name] if shares else tensor.name
            size[tensor.name] = 0 if shares else _bytes(tensor)
        for tensor in op.inputs:
            last[owner[tensor.name]] = i
    ends = defaultdict(int)
    for name, i in last.items():
        ends[i] += size[name]
    live = peak = 0
    for i, op in enumerate(ops):
        live += sum(size[tensor.name] for tensor in op.outputs if tensor.name in last)
        peak = max(peak, live)
        live -= ends[i]
    return peak


def _bytes(tensor: tf.Tensor) -> int:
    if tensor.op.type in ("Const", "VarHandleOp"):
        return 0
    return math.prod(tensor.shape.as_list()) * tensor.dtype.size


if __name__ == "__main__":
    main(sys.argv[1:])
