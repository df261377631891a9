"""The kinds of device that each op can run on."""

import re

import numpy as np

from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.signatures import RESOURCE, STRING
from solvers.arrays import Bools, Ints

KINDS = ("cpu", "gpu")
"""The kinds that imported graphs speak of, in the order of the columns of `runs_on`."""

# Some of these register GPU kernels that only forward to the host; their data live there.
_FEEDS = re.compile(r"^Placeholder|Dataset|Iterator|Queue|PyFunc|^(Ordered)?MapStage|^Stage|^_?Send$|^_?Recv$")


def runs_on(nodes: StepNodes, kernels: list[tuple[bool, bool, bool]], on_gpu: Bools) -> Bools:
    """[n, 2] for `KINDS`, from what `pesto.tf.importer.kernels.kernel` says of each node.

    But: strings live on hosts only; feeds and input pipelines stay where the data come from. `on_gpu` is False where
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


def shared_kinds(kinds: Bools, group: Ints) -> Bools:
    """`kinds`, with the groups whose members have no kind of device in common moved to the CPU as a whole."""
    out = kinds.copy()
    member = np.flatnonzero(group >= 0)
    common = np.ones((int(group.max(initial=-1)) + 1, kinds.shape[1]), dtype=np.bool_)
    np.logical_and.at(common, group[member], kinds[member])
    torn: Bools = np.logical_not(common.any(axis=1))
    out[member[torn[group[member]]]] = [kind == "cpu" for kind in KINDS]
    return out
