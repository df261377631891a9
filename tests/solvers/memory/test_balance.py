"""The balance row of the paper's program: bytes shared out within a share of the mean."""

from dataclasses import replace

import numpy as np
import pytest

from solvers import Options, Status, check, solve
from solvers.instances.plain import on_equal_gpus
from solvers.structure.units import balanced


def six(memory):
    """Six tasks of a tick on two GPUs, in pairs that send much, so that unbalanced placements are short."""
    p = on_equal_gpus([1] * 6, [0, 2, 4], [1, 3, 5], gpus=2, transfer=np.full(6, 9))
    return replace(p, memory=memory, capacity=[1000, 1000])


def test_no_gpu_holds_more_than_the_share_above_the_mean() -> None:
    """12 bytes: with 0 each GPU gets 6 and a pair is split; with a half, up to 9; never more room."""
    p = six([2, 2, 2, 2, 2, 2])
    assert balanced(p, 0).capacity.tolist() == [6, 6]
    assert balanced(p, 0.5).capacity.tolist() == [9, 9]
    assert balanced(replace(p, capacity=[5, 100]), 0.5).capacity.tolist() == [5, 9]
    free = solve(p, "cpsat", Options(seconds=10, workers=4))
    even = solve(balanced(p, 0), "cpsat", Options(seconds=10, workers=4))
    assert (free.status, even.status) == (Status.OPTIMAL, Status.OPTIMAL)
    held = np.bincount(even.schedule.device, weights=p.memory, minlength=2)
    assert held.tolist() == [6, 6]
    assert free.schedule.makespan == 4 < even.schedule.makespan
    wrong = check(balanced(p, 0), free.schedule)
    assert [violation.kind for violation in wrong] == ["memory"]


def test_what_has_no_choice_counts_where_it_is_and_elsewhere_not() -> None:
    """Bytes of tasks that only the host runs do not count among the GPUs'; those of one GPU alone do."""
    p = six([4, 4, 4, 4, 4, 4])
    at_host = np.column_stack([np.full(6, -1), p.duration])
    at_host[0], at_host[1] = [1, -1, -1], [-1, 1, -1]
    p = replace(
        p, duration=at_host, location=[0, 1, 2], capacity=[99, 99, 99],
        path_class=[[-1, 0, 0], [0, -1, 0], [0, 0, -1]], path_links=np.full((3, 3, 1), -1),
    )  # fmt: skip
    assert balanced(p, 0.0).capacity.tolist() == [99, 10, 10]


@pytest.mark.parametrize("share", [-0.1, float("nan"), float("inf")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    """Negative shares, and what is no number."""
    with pytest.raises(ValueError, match="a balance is a share, 0 or more"):
        balanced(six([1] * 6), share)
