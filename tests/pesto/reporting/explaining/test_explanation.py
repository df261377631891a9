"""What an explanation says: blockers, what would help, ties and single ops, of steps whose answers are known."""

from dataclasses import replace

import numpy as np
import pytest

from pesto.core.errors import UsageError
from pesto.core.simulator import simulate
from pesto.reporting.explaining.bottlenecks import ExplainedStep, split_saves
from pesto.reporting.explaining.explanation_text import explanation_object, sentences
from pesto.reporting.explaining.name_scopes import MOST, NO_SCOPE, name_scopes
from pesto.reporting.show.screen import visible

HOSTILE = ("<script>alert(1)</script>", "a\u202eb", "nul\x00", "two\nlines", "x" * 4097, "</svg><img src=x onerror=y>")
MS = 10**6


TOWERS = [
    {"name": "x", "bytes": 1000, "s": 1e-3},
    {"name": "net/left", "inputs": ["x"], "bytes": 1000, "s": 2e-3},
    {"name": "net/right", "inputs": ["x"], "bytes": 1000, "s": 3e-3},
    {"name": "net/big", "inputs": ["net/left", "net/right"], "s": 10e-3},
]
"""x feeds two towers, which `big` joins; a transfer takes 1 us and 1 us more for 1000 bytes."""


def test_the_long_op_under_which_the_other_gpu_idles_is_the_first_blocker(made) -> None:
    """All 10 ms of `big` are idle on gpu:1, and half of it is what a split saves; x is the other."""
    found = made(TOWERS, places={"net/right": "gpu:1"}).explain()
    # x, then its tensor to gpu:1 (2 us), right, back (2 us), big.
    assert found.step_ticks == 14 * MS + 4000
    assert found.path.ticks == {"compute": 14 * MS, "transfer": 4000, "link wait": 0, "begin": 0}
    assert found.path.waited == {"begin": (1, MS), "data": (0, 0), "transfer": (2, 13 * MS), "device": (0, 0)}
    assert found.path.scopes == {"net": 13 * MS, NO_SCOPE: MS}
    first, second, third = found.blockers
    assert (first.op, first.device, first.ticks, first.idle_ticks) == ("net/big", "gpu:0", 10 * MS, 10 * MS)
    assert (first.parts, first.split_saves_ticks) == (2, 5 * MS)
    # gpu:0 computes `left` for 2 ms from the end of x, 2 us before `right` begins.
    assert (second.op, second.idle_ticks) == ("net/right", 1_002_000)
    assert (third.op, third.idle_ticks, third.split_saves_ticks) == ("x", MS, MS // 2)
    # With right in half its time (1.5 ms and two transfers) left is what big waits for.
    assert second.split_saves_ticks == 1_004_000
    assert found.split_all_ticks == 5 * MS + MS // 2 + 1_004_000


def test_idle_time_is_that_of_a_count_tick_by_tick(made) -> None:
    """The idle time under each op of the path, counted on a clock of whole steps by a plain loop."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        ops = [
            {"name": f"o{k}", "inputs": [f"o{j}" for j in range(k) if rng.random() < 0.3], "bytes": 50}
            for k in range(12)
        ]
        ops = [{**op, "s": 1e-6 * rng.integers(1, 9)} for op in ops]
        places = {f"o{k}": f"gpu:{rng.integers(3)}" for k in range(12)}
        case = made(ops, places=places, gpus=3)
        s = case.plan.schedule
        for each in case.explain().blockers:
            op = case.plan.names.index(each.op)
            idle = sum(
                not any(s.start[k] <= tick < s.finish[k] for k in np.flatnonzero(s.device == lane))
                for lane in {1, 2, 3} - {int(s.device[op])}
                for tick in range(int(s.start[op]), int(s.finish[op]), 10)
            )
            assert abs(each.idle_ticks - 10 * idle) <= 20 * 12


def test_what_would_help_is_what_a_simulation_of_the_changed_step_says(made) -> None:
    """The dearest scope in half its time, links in half theirs, a third GPU; no bound is above a step."""
    case = made(TOWERS, places={"net/right": "gpu:1"})
    scope, links, devices, memory = case.explain().helps
    assert (scope.change, scope.step_ticks) == ("scope net twice as fast", MS + 1_500_000 + 5 * MS + 4000)
    assert (links.change, links.step_ticks) == ("links twice as fast", 14 * MS + 2000)
    assert (devices.change, devices.step_ticks) == ("one more gpu", None)
    assert memory.step_ticks == 14 * MS + 4000
    for row in (scope, links, memory):
        assert row.bound_ticks is not None
        assert row.bound_ticks <= row.step_ticks
    assert devices.bound_ticks is not None
    assert devices.bound_ticks <= case.explain().quick_bound_ticks


def test_a_candidate_that_did_not_fit_says_what_memory_costs(made) -> None:
    """Without a limit of memory the step is that of the best candidate, fitting or not."""
    case = made(TOWERS)
    said = replace(
        case.plan.provenance,
        candidates_ticks={**case.plan.provenance.candidates_ticks, "etf": 9 * MS, "metis": 12 * MS},
        candidates_fit={**case.plan.provenance.candidates_fit, "etf": False, "metis": False},
    )
    case.plan = replace(case.plan, provenance=said)
    memory = case.explain().helps[-1]
    assert memory.step_ticks == 9 * MS
    assert "etf" in memory.detail


def test_a_group_with_much_work_or_most_variables_is_told_with_its_bound(made) -> None:
    """Two long ops that share a device cost a plan half; free, the bound is that of one of them."""
    ops = [
        {"name": "a", "s": 4e-3, "group": "both", "param": 100},
        {"name": "b", "s": 4e-3, "group": "both", "param": 100},
        {"name": "c", "s": 1e-6},
    ]
    found = made(ops).explain()
    (tie,) = found.ties
    assert (tie.ops, tie.variables, tie.bytes, tie.device, tie.ticks) == (2, 2, 200, "gpu:0", 8 * MS)
    assert found.quick_bound_ticks == 8 * MS
    assert tie.free_bound_ticks <= 4 * MS + 1000
    assert tie.gain_ticks == found.step_ticks - tie.free_bound_ticks
    assert not made(TOWERS).explain().ties


def test_a_branch_that_holds_the_optimizer_is_told_with_its_remedy(made) -> None:
    """Cut into a piece a variable, its 4 ms are 2 and 2, so that the bound is less; what to do stands behind."""
    own, mb = {"group": "tie", "kinds": ("gpu",)}, 10**6
    ops = [
        {"name": "v", "param": mb, **own},
        {"name": "w", "param": mb, **own},
        {"name": "v/read", "inputs": ("v",), "bytes": mb, **own},
        {"name": "w/read", "inputs": ("w",), "bytes": mb, **own},
        {"name": "v/gradient", "inputs": ("v/read",), "bytes": mb, "s": 1e-3, "kinds": ("gpu",)},
        {"name": "w/gradient", "inputs": ("w/read",), "bytes": mb, "s": 1e-3, "kinds": ("gpu",)},
        {"name": "cond", "inputs": ("v", "w", "v/gradient", "w/gradient"), "s": 4e-3, **own},
    ]
    found = made(ops, branch="cond").explain()
    (tie,) = found.ties
    assert (tie.op, tie.variables, tie.ops) == ("cond", 2, 5)
    assert "optimizer" in tie.remedy
    assert tie.free_bound_ticks <= found.quick_bound_ticks - MS
    assert any(tie.remedy[:20] in sentence for _, sentence in sentences(found))


def test_moving_an_op_with_its_group_is_priced_as_the_reference_simulator_would(made) -> None:
    """In the same order on the other GPU; on the host it cannot be, nor where its group's bytes do not fit."""
    case = made(TOWERS, places={"net/right": "gpu:1"})
    asked = case.explain("net/right").op
    host, other = asked.moves
    assert (host.device, host.same_order_ticks, host.listed_ticks) == ("cpu:0", None, None)
    assert "can run on an accelerator" in host.forbidden
    device = case.plan.schedule.device.copy()
    device[case.plan.names.index("net/right")] = 1
    assert other.same_order_ticks == simulate(case.problem, device, case.plan.rank).schedule.makespan == 16 * MS
    assert other.listed_ticks <= other.same_order_ticks
    assert (asked.cause, asked.after, asked.slack, asked.followers) == ("transfer", "x", 0, ("net/big",))
    assert asked.readers == 1


def test_what_forbids_a_device_is_kind_or_group_and_what_lacks_is_said(made) -> None:
    """An op for the host alone; one that a member of its group keeps there; and bytes that another device lacks."""
    ops = [
        {"name": "host", "kinds": ("cpu",)},
        {"name": "tied", "group": "g"},
        {"name": "anchor", "group": "g", "kinds": ("cpu",)},
        {"name": "heavy", "param": 900},
        {"name": "heavier", "param": 900},
    ]
    case = made(ops, places={"host": "cpu:0", "tied": "cpu:0", "anchor": "cpu:0", "heavier": "gpu:1"}, memory=1000)
    assert "no kernel for a gpu" in case.explain("host").op.moves[0].forbidden
    assert "anchor" in case.explain("tied").op.moves[0].forbidden
    assert case.explain("tied").op.group == ("tied", "anchor")
    to_the_other = case.explain("heavy").op.moves[1]
    assert (to_the_other.device, to_the_other.forbidden, to_the_other.short_bytes) == ("gpu:1", "", 800)


def test_variables_that_a_device_cannot_hold_forbid_it(made) -> None:
    """900 bytes of variables and a GPU of 500."""
    case = made([{"name": "heavy", "param": 900}, {"name": "light"}], memory=1000, small="gpu:1")
    assert case.explain("heavy").op.moves[1].forbidden == "memory: variables of 900 B are more than its 500 B"
    assert not case.explain("light").op.moves[1].forbidden


def test_an_unknown_op_is_refused_with_the_nearest_names(made) -> None:
    """A misspelt name finds the right one, a part of a name those that hold it."""
    case = made(TOWERS)
    with pytest.raises(UsageError, match="near it are net/right"):
        case.explain("net/rihgt")
    with pytest.raises(UsageError, match="net/left, net/right, net/big"):
        case.explain("net/")
    with pytest.raises(UsageError, match="pesto costs"):
        case.explain("?" * 300)


def test_the_object_of_an_explanation_sums_to_the_step(made) -> None:
    """Kinds in seconds are ticks with nine digits, so that their sum, to the tick, is the step."""
    case = made(TOWERS, places={"net/right": "gpu:1"})
    said = explanation_object(case.explain("x"))
    assert set(said["path"]) == {"compute_s", "transfer_s", "link_wait_s", "begin_s"}
    assert sum(round(value * 1e9) for value in said["path"].values()) == round(said["step_s"] * 1e9)
    assert set(said["blockers"][0]) >= {"op", "seconds", "idle_s", "split_saves_s"}
    assert [row["what"] for row in said["helps"]] == ["scope", "links", "devices", "memory"]
    assert said["op"]["waited_for"]["cause"] == "begin"


def test_names_that_are_markup_or_move_a_cursor_are_text_everywhere(made) -> None:
    """No tag, no control character and no direction mark of a name reaches a terminal or a notebook as itself."""
    ops = [{"name": name, "inputs": list(HOSTILE[:k]), "s": 1e-3} for k, name in enumerate(HOSTILE)]
    case = made(ops)
    for name in HOSTILE:
        found = case.explain(name)
        page = found._repr_html_() + case.plan.timeline()._repr_html_()
        assert "<script" not in page
        assert "<img" not in page
        for text in (*(sentence for _, sentence in sentences(found)), repr(found), page):
            assert visible(text) == text
            assert "\n" not in text
            assert len(text) < 20_000


def test_scopes_are_the_outermost_and_the_large_ones_taken_apart() -> None:
    """Gradients count with what they are gradients of; a scope of more than a quarter of the time is split."""
    names = ("a/x", "gradients/a/x_grad/mul", "b/one/p", "b/two/p", "gradients/AddN", "top")
    scope, labels = name_scopes(names, np.array([20, 20, 30, 25, 4, 1]))
    told = [labels[k] for k in scope.tolist()]
    assert told[2:] == ["b/one", "b/two", "gradients", NO_SCOPE]
    assert told[0] in {"a", "a/x_grad"}
    many = tuple(f"s{k}/op" for k in range(100))
    scope, labels = name_scopes(many, np.arange(100))
    assert len(labels) == MOST + 1
    assert labels[0] == "s99"
    assert name_scopes((), np.empty(0, dtype=np.int64))[1] == ()


def test_a_step_without_time_has_an_explanation(made) -> None:
    """No ops that take time: nothing is divided by the step."""
    case = made([{"name": "a", "s": 0.0}, {"name": "b", "inputs": ["a"], "s": 0.0}])
    found = case.explain("b")
    assert found.step_ticks == 0
    assert list(sentences(found))
    assert explanation_object(found)["path"]["compute_s"] == 0
    assert found._repr_html_()
    step = ExplainedStep.of(case.plan, case.graph, case.cluster, case.price)
    assert split_saves(step, [0, 1]) == 0
