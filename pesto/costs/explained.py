"""Why an op takes its modelled time on a device: which kernel takes it."""

from pesto.cluster import Device
from pesto.costs.kernels.launched import FORMS, times
from pesto.costs.presets import speeds
from pesto.graph import Graph

WORDS = ("modelled", "given", "measured")
"""Origins of times, by number."""


def reasons(graph: Graph, device: Device) -> list[str]:
    """[n] the form of kernel that takes each op's modelled time; on a core, which has none, the roofline."""
    able = speeds(device)
    if able.sms:
        return [FORMS[k] for k in times(graph, able).form.tolist()]
    return [FORMS[1] if launch else "bookkeeping" for launch in graph.launches.tolist()]
