"""How late the weights of each stage are where no batch waits for a flush, and what their versions hold."""

import re
from dataclasses import replace

import numpy as np

from pesto.core.graph import Graph
from pesto.core.source import READ_SCOPE
from pesto.pipelining.step_chain import StepChain
from solvers.arrays import Ints, ints

_READ = re.compile(rf"^(?:.*/)?{READ_SCOPE}(\d+)/[^/]+$")


def weight_reads(graph: Graph) -> tuple[Ints, Ints]:
    """(op, variable) of the first batch's reads of weights that may be late, in the step of one batch.

    Variables by number, as `pesto.core.source.Cut.late` has them. They are known by the scope that Pesto gives these
    reads.
    """
    result = dict[int, int]()
    for op, name in enumerate(graph.names):
        seen = _READ.match(name)
        if seen and not graph.param_bytes[op]:
            result.setdefault(int(seen.group(1)), op)
    numbers = sorted(result)
    return ints([result[k] for k in numbers]), ints(numbers)


def add_weight_versions(chain: StepChain, graph: Graph, every: int) -> StepChain:
    """The chain with updates in its backward halves, and the versions of a layer's weights that are held there.

    graph: the step of one batch; every: batches of an update. With one, NCA batches in flight have NCA versions, the
    latest among them. With more there are two, which batches share, and each has its part of the update's ticks.
    """
    reads, _ = weight_reads(graph)
    held = np.zeros(graph.ops, dtype=np.int64)
    np.maximum.at(held, graph.tensor_op, graph.tensor_bytes)
    each = np.bincount(chain.home[reads], weights=held[reads], minlength=chain.chain.layers).astype(np.int64)
    none = np.zeros_like(each)
    own, shared = (each, none) if every == 1 else (none, each)
    counted = replace(
        chain.chain, weights=ints(chain.chain.weights - own + shared), activation=ints(chain.chain.activation + own),
        backward=ints(chain.chain.backward - -chain.once // every),
    )  # fmt: skip
    return replace(chain, chain=counted, version=ints(own), once=ints(none))


def weight_staleness(chain: StepChain, graph: Graph, in_flight: Ints, batches: int, every: int) -> tuple[int, ...]:
    """Updates by which each variable's reads are late: the batches in flight of its stage, less 1.

    in_flight: [L] most batches of each layer between their forward and backward halves, NCA. A variable that several
    stages read is with the first of them, where most batches are in flight. every: batches of an update; with more than
    one all are late by one.
    """
    reads, numbers = weight_reads(graph)
    late = [0] * (int(numbers.max(initial=-1)) + 1)
    for op, k in zip(reads.tolist(), numbers.tolist(), strict=True):
        late[k] = max(0, min(int(in_flight[chain.home[op]]), batches) - 1) if every == 1 else 1
    return tuple(late)
