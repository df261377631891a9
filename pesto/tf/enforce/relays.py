"""What ops outside of the chains send to other devices goes through an Identity that has the op's place in its chain.

Such an op starts when its inputs are there, and would fill the links ahead of what the plan sends. The op itself stays
where it was, for initialisers, savers and reports, which read it and not the Identity.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pesto.plans.control_edges import chain
from pesto.plans.plan import Plan
from pesto.tf.enforce.branches import conditional
from pesto.tf.enforce.fetch_closure import apart
from pesto.tf.enforce.placement import CARRIED, Placement, Relay, lay
from pesto.tf.enforce.step_graph import Trace
from pesto.tf.enforce.targets import targets
from pesto.tf.nodes.captured import Captured
from pesto.tf.nodes.needed_nodes import RELAY
from pesto.tf.nodes.signatures import RESOURCE, VARIANT
from solvers.arrays import Bools, bools


def relayed(placement: Placement, trace: Trace) -> Placement:
    """`placement` with a relay for each tensor of an op outside of the chains that a chained op reads elsewhere.

    None for references, whose value is that of the time at which it is read, for handles, which do not travel, and in
    branches: a chain through an op of a branch that is not taken would end there. None either without an order.
    """
    if not placement.chained.any():
        return placement
    found = tuple(_relays(placement, trace, _free(placement, trace)))
    sequence = placement.chained.copy()
    sequence[[relay.op for relay in found]] = True
    before, after = chain(placement.graph, placement.lane, placement.rank, sequence)
    return replace(placement, relays=found, before=before, after=after)


def _free(placement: Placement, trace: Trace) -> Bools:
    """[n] ops outside of the chains whose tensors a relay can pass."""
    graph = placement.graph
    carried = np.isin(graph.type_of, [k for k, t in enumerate(graph.types) if t in CARRIED])
    return ~(placement.chained | carried | conditional(trace))


def _relays(placement: Placement, trace: Trace, free: Bools) -> Iterator[Relay]:
    nodes, op, device = trace.nodes, trace.op_of_node, placement.device.tolist()
    readers: dict[tuple[int, int], list[str]] = {}
    for reader, inputs in enumerate(nodes.inputs):
        for source, output in inputs:
            a, b = op[source], op[reader]
            if free[a] and placement.chained[b] and device[a] != device[b] and _travels(trace, source, output):
                readers.setdefault((source, output), []).append(str(nodes.defs[reader].name))
    for (source, output), names in readers.items():
        first = str(nodes.defs[source].name)
        tensor = f"{first}:{output}" if output else first
        read = tuple(dict.fromkeys(names))
        yield Relay(name=_name(first, tensor, read), tensor=tensor, op=op[source], readers=read)


def _travels(trace: Trace, source: int, output: int) -> bool:
    node = trace.nodes.defs[source]
    refs = trace.nodes.signatures.output_refs(node)
    return trace.nodes.dtypes[source][output] not in (RESOURCE, VARIANT) and not (refs and refs[output])


def _name(first: str, tensor: str, readers: tuple[str, ...]) -> str:
    """The same for the same plan, and another for another plan of one graph."""
    told = hashlib.sha256("\n".join((tensor, *readers)).encode()).hexdigest()
    return f"{first}{RELAY}{told[:8]}"


def outside(plan: Plan, program: Captured, step: Trace, *, whole: bool) -> Bools:
    """[n] by the plan's index: ops that have no place in a chain, and no relay has it in their stead.

    whole: nothing but the step needs its ops, as in a tf.function; else what other parts of `program` need stays out.
    """
    out = conditional(step) if whole else apart(program.graph_def, step) | conditional(step)
    placement = relayed(lay(plan, step.graph, targets(plan, "cpu"), out), step)
    return bools(~placement.ordered[np.argsort(placement.rank)][plan.rank])
