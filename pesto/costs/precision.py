"""Ops that compute in a data type which the model of costs does not know."""

from dataclasses import replace

import numpy as np

from pesto.costs import MODELLED, Costs
from pesto.files.json import shown
from pesto.graph import Graph
from pesto.quantities import percent

_AS = "float32"
_NO_FLOATS = ("int", "uint", "qint", "quint", "bool", "string", "resource", "variant")
"""What the names of data types begin with that are no precision to train in."""


def noted(graph: Graph, costs: Costs) -> Costs:
    """`costs`, with a note on the ops whose modelled times are those of float32 although they compute in another type.

    Only of ops that have work: what just moves data takes the time of its bytes.
    """
    other = np.array([name != _AS and not name.startswith(_NO_FLOATS) for name in graph.dtypes] + [False])
    taken = other[graph.dtype_of] & (graph.flops > 0) & graph.launches & (costs.origin == MODELLED)
    if not taken.any():
        return costs
    count = np.bincount(graph.dtype_of[taken], minlength=len(graph.dtypes))
    most_first = np.argsort(-count, kind="stable")[: np.count_nonzero(count)].tolist()
    ops = ", ".join(f"{count[k]} op{'s' if count[k] > 1 else ''} in {shown(graph.dtypes[k], 24)}" for k in most_first)
    seconds = np.nan_to_num(costs.compute_s, nan=np.inf).min(axis=1)
    share = percent(float(seconds[taken].sum() / seconds[np.isfinite(seconds)].sum()))
    note = f"{ops} ({share} of the time) costed as {_AS}"
    return replace(costs, note=f"{note}; {costs.note}" if costs.note else note)
