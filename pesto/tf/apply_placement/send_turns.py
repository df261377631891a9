"""The order in which an op sends its tensors: transfers that share a link in the plan wait for each other."""

import numpy as np

from pesto.core.plans.plan import PER_EDGE, Plan
from pesto.core.problem import payloads
from pesto.tf.apply_placement.placement import StepPlacement
from solvers.arrays import Ints, ints


def send_turns(plan: Plan, placement: StepPlacement) -> dict[tuple[int, int], int]:
    """(tensor, device) -> its turn among what its op sends, from 0; those of one turn share no link.

    When an op ends, a plan has its transfers asked for in the order of tensors and, for each, of the cluster's devices.
    One that starts when an earlier one has ended may have waited for it; one that starts before shares no link with it.
    Nothing for a plan that counts a transfer an edge, which TensorFlow does not make.
    """
    sent, graph = plan.schedule, placement.graph
    if plan.provenance.transfers == PER_EDGE or not len(sent.sent_payload):
        return {}
    _, tensor = payloads(graph, per_edge=False)
    tensor = tensor[np.argsort(placement.planned[graph.tensor_op[tensor]], kind="stable")]
    # Transfers of one op, in the order in which the simulator requests them at its end.
    by = np.lexsort((sent.sent_to, sent.sent_payload))
    payload = sent.sent_payload[by]
    target = _target(plan, placement)[sent.sent_to[by]]
    columns = (graph.tensor_op[tensor[payload]], tensor[payload], target, sent.sent_start[by], sent.sent_finish[by])
    told = zip(*(column.tolist() for column in columns), strict=True)
    turns: dict[tuple[int, int], int] = {}
    last, turn, least = -1, 0, 0
    for op, what, to, start, finish in told:
        if op != last:
            last, turn, least = op, 0, finish
        # It starts after an earlier transfer of the op has ended, so they may share a link, and TensorFlow must be told
        # the order.
        elif start >= least:
            turn, least = turn + 1, finish
        least = min(least, finish)
        turns[what, to] = max(turn, turns.get((what, to), 0))
    return turns


def _target(plan: Plan, placement: StepPlacement) -> Ints:
    """Index of TensorFlow's device for each device of the plan's cluster; -1 for what the plan does not use."""
    names = list(dict.fromkeys(plan.lane_device))
    targets = np.full(len(names), -1)
    location = np.array([names.index(name) for name in plan.lane_device])
    targets[location[plan.schedule.device[placement.planned]]] = placement.device
    return ints(targets)
