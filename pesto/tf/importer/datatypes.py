"""Data types by name: of every tensor, and of what every op computes in."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.tf.nodes.needed_nodes import StepNodes

_ATTRS = ("T", "dtype", "Ta", "T1", "Tinput")
"""Attributes that say what an op computes in, the first that it has."""


def compute_dtype(node: Any, outputs: Sequence[int]) -> int:
    """Data type number of what an op computes in: the type of its arguments, else of its first output; 0 for none."""
    said = (node.attr[attr].type for attr in _ATTRS if attr in node.attr)
    return next(filter(None, said), outputs[0] if outputs else 0)


def dominant_dtype(dtypes: Iterable[int], weights: Iterable[float]) -> int:
    """The data type number that has most of the weight; 0 without any."""
    total: dict[int, float] = {0: 0.0}
    for dtype, weight in zip(dtypes, weights, strict=True):
        total[dtype] = total.get(dtype, 0.0) + weight
    return max(total, key=total.__getitem__)


def dtype_columns(nodes: StepNodes, own: Sequence[int]) -> dict[str, Any]:
    """Return the data type columns of a `Graph`; `own` [n] are the dtype numbers that the ops compute in."""
    of_tensors = [t for types in nodes.dtypes for t in types]
    name = {number: _name(number) for number in {*own, *of_tensors}}
    table = sorted({*name.values()} - {""})
    code = {number: table.index(text) if text else -1 for number, text in name.items()}
    return {
        "dtypes": tuple(table),
        "dtype_of": np.array([code[t] for t in own], dtype=np.int64),
        "tensor_dtype": np.array([code[t] for t in of_tensors], dtype=np.int64),
    }


def _name(number: int) -> str:
    """TensorFlow's name of a data type; empty for a number that it has no type for."""
    try:
        return str(tf.as_dtype(number).name)
    except TypeError:
        return ""
