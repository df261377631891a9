"""Two plans side by side: moved ops, order, bytes and devices, held against plain loops over their ops."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from pesto.core.errors import InputError, MismatchError, UsageError
from pesto.reporting.explaining.plan_diff import compare_plans, diff_object, diff_sentences, inversions
from pesto.reporting.show.screen import visible

ROW = [
    {"name": "net/a", "bytes": 1000, "s": 1e-3},
    {"name": "net/b", "inputs": ["net/a"], "bytes": 500, "s": 2e-3},
    {"name": "net/c", "inputs": ["net/a"], "bytes": 300, "s": 3e-3},
    {"name": "d", "inputs": ["net/b", "net/c"], "s": 1e-3},
]


def test_a_plan_does_not_differ_from_itself(made) -> None:
    """Nothing moved, nothing turned, no byte more or less."""
    case = made(ROW, places={"net/c": "gpu:1"})
    found = compare_plans(case.plan, case.plan, (case.graph, case.graph))
    assert not found.differ
    assert (found.both, found.alone, found.moved_ops, found.turned, found.new_neighbour) == (4, (0, 0), 0, 0, 0)
    assert found.sent_bytes[0] == found.sent_bytes[1] == 1300
    assert next(iter(diff_sentences(found)))[0] == "same"


def test_a_moved_op_is_told_with_its_scope_work_and_bytes(made) -> None:
    """c goes to the other GPU: the tensor of a and its own are sent then, and gpu:0 has 3 ms less to do."""
    one, other = made(ROW), made(ROW, places={"net/c": "gpu:1"})
    found = compare_plans(one.plan, other.plan, (one.graph, other.graph))
    (group,) = found.moved
    assert (group.scope, group.before, group.after, group.ops) == ("net", "gpu:0", "gpu:1", 1)
    assert group.seconds == pytest.approx(3e-3)
    assert (found.transfers, found.sent_bytes) == ((0, 2), (0, 1300))
    busy = {each.name: each.busy_s for each in found.devices}
    assert busy["gpu:0"] == (pytest.approx(7e-3), pytest.approx(4e-3))
    assert busy["gpu:1"] == (0.0, pytest.approx(3e-3))
    assert found.differ
    assert found.same_graph
    assert diff_object(found)["moved"]["ops"] == 1


def test_the_order_is_compared_on_what_stayed_and_takes_time(made) -> None:
    """b and c change places: one pair of six is turned, and b, c and d run behind another op than before."""
    case = made(ROW)
    rank = case.plan.rank.copy()
    rank[[1, 2]] = rank[[2, 1]]
    found = compare_plans(case.plan, replace(case.plan, rank=rank), (None, None))
    assert (found.stayed, found.pairs, found.turned, found.new_neighbour) == (4, 6, 1, 3)
    assert not found.untimed_turned
    assert found.differ
    assert found.sent_bytes == (None, None)


def test_ops_of_no_time_in_another_order_are_a_difference_of_their_own(made) -> None:
    """Two constants change places: no pair that takes time is turned, and the plans differ all the same."""
    case = made([{"name": "a", "s": 0.0}, {"name": "b", "s": 0.0}, {"name": "c", "s": 1e-3}])
    rank = case.plan.rank.copy()
    rank[[0, 1]] = rank[[1, 0]]
    found = compare_plans(case.plan, replace(case.plan, rank=rank), (None, None))
    assert (found.turned, found.new_neighbour, found.untimed_turned, found.differ) == (0, 0, True, True)


def test_plans_of_two_graphs_and_clusters_are_matched_as_a_start_is(made) -> None:
    """Ops by name, devices by name or as the next of their kind; what one has alone is counted."""
    one = made(ROW, places={"net/c": "gpu:1", "net/b": "gpu:2"}, gpus=3)
    other = made([*ROW[:3], {"name": "e", "inputs": ["net/b"], "s": 1e-3}], places={"net/c": "gpu:1"})
    found = compare_plans(one.plan, other.plan, (one.graph, other.graph))
    assert (found.same_graph, found.both, found.alone) == (False, 3, (1, 1))
    assert [(each.before, each.after, each.ops) for each in found.moved] == [("gpu:2", "gpu:0", 1)]
    assert [each.name for each in found.devices] == ["cpu:0", "gpu:0", "gpu:1", "gpu:2"]
    assert found.devices[-1].ops == (1, 0)
    with pytest.raises(UsageError, match="no op in common"):
        compare_plans(one.plan, made([{"name": "other"}]).plan, (None, None))
    with pytest.raises(MismatchError, match=r"1 ops more .* solve this one"):
        compare_plans(one.plan, other.plan, (other.graph, None))


def test_a_plan_that_sends_what_its_graph_lacks_is_refused(made) -> None:
    """A damaged file does not index beyond the tensors."""
    case = made(ROW, places={"net/c": "gpu:1"})
    s = case.plan.schedule
    for payload in (99, -1):
        damaged = replace(case.plan, schedule=replace(s, sent_payload=np.full(len(s.sent_payload), payload)))
        with pytest.raises(InputError, match="damaged"):
            compare_plans(case.plan, damaged, (case.graph, case.graph))


def test_inversions_are_those_of_a_double_loop(seeds) -> None:
    """Random orders, with equals, of lengths around and beyond the size at which counting goes over to halves."""
    for seed in seeds(20):
        rng = np.random.default_rng(seed)
        order = rng.integers(0, 200, int(rng.integers(0, 300)))
        assert inversions(order) == sum(a > b for a, b in combinations(order.tolist(), 2))


def test_names_of_ops_and_devices_are_text(made) -> None:
    """No control character and no direction mark of a scope reaches a terminal as itself."""
    ops = [{"name": f"a\u202eb\n{'y' * 5000}/<script>{k}", "s": 1e-3} for k in range(2)]
    one, other = made(ops), made(ops, places={ops[1]["name"]: "gpu:1"})
    found = compare_plans(one.plan, other.plan, (None, None))
    for _, sentence in diff_sentences(found):
        assert visible(sentence) == sentence
        assert "\n" not in sentence
        assert len(sentence) < 500
