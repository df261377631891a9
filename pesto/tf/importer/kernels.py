"""CPU and GPU kernels of each op type, from a table that ships with the project.

Builds of TensorFlow differ (`tensorflow-cpu` registers no GPU kernel), and a graph must not depend on the build that
read it, so the registrations of a GPU build of the pinned release are kept in `kernels.json`; `table()` makes it anew.
"""

import functools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import tensorflow as tf

from pesto.tf.private import op_def, registered_kernels

_ANY_DEVICE = ("GPU", "DEFAULT")
_HOST = "*host"
"""Key of an alternative whose outputs all live in host memory, so that no kernel starts on the GPU."""

Alternative = dict[str, Any]


@functools.cache
def _kernel_table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_name("kernels.json").read_text())
    enum = {name: tf.as_dtype(name).as_datatype_enum for name in table["dtypes"]}
    gpu = {
        op: [{k: v if k == _HOST else frozenset(enum[d] for d in v) for k, v in a.items()} for a in alternatives]
        for op, alternatives in table["gpu"].items()
    }
    return {"cpu_only": frozenset(table["cpu_only"]), "gpu_only": frozenset(table["gpu_only"]), "gpu": gpu}


def kernel(node: Any) -> tuple[bool, bool, bool]:
    """(has a CPU kernel, has a GPU kernel, that GPU kernel works in host memory) for one NodeDef.

    An op type that the table does not know is assumed to have both kernels.
    """
    attrs = _kernel_attributes().get(node.op, ())
    return _kernel(node.op, tuple(_types(node, attr) for attr in attrs))


def _types(node: Any, attr: str) -> tuple[int, ...]:
    """Data types that a node's attribute names; none when it lacks the attribute."""
    if attr not in node.attr:
        return ()
    value = node.attr[attr]
    return (value.type,) if value.type else tuple(value.list.type)


@functools.cache
def _kernel_attributes() -> dict[str, tuple[str, ...]]:
    """The attributes on which an op type's kernels depend."""
    gpu = _kernel_table()["gpu"]
    return {op: tuple(sorted({attr for row in rows for attr in row if attr != _HOST})) for op, rows in gpu.items()}


@functools.cache
def _kernel(op: str, types: tuple[tuple[int, ...], ...]) -> tuple[bool, bool, bool]:
    table = _kernel_table()
    if op in table["cpu_only"]:
        return True, False, False
    if op not in table["gpu"]:
        return True, True, False
    given = dict(zip(_kernel_attributes()[op], types, strict=True))
    for alternative in table["gpu"][op]:
        if all(set(given[attr]) <= allowed for attr, allowed in alternative.items() if attr != _HOST):
            return op not in table["gpu_only"], True, _HOST in alternative
    return True, False, False


def export_table() -> dict[str, Any]:
    """The table of the running build, in the form of `kernels.json`; meaningful on a build with GPU kernels only."""
    by_op: dict[str, list[Any]] = defaultdict(list)
    on_cpu = set()
    for k in registered_kernels():
        if k.op.startswith(("_Mkl", "__Mkl", "_Xla", "Xla")):
            continue
        if k.device_type in _ANY_DEVICE:
            by_op[k.op].append(k)
        if k.device_type in ("CPU", "DEFAULT"):
            on_cpu.add(k.op)
    gpu = {op: _alternatives(op, kernels) for op, kernels in sorted(by_op.items())}
    names = {d for a in gpu.values() for x in a for key, v in x.items() if key != _HOST for d in v}
    return {
        "tensorflow": ".".join(tf.__version__.split(".")[:2]),
        "dtypes": sorted(names),
        "cpu_only": sorted(on_cpu - set(gpu)),
        "gpu_only": sorted(set(gpu) - on_cpu),
        "gpu": gpu,
    }


def _alternatives(op: str, kernels: list[Any]) -> list[Alternative]:
    # TensorFlow registers one kernel for each type. Merging rows that differ in one attribute keeps the table small
    # without changing what it accepts.
    rows: set[tuple[bool, tuple[tuple[str, frozenset[str]], ...]]] = set()
    for k in kernels:
        allowed = [(c.name, [tf.as_dtype(t).name for t in c.allowed_values.list.type]) for c in k.constraint]
        rows.add((_in_host_memory(op, k), tuple(sorted((a, frozenset(t)) for a, t in allowed))))
    for attr in sorted({a for _, row in rows for a, _ in row}):
        merged: dict[Any, list[frozenset[str]]] = defaultdict(list)
        for host, row in rows:
            rest = tuple(x for x in row if x[0] != attr)
            merged[host, rest].append(dict(row).get(attr, frozenset()))
        # A kernel that does not constrain the attribute takes every type.
        rows = {
            (host, tuple(sorted((*rest, (attr, frozenset().union(*t))) if all(t) else rest)))
            for (host, rest), t in merged.items()
        }
    plain = [{a: sorted(t) for a, t in row} | ({_HOST: True} if host else {}) for host, row in rows]
    return sorted(plain, key=lambda a: (_HOST in a, json.dumps(a)))


def _in_host_memory(op: str, kernel_def: Any) -> bool:
    definition = op_def(op)
    if definition is None:
        return False
    outputs = [a.name for a in definition.output_arg]
    inputs = [a.name for a in definition.input_arg if a.type != tf.resource.as_datatype_enum]
    matter = outputs or inputs
    return bool(matter) and set(matter) <= set(kernel_def.host_memory_arg)
