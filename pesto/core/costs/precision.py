"""Ops that compute in a data type which their device has no peak for."""

from dataclasses import replace

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import MODELLED, Costs
from pesto.core.costs.kernels.engines import missing_precision
from pesto.core.costs.presets import device_preset
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.quantities import percent, plural

_AS = "float32"


def note_missing_peaks(graph: Graph, cluster: Cluster, costs: Costs) -> Costs:
    """`costs`, with a note on the ops whose modelled times are those of float32 although they compute in another type.

    An op counts where its fastest device has no peak for its type. Only of ops that have work: what just moves data
    takes the time of its bytes.
    """
    seconds = np.nan_to_num(costs.compute_s, nan=np.inf)
    fastest = seconds.argmin(axis=1)
    # [types + 1, d] whether a device has no peak for a data type; the last row, of what is not known, never.
    devices = [device_preset(device) for device in cluster.devices]
    lacks_peak = np.array(
        [[bool(name) and bool(missing_precision(name, d)) for d in devices] for name in (*graph.dtypes, "")]
    )
    without = lacks_peak[graph.dtype_of, fastest]
    taken = without & (graph.flops > 0) & graph.launches & (costs.origin == MODELLED)
    if not taken.any():
        return costs
    count = np.bincount(graph.dtype_of[taken], minlength=len(graph.dtypes))
    most_first = np.argsort(-count, kind="stable")[: np.count_nonzero(count)].tolist()
    ops = ", ".join(f"{plural(count[k], 'op')} in {shown(graph.dtypes[k], 24)}" for k in most_first)
    least = seconds.min(axis=1)
    share = percent(float(least[taken].sum() / least[np.isfinite(least)].sum()))
    note = f"{ops} ({share} of the time) costed as {_AS}"
    return replace(costs, note=f"{note}; {costs.note}" if costs.note else note)
