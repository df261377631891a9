"""How late the weights of each stage are where no batch waits for a flush, and what their versions hold."""

import re
from dataclasses import replace

import numpy as np

from pesto.graph import Graph
from pesto.pipelining.chain_of_step import StepChain
from pesto.source import READ_SCOPE
from solvers.arrays import Ints, ints

_READ = re.compile(rf"^(?:.*/)?{READ_SCOPE}(\d+)/[^/]+$")


def weight_reads(graph: Graph) -> tuple[Ints, Ints]:
    """(op, variable) of the first batch's reads of weights that may be late, in the step of one batch.

    Variables by number, as `pesto.source.Cut.late` has them. They are known by the scope that Pesto gives these reads.
    """
    found = dict[int, int]()
    for op, name in enumerate(graph.names):
        seen = _READ.match(name)
        if seen and not graph.param_bytes[op]:
            found.setdefault(int(seen.group(1)), op)
    numbers = sorted(found)
    return ints([found[k] for k in numbers]), ints(numbers)


def with_versions(chain: StepChain, graph: Graph) -> StepChain:
    """The chain with updates in its backward halves, and a version of a layer's weights for each batch in flight there.

    graph: the step of one batch. NCA batches in flight have NCA versions, the latest among them.
    """
    reads, _ = weight_reads(graph)
    held = np.zeros(graph.ops, dtype=np.int64)
    np.maximum.at(held, graph.tensor_op, graph.tensor_bytes)
    each = np.bincount(chain.home[reads], weights=held[reads], minlength=chain.chain.layers).astype(np.int64)
    counted = replace(
        chain.chain, weights=ints(chain.chain.weights - each), activation=ints(chain.chain.activation + each),
        backward=ints(chain.chain.backward + chain.once),
    )  # fmt: skip
    return replace(chain, chain=counted, version=ints(each), once=ints(np.zeros_like(chain.once)))


def lateness(chain: StepChain, graph: Graph, in_flight: Ints, batches: int) -> tuple[int, ...]:
    """Updates by which each variable's reads are late: the batches in flight of its stage, less 1.

    in_flight: [L] most batches of each layer between their forward and backward halves, NCA. A variable that several
    stages read is with the first of them, where most batches are in flight.
    """
    reads, numbers = weight_reads(graph)
    late = [0] * (int(numbers.max(initial=-1)) + 1)
    for op, k in zip(reads.tolist(), numbers.tolist(), strict=True):
        late[k] = max(0, min(int(in_flight[chain.home[op]]), batches) - 1)
    return tuple(late)
