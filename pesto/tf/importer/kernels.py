"""Kinds of device of each op: CPU and GPU kernels of each op type, from a table that ships with the project.

Builds of TensorFlow differ (`tensorflow-cpu` registers no GPU kernel), and a graph must not depend on the build that
read it, so the registrations of a GPU build of the pinned release are kept in `kernels.json`; `export_table` makes it.
"""

import functools
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.tf.nodes.needed_nodes import RESOURCE, STRING, StepNodes
from pesto.tf.private import op_def, registered_kernels
from solvers.arrays import Bools, Ints

KINDS = ("cpu", "gpu")
"""The kinds of device of imported graphs, in the order of the columns of `runs_on`."""
_HOST = "*host"
"""Key of an alternative whose outputs all live in host memory, so that no kernel starts on the GPU."""
_FEEDS = re.compile(r"^Placeholder|Dataset|Iterator|Queue|PyFunc|^(Ordered)?MapStage|^Stage|^_?Send$|^_?Recv$")
"""Op types that stay on the host: some register GPU kernels that only forward to it, where their data live."""

Alternative = dict[str, Any]


def runs_on(nodes: StepNodes, kernels: list[tuple[bool, bool, bool]], on_gpu: Bools) -> Bools:
    """Return [n, 2] for `KINDS`, from what `kernel` returns for each node.

    Strings live on hosts only; feeds and input pipelines stay where the data come from. `on_gpu` [n] is False where
    a loop's or branch's body keeps the op off the GPU.
    """
    kinds = np.zeros((len(nodes.defs), len(KINDS)), dtype=np.bool_)
    stays_with = {op: _FEEDS.search(op) is not None for op in {node.op for node in nodes.defs}}
    for i, node in enumerate(nodes.defs):
        cpu, gpu, _ = kernels[i]
        stays = not on_gpu[i] or STRING in nodes.dtypes[i]
        stays = stays or any(nodes.dtypes[p][k] == STRING for p, k in nodes.inputs[i])
        stays = stays or (stays_with[node.op] and nodes.dtypes[i] != (RESOURCE,))
        kinds[i] = cpu or stays, gpu and not stays
    return kinds


def restrict_shared_kinds(kinds: Bools, group: Ints) -> Bools:
    """Return `kinds` with the groups whose members have no kind of device in common moved to the CPU as a whole."""
    out = kinds.copy()
    member = np.flatnonzero(group >= 0)
    common = np.ones((int(group.max(initial=-1)) + 1, kinds.shape[1]), dtype=np.bool_)
    np.logical_and.at(common, group[member], kinds[member])
    torn: Bools = np.logical_not(common.any(axis=1))
    out[member[torn[group[member]]]] = [kind == "cpu" for kind in KINDS]
    return out


def kernel(node: Any) -> tuple[bool, bool, bool]:
    """Return (has a CPU kernel, has a GPU kernel, that GPU kernel works in host memory) for one NodeDef.

    An op type that the table does not know is assumed to have both kernels.
    """
    types = []
    for attr in _load_kernel_attributes().get(node.op, ()):
        value = node.attr[attr] if attr in node.attr else tf.compat.v1.AttrValue()
        types.append((value.type,) if value.type else tuple(value.list.type))
    return _kernel(node.op, tuple(types))


@functools.cache
def _load_kernel_table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_name("kernels.json").read_text())
    enum = {name: tf.as_dtype(name).as_datatype_enum for name in table["dtypes"]}
    gpu = {
        op: [{k: v if k == _HOST else frozenset(enum[d] for d in v) for k, v in a.items()} for a in alternatives]
        for op, alternatives in table["gpu"].items()
    }
    return {"cpu_only": frozenset(table["cpu_only"]), "gpu_only": frozenset(table["gpu_only"]), "gpu": gpu}


@functools.cache
def _load_kernel_attributes() -> dict[str, tuple[str, ...]]:
    """Return the attributes on which an op type's kernels depend."""
    gpu = _load_kernel_table()["gpu"]
    return {op: tuple(sorted({attr for row in rows for attr in row if attr != _HOST})) for op, rows in gpu.items()}


@functools.cache
def _kernel(op: str, types: tuple[tuple[int, ...], ...]) -> tuple[bool, bool, bool]:
    table = _load_kernel_table()
    if op in table["cpu_only"]:
        return True, False, False
    if op not in table["gpu"]:
        return True, True, False
    attribute_types = dict(zip(_load_kernel_attributes()[op], types, strict=True))
    for alternative in table["gpu"][op]:
        if all(set(attribute_types[attr]) <= allowed for attr, allowed in alternative.items() if attr != _HOST):
            return op not in table["gpu_only"], True, _HOST in alternative
    return True, False, False


def export_table() -> dict[str, Any]:
    """Return the table of the running build, as `kernels.json` has it; meaningful on a build with GPU kernels only."""
    by_op: dict[str, list[Any]] = defaultdict(list)
    on_cpu = set()
    for k in registered_kernels():
        if k.op.startswith(("_Mkl", "__Mkl", "_Xla", "Xla")):
            continue
        if k.device_type in ("GPU", "DEFAULT"):
            by_op[k.op].append(k)
        if k.device_type in ("CPU", "DEFAULT"):
            on_cpu.add(k.op)
    gpu = {op: _iter_alternatives(op, kernels) for op, kernels in sorted(by_op.items())}
    names = {d for a in gpu.values() for x in a for key, v in x.items() if key != _HOST for d in v}
    return {
        "tensorflow": ".".join(tf.__version__.split(".")[:2]),
        "dtypes": sorted(names),
        "cpu_only": sorted(on_cpu - set(gpu)),
        "gpu_only": sorted(set(gpu) - on_cpu),
        "gpu": gpu,
    }


def _iter_alternatives(op: str, kernels: list[Any]) -> list[Alternative]:
    definition = op_def(op)
    outputs = [] if definition is None else [a.name for a in definition.output_arg]
    inputs = (
        [] if definition is None else [a.name for a in definition.input_arg if a.type != tf.resource.as_datatype_enum]
    )
    matter = set(outputs or inputs)
    # TensorFlow registers one kernel for each type. Merging rows that differ in one attribute keeps the table small
    # without changing what it accepts.
    rows: set[tuple[bool, tuple[tuple[str, frozenset[str]], ...]]] = set()
    for k in kernels:
        allowed = [(c.name, frozenset(tf.as_dtype(t).name for t in c.allowed_values.list.type)) for c in k.constraint]
        rows.add((bool(matter) and matter <= set(k.host_memory_arg), tuple(sorted(allowed))))
    for attr in sorted({a for _, row in rows for a, _ in row}):
        merged: dict[Any, list[frozenset[str]]] = defaultdict(list)
        for host, row in rows:
            merged[host, tuple(x for x in row if x[0] != attr)].append(dict(row).get(attr, frozenset()))
        # A kernel that does not constrain the attribute takes every type.
        rows = {
            (host, tuple(sorted((*rest, (attr, frozenset().union(*t))) if all(t) else rest)))
            for (host, rest), t in merged.items()
        }
    plain = [{a: sorted(t) for a, t in row} | ({_HOST: True} if host else {}) for host, row in rows]
    return sorted(plain, key=lambda a: (_HOST in a, json.dumps(a)))
