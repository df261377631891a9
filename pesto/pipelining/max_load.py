"""Layers spread over equal devices so that the busiest, all that it sends and receives included, has least to do.

Without memory for batches that is the least period of a pipeline whose devices do their own sends and receives. A
device may have any layers, and data may skip layers.
"""

from dataclasses import dataclass

import numpy as np

from pesto.core.costs.network import transfer_s
from pesto.core.errors import NothingFoundError, UsageError
from pesto.core.problem import COPIED, TICK_S
from pesto.core.step_parts import AFTER, BEFORE
from pesto.pipelining.staged_step import StagedStep
from pesto.planning.solving.interrupt import hold, release
from solvers.arrays import Ints, ints
from solvers.pipelining.any_allocation import with_one_batch
from solvers.pipelining.chain import Chain
from solvers.pipelining.layer_dag import LayerDag, device_loads
from solvers.pipelining.least_loads import least_dag_load
from solvers.pipelining.pipeline_bounds import PeriodBound


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MaxLoad:
    """Layers on P devices, and how far the load of the busiest can be from the least."""

    device: Ints
    """[L] device of each layer."""
    loads: Ints
    """[P] ticks a batch of each device: its layers, and all that it sends and receives."""
    runs: int
    """Ticks a batch of the busiest device where each has one run of a topological order, cut optimally."""
    bound: PeriodBound
    """Lower bound on the ticks a batch of the busiest device, over all allocations."""
    interrupted: bool
    """True if Ctrl-C ended the search; the best until then is kept."""

    @property
    def busiest(self) -> int:
        """Ticks a batch of the busiest device."""
        return int(self.loads.max())

    @property
    def gap(self) -> float:
        """The busiest device's ticks over the bound, less 1."""
        return float(self.busiest / self.bound.value) - 1 if self.bound.value else 0.0


def spread_layers(dag: LayerDag, devices: int, memory: int | None, *, seconds: float) -> MaxLoad:
    """Spread layers over equal devices of so many bytes, searched for about so many seconds.

    NothingFoundError where no runs of layers fit the memory. UsageError for ticks or bytes that cannot be summed.
    """
    release()
    try:
        best = least_dag_load(dag, devices, memory, seconds=seconds)
    except ValueError as error:
        raise UsageError.of(error) from error
    hold()
    if best is None or best.contiguous is None:
        raise NothingFoundError.build("no runs of layers fit the memory", remedy="use more or larger devices")
    loads = device_loads(dag, best.device, devices)
    return MaxLoad(
        device=best.device, loads=loads, runs=best.contiguous, bound=best.bound, interrupted=best.interrupted
    )


def chain_layers(chain: Chain) -> LayerDag:
    """Return the layers of a chain, each sending to the next; their bytes are those of weights and of one batch."""
    src = np.arange(chain.layers - 1)
    held = with_one_batch(chain).weights
    return LayerDag(loads=chain.loads, src=ints(src), dst=ints(src + 1), transfers=chain.transfers, weights=held)


def step_layers(staged: StagedStep) -> LayerDag:
    """Return the layers of a step's chain with the tensors that each sends to any other, a micro-batch.

    A tensor is sent once to each layer that reads it, over the slowest path between two accelerators; what is made
    once a step, for all micro-batches, takes its share of that. Layers that grouped ops join are on one device.
    """
    graph, part, chain = staged.one, staged.parts.part, staged.chain
    fast = staged.fast.tolist()
    paths = [staged.cluster.paths[a][b] for a in fast for b in fast if a != b]
    seconds = np.max([transfer_s(path, graph.tensor_bytes) for path in paths if path is not None], axis=0)
    once = np.isin(part[graph.tensor_op], (BEFORE, AFTER))
    ticks = np.ceil(seconds / TICK_S / np.where(once, staged.step.batches, 1)).astype(np.int64)
    ticks[once & (graph.tensor_bytes <= COPIED)] = 0
    reads = part[graph.dst] != AFTER
    tensor, reader = np.unique(np.stack([graph.tensor[reads], chain.layer[graph.dst[reads]]]), axis=1)
    maker = chain.layer[graph.tensor_op[tensor]]
    sent = (maker != reader) & (ticks[tensor] > 0)
    low, high = np.minimum(maker, reader)[sent], np.maximum(maker, reader)[sent]
    layers = chain.chain.layers
    pair, edge = np.unique(low * layers + high, return_inverse=True)
    transfers = np.zeros(len(pair), dtype=np.int64)
    np.add.at(transfers, edge, ticks[tensor][sent])
    group = np.arange(layers)
    for one, other in np.unique(np.stack([chain.layer, chain.home], axis=1), axis=0).tolist():
        group[group == group[other]] = group[one]
    return LayerDag(
        loads=chain.chain.loads, src=ints(pair // layers), dst=ints(pair % layers), transfers=ints(transfers),
        group=ints(group), weights=with_one_batch(chain.chain).weights,
    )  # fmt: skip
