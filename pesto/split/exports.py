"""A division's variables in the words of others, as programs: PartitionSpecs of jax, a LayoutMap of Keras.

A cut is an axis of the mesh: c0, c1, .., outermost first, so that worker w is device w. Only where variables lie can
be said; what cannot is told in comments.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from math import prod

from pesto.split.division import Division
from pesto.split.geometry import Layouts, Shape
from pesto.split.typed_graph import TypedGraph
from pesto.split.variable_rows import VariableRow, variable_rows

Axes = tuple[str | tuple[str, ...] | None, ...]
"""For each dimension the axis that it is cut along, several where cuts are nested, None where it is not cut."""


def jax_text(shaped: TypedGraph, division: Division) -> str:
    """Python that has `mesh_shape`, `axis_names` and `specs`, from the name of a variable to its PartitionSpec."""
    names = [f"c{cut}" for cut in range(len(division.factors))]
    rows = [
        f"    {_quoted(row.name)}: P({', '.join(map(_axis, _axes(row.layouts, names, row.shape)))}),"
        for row in _by_name(shaped, division)
    ]
    return "\n".join(
        [
            *_head(shaped, division),
            "from jax.sharding import PartitionSpec as P",
            "",
            f"mesh_shape = {_tuple(map(str, division.factors))}",
            f"axis_names = {_tuple(map(_quoted, names))}",
            "specs = {",
            *rows,
            "}",
            "",
        ]
    )


def keras_text(shaped: TypedGraph, division: Division) -> str:
    """Python that makes `layout_map`, a keras.distribution.LayoutMap from patterns of a variable's path to its axes.

    A dimension has one axis at most there: neighbouring cuts that cut all variables alike are one axis, and a variable
    whose cuts of one dimension are nested still is left whole, with a comment.
    """
    rows = _by_name(shaped, division)
    groups = _joined([row.layouts for row in rows], len(division.factors))
    names = ["".join(f"c{cut}" for cut in group) for group in groups]
    sizes = [prod(division.factors[cut] for cut in group) for group in groups]
    lines = []
    for row in rows:
        axes = _axes(tuple(row.layouts[group[0]] for group in groups), names, row.shape)
        if any(isinstance(axis, tuple) for axis in axes):
            lines.append(f"# {_quoted(row.name)}: cuts of one dimension are nested: left whole")
        else:
            lines.append(f"layout_map[{_quoted(_pattern(row, rows))}] = {_tuple(map(_axis, axes))}")
    return "\n".join(
        [
            *_head(shaped, division),
            "from keras.distribution import DeviceMesh, LayoutMap",
            "",
            f'devices = [f"gpu:{{worker}}" for worker in range({division.workers})]',
            f"device_mesh = DeviceMesh({_tuple(map(str, sizes))}, {json.dumps(names)}, devices)",
            "layout_map = LayoutMap(device_mesh)",
            *lines,
            "",
        ]
    )


EXPORTS: dict[str, Callable[[TypedGraph, Division], str]] = {"jax": jax_text, "keras": keras_text}
"""For whom -> the text."""


def _head(shaped: TypedGraph, division: Division) -> list[str]:
    source = " ".join(shaped.source.split())
    return [
        f"# {source} cut for {division.workers} workers: where its variables lie, slots of the optimizer among them.",
        "# Not said here: how activations and gradients lie, which results are partial and summed, and what worker 0",
        "# alone does.",
    ]


def _by_name(shaped: TypedGraph, division: Division) -> list[VariableRow]:
    return sorted(variable_rows(shaped, division), key=lambda row: row.name)


def _axes(layouts: Layouts, names: Sequence[str], shape: Shape) -> Axes:
    cut: list[list[str]] = [[] for _ in shape]
    for layout, name in zip(layouts, names, strict=True):
        if layout >= 0:
            cut[layout].append(name)
    return tuple(None if not result else result[0] if len(result) == 1 else tuple(result) for result in cut)


def _joined(all_layouts: Sequence[Layouts], cuts: int) -> list[list[int]]:
    """Runs of neighbouring cuts that cut each variable along one dimension, or not at all."""
    alike = [tuple(layouts[cut] for layouts in all_layouts) for cut in range(cuts)]
    return [list(run) for _, run in groupby(range(cuts), key=lambda cut: alike[cut])]


def _pattern(row: VariableRow, rows: Sequence[VariableRow]) -> str:
    """Pattern of the variable's path that matches no other; leading folders are allowed if no other name ends in it."""
    others = any(other.name.endswith(f"/{row.name}") for other in rows)
    return ("" if others else "(.*/)?") + re.escape(row.name)


def _quoted(text: str) -> str:
    return json.dumps(text)


def _axis(axis: str | tuple[str, ...] | None) -> str:
    if axis is None:
        return "None"
    return _quoted(axis) if isinstance(axis, str) else _tuple(map(_quoted, axis))


def _tuple(items: Iterable[str]) -> str:
    result = list(items)
    return f"({', '.join(result)}{',' if len(result) == 1 else ''})"
